//! The configuration space of a block device, and the features that it offers. Plain data. (Virtual I/O Device 1.2,
//! section 5.2.4.)

use iopath::Volume;
use virtio_bindings::virtio_blk as blk;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

/// The unit of the protocol.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// The largest range of a discard or a write of zeroes: 1 GiB.
pub(crate) const CLEAR_SECTORS_MAX: u32 = 1 << 21;

/// The largest number of ranges of a discard or a write of zeroes.
pub(crate) const CLEAR_RANGES_MAX: u32 = 16;

/// The size of the space that this device has; further bytes are zero.
const BYTES: usize = 60;

/// What a driver is told.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of the device")]
pub(crate) struct Config {
    /// The size in sectors.
    pub capacity: u64,
    /// The size of a block in bytes: of 512 bytes at least.
    pub block_bytes: u32,
    /// The preferred size of I/O in bytes.
    pub preferred_bytes: u32,
    /// Queues.
    pub queues: u16,
    /// Whether the driver may write.
    pub is_writable: bool,
    /// Whether a discard frees space.
    pub has_discard: bool,
    /// Whether zeroes can be written without data.
    pub has_zeroes: bool,
    /// Whether a write of zeroes may free space.
    pub unmaps: bool,
    /// Whether a write may complete before it is durable. Not on a volume with a page cache: a killed server would lose
    /// the write, and the flush that the next server executes would not know of it.
    pub has_flush: bool,
}

impl Config {
    /// The configuration of a volume.
    pub(crate) fn new(volume: &Volume, is_writable: bool, queues: u16) -> Self {
        let facts = volume.facts();
        let support = volume.range_support();
        Self {
            capacity: volume.size_bytes() / SECTOR_BYTES,
            block_bytes: facts.block_bytes.max(SECTOR_BYTES as u32),
            preferred_bytes: facts.block_bytes.max(4096),
            queues,
            is_writable,
            has_discard: is_writable && support.discard,
            has_zeroes: is_writable && support.zero,
            unmaps: support.discard_zeroes,
            has_flush: !volume.is_buffered(),
        }
    }

    /// The features of the device, without those of vhost-user.
    pub(crate) fn features(&self) -> u64 {
        let mut bits = vec![
            VIRTIO_F_VERSION_1,
            VIRTIO_RING_F_EVENT_IDX,
            VIRTIO_RING_F_INDIRECT_DESC,
            blk::VIRTIO_BLK_F_SEG_MAX,
            blk::VIRTIO_BLK_F_BLK_SIZE,
            blk::VIRTIO_BLK_F_TOPOLOGY,
            blk::VIRTIO_BLK_F_MQ,
        ];
        if self.has_flush {
            bits.push(blk::VIRTIO_BLK_F_FLUSH);
        }
        if !self.is_writable {
            bits.push(blk::VIRTIO_BLK_F_RO);
        }
        if self.has_discard {
            bits.push(blk::VIRTIO_BLK_F_DISCARD);
        }
        if self.has_zeroes {
            bits.push(blk::VIRTIO_BLK_F_WRITE_ZEROES);
        }
        bits.iter().fold(0, |features, bit| features | 1 << bit)
    }

    /// The `bytes` bytes of the space from `offset` on. `seg_max` is the largest number of parts of a request.
    pub(crate) fn read(&self, offset: u32, bytes: u32, seg_max: u32) -> Vec<u8> {
        let mut space = [0; BYTES];
        let mut put = |at: usize, value: &[u8]| space[at..at + value.len()].copy_from_slice(value);
        let blocks = self.preferred_bytes / self.block_bytes;
        let physical_exponent = blocks.max(1).ilog2() as u8;
        let clear_align = self.block_bytes / SECTOR_BYTES as u32;
        let clear_max = |has: bool| if has { CLEAR_SECTORS_MAX } else { 0 };
        let ranges_max = |has: bool| if has { CLEAR_RANGES_MAX } else { 0 };
        put(0, &self.capacity.to_le_bytes());
        put(12, &seg_max.to_le_bytes());
        put(20, &self.block_bytes.to_le_bytes());
        put(24, &[physical_exponent]);
        put(26, &(blocks.max(1) as u16).to_le_bytes());
        put(34, &self.queues.to_le_bytes());
        put(36, &clear_max(self.has_discard).to_le_bytes());
        put(40, &ranges_max(self.has_discard).to_le_bytes());
        put(44, &clear_align.to_le_bytes());
        put(48, &clear_max(self.has_zeroes).to_le_bytes());
        put(52, &ranges_max(self.has_zeroes).to_le_bytes());
        put(56, &[u8::from(self.unmaps)]);
        let byte = |at: u64| space.get(at as usize).copied().unwrap_or(0);
        (u64::from(offset)..u64::from(offset) + u64::from(bytes)).map(byte).collect()
    }
}
