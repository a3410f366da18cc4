//! The memory of a guest: regions of its address space, each a mapping of a file that the front end passed. Translates
//! addresses and checks them; the bytes are accessed by `iopath::buffers::SharedMemory`.

use std::sync::Arc;

use iopath::buffers::SharedMemory;

use crate::fault::Fault;

/// The regions of a guest's memory, sorted by guest address.
#[derive(Debug, Clone, Default)]
pub struct GuestMemory {
    regions: Vec<Region>,
}

/// A part of a guest's address space.
#[derive(Debug, Clone)]
pub struct Region {
    /// The first address in the guest.
    pub guest: u64,
    /// The first address in the front end, which states the places of rings by its own addresses.
    pub user: u64,
    /// The bytes.
    pub memory: Arc<SharedMemory>,
}

/// Bytes in one region.
#[derive(Debug, Clone)]
pub struct Area {
    /// The region.
    pub memory: Arc<SharedMemory>,
    /// The position of the first byte in it.
    pub at: u64,
}

impl Region {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }
}

impl GuestMemory {
    /// A memory of these regions.
    ///
    /// # Errors
    /// Regions that overlap, or reach past the end of all addresses.
    pub fn new(mut regions: Vec<Region>) -> Result<Self, Fault> {
        regions.sort_by_key(|region| region.guest);
        for region in &regions {
            let (guest, user, bytes) = (region.guest, region.user, region.bytes());
            if guest.checked_add(bytes).is_none() || user.checked_add(bytes).is_none() {
                return Err(Fault::Outside { address: guest, bytes });
            }
        }
        for pair in regions.windows(2) {
            if pair[0].guest + pair[0].bytes() > pair[1].guest {
                return Err(Fault::Regions { address: pair[1].guest });
            }
        }
        Ok(Self { regions })
    }

    /// The regions.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Whether the front end has truncated a file of the memory.
    pub fn has_faulted(&self) -> bool {
        self.regions.iter().any(|region| region.memory.has_faulted())
    }

    /// `bytes` bytes at a guest address, which lie in one region.
    ///
    /// # Errors
    /// They do not.
    pub fn find(&self, address: u64, bytes: u64) -> Result<Area, Fault> {
        let (region, at) = self.region_at(address).ok_or(Fault::Outside { address, bytes })?;
        if bytes > region.bytes() - at {
            return Err(Fault::Outside { address, bytes });
        }
        Ok(Area { memory: Arc::clone(&region.memory), at })
    }

    /// `bytes` bytes at an address of the front end, which lie in one region.
    ///
    /// # Errors
    /// They do not.
    pub fn find_user(&self, address: u64, bytes: u64) -> Result<Area, Fault> {
        let inside = |region: &&Region| {
            address
                .checked_sub(region.user)
                .is_some_and(|at| at < region.bytes() && bytes <= region.bytes() - at)
        };
        let region = self.regions.iter().find(inside).ok_or(Fault::Outside { address, bytes })?;
        Ok(Area { memory: Arc::clone(&region.memory), at: address - region.user })
    }

    /// Calls `each` for the parts of `bytes` bytes at a guest address: one for each region that they lie in. Its
    /// arguments are the region, the position in it, and the number of bytes.
    ///
    /// # Errors
    /// A part lies in no region; `each` has been called for the parts before it. Or the error of `each`.
    pub fn for_parts<'a>(
        &'a self,
        address: u64,
        bytes: u64,
        mut each: impl FnMut(&'a Arc<SharedMemory>, u64, u64),
    ) -> Result<(), Fault> {
        let outside = Fault::Outside { address, bytes };
        let (mut next, mut left) = (address, bytes);
        while left > 0 {
            let (region, at) = self.region_at(next).ok_or(outside)?;
            let part = left.min(region.bytes() - at);
            each(&region.memory, at, part);
            left -= part;
            // No region reaches past the last address.
            next = next.wrapping_add(part);
        }
        Ok(())
    }

    /// Copies the bytes at a guest address.
    ///
    /// # Errors
    /// They lie outside of the memory, or the front end has truncated it.
    pub fn read(&self, address: u64, target: &mut [u8]) -> Result<(), Fault> {
        let (mut done, mut is_intact) = (0, true);
        self.for_parts(address, target.len() as u64, |memory, at, bytes| {
            let part = &mut target[done..done + bytes as usize];
            done += part.len();
            is_intact &= memory.read(at, part).is_some();
        })?;
        is_intact.then_some(()).ok_or(Fault::Truncated)
    }

    /// Copies to the bytes at a guest address.
    ///
    /// # Errors
    /// They lie outside of the memory, or the front end has truncated it.
    pub fn write(&self, address: u64, source: &[u8]) -> Result<(), Fault> {
        let (mut done, mut is_intact) = (0, true);
        self.for_parts(address, source.len() as u64, |memory, at, bytes| {
            let part = &source[done..done + bytes as usize];
            done += part.len();
            is_intact &= memory.write(at, part).is_some();
        })?;
        is_intact.then_some(()).ok_or(Fault::Truncated)
    }

    /// The region of a guest address, and the position in it.
    fn region_at(&self, address: u64) -> Option<(&Region, u64)> {
        let after = self.regions.partition_point(|region| region.guest <= address);
        let region = &self.regions[after.checked_sub(1)?];
        let at = address - region.guest;
        (at < region.bytes()).then_some((region, at))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::fs::File;

    pub(crate) fn region(guest: u64, bytes: u64) -> Region {
        region_and_file(guest, bytes).0
    }

    pub(crate) fn region_and_file(guest: u64, bytes: u64) -> (Region, File) {
        let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(bytes).unwrap();
        let memory = Arc::new(SharedMemory::map(&file, 0, bytes).unwrap());
        (Region { guest, user: guest.wrapping_add(0x7000_0000_0000), memory }, file)
    }

    #[test]
    fn an_address_is_found_in_its_region_only() {
        let memory = GuestMemory::new(vec![region(0x10_0000, 0x2000), region(0, 0x1000)]).unwrap();
        assert_eq!(memory.find(0, 0x1000).unwrap().at, 0);
        assert_eq!(memory.find(0x10_1fff, 1).unwrap().at, 0x1fff);
        for (address, bytes) in [(0, 0x1001), (0x1000, 1), (0x10_2000, 1), (u64::MAX, 2), (0xf_ffff, 2)] {
            assert!(matches!(memory.find(address, bytes), Err(Fault::Outside { .. })), "{address:#x}");
            assert!(memory.write(address, &vec![0; bytes as usize]).is_err(), "{address:#x}");
        }
        assert_eq!(memory.find_user(0x7000_0010_0010, 16).unwrap().at, 0x10);
        assert!(memory.find_user(0x10, 16).is_err(), "an address of the guest, not of the front end");
    }

    #[test]
    fn bytes_across_adjacent_regions_are_parts() {
        let memory = GuestMemory::new(vec![region(0, 0x1000), region(0x1000, 0x1000)]).unwrap();
        memory.write(0xffe, b"abcd").unwrap();
        let mut bytes = [0; 4];
        memory.read(0xffe, &mut bytes).unwrap();
        assert_eq!(&bytes, b"abcd");
        let mut parts = Vec::new();
        memory.for_parts(0xffe, 4, |_, at, bytes| parts.push((at, bytes))).unwrap();
        assert_eq!(parts, [(0xffe, 2), (0, 2)]);
        assert!(memory.find(0xffe, 4).is_err());
    }

    #[test]
    fn regions_that_overlap_are_refused() {
        let overlap = GuestMemory::new(vec![region(0, 0x2000), region(0x1000, 0x1000)]);
        assert!(matches!(overlap, Err(Fault::Regions { address: 0x1000 })));
        assert!(GuestMemory::new(vec![region(u64::MAX - 0xfff, 0x1000)]).is_err());
    }
}
