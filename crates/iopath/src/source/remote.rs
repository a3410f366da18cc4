//! An export of a server as a source. The server checks for other users of the data, if it can. The protocol is behind
//! `iopath_os::Remote`.

use super::limits::whole_blocks;
use super::{DeviceSetup, OpenedDevice, Source};
use crate::error::OpenError;
use crate::options::Options;
use iopath_core::Limits;
use iopath_os::target::Target;
use iopath_os::{REQUEST_BYTES, RealDevice, Remote};
use std::path::PathBuf;
use std::sync::Arc;

/// The engine of a remote export.
const REMOTE: &str = "remote";

/// An export of a server.
#[derive(Debug)]
pub(crate) struct RemoteSource {
    remote: Remote,
    limits: Limits,
}

impl RemoteSource {
    pub(crate) fn new(remote: &Remote, options: &Options) -> Result<Self, OpenError> {
        let facts = remote.facts();
        if facts.is_read_only && options.write {
            return Err(OpenError::ReadOnlyExport { server: remote.name().to_owned() });
        }
        let mut limits = facts.limits.clone();
        let request_bytes_max = options.request_bytes_max.unwrap_or(REQUEST_BYTES);
        limits.request_bytes_max = whole_blocks(request_bytes_max.min(limits.request_bytes_max), &limits);
        Ok(Self { remote: remote.clone(), limits })
    }
}

impl Source for RemoteSource {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn open(&self, setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice + Send>, OpenError> {
        Ok(OpenedDevice::of(Box::new(self.remote.device(&setup.limits, setup.depth)), REMOTE))
    }

    fn name(&self) -> PathBuf {
        PathBuf::from(self.remote.name())
    }

    fn size_bytes(&self) -> u64 {
        self.remote.facts().size_bytes
    }

    fn failure(&self) -> Option<String> {
        Some(format!("{}: {}", self.remote.name(), self.remote.failure()?))
    }

    fn target(&self) -> Arc<Target> {
        Arc::new(Target::of_remote(self.remote.name(), self.size_bytes()))
    }
}
