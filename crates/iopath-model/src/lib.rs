//! Modelled storage: block devices that complete each request at the time at which the modelled hardware would. The
//! crate also has the virtual clock, and the event loop that advances it ([`event_loop`]). It makes no system calls,
//! and a modelled device holds no data.
//!
//! A [`Model`] holds the checked parameters of a TOML file. [`ModelDevice`] runs such a model as a
//! [`BlockDevice`](iopath_core::BlockDevice). Its `poll_timeout` returns the time of its next event, so a loop in
//! virtual time can jump there and misses no event. A model may contain another one: a stripe, a mapped file, a remote
//! target, a delay, a throttle, faults. [`Staged`] puts a [`Link`], a [`Host`], a [`Delay`] or a [`Throttle`] in front
//! of any device. With the same seed, the same requests at the same times complete at the same nanosecond on every
//! machine. For this, times are integers, and the models use no function of a mathematics library.
//!
//! ```
//! use iopath_core::{Bio, Extent, Instant, LengthOnly, QueueConfig, QueuedDevice, Sector};
//! use iopath_model::{Model, ModelDevice};
//!
//! let model = Model::preset("cloud")?;
//! let device = ModelDevice::<LengthOnly>::new(&model, 1);
//! let (mut disk, mut now) = (QueuedDevice::new(device, &QueueConfig::default()), Instant::ZERO);
//! let extent = Extent::new(Sector(0), 8).expect("within the address space");
//! disk.submit_bio(Bio::read(extent, LengthOnly::new(4096), 7), now)?;
//! disk.unplug(now);
//! while disk.queue().bios_in() > 0 {
//!     disk.dispatch(now);
//!     disk.commit(now);
//!     now = disk.poll_timeout().expect("a request is in flight");
//!     disk.collect(now);
//!     while disk.poll_completion().is_some() {}
//! }
//! assert!(now > Instant::from_nanos(100_000), "a virtual disk answers after its latency");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bucket;
mod clock;
mod cloud;
mod delay;
mod device;
mod disk;
mod divisor;
mod document;
mod error;
pub mod event_loop;
mod flash;
mod host;
mod layer;
mod layered;
mod link;
mod mechanism;
mod model;
mod parameter;
mod remote_target;
mod schedule;
mod stage;
mod submitter;

pub use clock::{EndOfTime, VirtualClock};
pub use delay::{Delay, Throttle};
pub use device::ModelDevice;
pub use error::ModelError;
pub use host::{Host, HostModel, LockOrder, Threads, Work};
pub use link::{Link, LinkModel};
pub use model::{Kind, Model, Preset};
pub use parameter::{Choice, Parameter, Setting, Unit};
pub use stage::{Passage, Stage, Staged};
pub use submitter::Submitter;
