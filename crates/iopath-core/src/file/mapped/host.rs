//! The host of a mapped file. It provides memory that the core cannot access, and the mapping that engines share.

use std::fmt;

use super::file::{EngineId, MappedFile};
use crate::memory::Memory;

/// Memory and sharing for a [`MappedDevice`](super::MappedDevice). In `iopath-os`, the memory is real and a lock
/// protects the file. In virtual time, the memory is a length or a simulated arena, and the file is in a cell.
///
/// A host may use `unsafe` code that relies on these guarantees of [`MappedDevice`](super::MappedDevice):
/// - After a handle of a buffer ([`MappedHost::memory_of`]) was passed to the device, the buffer is neither dropped nor
///   accessed until the I/O has completed or the device was dropped.
/// - [`MappedHost::zero`] is called only for memory of a read that was submitted and has not completed, and only for a
///   part of it without I/O in flight.
/// - The host is dropped after the device.
pub trait MappedHost: fmt::Debug {
    /// The memory of the device.
    type Memory: Memory;
    /// Memory of one task, for metadata and for partly changed blocks.
    type Buffer: fmt::Debug;

    /// Calls `act` with exclusive access to the file: under a lock if other threads have engines. Afterwards it must
    /// make the engines in [`MappedFile::take_notified`] poll, except `engine`, which polls anyway.
    fn with_file<R>(&self, engine: EngineId, act: impl FnOnce(&mut MappedFile) -> R) -> R;

    /// The file's [`epoch`](MappedFile::epoch), read without exclusion. It may be outdated.
    fn epoch(&self) -> u64;

    /// A buffer of `bytes` bytes; `None` if there is no memory.
    fn buffer(&self, bytes: usize) -> Option<Self::Buffer>;

    /// A handle to all of `buffer`.
    fn memory_of(&self, buffer: &mut Self::Buffer) -> Self::Memory;

    /// Calls `act` with the bytes of `buffer`.
    fn with_bytes<R>(&self, buffer: &mut Self::Buffer, act: impl FnOnce(&mut [u8]) -> R) -> R;

    /// Fills `memory` with zeroes from byte `from` to its end.
    fn zero(&self, memory: Self::Memory, from: u64);

    /// Memory of zeroes that never change, of any length in whole blocks. Valid until the host is dropped.
    fn zeroes(&self) -> Self::Memory;
}
