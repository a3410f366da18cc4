//! Options of the range of a file or device that a workload accesses, and of its zones.

use super::Form::One;
use super::Support::{Partly, Yes};
use super::{OptionRow, Refused, set};
use crate::field::Field;

pub(super) const ROWS: &[OptionRow] = &[
    OptionRow::option(
        "--size",
        One("SIZE"),
        "Bytes to access from the start of the target, or percent of a file, device or model (20%); default: all of it, 1g \
         of a scratch file",
        set!(size = Some(amount)),
    )
    .field(Field::SIZE)
    .of_job_file()
    .key(Yes, &["size"], "the range from `offset`; percentages are of an existing file or device"),
    OptionRow::option(
        "--offset",
        One("SIZE"),
        "The first byte to access; default: 0",
        set!(offset = amount),
    )
    .default("0")
    .key(Yes, &["offset"], "the first byte of the range"),
    OptionRow::only_key(
        Yes,
        &["io_size", "io_limit"],
        "the bytes to transfer; default: one pass",
        set!(io_size = Some(amount)),
    ),
    OptionRow::only_key(
        Partly,
        &["filesize"],
        "one size, for a file that does not exist",
        |settings, given| {
            if given.text()?.contains(['-', ':']) {
                return Err(Refused::Value("files of a job have one size"));
            }
            settings.file_bytes = Some(given.bytes()?);
            Ok(())
        },
    ),
    OptionRow::only_key(
        Yes,
        &["offset_increment"],
        "added to `offset` for each clone",
        set!(offset_increment = amount),
    ),
    OptionRow::only_key(
        Yes,
        &["offset_align"],
        "the alignment of offsets in percent",
        set!(offset_align_bytes = bytes),
    ),
    OptionRow::only_key(Yes, &["number_ios"], "the maximum number of transfers", set!(ios = Some(positive))),
    OptionRow::only_key(
        Yes,
        &["loops"],
        "passes, without dropping the caches in between",
        set!(loops = positive),
    ),
    OptionRow::only_key(
        Partly,
        &["zonemode"],
        "`none` and `strided`; default: `strided` with a `zonesize`, else `none`",
        |settings, given| {
            given.only(&["none", "strided"], "no zoned block devices")?;
            settings.zones.is_strided = Some(given.text()? == "strided");
            Ok(())
        },
    ),
    OptionRow::only_key(
        Yes,
        &["zonesize"],
        "the bytes to transfer in a zone before the next one",
        set!(zones.size_bytes = bytes),
    ),
    OptionRow::only_key(
        Yes,
        &["zonerange"],
        "the length of a zone; default: `zonesize`",
        set!(zones.range_bytes = bytes),
    ),
    OptionRow::only_key(Yes, &["zoneskip"], "the bytes between two zones", set!(zones.skip_bytes = bytes)),
];
