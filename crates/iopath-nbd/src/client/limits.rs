//! The limits of a device on an export, from the flags and block sizes of its server.

use iopath::remote::RemoteFacts;
use iopath::source::Limits;

use crate::client::Negotiated;
use crate::protocol::TransmissionFlags as Flags;

/// The unit of the block layer, in bytes.
const SECTOR: u32 = 512;

/// Longest discard or write of zeroes. Servers may execute it piece by piece, and it delays a flush.
const ZEROES_MAX: u64 = 1 << 30;

/// Longest read or write, where the server permits longer ones.
const REQUEST_MAX: u32 = 32 << 20;

/// The export as a device, with requests of at most so many bytes.
pub(crate) fn facts_of(negotiated: &Negotiated, request_bytes_max: u32) -> RemoteFacts {
    let Negotiated { size, flags, block_sizes, .. } = *negotiated;
    let block = block_sizes.min.max(SECTOR);
    let has = |flag| flags.contains(flag);
    let is_read_only = has(Flags::READ_ONLY);
    let zeroes = |flag| if has(flag) && !is_read_only { ZEROES_MAX } else { 0 };
    let longest = block_sizes.max.min(REQUEST_MAX).min(request_bytes_max);
    let limits = Limits {
        logical_block_bytes: block,
        memory_align_bytes: 1,
        // A server that accepts less than a block states sizes for an export of less than a block.
        request_bytes_max: u64::from((longest / block * block).max(block)),
        segments_max: 128,
        depth_max: 4096,
        discard_bytes_max: zeroes(Flags::SEND_TRIM),
        write_zeroes_bytes_max: zeroes(Flags::SEND_WRITE_ZEROES),
        volatile_cache: has(Flags::SEND_FLUSH),
        fua: has(Flags::SEND_FUA),
        ..Limits::with_capacity(size.div_ceil(u64::from(block)).saturating_mul(u64::from(block / SECTOR)))
    };
    let mut facts = RemoteFacts::new(size, limits);
    facts.is_read_only = is_read_only;
    facts.is_rotational = has(Flags::ROTATIONAL);
    facts.permits_connections = has(Flags::CAN_MULTI_CONN);
    facts.preferred_bytes = block_sizes.preferred;
    facts
}

/// Whether requests for the export `first` suit the export `later`, which a connection found: the first one or a new
/// one.
pub(crate) fn is_compatible(first: &Negotiated, later: &Negotiated) -> Result<(), String> {
    let block = u64::from(later.block_sizes.min);
    let rest = later.size % block;
    if rest > 0 {
        // A request is whole blocks inside of the export, so that none has these bytes (block size constraints of the
        // protocol).
        return Err(format!(
            "the export has {} bytes, which is no multiple of its minimum block size of {block} bytes, so that no request \
             reaches its last {rest} bytes; let the server accept smaller blocks, or round the size of the export",
            later.size
        ));
    }
    if later.size != first.size {
        return Err(format!("the export has {} bytes now and had {} before", later.size, first.size));
    }
    let used = Flags::SEND_FLUSH | Flags::SEND_FUA | Flags::SEND_TRIM | Flags::SEND_WRITE_ZEROES;
    if !later.flags.contains(first.flags & used) {
        return Err("the export no longer offers a command that it offered before".to_owned());
    }
    if later.flags.contains(Flags::READ_ONLY) && !first.flags.contains(Flags::READ_ONLY) {
        return Err("the export is read-only now and was writable before".to_owned());
    }
    let (old, new) = (first.block_sizes, later.block_sizes);
    if new.min > old.min.max(SECTOR) || new.max < old.max.min(REQUEST_MAX) {
        return Err(format!(
            "the server accepts requests of {} to {} bytes now and of {} to {} before",
            new.min, new.max, old.min, old.max
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::BlockSizes;
    use crate::reply::ReplyFormat;

    fn negotiated(flags: Flags, block_sizes: BlockSizes) -> Negotiated {
        Negotiated {
            size: 1_000_001,
            flags,
            block_sizes,
            has_block_sizes: true,
            format: ReplyFormat::Structured,
            allocation: None,
        }
    }

    #[test]
    fn limits_follow_the_sizes_and_flags_of_the_server() {
        let sizes = BlockSizes { min: 4096, preferred: 65536, max: 1 << 20 };
        let server = negotiated(Flags::SEND_FLUSH | Flags::SEND_TRIM, sizes);
        let facts = facts_of(&server, u32::MAX);
        let limits = &facts.limits;
        assert_eq!((limits.logical_block_bytes, limits.request_bytes_max), (4096, 1 << 20));
        assert_eq!(limits.capacity, 245 * 8, "the last block is whole");
        assert!(limits.volatile_cache && !limits.fua && limits.discard_bytes_max > 0);
        assert_eq!(limits.write_zeroes_bytes_max, 0);
        // The program may ask for shorter requests: whole blocks, and one at least.
        for (asked, longest) in [(64 << 10, 64 << 10), (10_000, 8192), (1, 4096)] {
            assert_eq!(facts_of(&server, asked).limits.request_bytes_max, longest);
        }
        let facts =
            facts_of(&negotiated(Flags::READ_ONLY | Flags::SEND_TRIM, BlockSizes::default()), u32::MAX);
        assert_eq!((facts.limits.logical_block_bytes, facts.limits.discard_bytes_max), (512, 0));
        assert!(facts.is_read_only && !facts.limits.volatile_cache);
    }

    #[test]
    fn an_export_whose_last_bytes_no_request_reaches_is_refused() {
        let of_blocks = |min| negotiated(Flags::empty(), BlockSizes { min, ..BlockSizes::default() });
        let check = |export: Negotiated| is_compatible(&export, &export);
        let reason = check(of_blocks(4096)).unwrap_err();
        for part in ["1000001 bytes", "4096 bytes", "last 577 bytes"] {
            assert!(reason.contains(part), "{reason}");
        }
        assert_eq!(check(Negotiated { size: 999_424, ..of_blocks(4096) }), Ok(()));
        // Then the last request may end inside a block of 512 bytes.
        assert_eq!(check(of_blocks(1)), Ok(()));
    }

    #[test]
    fn another_export_under_the_same_name_is_refused() {
        let first = Negotiated { size: 1 << 20, ..negotiated(Flags::SEND_FLUSH, BlockSizes::default()) };
        assert_eq!(is_compatible(&first, &first), Ok(()));
        for other in [
            Negotiated { size: 2, ..first },
            Negotiated { flags: Flags::empty(), ..first },
            Negotiated { flags: first.flags | Flags::READ_ONLY, ..first },
            Negotiated { block_sizes: BlockSizes { min: 1024, ..first.block_sizes }, ..first },
            Negotiated { block_sizes: BlockSizes { max: 65536, ..first.block_sizes }, ..first },
        ] {
            assert!(is_compatible(&first, &other).is_err(), "{other:?}");
        }
    }
}
