//! What a mapped file needs of its host: memory that the core cannot access, and a mapping that engines share.

use std::fmt;

use super::file::{EngineId, MappedFile};
use crate::memory::Memory;

/// Memory and sharing for a [`MappedDevice`](super::MappedDevice). In `iopath-os` the memory is real and the file is
/// under a lock; in virtual time the memory is a length or a simulated arena, and the file in a cell.
///
/// [`MappedDevice`](super::MappedDevice) promises, so that a host may use `unsafe` code:
/// - a buffer whose handle ([`MappedHost::memory_of`]) was given to the device is kept, and not accessed, until the I/O
///   has completed or the device has been dropped;
/// - [`MappedHost::zero`] is called for memory of a read that was submitted and has not completed, where no I/O is in
///   flight;
/// - the host is dropped after the device.
pub trait MappedHost: fmt::Debug {
    /// The memory of the device.
    type Memory: Memory;
    /// Memory of one task, for metadata and for blocks that are changed in part.
    type Buffer: fmt::Debug;

    /// Calls `act` with the file, exclusively: under a lock where other threads have engines. Afterwards it must make
    /// the engines in [`MappedFile::take_notified`] poll, except `engine`, which polls by itself.
    fn with_file<R>(&self, engine: EngineId, act: impl FnOnce(&mut MappedFile) -> R) -> R;

    /// The file's [`epoch`](MappedFile::epoch), perhaps an older one, without exclusion.
    fn epoch(&self) -> u64;

    /// A buffer of `bytes` bytes; `None` if there is no memory.
    fn buffer(&self, bytes: usize) -> Option<Self::Buffer>;

    /// A handle to all of `buffer`.
    fn memory_of(&self, buffer: &mut Self::Buffer) -> Self::Memory;

    /// Calls `act` with the bytes of `buffer`.
    fn with_bytes<R>(&self, buffer: &mut Self::Buffer, act: impl FnOnce(&mut [u8]) -> R) -> R;

    /// Fills `memory` with zeroes from byte `from` to its end.
    fn zero(&self, memory: Self::Memory, from: u64);

    /// Constant zeroes to write from, as long as the host likes, whole blocks. Valid until the host is dropped.
    fn zeroes(&self) -> Self::Memory;
}
