//! A recorded request, packed into 24 bytes.

use iopath_core::Op;

/// A recorded request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// The time of its submission, in nanoseconds since the start of the recording.
    pub(crate) at_ns: u64,
    /// The first sector; 0 for a flush.
    pub(crate) sector: u64,
    /// The number of sectors; 0 for a flush.
    pub(crate) sectors: u32,
    /// The index of its stream in [`Input::streams`].
    pub(crate) stream: u16,
    /// The window of the bootstrap.
    pub(crate) window: u8,
    /// The operation (lower bits) and [`FUA`].
    kind: u8,
}

const _: () = assert!(size_of::<Request>() == 24);

const FUA: u8 = 1 << 7;
const OPS: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];

impl Request {
    /// A request of the first window, on the stream with this index.
    pub(crate) fn new(found: &Found, stream: u16) -> Self {
        let Found { at_ns, op, is_fua, sector, sectors, .. } = *found;
        let op = OPS.iter().position(|known| *known == op).unwrap_or(0) as u8;
        let kind = op | if is_fua { FUA } else { 0 };
        Self { at_ns, sector, sectors, stream, window: 0, kind }
    }

    #[inline]
    pub(crate) fn op(&self) -> Op {
        OPS[usize::from(self.kind & !FUA) % OPS.len()]
    }

    #[inline]
    pub(crate) const fn is_fua(&self) -> bool {
        self.kind & FUA != 0
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.sectors as u64 * 512
    }
}

/// A request as a reader finds it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) at_ns: u64,
    pub(crate) op: Op,
    pub(crate) is_fua: bool,
    pub(crate) sector: u64,
    pub(crate) sectors: u32,
    /// The recorded stream.
    pub(crate) stream: u32,
    /// The recorded device.
    pub(crate) device: u32,
}
