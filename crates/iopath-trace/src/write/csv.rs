//! Writes the CSV of iopath: a line for each bio, in the order of completion; last those without a completion.

use std::io::{self, Write};

use iopath_log::{Entry, Labels, LogInfo};

use super::StepWriter;
use crate::bios::{Bio, Bios, Followed};
use crate::formats::columns::{COLUMNS, op_name};

/// The lines of a log.
pub(super) struct Csv {
    start_ns: u64,
    has_devices: bool,
    bios: Bios,
    has_head: bool,
    remapped: u64,
}

impl Csv {
    pub(super) fn new(info: &LogInfo) -> Self {
        let has_devices = info.has_devices();
        Self { start_ns: info.start_ns, has_devices, bios: Bios::default(), has_head: false, remapped: 0 }
    }

    fn head(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if !std::mem::replace(&mut self.has_head, true) {
            writeln!(out, "{}", COLUMNS.join(","))?;
        }
        Ok(())
    }

    fn line(&self, bio: &Bio, done_ns: Option<u64>, out: &mut dyn Write) -> io::Result<()> {
        let Bio { queue, queued_ns, op, sector, sectors, stream, .. } = *bio;
        let at_ns = queued_ns.saturating_sub(self.start_ns);
        // All queues of iopath are of one device.
        let disk = if self.has_devices { queue } else { 0 };
        write!(out, "{at_ns},{},{sector},{sectors},{stream},{disk},", op_name(op))?;
        match done_ns {
            Some(done_ns) => writeln!(out, "{}", done_ns.saturating_sub(queued_ns)),
            None => writeln!(out),
        }
    }
}

impl StepWriter for Csv {
    fn step(&mut self, entry: &Entry, _: &Labels, out: &mut dyn Write) -> io::Result<()> {
        self.head(out)?;
        match self.bios.follow(entry) {
            Followed::Completed(bio) => self.line(&bio, Some(entry.time.as_nanos()), out),
            Followed::Queued(_, Some(before)) => self.line(&before, None, out),
            Followed::Remapped(_) => {
                // It is no I/O of its own.
                self.bios.forget(entry);
                self.remapped += 1;
                Ok(())
            }
            Followed::Queued(_, None) | Followed::Other => Ok(()),
        }
    }

    fn finish(&mut self, _: &Labels, out: &mut dyn Write) -> io::Result<()> {
        self.head(out)?;
        for bio in self.bios.take_rest() {
            self.line(&bio, None, out)?;
        }
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        remapped(self.remapped)
    }
}

/// A note about bios that are left out because the log has them on the level above, too.
pub(super) fn remapped(count: u64) -> Vec<String> {
    let note = format!("{count} bios are left out: they are bios of a device above, which is in the output");
    (count > 0).then_some(note).into_iter().collect()
}
