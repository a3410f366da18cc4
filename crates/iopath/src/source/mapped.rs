//! A file with a block mapping of the program as a source, over the source with its blocks. `iopath_os::Mapped` maps
//! requests.

use super::ranges::push;
use super::{DeviceSetup, OpenedDevice, Source, SourceError, open_device, open_local_device};
use crate::error::OpenError;
use iopath_core::mapper::{Boundary, FileRange, Location};
use iopath_core::{Limits, SECTOR_BYTES, SECTOR_SHIFT};
use iopath_os::target::Target;
use iopath_os::{Faults, FileMap, Mapped, RealDevice};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// A mapped file.
#[derive(Debug)]
pub(crate) struct MappedSource {
    /// The source with the blocks.
    below: Arc<dyn Source>,
    /// Injected on the device with the blocks.
    faults: Option<Faults>,
    file: FileMap,
    boundary: Boundary,
    /// The device with the blocks, for a resize.
    setup: DeviceSetup,
    /// That of the source with the blocks.
    target: Arc<Target>,
}

impl MappedSource {
    /// Refuses a map that does not fit the device with the blocks, before an engine is opened.
    pub(crate) fn new(
        below: Arc<dyn Source>,
        faults: Option<Faults>,
        file: &FileMap,
        boundary: Boundary,
        setup: DeviceSetup,
    ) -> Result<Self, OpenError> {
        file.limits_on(&setup.limits)?;
        let target = below.target();
        Ok(Self { below, faults, file: file.clone(), boundary, setup, target })
    }

    /// The setup of the device with the blocks.
    fn setup_below(&self, setup: &DeviceSetup) -> DeviceSetup {
        let limits = Limits { capacity: self.setup.limits.capacity, ..setup.limits.clone() };
        DeviceSetup { limits, ..setup.clone() }
    }

    fn open_below(
        &self,
        setup: &DeviceSetup,
    ) -> Result<OpenedDevice<Mapped<Box<dyn RealDevice + Send>>>, OpenError> {
        let OpenedDevice { device, engine, fallback } =
            open_device(&*self.below, self.faults.as_ref(), &self.setup_below(setup))?;
        let device = Box::new(Mapped::new(device, &self.file, self.boundary)?);
        Ok(OpenedDevice { device, engine, fallback })
    }
}

impl Source for MappedSource {
    /// Those of the device with the blocks, since the mapped device derives its own from them, and the capacity of the
    /// file.
    fn limits(&self) -> Limits {
        let limits = self.setup.limits.clone();
        let block = u64::from(limits.logical_block_bytes);
        let bytes = self.size_bytes().checked_next_multiple_of(block).unwrap_or(u64::MAX);
        Limits { capacity: bytes / SECTOR_BYTES, ..limits }
    }

    fn open(&self, setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice + Send>, OpenError> {
        let OpenedDevice { device, engine, fallback } = self.open_below(setup)?;
        Ok(OpenedDevice { device, engine, fallback })
    }

    fn open_local(&self, setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice>, OpenError> {
        let OpenedDevice { device, engine, fallback } =
            open_local_device(&*self.below, self.faults.as_ref(), &self.setup_below(setup))?;
        let device = Box::new(Mapped::new(device, &self.file, self.boundary)?);
        Ok(OpenedDevice { device, engine, fallback })
    }

    fn name(&self) -> PathBuf {
        self.below.name()
    }

    fn size_bytes(&self) -> u64 {
        self.file.size_bytes()
    }

    fn can_resize(&self) -> bool {
        !self.file.is_fixed()
    }

    fn resize(&self, size_bytes: u64) -> Result<(), SourceError> {
        let mut opened = self.open_below(&self.setup).map_err(io::Error::other)?;
        Ok(opened.device.resize(size_bytes)?)
    }

    /// A write to a mapped file delays the write-back of all blocks it touches until it is complete. A flush would wait
    /// for that write-back, so whole blocks exclude each other.
    fn write_unit_bytes(&self) -> u64 {
        u64::from(self.file.block_bytes())
    }

    /// A lookup for each run, so that other threads get the mapping in between.
    fn data_ranges(&self, range: Range<u64>, ranges_max: usize) -> Result<Vec<Range<u64>>, SourceError> {
        let sector = 1 << SECTOR_SHIFT;
        let (mut at, end) = (range.start / sector * sector, range.end.next_multiple_of(sector));
        let mut found = Vec::new();
        // A run after the last range may be adjacent and extend it.
        while at < end && found.len() <= ranges_max {
            let Ok(run) = self.file.with_mapper(|mapper| mapper.map(FileRange::between(at, end))) else {
                // The metadata is not in memory.
                push(&mut found, at, end, &range);
                break;
            };
            if matches!(run.location, Location::Written(_)) {
                push(&mut found, run.file.start(), run.file.end(), &range);
            }
            at = run.file.end();
        }
        Ok(found)
    }

    fn files(&self) -> Vec<Arc<File>> {
        self.below.files()
    }

    fn target(&self) -> Arc<Target> {
        let mut target = Arc::clone(&self.target);
        Arc::make_mut(&mut target).size_bytes = self.size_bytes();
        target
    }

    fn device_depth(&self) -> u32 {
        self.below.device_depth()
    }

    fn failure(&self) -> Option<String> {
        self.below.failure()
    }
}
