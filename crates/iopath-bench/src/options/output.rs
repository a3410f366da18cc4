//! Options of the formats of fio: groups, directions and percentiles. Only job files have them.

use iopath_report::result::Unified;

use super::Support::{Partly, Yes};
use super::value::percentiles;
use super::{OptionRow, Refused, Values, set};

/// The formats of fio, in the table of keys.
pub(super) const ROWS: &[OptionRow] = &[
    OptionRow::only_key(
        Yes,
        &["group_reporting"],
        "in the formats of fio, the jobs of a group with this key are one entry",
        set!(output.is_grouped = flag),
    )
    .switch(),
    OptionRow::only_key(
        Yes,
        &["new_group"],
        "the job begins a group of the formats of fio",
        set!(output.begins_group = flag),
    )
    .switch(),
    OptionRow::only_key(Yes, &["stats"], "0: the formats of fio leave the job out", |settings, given| {
        settings.output.is_left_out = !given.flag()?;
        Ok(())
    }),
    OptionRow::only_key(
        Yes,
        &["unified_rw_reporting"],
        "in the formats of fio, `none` shows reads, writes and trims apart, `mixed` as one, `both` in both ways",
        |settings, given| {
            settings.output.unified = match given.text()? {
                "none" | "0" => Unified::Apart,
                "mixed" | "1" => Unified::Together,
                "both" | "2" => Unified::Both,
                _ => return Err(Refused::Expected("none, mixed or both (0, 1 or 2)")),
            };
            Ok(())
        },
    ),
    OptionRow::only_key(
        Yes,
        &["percentile_list"],
        "the percentiles in the formats of fio; those of iopath are fixed",
        |settings, given| {
            let list = percentiles(given.text()?).ok_or(Refused::Invalid(Values::Percentiles))?;
            settings.output.percentiles = Some(list);
            Ok(())
        },
    ),
    OptionRow::only_key(
        Yes,
        &["clat_percentiles"],
        "percentiles of `clat` in the formats of fio; default: 1",
        set!(output.of_completions = flag),
    ),
    OptionRow::only_key(
        Yes,
        &["lat_percentiles"],
        "percentiles of `lat` in the formats of fio; default: 0",
        set!(output.of_whole = flag),
    ),
    OptionRow::only_key(
        Partly,
        &["slat_percentiles"],
        "1: `slat` is measured on path `kernel-uring`, with a system call for each batch of submissions; default: 0",
        set!(output.of_submissions = flag),
    ),
];
