//! What `iopath record --top` shows: a page that replaces the one before, or lines.

use crate::output::print;
use crate::stderr::note;
use iopath_log::{Interval, for_terminal};
use iopath_report::format::View;
use iopath_report::format::log::{interval, interval_lines};
use iopath_report::terminal::{is_fancy, terminal_width};
use std::io;
use std::ops::ControlFlow;

/// The rows of each table.
const ROWS_MAX: usize = 10;

/// Moves the cursor to the first line, and clears the screen below it.
const NEW_PAGE: &str = "\x1b[H\x1b[J";

/// The output of intervals.
pub(super) struct Screen {
    kind: Kind,
    /// The failure that ended the output.
    failed: Option<anyhow::Error>,
}

enum Kind {
    /// Pages on a terminal.
    Pages,
    /// Lines on stdout.
    Lines,
    /// Lines on stderr: stdout belongs to the command.
    Notes,
}

impl Screen {
    pub(super) fn new(has_command: bool) -> Self {
        let kind = match (has_command, is_fancy(&io::stdout())) {
            (true, _) => Kind::Notes,
            (false, true) => Kind::Pages,
            (false, false) => Kind::Lines,
        };
        Self { kind, failed: None }
    }

    pub(super) fn show(&mut self, shown: &Interval) -> ControlFlow<()> {
        let printed = match self.kind {
            Kind::Pages => {
                let view = View { width: Some(terminal_width()), is_fancy: true };
                let page = interval(shown, ROWS_MAX, view);
                let page = if page.is_empty() { "no I/O on any device".to_owned() } else { page };
                print(&format!("{NEW_PAGE}{}\n", for_terminal(&page, true)))
            }
            Kind::Lines => {
                let lines: String =
                    interval_lines(shown).iter().flat_map(|line| [line.as_str(), "\n"]).collect();
                print(&for_terminal(&lines, false))
            }
            Kind::Notes => {
                interval_lines(shown).iter().for_each(note);
                Ok(())
            }
        };
        match printed {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    /// The failure that ended the output.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.failed.map_or(Ok(()), Err)
    }
}
