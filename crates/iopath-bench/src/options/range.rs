//! Options of the range of a file or device that a workload accesses, and of its zones.

use std::num::NonZeroU64;

use serde_json::Value;

use super::Form::One;
use super::Support::{Partly, Yes};
use super::{Amount, Decides, Difference, Kind, NONE, OptionRow, Refused, set};
use crate::field::Field;

pub(super) const ROWS: &[OptionRow] = &[
    OptionRow::option(
        "--size",
        One("SIZE"),
        "Bytes to access from the start of the target, or percent of a file, device or model (20%); default: all of it, 1g \
         of a scratch file",
        |settings, given| {
            // fio's default of 0 is all of a file or device.
            let is_all = |amount: &Amount| given.is_in_job_file() && *amount == Amount::Bytes(0);
            settings.size = Some(given.amount()?).filter(|amount| !is_all(amount));
            Ok(())
        },
    )
    .field(Field::SIZE)
    .states(
        "size_bytes",
        Kind::Whole,
        // The range is a condition: `compare/ours.rs`.
        Difference::Ignored,
        "The end of the range, in bytes from the start of the target.",
        |ran| Some(ran.end_bytes.into()),
    )
    .always()
    .of_job_file()
    .key(Yes, &["size"], "the range from `offset`; 0 is all of the file or device, and percentages are of an existing one").decides(Decides::Range),
    OptionRow::option(
        "--offset",
        One("SIZE"),
        "The first byte to access; default: 0",
        set!(offset = offset),
    )
    .default("0")
    .states(
        "start_bytes",
        Kind::Whole,
        Difference::Ignored,
        "The first byte of the range.",
        |ran| Some(ran.workload.start_bytes.into()),
    )
    .always()
    .key(Yes, &["offset", "fileoffset"], "the first byte of the range").decides(Decides::Range),
    OptionRow::only_key(
        Yes,
        &["io_size", "io_limit"],
        "the bytes to transfer; default: one pass",
        |settings, given| {
            settings.io_size = Some(given.amount()?).filter(|amount| *amount != Amount::Bytes(0));
            Ok(())
        },
    ).neutral(&["0"]).decides(Decides::Range)
    .states(
        "io_bytes",
        Kind::Whole,
        Difference::Ignored,
        "The bytes of a repetition, of all jobs together, if they are not one pass over the range.",
        |ran| ran.workload.end.bytes().map(Value::from),
    )
    .or_null(),
    OptionRow::only_key(
        Partly,
        &["filesize"],
        "one size, for a file that does not exist",
        |settings, given| {
            if given.text()?.contains(['-', ':']) {
                return Err(Refused::Value("files of a job have one size"));
            }
            settings.file_bytes = Some(given.bytes()?).filter(|bytes| *bytes > 0);
            Ok(())
        },
    ).neutral(&["0"]).decides(Decides::Range),
    OptionRow::only_key(
        Yes,
        &["offset_increment"],
        "added to `offset` for each clone",
        set!(offset_increment = offset),
    ).decides(Decides::Range),
    OptionRow::only_key(
        Yes,
        &["offset_align"],
        "the alignment of offsets in percent",
        set!(offset_align_bytes = bytes),
    ).decides(Decides::Range),
    OptionRow::only_key(Yes, &["number_ios"], "the maximum number of transfers", |settings, given| {
            settings.ios = given.every()?.map(NonZeroU64::get);
            Ok(())
        }).neutral(&["0"]).decides(Decides::Range)
        .states(
            "ios_max",
            Kind::Whole,
            Difference::RefusedOr(NONE),
            "The maximum number of transfers of a job; none without a limit.",
            |ran| ran.workload.shape.ios_max.map(Value::from),
        ),
    OptionRow::only_key(
        Yes,
        &["loops"],
        "passes, without dropping the caches in between",
        |settings, given| {
            settings.loops = given.every()?.map_or(1, NonZeroU64::get);
            Ok(())
        },
    ).neutral(&["0"]).decides(Decides::Range),
    OptionRow::only_key(
        Partly,
        &["zonemode"],
        "`none` and `strided`; default: `strided` with a `zonesize`, else `none`",
        |settings, given| {
            given.only(&["none", "strided"], "no zoned block devices")?;
            settings.zones.is_strided = Some(given.text()? == "strided");
            Ok(())
        },
    ).decides(Decides::Range),
    OptionRow::only_key(
        Yes,
        &["zonesize"],
        "the bytes to transfer in a zone before the next one",
        set!(zones.size_bytes = bytes),
    ).decides(Decides::Range),
    OptionRow::only_key(
        Yes,
        &["zonerange"],
        "the length of a zone; default: `zonesize`",
        set!(zones.range_bytes = bytes),
    ).decides(Decides::Range),
    OptionRow::only_key(Yes, &["zoneskip"], "the bytes between two zones", set!(zones.skip_bytes = bytes)).decides(Decides::Range),
];
