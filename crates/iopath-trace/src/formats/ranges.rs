//! The part of a line that blkparse and the tracepoints have in common: device, operation, sectors, and what follows.

use iopath_log::kernel::{DeviceNumber, KernelIo, What};

use crate::scan::{Scan, number};

/// `MAJOR,MINOR`.
pub(super) fn device(word: &[u8]) -> Option<DeviceNumber> {
    let mut scan = Scan(word);
    let major = u32::try_from(scan.number()?).ok()?;
    scan.byte(b',')?;
    let minor = u32::try_from(scan.number()?).ok()?;
    if scan.0.is_empty() { DeviceNumber::new(major, minor) } else { None }
}

/// `SECTOR + SECTORS`. A sector of -1 is unknown: that of a flush.
pub(super) fn range(scan: &mut Scan<'_>) -> Option<(u64, u32)> {
    let sector = scan.number_word()?;
    (scan.word()? == b"+").then_some(())?;
    let sectors = u32::try_from(scan.number_word()?).ok()?;
    Some(if sectors == 0 && sector == u64::MAX { (0, 0) } else { (sector, sectors) })
}

/// `SECTOR / NEW_SECTOR`, of a split.
pub(super) fn split(device: DeviceNumber, scan: &mut Scan<'_>) -> Option<What> {
    let sector = scan.number_word()?;
    (scan.word()? == b"/").then_some(())?;
    Some(What::split(device, sector, scan.number_word()?))
}

/// `SECTOR + SECTORS <- (MAJOR,MINOR) SECTOR`, of a remap.
pub(super) fn remap(to: DeviceNumber, rwbs: &[u8], scan: &mut Scan<'_>) -> Option<What> {
    let (sector, sectors) = range(scan)?;
    (scan.word()? == b"<-").then_some(())?;
    let from = device(scan.word()?.strip_prefix(b"(")?.strip_suffix(b")")?)?;
    let from_sector = scan.number_word()?;
    Some(What::Remap { to: KernelIo::new(to, sector, sectors, rwbs), from, from_sector })
}

/// The text between the first `[` and the last `]`, and the rest behind it.
pub(super) fn brackets(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let open = text.iter().position(|byte| *byte == b'[')?;
    let close = text.iter().rposition(|byte| *byte == b']').filter(|close| *close > open)?;
    Some((&text[open + 1..close], &text[close + 1..]))
}

/// The error in brackets, as a positive number; 0 if there is none.
pub(super) fn error(text: &[u8]) -> u32 {
    let Some((inner, _)) = brackets(text) else { return 0 };
    let digits = inner.strip_prefix(b"-").unwrap_or(inner);
    number(digits).and_then(|value| u32::try_from(value).ok()).map_or(0, errno)
}

/// The error number of a field of 16 bits, in which the kernel stores the negative number.
pub(super) const fn errno(field: u32) -> u32 {
    match field {
        0x8000..=0xFFFF => 0x1_0000 - field,
        _ => field,
    }
}

/// The number of requests behind the name, of an unplug: `[COMM] REQUESTS`.
pub(super) fn unplugged(text: &[u8]) -> What {
    let rest = brackets(text).map_or(&b""[..], |(_, rest)| rest);
    let requests = Scan(rest).number_word().unwrap_or(0);
    What::Unplug { requests: requests.min(u64::from(u32::MAX >> 8)) as u32 }
}
