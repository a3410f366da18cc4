//! Options of the files of a job. Only job files have them; the file itself is `--target`.

use super::Support::{Partly, Yes};
use super::{OptionRow, set};

pub(super) const ROWS: &[OptionRow] = &[
    OptionRow::only_key(
        Yes,
        &["directory"],
        "the directory of the files; several are distributed to the clones",
        set!(directories = list),
    ),
    OptionRow::only_key(Partly, &["nrfiles", "nr_files"], "1", |_, given| {
        given.only(&["1"], "a job has one file")
    }),
    OptionRow::only_key(
        Partly,
        &["fill_device", "fill_fs"],
        "the range of a file or device that exists is all of it; a file that does not exist needs a size",
        |_, given| given.flag().map(drop),
    ),
    OptionRow::only_key(
        Partly,
        &["invalidate"],
        "1: each measurement starts with empty caches",
        |_, given| given.only_on("a measurement starts with empty caches; pre_read=1 fills them"),
    ),
    OptionRow::only_key(Yes, &["kb_base"], "1024 or 1000", |_, given| {
        given.only(&["1024", "1000"], "a unit is 1024 or 1000")
    }),
];
