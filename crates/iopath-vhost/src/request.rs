//! A request of the block device: header, data, status. Parses the parts of a chain; does no I/O. (Virtual I/O Device
//! 1.2, section 5.2.6.)

use virtio_bindings::virtio_blk as blk;

use crate::chain::Part;
use crate::config::{CLEAR_RANGES_MAX, CLEAR_SECTORS_MAX, SECTOR_BYTES};
use crate::fault::Fault;
use crate::memory::GuestMemory;

/// The size of a header.
const HEADER_BYTES: u64 = 16;

/// The size of a range of a discard or a write of zeroes.
const RANGE_BYTES: u64 = 16;

/// The size of the name of a device.
pub(crate) const ID_BYTES: usize = 20;

/// The result of a request for its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Success.
    Ok = blk::VIRTIO_BLK_S_OK as u8,
    /// The device failed, or the range is not in it.
    IoError = blk::VIRTIO_BLK_S_IOERR as u8,
    /// The device has no such operation.
    Unsupported = blk::VIRTIO_BLK_S_UNSUPP as u8,
}

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Reads from this sector on.
    Read(u64),
    /// Writes from this sector on.
    Write(u64),
    /// Makes completed writes durable.
    Flush,
    /// Frees the space of ranges.
    Discard,
    /// Zeroes ranges.
    WriteZeroes,
    /// Reads the name of the device.
    GetId,
    /// An operation that this device does not have.
    Unknown,
}

/// A request, without its data, which the parts of the chain describe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The operation.
    pub command: Command,
    /// The number of bytes of its data.
    pub bytes: u64,
    /// The guest address of the status byte.
    pub status: u64,
}

/// Reads the header of a request. Removes header and status from the parts, and the parts that the operation does not
/// use: what remains is the data.
///
/// # Errors
/// The chain has no room for a header or a status.
pub fn parse(memory: &GuestMemory, head: u16, parts: &mut Vec<Part>) -> Result<Header, Fault> {
    let status = take_status(parts).ok_or(Fault::Incomplete { head, what: "status" })?;
    let mut header = [0; HEADER_BYTES as usize];
    take_header(memory, parts, &mut header)?.ok_or(Fault::Incomplete { head, what: "header" })?;
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let sector = u64::from(number(8)) | u64::from(number(12)) << 32;
    let command = match number(0) {
        blk::VIRTIO_BLK_T_IN => Command::Read(sector),
        blk::VIRTIO_BLK_T_OUT => Command::Write(sector),
        blk::VIRTIO_BLK_T_FLUSH => Command::Flush,
        blk::VIRTIO_BLK_T_DISCARD => Command::Discard,
        blk::VIRTIO_BLK_T_WRITE_ZEROES => Command::WriteZeroes,
        blk::VIRTIO_BLK_T_GET_ID => Command::GetId,
        _ => Command::Unknown,
    };
    let writes_to_guest = matches!(command, Command::Read(_) | Command::GetId);
    parts.retain(|part| part.is_writable == writes_to_guest);
    let bytes = parts.iter().map(|part| u64::from(part.bytes)).sum();
    Ok(Header { command, bytes, status })
}

/// Takes the status: the last byte of the last part.
fn take_status(parts: &mut Vec<Part>) -> Option<u64> {
    let last = parts.last_mut().filter(|last| last.is_writable)?;
    last.bytes -= 1;
    let address = last.address + u64::from(last.bytes);
    if last.bytes == 0 {
        parts.pop();
    }
    Some(address)
}

/// Takes the header: the first readable bytes, in any number of parts. `None` if there are too few.
fn take_header(memory: &GuestMemory, parts: &mut Vec<Part>, header: &mut [u8]) -> Result<Option<()>, Fault> {
    let (mut done, mut used) = (0, 0);
    for part in parts.iter_mut() {
        if done == header.len() || part.is_writable {
            break;
        }
        let taken = (header.len() - done).min(part.bytes as usize);
        memory.read(part.address, &mut header[done..done + taken])?;
        done += taken;
        part.address += taken as u64;
        part.bytes -= taken as u32;
        used += usize::from(part.bytes == 0);
    }
    parts.drain(..used);
    Ok((done == header.len()).then_some(()))
}

/// A range of a discard or a write of zeroes, in bytes of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClearRange {
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub bytes: u64,
    /// Whether the range may become a hole.
    pub unmaps: bool,
}

/// The ranges of a discard or a write of zeroes, which lie in a device of `capacity` sectors.
///
/// The inner error is the status of a request that is not valid.
///
/// # Errors
/// The front end has truncated the memory.
pub fn ranges(
    memory: &GuestMemory,
    header: &Header,
    parts: &[Part],
    capacity: u64,
) -> Result<Result<Vec<ClearRange>, Status>, Fault> {
    let is_discard = header.command == Command::Discard;
    let count = header.bytes / RANGE_BYTES;
    if !header.bytes.is_multiple_of(RANGE_BYTES) || count == 0 || count > u64::from(CLEAR_RANGES_MAX) {
        return Ok(Err(Status::IoError));
    }
    let mut data = vec![0; header.bytes as usize];
    gather(memory, parts, &mut data)?;
    let range = |range: &[u8]| {
        let number = |at: usize| {
            u64::from(u32::from_le_bytes([range[at], range[at + 1], range[at + 2], range[at + 3]]))
        };
        let (sector, sectors, flags) = (number(0) | number(4) << 32, number(8), number(12));
        // The flag of unmapping belongs to writes of zeroes; all others are reserved.
        let known = if is_discard { 0 } else { u64::from(blk::VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP) };
        if flags & !known != 0 {
            return Err(Status::Unsupported);
        }
        if sectors > u64::from(CLEAR_SECTORS_MAX) || !is_inside(sector, sectors, capacity) {
            return Err(Status::IoError);
        }
        Ok(ClearRange {
            offset: sector * SECTOR_BYTES,
            bytes: sectors * SECTOR_BYTES,
            unmaps: is_discard || flags != 0,
        })
    };
    Ok(data.chunks_exact(RANGE_BYTES as usize).map(range).collect())
}

/// Whether sectors lie in a device of `capacity` sectors.
pub(crate) fn is_inside(sector: u64, sectors: u64, capacity: u64) -> bool {
    sector.checked_add(sectors).is_some_and(|end| end <= capacity)
}

/// Copies the bytes of all parts to `target`, which is as long.
///
/// # Errors
/// A part is not in the memory.
pub(crate) fn gather(memory: &GuestMemory, parts: &[Part], target: &mut [u8]) -> Result<(), Fault> {
    let mut done = 0;
    for part in parts {
        let next = done + part.bytes as usize;
        memory.read(part.address, &mut target[done..next])?;
        done = next;
    }
    Ok(())
}

/// Copies `sources`, one after another, to the bytes of the parts, as far as both reach.
///
/// # Errors
/// A part is not in the memory.
pub(crate) fn scatter<'a>(
    memory: &GuestMemory,
    parts: &[Part],
    sources: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(), Fault> {
    let mut parts = parts.iter().map(|part| (part.address, part.bytes as usize));
    let mut to = (0, 0);
    for mut source in sources {
        while !source.is_empty() {
            if to.1 == 0 {
                let Some(next) = parts.next() else { return Ok(()) };
                to = next;
            }
            let (now, later) = source.split_at(source.len().min(to.1));
            memory.write(to.0, now)?;
            to = (to.0 + now.len() as u64, to.1 - now.len());
            source = later;
        }
    }
    Ok(())
}
