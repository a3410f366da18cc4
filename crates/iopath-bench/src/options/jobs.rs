//! Options of the order of several jobs. Only job files have them.

use super::Support::{Partly, Yes};
use super::{ExitWhat, OptionRow, Refused, set};

pub(super) const ROWS: &[OptionRow] = &[
    OptionRow::only_key(Yes, &["name"], "the name of the job in the results", |settings, given| {
        given.text()?.clone_into(&mut settings.name);
        Ok(())
    }),
    OptionRow::only_key(
        Yes,
        &["stonewall", "wait_for_previous"],
        "starts a group of jobs",
        set!(stonewall = flag),
    )
    .switch(),
    OptionRow::only_key(
        Partly,
        &["wait_for"],
        "starts a group of jobs, so the job waits for all jobs before it",
        |settings, given| {
            settings.wait_for = Some(given.text()?.to_owned());
            Ok(())
        },
    ),
    OptionRow::only_key(Yes, &["exitall"], "the end of the job ends its group", set!(exit_all = flag))
        .switch(),
    OptionRow::only_key(
        Yes,
        &["exit_what"],
        "`group` and `stonewall` end the group of the job; `all` also skips later groups",
        |settings, given| {
            settings.exit_what = match given.text()? {
                "group" | "stonewall" => ExitWhat::Group,
                "all" => ExitWhat::All,
                _ => return Err(Refused::Expected("group, stonewall or all")),
            };
            Ok(())
        },
    ),
];
