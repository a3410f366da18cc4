//! The threads that may use a batch, and with it the devices of its queue: any thread, one at a time, or only the
//! thread that created it.

use super::Storage;
use crate::error::OpenError;
use crate::queues::{Devices, Opened, Queue, Shape};
use iopath_os::{BufferPool, IoBuf, RealDevice};
use std::fmt;

/// A batch that may move between threads: it is `Send`.
#[derive(Debug)]
pub struct AnyThread(());

/// A batch that stays on the thread that created it. With `io_uring`, completions do not interrupt the thread, at a
/// lower CPU cost.
#[derive(Debug)]
pub struct OneThread(());

pub(crate) mod sealed {
    use super::{AnyThread, BufferPool, Devices, OneThread, OpenError, Opened, RealDevice, fmt};

    /// Opens the devices of a batch.
    pub trait Open: fmt::Debug + Sized {
        type Device: ?Sized + RealDevice;

        #[expect(private_interfaces, reason = "for this crate alone")]
        fn open(
            devices: &dyn Devices,
            pool: Option<BufferPool>,
        ) -> Result<Opened<Box<Self::Device>>, OpenError>;
    }

    impl Open for AnyThread {
        type Device = dyn RealDevice + Send;

        #[expect(private_interfaces, reason = "for this crate alone")]
        fn open(
            devices: &dyn Devices,
            pool: Option<BufferPool>,
        ) -> Result<Opened<Box<Self::Device>>, OpenError> {
            devices.open_shared(devices.depth(), pool)
        }
    }

    impl Open for OneThread {
        type Device = dyn RealDevice;

        #[expect(private_interfaces, reason = "for this crate alone")]
        fn open(
            devices: &dyn Devices,
            pool: Option<BufferPool>,
        ) -> Result<Opened<Box<Self::Device>>, OpenError> {
            devices.open_local(pool)
        }
    }
}

impl Storage {
    /// The queue of one batch, with up to `jobs_max` I/Os in flight, for the threads of `K`.
    pub(crate) fn batch_queue<K: sealed::Open, B: IoBuf>(
        &self,
        jobs_max: u32,
        plug: u32,
        pool: Option<BufferPool>,
    ) -> Result<Opened<Queue<K::Device, B>>, OpenError> {
        Queue::open(self, Shape { jobs_max, plug, pool, open: K::open })
    }
}
