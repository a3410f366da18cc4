//! Options of the files of a job. Only job files have them; the file itself is `--target`.

use std::num::NonZeroU64;

use super::Support::{Partly, Yes};
use super::{Decides, FileOrder, Given, OptionRow, Refused, Settings, set};
use crate::workload::{AccessHint, Hint};

pub(super) const ROWS: &[OptionRow] = &[
    OptionRow::only_key(
        Yes,
        &["directory"],
        "the directory of the files; several are distributed to the clones",
        set!(directories = list),
    )
    .decides(Decides::Range),
    OptionRow::only_key(
        Yes,
        &["nrfiles", "nr_files"],
        "the files of each clone, if `filename` names none; see *Files*",
        |settings, given| {
            settings.file_count = given.every()?.map_or(1, NonZeroU64::get);
            Ok(())
        },
    )
    .neutral(&["0"])
    .decides(Decides::Range),
    OptionRow::only_key(
        Partly,
        &["opendir"],
        "all files in a directory and below it, of one size",
        set!(open_directories = list),
    )
    .decides(Decides::Range),
    OptionRow::only_key(
        Partly,
        &["file_service_type"],
        "the order of several files: `roundrobin`, `random` (as `roundrobin`) or `sequential`; with `:N` for the transfers to a \
         file before the next one",
        file_order,
    )
    .neutral(&["roundrobin"])
    .decides(Decides::Range),
    OptionRow::only_key(
        Partly,
        &["fill_device", "fill_fs"],
        "the range of a file or device that exists is all of it; a file that does not exist needs a size",
        |_, given| given.flag().map(drop),
    )
    .decides(Decides::Range),
    OptionRow::only_key(
        Yes,
        &["invalidate"],
        "1, the default: each measurement starts with empty caches, and each pass of a job through the kernel's page cache; 0 \
         leaves them as they are",
        |settings, given| {
            settings.workload.keeps_caches = !given.flag()?;
            Ok(())
        },
    ),
    OptionRow::only_key(
        Yes,
        &["fadvise_hint"],
        "the hint for the kernel's page cache, also for mapped files: 1, the default, is the order of the pattern; 0, `random`, \
         `sequential`",
        |settings, given| {
            settings.workload.access_hint = match given.text()? {
                "0" | "none" => AccessHint::None,
                "1" | "pattern" => AccessHint::Pattern,
                "random" => AccessHint::Given(Hint::Random),
                "sequential" => AccessHint::Given(Hint::Sequential),
                _ => return Err(Refused::Expected("0, 1, random or sequential")),
            };
            Ok(())
        },
    ),
    OptionRow::only_key(
        Partly,
        &["unlink"],
        "1 removes a file that `iopath fio` created; `iopath run` removes them always",
        set!(unlink = flag),
    ),
    OptionRow::only_key(
        Yes,
        &["ioscheduler"],
        "the I/O scheduler of the disk during the run; the former one comes back",
        |settings, given| {
            settings.scheduler = Some(given.text()?.to_owned());
            Ok(())
        },
    ),
    OptionRow::only_key(
        Yes,
        &["overwrite"],
        "1: a new file is written before a job that only writes; without it, the file is allocated alone. Permits no write to a file of \
         the user",
        set!(overwrites = flag),
    ),
    OptionRow::only_key(
        Partly,
        &["fallocate"],
        "the content of a new file before jobs that only write: `native`, the default, `posix` and `keep` allocate unwritten blocks, \
         `none` and `truncate` leave a hole of the size of the file",
        |settings, given| {
            settings.leaves_hole = match given.text()? {
                "native" | "posix" | "keep" | "1" => false,
                "none" | "truncate" | "0" => true,
                _ => return Err(Refused::Expected("none, native, posix, keep or truncate")),
            };
            Ok(())
        },
    ),
    OptionRow::only_key(
        Yes,
        &["create_only"],
        "1 creates the files of the job, and does not run it",
        set!(create_only = flag),
    ),
    OptionRow::only_key(
        Partly,
        &["filename_format"],
        "the name of a file that `iopath fio` creates for a clone, with `$jobname`, `$jobnum` and `$filenum`",
        |settings, given| {
            settings.name_format = Some(given.text()?.to_owned());
            Ok(())
        },
    )
    .decides(Decides::Range),
    OptionRow::only_key(Yes, &["kb_base"], "1024 or 1000", |_, given| {
        given.only(&["1024", "1000"], "a unit is 1024 or 1000")
    }),
];

fn file_order(settings: &mut Settings, given: &Given) -> Result<(), Refused> {
    const EXPECTED: Refused =
        Refused::Expected("roundrobin, random or sequential, with a number after a colon");
    let text = given.text()?;
    let (order, number) = text.split_once(':').map_or((text, None), |(order, number)| (order, Some(number)));
    let transfers = number.map_or(Some(1), |number| number.parse().ok().filter(|number| *number > 0));
    settings.file_order = match order {
        "roundrobin" | "random" => FileOrder::InTurn(transfers.ok_or(EXPECTED)?),
        "sequential" => FileOrder::OneAfterAnother,
        _ => return Err(Refused::Value("no such order of files")),
    };
    Ok(())
}
