//! The choice of the device for the I/O on a file: `io_uring`, or threads where `io_uring` is refused or slower. The
//! reasons of a refusal and their remedies are in `engine/fallback.rs`, the comparison of both in `engine/probe.rs`.

mod fallback;
mod probe;

use std::fmt;
use std::fs::File;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

use iopath_core::Limits;

use crate::device::{
    AnyThread, OneThread, RealDevice, Refused, RingPool, Stage, Threads, ThreadsConfig, Uring, UringConfig,
};
use crate::pool::BufferPool;
pub use fallback::{Fallback, Reason};
pub use probe::{Comparison, Rate};

/// The device to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Engine {
    /// `io_uring` if the system allows it; otherwise threads. Also threads if they are faster on the target.
    #[default]
    Auto,
    /// `io_uring`, or an error.
    Uring,
    /// Threads.
    Threads,
}

impl Engine {
    /// The names that [`Engine::from_str`] accepts.
    pub const KNOWN: &[(&str, Self)] =
        &[("auto", Self::Auto), ("uring", Self::Uring), ("threads", Self::Threads)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::KNOWN.iter().find(|(_, engine)| *engine == self).map_or("", |(name, _)| name)
    }
}

impl FromStr for Engine {
    type Err = UnknownEngine;

    fn from_str(name: &str) -> Result<Self, UnknownEngine> {
        let known = Self::KNOWN.iter().find(|(known, _)| *known == name);
        known.map(|(_, engine)| *engine).ok_or_else(|| UnknownEngine { name: name.to_owned() })
    }
}

/// There is no engine of that name.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("no engine is called {name:?}; choose one of: {}", Engine::KNOWN.iter().map(|known| known.0).collect::<Vec<_>>().join(", "))]
#[non_exhaustive]
pub struct UnknownEngine {
    /// The requested name.
    pub name: String,
}

impl fmt::Debug for UnknownEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        iopath_core::debug::error("UnknownEngine", self, f)
    }
}

/// The limits of a device.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Requests in flight.
    pub depth: u32,
    /// Threads, for the threads engine.
    pub threads_max: u32,
    /// Buffers to register with `io_uring`.
    pub pool: Option<BufferPool>,
    /// Rings that earlier devices left, for devices that may move between threads.
    pub rings: Option<RingPool>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { depth: 64, threads_max: 32, pool: None, rings: None }
    }
}

/// An open device.
#[derive(Debug)]
pub struct Opened<D> {
    /// The device.
    pub device: D,
    /// The engine in use: never [`Engine::Auto`].
    pub engine: Engine,
    /// The reason why it differs from the requested or the best engine, for the user of the program.
    pub fallback: Option<Fallback>,
}

/// The reason why no device could be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// `io_uring` was requested by name and is refused.
    #[error("{0}; or use the engine threads or auto")]
    Refused(Fallback),
    /// The system starts no thread.
    #[error(
        "cannot start a thread for I/O: {0}; raise the limit of processes and threads (ulimit -u), or end some"
    )]
    NoThread(#[source] io::Error),
}

impl Engine {
    /// The limits that the devices of every engine keep.
    pub fn limits(limits: &Limits, config: &EngineConfig) -> Limits {
        UringConfig::limits(ThreadsConfig::limits(config.depth, limits).depth_max, limits)
    }

    /// A device for the calling thread only, which is the fastest kind.
    ///
    /// # Errors
    /// [`OpenError`]: `io_uring` was requested and is refused, or no thread starts.
    pub fn open(
        self,
        file: &Arc<File>,
        limits: &Limits,
        config: &EngineConfig,
    ) -> Result<Opened<Box<dyn RealDevice>>, OpenError> {
        let uring = |ring: &UringConfig| -> Result<Box<dyn RealDevice>, Refused> {
            Ok(Box::new(Uring::<OneThread>::try_new(Arc::clone(file), limits, ring)?))
        };
        self.choose(file, limits, config, uring, |threads| Box::new(threads))
    }

    /// A device that may move between threads.
    ///
    /// # Errors
    /// Returns the errors of [`Engine::open`].
    pub fn open_shared(
        self,
        file: &Arc<File>,
        limits: &Limits,
        config: &EngineConfig,
    ) -> Result<Opened<Box<dyn RealDevice + Send>>, OpenError> {
        let uring = |ring: &UringConfig| -> Result<Box<dyn RealDevice + Send>, Refused> {
            Ok(Box::new(Uring::<AnyThread>::try_new(Arc::clone(file), limits, ring, config.rings.as_ref())?))
        };
        self.choose(file, limits, config, uring, |threads| Box::new(threads))
    }

    fn choose<D>(
        self,
        file: &Arc<File>,
        limits: &Limits,
        config: &EngineConfig,
        uring: impl Fn(&UringConfig) -> Result<D, Refused>,
        boxed: impl Fn(Threads) -> D,
    ) -> Result<Opened<D>, OpenError> {
        let threads = |fallback| {
            let threads = ThreadsConfig { depth: config.depth, threads_max: config.threads_max };
            let device = Threads::new(Arc::clone(file), limits, &threads).map_err(OpenError::NoThread)?;
            Ok(Opened { device: boxed(device), engine: Self::Threads, fallback })
        };
        if self == Self::Threads {
            return threads(None);
        }
        if self == Self::Auto && fallback::refuses_nowait(file, limits) {
            let reason = match probe::compare(file, limits, config.depth) {
                None => Some(Reason::NoNowait),
                Some(measured) => measured.prefers_threads().then_some(Reason::Slower(measured)),
            };
            if let Some(reason) = reason {
                return threads(Some(Fallback { engine: Self::Threads, reason }));
            }
        }
        let ring = UringConfig { depth: config.depth, pool: config.pool.clone() };
        let opened = |device, fallback| Ok(Opened { device, engine: Self::Uring, fallback });
        let refused = match uring(&ring) {
            Ok(device) => return opened(device, None),
            Err(refused) if refused.stage == Stage::Buffers => {
                match uring(&UringConfig { pool: None, ..ring }) {
                    Ok(device) => return opened(device, Some(Fallback::of(Self::Uring, &refused))),
                    Err(refused) => refused,
                }
            }
            Err(refused) => refused,
        };
        let fallback = Fallback::of(Self::Threads, &refused);
        if self == Self::Uring { Err(OpenError::Refused(fallback)) } else { threads(Some(fallback)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_an_unknown_engine_lists_the_known_ones() {
        for (name, engine) in Engine::KNOWN {
            assert_eq!(name.parse(), Ok(*engine));
            assert_eq!(engine.name(), *name);
        }
        let error = "libaio".parse::<Engine>().unwrap_err().to_string();
        assert_eq!(error, "no engine is called \"libaio\"; choose one of: auto, uring, threads");
    }
}
