//! A direct read of a mapped file: bios for data, zeroes for holes and unwritten space, metadata reads as the mapper
//! needs them. It bypasses every cache: the caller ensures coherency.

use super::gather::Gather;
use super::{Boundary, PlanError, Step, check_direct};
use crate::block::bio::Op;
use crate::block::limits::Limits;
use crate::file::mapper::{FileRange, Location, Mapper, Metadata};

/// The steps of a read, in the order of the file. Each poll maps the next part, so a change of the mapping applies to
/// the parts not yet polled.
#[derive(Debug, Clone)]
pub struct ReadPlan {
    rest: FileRange,
    bytes: u64,
    gather: Gather,
}

impl ReadPlan {
    /// Reads `file`, up to the end of the mapper's file.
    ///
    /// # Errors
    /// [`PlanError`]: the range does not fit the device.
    pub fn new(
        file: FileRange,
        mapper: &dyn Mapper,
        limits: &Limits,
        boundary: Boundary,
    ) -> Result<Self, PlanError> {
        check_direct(file, mapper, limits)?;
        let inside = file.and(FileRange::between(0, mapper.size_bytes()));
        Ok(Self {
            rest: file.and(inside.outward(limits.logical_block_bytes.into())),
            bytes: inside.bytes(),
            gather: Gather::new(Op::Read, boundary, mapper.block_bytes()),
        })
    }

    /// The number of bytes read, which is less than requested at the end of the file. The last step may read further,
    /// to the end of a block of the device. The additional bytes are arbitrary; the caller must not return them.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next step; `None` after the last.
    pub fn poll_step(&mut self, mapper: &dyn Mapper, limits: &Limits) -> Option<Step> {
        loop {
            if let Some(step) = self.gather.poll(limits) {
                return Some(step);
            }
            if self.rest.is_empty() {
                if self.gather.close() {
                    continue;
                }
                return None;
            }
            let mapping = match mapper.map(self.rest) {
                Ok(mapping) => mapping,
                Err(Metadata(extent)) => return Some(Step::Metadata { extent }),
            };
            let Location::Written(extent) = mapping.location else {
                if self.gather.close() {
                    continue;
                }
                self.rest = self.rest.from_offset(mapping.file.end());
                return Some(Step::Zeroes { file: mapping.file });
            };
            if self.gather.push(&mapping, extent) {
                self.rest = self.rest.from_offset(mapping.file.end());
            }
        }
    }
}
