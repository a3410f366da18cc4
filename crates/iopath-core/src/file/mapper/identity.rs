//! The mapping of a file to the same offsets of its device: for raw devices, and for files that the kernel maps. It has
//! no holes and cannot change.

use super::{FileLayout, FileRange, Location, MapError, Mapper, Mapping, Metadata, Space, check_block};
use crate::sector::{Extent, SECTOR_BYTES};

pub(super) const NAME: &str = "identity";

/// Each byte of the file lies at the same offset on the device. All bytes are written.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    block_bytes: u32,
    size_bytes: u64,
}

impl Identity {
    /// The first bytes of a device as a file.
    ///
    /// # Errors
    /// [`MapError::BlockSize`]; [`MapError::TooFar`] if the device is smaller.
    pub fn new(layout: &FileLayout) -> Result<Self, MapError> {
        check_block(NAME, layout.block_bytes)?;
        let max = layout.capacity_sectors() * SECTOR_BYTES / u64::from(layout.block_bytes)
            * u64::from(layout.block_bytes);
        if layout.size_bytes > max {
            return Err(MapError::TooFar { offset: layout.size_bytes, max });
        }
        Ok(Self { block_bytes: layout.block_bytes, size_bytes: layout.size_bytes })
    }
}

impl Mapper for Identity {
    fn name(&self) -> &'static str {
        NAME
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn map(&self, range: FileRange) -> Result<Mapping, Metadata> {
        // Space past the end cannot belong to the file: its allocation is refused.
        let end = self.size_bytes.next_multiple_of(self.block_bytes.into());
        let inside = range.up_to(end);
        let (file, location) = match Extent::from_bytes(inside.start(), inside.bytes()) {
            Some(extent) if !extent.is_empty() => (inside, Location::Written(extent)),
            _ => (range, Location::Hole),
        };
        Ok(Mapping { file, location, boundary: false })
    }

    fn handle_metadata(&mut self, _place: Extent, _bytes: &[u8]) -> Result<(), MapError> {
        Ok(())
    }

    fn allocate(&mut self, _range: FileRange, _space: &mut dyn Space) -> Result<(), MapError> {
        Err(MapError::Fixed(NAME))
    }

    fn commit(&mut self, _range: FileRange) -> Result<(), MapError> {
        Ok(())
    }

    fn unmap(&mut self, _range: FileRange, _space: &mut dyn Space) -> Result<(), MapError> {
        Err(MapError::Fixed(NAME))
    }

    fn set_size(&mut self, bytes: u64) -> Result<(), MapError> {
        if bytes == self.size_bytes { Ok(()) } else { Err(MapError::Fixed(NAME)) }
    }

    fn is_fixed(&self) -> bool {
        true
    }
}
