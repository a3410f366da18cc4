//! A driver as a task of a tokio runtime.

use super::driver::{self, Driver};
use super::{AsyncVolume, BatchOptions, Turn, Volume};
use crate::error::OpenError;
use std::io;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::timeout;

impl AsyncVolume {
    /// Futures on a volume, driven by a task of the current tokio runtime: in `#[tokio::main]`, or after
    /// [`Runtime::enter`](tokio::runtime::Runtime::enter). The futures may be awaited in any runtime while this one
    /// runs; when it is shut down, they fail with [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    ///
    /// # Errors
    /// Returns the errors of [`AsyncVolume::new`], and [`OpenError::System`] outside of a runtime.
    ///
    /// # Panics
    /// If the runtime has no I/O or no time driver (`enable_all`).
    pub fn on_tokio(volume: &Volume, options: &BatchOptions) -> Result<Self, OpenError> {
        let refused = |source| driver::refused(volume, "driven by tokio", source);
        let runtime = Handle::try_current().map_err(|error| refused(io::Error::other(error)))?;
        let (volume, driver) = Self::with_driver(volume, options)?;
        let _entered = runtime.enter();
        #[allow(
            deprecated,
            reason = "its replacement is unsafe; the descriptor stays open as long as the driver"
        )]
        let driver = AsyncFd::with_interest(driver, Interest::READABLE).map_err(refused)?;
        runtime.spawn(drive(driver));
        Ok(volume)
    }
}

async fn drive(mut driver: AsyncFd<Driver>) {
    while let Turn::Wait(limit) = driver.get_mut().turn() {
        let ready = match limit {
            None => driver.readable_mut().await,
            Some(Duration::ZERO) => {
                yield_now().await;
                continue;
            }
            Some(limit) => match timeout(limit, driver.readable_mut()).await {
                Ok(ready) => ready,
                Err(_) => continue,
            },
        };
        match ready {
            Ok(mut ready) => ready.clear_ready(),
            // The runtime shuts down.
            Err(_) => return,
        }
    }
}
