//! A disk in memory as a source, optionally with the times of a modelled device.

use super::limits::whole_blocks;
use super::{DeviceSetup, OpenedDevice, Source, SourceError};
use crate::error::OpenError;
use crate::options::Options;
use iopath_core::{IoError, Limits};
use iopath_os::target::Target;
use iopath_os::{MemoryDisk, REQUEST_BYTES, RealDevice, Tail, Timed, Timing};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The engine of a memory disk.
const MEMORY: &str = "memory";

/// A memory disk. Its alignment is configured, and it needs no check for data of other programs.
#[derive(Debug)]
pub(crate) struct MemorySource {
    disk: MemoryDisk,
    timing: Option<Timing>,
    limits: Limits,
}

impl MemorySource {
    pub(crate) fn new(disk: &MemoryDisk, options: &Options) -> Self {
        let mut limits = disk.limits();
        if let Some(timing) = &options.timing {
            limits = timing.limits_on(&limits);
        }
        let request_bytes_max = options.request_bytes_max.unwrap_or(REQUEST_BYTES);
        let request_bytes_max = match &options.timing {
            Some(_) => request_bytes_max.min(limits.request_bytes_max),
            None => request_bytes_max,
        };
        limits.request_bytes_max = whole_blocks(request_bytes_max, &limits);
        Self { disk: disk.clone(), timing: options.timing.clone(), limits }
    }
}

impl Source for MemorySource {
    fn limits(&self) -> Limits {
        Limits { capacity: self.disk.limits().capacity, ..self.limits.clone() }
    }

    fn open(&self, setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice + Send>, OpenError> {
        let device = self.disk.open_with(setup.limits.clone());
        Ok(match &self.timing {
            None => OpenedDevice::of(Box::new(device), MEMORY),
            Some(timing) => OpenedDevice::of(Box::new(Timed::new(device, timing)), MEMORY),
        })
    }

    fn name(&self) -> PathBuf {
        PathBuf::from(MEMORY)
    }

    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn can_resize(&self) -> bool {
        true
    }

    fn resize(&self, size_bytes: u64) -> Result<(), SourceError> {
        Ok(self.disk.resize(size_bytes).map_err(io::Error::other)?)
    }

    /// As a file.
    fn writes_last_block(&self) -> bool {
        false
    }

    fn tail(&self) -> Result<Option<Box<dyn Tail>>, OpenError> {
        Ok(Some(Box::new(self.disk.tail())))
    }

    /// It has all its space.
    fn allocate(&self, offset: u64, bytes: u64) -> Result<(), SourceError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.disk.size_bytes() => Ok(()),
            _ => Err(IoError::EndOfDevice.into()),
        }
    }

    fn target(&self) -> Arc<Target> {
        Arc::new(Target::of_memory(self.disk.size_bytes()))
    }

    fn shares_engine(&self) -> bool {
        true
    }
}
