//! Recognises filesystems, volumes and images on a device or in a file by their magic bytes.
//!
//! It is a table, not a parser: it suffices to refuse an overwrite, not to read the data. Positions and bytes come from
//! the specification or header of each format. Data without magic bytes (headerless encryption, for example) is not
//! found.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The position of magic bytes on a device of a given size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// This many bytes from the start.
    Start(u64),
    /// This many bytes before the end, which is first rounded down to a multiple of `align`.
    End { before: u64, align: u64 },
}

impl Position {
    fn offset(self, size_bytes: u64) -> Option<u64> {
        match self {
            Self::Start(offset) => Some(offset),
            Self::End { before, align } => (size_bytes - size_bytes % align).checked_sub(before),
        }
    }
}

use Position::{End, Start};

/// Start of the first name-value list of a zfs label: XDR, unique names, then the pair "version".
const ZFS_LABEL: &[u8] = b"\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\0\0\x24\0\0\0\x20\0\0\0\x07version";
const ZFS_LABEL_BYTES: u64 = 256 << 10;
const ZFS_LIST_AT: u64 = 16 << 10;
/// Little-endian 0xa92b4efc.
const MD_MAGIC: &[u8] = b"\xfc\x4e\x2b\xa9";
const MD_MAGIC_BIG_ENDIAN: &[u8] = b"\xa9\x2b\x4e\xfc";

/// Each signature: name, position, bytes. Filesystems and volumes come before partition tables, because their boot
/// sectors also have the magic bytes of a partition table.
const SIGNATURES: &[(&str, Position, &[u8])] = &[
    ("ext2/ext3/ext4", Start(0x438), b"\x53\xef"),
    ("xfs", Start(0), b"XFSB"),
    ("btrfs", Start(0x1_0040), b"_BHRfS_M"),
    ("f2fs", Start(0x400), b"\x10\x20\xf5\xf2"),
    ("bcachefs", Start(0x1018), b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
    (
        "bcache or bcachefs",
        Start(0x1018),
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    ("reiserfs", Start(0x1_0034), b"ReIsEr"),
    ("jfs", Start(0x8000), b"JFS1"),
    ("gfs2", Start(0x1_0000), b"\x01\x16\x19\x70"),
    ("squashfs", Start(0), b"hsqs"),
    ("erofs", Start(0x400), b"\xe2\xe1\xf5\xe0"),
    ("apfs", Start(0x20), b"NXSB"),
    ("hfs+", Start(0x400), b"H+\0\x04"),
    ("hfsx", Start(0x400), b"HX\0\x05"),
    ("ntfs", Start(3), b"NTFS    "),
    ("exfat", Start(3), b"EXFAT   "),
    ("bitlocker", Start(3), b"-FVE-FS-"),
    ("vfat", Start(0x52), b"FAT32"),
    ("vfat", Start(0x36), b"FAT1"),
    ("iso9660", Start(0x8001), b"CD001"),
    ("udf", Start(0x8001), b"BEA01"),
    ("vmfs", Start(0x20_0000), b"\x5e\xf1\xab\x2f"),
    ("vmfs member", Start(0x10_0000), b"\x0d\xd0\x01\xc0"),
    ("ceph bluestore", Start(0), b"bluestore block device"),
    ("zfs member", Start(ZFS_LIST_AT), ZFS_LABEL),
    ("zfs member", Start(ZFS_LABEL_BYTES + ZFS_LIST_AT), ZFS_LABEL),
    ("zfs member", End { before: 2 * ZFS_LABEL_BYTES - ZFS_LIST_AT, align: ZFS_LABEL_BYTES }, ZFS_LABEL),
    ("zfs member", End { before: ZFS_LABEL_BYTES - ZFS_LIST_AT, align: ZFS_LABEL_BYTES }, ZFS_LABEL),
    ("swap", Start(0xff6), b"SWAPSPACE2"),
    ("swap", Start(0xff6), b"SWAP-SPACE"),
    ("swap with a hibernated system", Start(0xff6), b"S1SUSPEND"),
    ("swap with a hibernated system", Start(0xff6), b"S2SUSPEND"),
    ("swap with a hibernated system", Start(0xff6), b"LINHIB0001"),
    ("swap", Start(0x1ff6), b"SWAPSPACE2"),
    ("swap", Start(0x3ff6), b"SWAPSPACE2"),
    ("swap", Start(0x7ff6), b"SWAPSPACE2"),
    ("swap", Start(0xfff6), b"SWAPSPACE2"),
    ("LVM2 physical volume", Start(0), b"LABELONE"),
    ("LVM2 physical volume", Start(0x200), b"LABELONE"),
    ("LVM2 physical volume", Start(0x400), b"LABELONE"),
    ("LVM2 physical volume", Start(0x600), b"LABELONE"),
    ("LUKS", Start(0), b"LUKS\xba\xbe"),
    ("LUKS, second header", Start(0x4000), b"SKUL\xba\xbe"),
    ("md raid 1.1", Start(0), MD_MAGIC),
    ("md raid 1.2", Start(0x1000), MD_MAGIC),
    ("md raid 1.0", End { before: 0x2000, align: 0x1000 }, MD_MAGIC),
    ("md raid 0.9", End { before: 0x1_0000, align: 0x1_0000 }, MD_MAGIC),
    ("md raid 0.9", End { before: 0x1_0000, align: 0x1_0000 }, MD_MAGIC_BIG_ENDIAN),
    ("Intel raid member", End { before: 0x400, align: 0x200 }, b"Intel Raid ISM Cfg Sig. "),
    ("DDF raid member", End { before: 0x200, align: 0x200 }, b"\xde\x11\xde\x11"),
    ("qcow2 image", Start(0), b"QFI\xfb"),
    ("qed image", Start(0), b"QED\0"),
    ("vmdk image", Start(0), b"KDMV"),
    ("vmdk image", Start(0), b"# Disk DescriptorFile"),
    ("vdi image", Start(0x40), b"\x7f\x10\xda\xbe"),
    ("vhdx image", Start(0), b"vhdxfile"),
    ("vhd image", Start(0), b"conectix"),
    ("vhd image", End { before: 0x200, align: 0x200 }, b"conectix"),
    ("GPT partition table", Start(0x200), b"EFI PART"),
    ("GPT partition table", Start(0x1000), b"EFI PART"),
    ("GPT partition table, backup", End { before: 0x200, align: 0x200 }, b"EFI PART"),
    ("GPT partition table, backup", End { before: 0x1000, align: 0x1000 }, b"EFI PART"),
    ("MBR partition table or boot sector", Start(0x1fe), b"\x55\xaa"),
];

/// A signature that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The kind of data.
    pub name: &'static str,
    /// Its offset, bytes from the start.
    pub offset: u64,
}

/// All signatures in a file or on a device of `size_bytes`, most significant first.
///
/// Costs some sixty small reads within the first 2 MiB and the last 512 KiB.
///
/// # Errors
/// The first read that fails: an unreadable device is not known to be unused.
pub fn find(file: &File, size_bytes: u64) -> io::Result<Vec<Found>> {
    find_with(size_bytes, |offset, bytes| match file.read_exact_at(bytes, offset) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    })
}

/// [`find`] with a function that fills a buffer from an offset, or returns `false` at the end of the bytes.
fn find_with(
    size_bytes: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<bool>,
) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    let mut buffer = [0; 32];
    for &(name, position, magic) in SIGNATURES {
        let Some(offset) = position.offset(size_bytes) else { continue };
        let bytes = &mut buffer[..magic.len()];
        let inside = offset.checked_add(magic.len() as u64).is_some_and(|end| end <= size_bytes);
        if inside && read(offset, bytes)? && bytes == magic {
            found.push(Found { name, offset });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE_BYTES: u64 = 4 << 20;

    fn find_in(image: &[u8]) -> Vec<Found> {
        find_with(image.len() as u64, |offset, bytes| {
            let from = offset as usize;
            Ok(image.get(from..from + bytes.len()).is_some_and(|source| {
                bytes.copy_from_slice(source);
                true
            }))
        })
        .expect("reading memory does not fail")
    }

    #[test]
    fn every_row_of_the_table_is_found_alone() {
        let mut image = vec![0; SIZE_BYTES as usize];
        for &(name, position, magic) in SIGNATURES {
            let offset = position.offset(SIZE_BYTES).expect("the image is large enough");
            let range = offset as usize..offset as usize + magic.len();
            image[range.clone()].copy_from_slice(magic);
            assert_eq!(find_in(&image), [Found { name, offset }]);
            image[range].fill(0);
        }
        assert_eq!(find_in(&image), []);
    }

    #[test]
    fn positions_at_the_end_follow_the_arithmetic_of_the_format() {
        for sectors in [2048_u64, 2049, 8191, 1_000_007, 3_907_029_168] {
            let size_bytes = sectors * 512;
            let position = |name| SIGNATURES.iter().find(|row| row.0 == name).expect("in the table").1;
            assert_eq!(position("md raid 1.0").offset(size_bytes), Some(((sectors - 16) & !7) * 512));
            assert_eq!(position("md raid 0.9").offset(size_bytes), Some((sectors & !127) * 512 - 65536));
            let zfs: Vec<_> = SIGNATURES.iter().filter(|row| row.0 == "zfs member").collect();
            let last_label = (sectors & !511) * 512 - (256 << 10);
            assert_eq!(zfs[3].1.offset(size_bytes), Some(last_label + (16 << 10)));
        }
    }

    #[test]
    fn a_read_error_does_not_count_as_an_unused_device() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(find_with(SIZE_BYTES, |_, _| Err(denied())).is_err());
    }

    proptest! {
        #[test]
        fn any_content_of_any_size_is_read_within_its_bounds(image in prop::collection::vec(any::<u8>(), 0..0x3000)) {
            let size_bytes = image.len() as u64;
            find_with(size_bytes, |offset, bytes| {
                assert!(offset + bytes.len() as u64 <= size_bytes);
                Ok(true)
            }).expect("reading memory does not fail");
        }
    }
}
