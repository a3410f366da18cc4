//! Which device carries out the I/O on a file: `io_uring`, or threads where it is refused or would not help. Why it was
//! refused and what helps: `engine/fallback.rs`.

mod fallback;

use std::fs::File;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

use iopath_core::Limits;

use crate::device::{
    AnyThread, OneThread, RealDevice, Refused, Stage, Threads, ThreadsConfig, Uring, UringConfig,
};
use crate::pool::BufferPool;
pub use fallback::{Fallback, Reason};

/// Which device to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// `io_uring` where it is to be had and the target suits it, else threads.
    #[default]
    Auto,
    /// `io_uring` or nothing.
    Uring,
    /// Threads.
    Threads,
}

impl Engine {
    /// The names that [`Engine::from_str`] knows, and what each is.
    pub const KNOWN: &[(&str, Self)] =
        &[("auto", Self::Auto), ("uring", Self::Uring), ("threads", Self::Threads)];

    /// The name of it.
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
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no engine is called {name:?}; choose one of: {}", Engine::KNOWN.iter().map(|known| known.0).collect::<Vec<_>>().join(", "))]
pub struct UnknownEngine {
    /// The name asked for.
    pub name: String,
}

/// How much a device is to take.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Requests in flight at once.
    pub depth: u32,
    /// Threads, where threads are used.
    pub threads_max: u32,
    /// Buffers that `io_uring` is to know beforehand.
    pub pool: Option<BufferPool>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { depth: 64, threads_max: 32, pool: None }
    }
}

/// A device that was opened.
#[derive(Debug)]
pub struct Opened<D> {
    /// The device.
    pub device: D,
    /// What it is: never [`Engine::Auto`].
    pub engine: Engine,
    /// Why it is not what was asked for or what is best; to be shown to whoever runs the program.
    pub fallback: Option<Fallback>,
}

/// No device could be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// `io_uring` was asked for by name and is refused.
    #[error("{0}; or use the engine \"threads\" or \"auto\"")]
    Refused(Fallback),
    /// Not even one thread could be started.
    #[error("no thread can be started for I/O ({0}); raise the limit of processes (ulimit -u) or end some")]
    NoThread(#[source] io::Error),
}

impl Engine {
    /// A device that the calling thread uses alone: the fastest kind.
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

    /// A device that several threads may use in turn.
    pub fn open_shared(
        self,
        file: &Arc<File>,
        limits: &Limits,
        config: &EngineConfig,
    ) -> Result<Opened<Box<dyn RealDevice + Send>>, OpenError> {
        let uring = |ring: &UringConfig| -> Result<Box<dyn RealDevice + Send>, Refused> {
            Ok(Box::new(Uring::<AnyThread>::try_new(Arc::clone(file), limits, ring)?))
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
            return threads(Some(Fallback { engine: Self::Threads, reason: Reason::NoNowait }));
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
    fn an_unknown_engine_is_told_the_known_ones() {
        for (name, engine) in Engine::KNOWN {
            assert_eq!(name.parse(), Ok(*engine));
            assert_eq!(engine.name(), *name);
        }
        let error = "libaio".parse::<Engine>().unwrap_err().to_string();
        assert_eq!(error, "no engine is called \"libaio\"; choose one of: auto, uring, threads");
    }
}
