//! The mapping of a mapped file, and its state as the owner of the file stores it: so that a power failure leaves a
//! file that can be opened again. The library keeps no inode on the medium; the owner stores the state when a flush has
//! succeeded.

use std::sync::{Arc, Mutex, MutexGuard};

use iopath_core::Extent;
use iopath_core::mapper::{
    DirtyMetadata, ExtentMap, FileLayout, FileRange, FreeSpace, IndirectMap, Location, MapError, Mapper,
    Mapping, Metadata, POINTERS, Space,
};

/// A mapper of which the owner keeps a handle.
#[derive(Debug, Clone)]
pub(crate) struct KeptMap(Arc<Mutex<Map>>);

#[derive(Debug, Clone)]
enum Map {
    Extents(ExtentMap),
    Indirect(IndirectMap),
}

/// The state of a mapper that its owner stores.
#[derive(Debug, Clone)]
pub(crate) enum Stored {
    /// All extents.
    Extents(ExtentMap),
    /// The inode. The indirect blocks are on the medium.
    Indirect([u32; POINTERS]),
}

impl KeptMap {
    /// A new file.
    pub(crate) fn new(mapper: &str, layout: &FileLayout) -> Self {
        let map = match mapper {
            "extent" => Map::Extents(ExtentMap::new(layout).expect("it fits the disks")),
            "indirect" => Map::Indirect(IndirectMap::new(layout).expect("it fits the disks")),
            _ => unreachable!("{mapper} is not drawn"),
        };
        Self(Arc::new(Mutex::new(map)))
    }

    fn lock(&self) -> MutexGuard<'_, Map> {
        self.0.lock().expect("one thread runs a scenario")
    }

    /// The state to store.
    pub(crate) fn stored(&self) -> Stored {
        match &*self.lock() {
            Map::Extents(map) => Stored::Extents(map.clone()),
            Map::Indirect(map) => Stored::Indirect(*map.inode()),
        }
    }

    /// The file of a stored state. `read` reads a metadata block from the medium. Returns the file, and its blocks: the
    /// range of the file and the extent of the disk.
    ///
    /// # Errors
    /// The metadata is not valid.
    pub(crate) fn open(
        stored: &Stored,
        layout: &FileLayout,
        read: impl Fn(Extent) -> Vec<u8>,
    ) -> Result<(Self, FreeSpace, Vec<Mapping>), String> {
        let mut map = match stored {
            Stored::Extents(map) => Map::Extents(map.clone()),
            Stored::Indirect(inode) => {
                Map::Indirect(IndirectMap::open(layout, *inode).expect("the inode points to the disks"))
            }
        };
        let (mut blocks, mut used) = (Vec::new(), Vec::new());
        let mut rest = FileRange::new(0, layout.size_bytes.next_multiple_of(layout.block_bytes.into()));
        while !rest.is_empty() {
            match map.mapper().map(rest) {
                Ok(mapping) => {
                    rest = rest.from_offset(mapping.file.end());
                    if let Location::Written(extent) | Location::Unwritten(extent) = mapping.location {
                        used.push(extent);
                    }
                    blocks.push(mapping);
                }
                Err(Metadata(extent)) => {
                    used.push(extent);
                    let known = map.mapper_mut().handle_metadata(extent, &read(extent));
                    known.map_err(|wrong| wrong.to_string())?;
                }
            }
        }
        let free = free_space(layout, used)?;
        Ok((Self(Arc::new(Mutex::new(map))), free, blocks))
    }
}

/// The space of the disks that no block of the file uses, except the first block.
///
/// # Errors
/// A block belongs to two parts of the file.
fn free_space(layout: &FileLayout, mut used: Vec<Extent>) -> Result<FreeSpace, String> {
    used.sort_unstable_by_key(|extent| extent.start());
    let mut free = FreeSpace::default();
    let mut start = u64::from(layout.block_bytes) / 512;
    let mut release = |start, end: u64| {
        let extent = Extent::from_bytes(start * 512, (end - start) * 512).expect("on the disks");
        if !extent.is_empty() {
            free.release(extent);
        }
    };
    for extent in used {
        if start > extent.start().0 {
            return Err(format!("{extent} belongs to two parts of a file"));
        }
        release(start, extent.start().0);
        start = extent.end().0;
    }
    release(start, layout.capacity_sectors());
    Ok(free)
}

impl Map {
    fn mapper(&self) -> &dyn Mapper {
        match self {
            Self::Extents(map) => map,
            Self::Indirect(map) => map,
        }
    }

    fn mapper_mut(&mut self) -> &mut dyn Mapper {
        match self {
            Self::Extents(map) => map,
            Self::Indirect(map) => map,
        }
    }
}

impl Mapper for KeptMap {
    fn name(&self) -> &'static str {
        self.lock().mapper().name()
    }

    fn block_bytes(&self) -> u32 {
        self.lock().mapper().block_bytes()
    }

    fn size_bytes(&self) -> u64 {
        self.lock().mapper().size_bytes()
    }

    fn map(&self, range: FileRange) -> Result<Mapping, Metadata> {
        self.lock().mapper().map(range)
    }

    fn handle_metadata(&mut self, extent: Extent, bytes: &[u8]) -> Result<(), MapError> {
        self.lock().mapper_mut().handle_metadata(extent, bytes)
    }

    fn allocate(&mut self, range: FileRange, space: &mut dyn Space) -> Result<(), MapError> {
        self.lock().mapper_mut().allocate(range, space)
    }

    fn commit(&mut self, range: FileRange) -> Result<(), MapError> {
        self.lock().mapper_mut().commit(range)
    }

    fn unmap(&mut self, range: FileRange, space: &mut dyn Space) -> Result<(), MapError> {
        self.lock().mapper_mut().unmap(range, space)
    }

    fn set_size(&mut self, bytes: u64) -> Result<(), MapError> {
        self.lock().mapper_mut().set_size(bytes)
    }

    fn forget_metadata(&mut self) {
        self.lock().mapper_mut().forget_metadata();
    }

    fn poll_dirty(&mut self) -> Option<DirtyMetadata> {
        self.lock().mapper_mut().poll_dirty()
    }
}
