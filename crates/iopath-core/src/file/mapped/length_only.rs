//! A mapped file on a device without bytes, such as a modelled disk: a host whose memory has no contents, and a mapper
//! that keeps the contents of its metadata blocks. Not for data that must be read back.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use super::MappedDevice;
use super::file::{EngineId, MappedError, MappedFile};
use super::host::MappedHost;
use crate::block::device::BlockDevice;
use crate::file::mapper::{Boundary, DirtyMetadata, FileRange, MapError, Mapper, Mapping, Metadata, Space};
use crate::memory::ModelMemory;
use crate::sector::{Extent, Sector};

/// Bytes of zeroes that one write of them may use.
const ZEROES_BYTES: u64 = 64 << 10;

/// The host of a mapped file on a device without bytes. One engine in one thread uses the file.
#[derive(Debug)]
pub struct LengthOnlyHost<M> {
    file: RefCell<MappedFile>,
    memory: PhantomData<M>,
}

impl<D: BlockDevice<Memory: ModelMemory>> MappedDevice<D, LengthOnlyHost<D::Memory>> {
    /// The only engine on `file`, over a device that moves no bytes. If the map has metadata blocks, put it into
    /// [`KeptMetadata`]: the device does not return their contents.
    ///
    /// # Errors
    /// Returns the errors of [`MappedDevice::new`].
    pub fn without_bytes(device: D, mut file: MappedFile, boundary: Boundary) -> Result<Self, MappedError> {
        let id = file.add_engine();
        Self::new(device, LengthOnlyHost { file: RefCell::new(file), memory: PhantomData }, id, boundary)
    }
}

impl<M: ModelMemory> MappedHost for LengthOnlyHost<M> {
    type Memory = M;
    type Buffer = Vec<u8>;

    fn with_file<R>(&self, _engine: EngineId, act: impl FnOnce(&mut MappedFile) -> R) -> R {
        let mut file = self.file.borrow_mut();
        let result = act(&mut file);
        // There is no other engine to notify.
        file.take_notified();
        result
    }

    fn epoch(&self) -> u64 {
        self.file.borrow().epoch()
    }

    fn buffer(&self, bytes: usize) -> Option<Vec<u8>> {
        Some(vec![0; bytes])
    }

    fn memory_of(&self, buffer: &mut Vec<u8>) -> M {
        M::of_length(buffer.len() as u64)
    }

    fn with_bytes<R>(&self, buffer: &mut Vec<u8>, act: impl FnOnce(&mut [u8]) -> R) -> R {
        act(buffer)
    }

    fn zero(&self, _memory: M, _from: u64) {}

    fn zeroes(&self) -> M {
        M::of_length(ZEROES_BYTES)
    }
}

/// A mapper whose metadata blocks keep their contents here, since the device below keeps none. The blocks are read and
/// written like those of any other device; a read takes its time and returns the contents kept.
///
/// Memory grows with the number of metadata blocks ever written: 4 KiB for each 4 MiB of an indirect file.
pub struct KeptMetadata {
    inner: Box<dyn Mapper>,
    /// By their first sectors.
    blocks: BTreeMap<Sector, Box<[u8]>>,
}

impl fmt::Debug for KeptMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptMetadata")
            .field("inner", &self.inner)
            .field("blocks", &self.blocks.len())
            .finish_non_exhaustive()
    }
}

impl KeptMetadata {
    /// Over `inner`, which has no metadata on the device.
    pub const fn new(inner: Box<dyn Mapper>) -> Self {
        Self { inner, blocks: BTreeMap::new() }
    }

    /// Keeps all metadata that was not written, and drops it from memory: the next look-up reads it.
    pub fn store(&mut self) {
        while self.poll_dirty().is_some() {}
        self.inner.forget_metadata();
    }
}

impl Mapper for KeptMetadata {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn block_bytes(&self) -> u32 {
        self.inner.block_bytes()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn map(&self, range: FileRange) -> Result<Mapping, Metadata> {
        self.inner.map(range)
    }

    fn handle_metadata(&mut self, extent: Extent, bytes: &[u8]) -> Result<(), MapError> {
        self.inner.handle_metadata(extent, self.blocks.get(&extent.start()).map_or(bytes, |kept| kept))
    }

    fn allocate(&mut self, range: FileRange, space: &mut dyn Space) -> Result<(), MapError> {
        self.inner.allocate(range, space)
    }

    fn commit(&mut self, range: FileRange) -> Result<(), MapError> {
        self.inner.commit(range)
    }

    fn unmap(&mut self, range: FileRange, space: &mut dyn Space) -> Result<(), MapError> {
        self.inner.unmap(range, space)
    }

    fn set_size(&mut self, bytes: u64) -> Result<(), MapError> {
        self.inner.set_size(bytes)
    }

    fn is_fixed(&self) -> bool {
        self.inner.is_fixed()
    }

    fn forget_metadata(&mut self) {
        self.inner.forget_metadata();
    }

    fn poll_dirty(&mut self) -> Option<DirtyMetadata> {
        let dirty = self.inner.poll_dirty()?;
        self.blocks.insert(dirty.extent.start(), dirty.bytes.clone());
        Some(dirty)
    }
}
