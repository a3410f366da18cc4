//! Errors of submission: the queue refuses the bio and returns it. Errors of a submitted bio are [`IoError`]s.
//!
//! [`IoError`]: crate::IoError

use crate::block::bio::Bio;

/// The reason why the queue refused a bio. Each variant returns the bio to the caller.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SubmitError<M> {
    /// Every bio slot holds a bio that is in the queue or that the caller has not collected.
    #[error("all bio slots of the queue are taken; collect completions, then submit again")]
    QueueFull(Bio<M>),
    /// The extent is empty or extends past the end of the device.
    #[error("{} of {} lies outside the device's {capacity} sectors", .bio.op, .bio.extent)]
    OutOfRange {
        /// The bio.
        bio: Bio<M>,
        /// The size of the device in sectors.
        capacity: u64,
    },
    /// Start or length is not a multiple of the logical block.
    #[error("{} of {} is not whole blocks of {block_bytes} bytes; align it or read-modify-write", .bio.op, .bio.extent)]
    Unaligned {
        /// The bio.
        bio: Bio<M>,
        /// The logical block of the device in bytes.
        block_bytes: u32,
    },
    /// Memory and extent differ in length, or the operation takes no memory.
    #[error("{} of {} has {memory_bytes} bytes of memory, expected {}", .bio.op, .bio.extent, .bio.memory_bytes())]
    MemoryMismatch {
        /// The bio.
        bio: Bio<M>,
        /// The length of its memory in bytes.
        memory_bytes: u64,
    },
    /// The device does not support the operation.
    #[error("the device does not support {}", .0.op)]
    Unsupported(Bio<M>),
}

impl<M> SubmitError<M> {
    /// The refused bio.
    pub fn into_bio(self) -> Bio<M> {
        match self {
            Self::QueueFull(bio)
            | Self::OutOfRange { bio, .. }
            | Self::Unaligned { bio, .. }
            | Self::MemoryMismatch { bio, .. }
            | Self::Unsupported(bio) => bio,
        }
    }
}
