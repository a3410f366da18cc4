//! The mistakes of a guest or front end after which a device stops. One line each, for the log.

use thiserror::Error;

/// A violation of the protocol by the guest or the front end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// An address that is not in the memory of the guest.
    #[error("{bytes} bytes at address {address:#x} are not in the memory of the guest")]
    Outside {
        /// The first address.
        address: u64,
        /// The number of bytes.
        bytes: u64,
    },
    /// Two regions of memory overlap.
    #[error("two regions of memory overlap at address {address:#x}")]
    Regions {
        /// The first address that both contain.
        address: u64,
    },
    /// The size of a queue.
    #[error("a queue of {size} entries; the size is a power of two up to {max}")]
    Size {
        /// The size.
        size: u32,
        /// The largest size.
        max: u16,
    },
    /// A ring at an address that its numbers cannot have.
    #[error("a ring at address {address:#x}, which is not a multiple of {align}")]
    Unaligned {
        /// The address.
        address: u64,
        /// The required alignment.
        align: u64,
    },
    /// The index of the available ring jumped.
    #[error("the available ring went from index {from} to {to}, in a queue of {size} entries")]
    Jump {
        /// The index of the next request.
        from: u16,
        /// The index of the driver.
        to: u16,
        /// The size of the queue.
        size: u16,
    },
    /// A number of a descriptor that does not exist.
    #[error("descriptor {index} of a table of {size}")]
    Descriptor {
        /// The number.
        index: u16,
        /// The size of the table.
        size: u32,
    },
    /// A chain that contains a descriptor twice, or is too long.
    #[error("the chain of descriptor {head} has a loop, or more than {max} descriptors")]
    Loop {
        /// The first descriptor.
        head: u16,
        /// The longest chain.
        max: u32,
    },
    /// A descriptor of an indirect table that is not allowed.
    #[error("an indirect table in the chain of descriptor {head}: {reason}")]
    Indirect {
        /// The first descriptor.
        head: u16,
        /// The reason.
        reason: &'static str,
    },
    /// A readable descriptor after a writable one.
    #[error("the chain of descriptor {head} has a readable part after a writable one")]
    Order {
        /// The first descriptor.
        head: u16,
    },
    /// A chain of more than 4 GiB.
    #[error("the chain of descriptor {head} has more than 2^32 bytes")]
    TooLong {
        /// The first descriptor.
        head: u16,
    },
    /// A request without room for its header or its status.
    #[error("the request of descriptor {head} has no {what}")]
    Incomplete {
        /// The first descriptor.
        head: u16,
        /// The missing part.
        what: &'static str,
    },
    /// A descriptor that starts two requests at the same time.
    #[error("descriptor {head} is available again before its request has completed")]
    Busy {
        /// The first descriptor.
        head: u16,
    },
    /// A region of requests in flight that does not belong to this queue.
    #[error("the region of requests in flight is not valid: {0}")]
    Inflight(&'static str),
    /// The front end has truncated the memory, or the record of requests in flight.
    #[error("the front end has truncated the memory of the guest")]
    Truncated,
}
