//! The threads that may use a batch: any in turn, or one. The type decides, so that a batch that may move is `Send`.

use super::{Backing, On, Opened, Source};
use crate::error::OpenError;
use crate::tuning::Tuned;
use iopath_os::{BufferPool, Faulty, Mapped, RealDevice};
use std::fmt;

/// The threads that may use a batch. Sealed: [`AnyThread`] and [`OneThread`].
pub trait Threading: sealed::Open {}

/// A batch that threads may use in turn: it is `Send`.
#[derive(Debug)]
pub struct AnyThread(());

/// A batch that stays on the thread that made it. With `io_uring` its completions interrupt nothing, which costs less CPU.
#[derive(Debug)]
pub struct OneThread(());

impl Threading for AnyThread {}
impl Threading for OneThread {}

pub(crate) mod sealed {
    use super::{AnyThread, Backing, BufferPool, On, OneThread, OpenError, RealDevice, Source, fmt};

    /// Opens the devices of a batch.
    pub trait Open: fmt::Debug + Sized {
        type Device: ?Sized + RealDevice;

        #[expect(private_interfaces, reason = "for this crate alone")]
        fn open(source: &Source, backing: &Backing, pool: BufferPool) -> Result<On<Self::Device>, OpenError>;
    }

    impl Open for AnyThread {
        type Device = dyn RealDevice + Send;

        #[expect(private_interfaces, reason = "for this crate alone")]
        fn open(source: &Source, backing: &Backing, pool: BufferPool) -> Result<On<Self::Device>, OpenError> {
            source.shared_device(backing, Some(pool))
        }
    }

    impl Open for OneThread {
        type Device = dyn RealDevice;

        #[expect(private_interfaces, reason = "for this crate alone")]
        fn open(source: &Source, backing: &Backing, pool: BufferPool) -> Result<On<Self::Device>, OpenError> {
            source.local_device(backing, pool)
        }
    }
}

impl Source {
    /// A queue and engine for one batch, with `bios_max` I/Os in flight; `K` says from which threads.
    pub(crate) fn batch_runner<K: Threading>(
        &self,
        bios_max: u32,
        plug: u32,
        pool: BufferPool,
    ) -> Result<Opened<Tuned<K::Device>>, OpenError> {
        let On { device, engine, fallback } = K::open(self, &self.backing, pool)?;
        let runner = self.tuning.runner(device, &Self::queue(bios_max, self.depth(), plug));
        Ok(Opened { runner, engine, fallback })
    }

    /// A device for one thread.
    fn local_device(&self, backing: &Backing, pool: BufferPool) -> Result<On<dyn RealDevice>, OpenError> {
        let mut on: On<dyn RealDevice> = match backing {
            Backing::File(file) => {
                On::of(self.options.engine.open(file, &self.limits, &self.engine(Some(pool)))?)
            }
            Backing::Stripe(members) => On::of(members.open(self.options.engine, &self.engine(Some(pool)))?),
            Backing::Memory(disk) => On::memory(Box::new(disk.open_with(self.limits.clone()))),
            Backing::Mapped(mapped) => {
                let on = self.local_device(&mapped.below, pool)?;
                let device = Mapped::new(on.device, &mapped.file, self.options.boundary)?;
                return Ok(On { device: Box::new(device), ..on });
            }
        };
        if let Some(faults) = &self.options.faults {
            on.device = Box::new(Faulty::new(on.device, faults));
        }
        Ok(on)
    }
}
