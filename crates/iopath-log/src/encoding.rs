//! Names files that are no text in UTF-8 and no log, by their first bytes: those of other encodings and of compressors.

/// The first bytes of files that editors and tools write in place of text in UTF-8, with the command that converts
/// them.
const OTHERS: [(&[u8], &str); 7] = [
    (
        b"\xef\xbb\xbf\x50\x2a\x4d\x18",
        "it is a log behind a byte order mark: remove the mark with tail -c +4",
    ),
    (b"\xff\xfe", "it is text in UTF-16, and iopath reads UTF-8: convert it with iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "it is text in UTF-16, and iopath reads UTF-8: convert it with iconv -f UTF-16 -t UTF-8"),
    (b"\x1f\x8b", "it is compressed with gzip: unpack it with gunzip"),
    (b"\x28\xb5\x2f\xfd", "it is compressed with zstd: unpack it with unzstd"),
    (b"\xfd7zXZ\0", "it is compressed with xz: unpack it with unxz"),
    (b"BZh", "it is compressed with bzip2: unpack it with bunzip2"),
];

/// What a file is, and the command that converts it; none if its first bytes are of no such file.
pub fn other_encoding(first: &[u8]) -> Option<&'static str> {
    OTHERS.iter().find(|(start, _)| first.starts_with(start)).map(|(_, what)| *what)
}
