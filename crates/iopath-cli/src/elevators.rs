//! `iopath elevators`: the I/O schedulers (elevators) with their settings.

use crate::output;
use iopath_lab::ELEVATORS;
use std::fmt::Write;

pub(crate) fn list() -> anyhow::Result<()> {
    let mut text = String::new();
    for kind in ELEVATORS {
        writeln!(text, "{}: {}", kind.name, kind.about)?;
        for tunable in kind.tunables() {
            writeln!(text, "    {tunable}")?;
        }
    }
    output::print(&text)
}
