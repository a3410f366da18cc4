//! Writes fio's I/O log, version 3: a line for each bio, when it is queued. A bio that turns out to be one of a device
//! above is left out, so each bio waits for the next step.

use std::collections::HashMap;
use std::io::{self, Write};

use iopath_core::Op;
use iopath_core::log::Event;
use iopath_log::{Entry, Labels, LogInfo, QueueLabel};

use super::StepWriter;
use super::csv::remapped;
use crate::bios::Levels;

/// The lines of a log.
pub(super) struct Iolog {
    start_ns: u64,
    target: String,
    has_devices: bool,
    has_head: bool,
    /// The name of the file of each queue.
    files: HashMap<u16, String>,
    /// The bio that was queued last, as a line, with its queue and number.
    waiting: Option<(u16, u32, String)>,
    levels: Levels,
    remapped: u64,
    zeroes: u64,
}

impl Iolog {
    pub(super) fn new(info: &LogInfo) -> Self {
        Self {
            start_ns: info.start_ns,
            target: info.target.clone(),
            has_devices: info.has_devices(),
            has_head: false,
            files: HashMap::new(),
            waiting: None,
            levels: Levels::default(),
            remapped: 0,
            zeroes: 0,
        }
    }

    fn head(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if !std::mem::replace(&mut self.has_head, true) {
            writeln!(out, "fio version 3 iolog")?;
        }
        Ok(())
    }

    /// The file of a queue. Queues of iopath are of one file.
    fn file(&mut self, queue: u16, labels: &Labels, out: &mut dyn Write) -> io::Result<String> {
        let queue = if self.has_devices { queue } else { 0 };
        if let Some(file) = self.files.get(&queue) {
            return Ok(file.clone());
        }
        let label = labels.queue(queue);
        let name = match label {
            Some(QueueLabel { name, number, .. }) if !number.is_empty() && name != number => {
                format!("/dev/{name}")
            }
            Some(QueueLabel { name, .. }) => name.clone(),
            None => self.target.clone(),
        };
        // Words of an I/O log are separated by spaces, and fio separates file names by colons.
        let mut name: String = name.chars().map(|char| if is_plain(char) { char } else { '_' }).collect();
        if name.is_empty() {
            name = format!("queue{queue}");
        }
        writeln!(out, "0 {name} add\n0 {name} open")?;
        self.files.insert(queue, name.clone());
        Ok(name)
    }

    fn queued(&mut self, entry: &Entry, labels: &Labels, out: &mut dyn Write) -> io::Result<()> {
        let record = entry.record;
        let action = match record.op() {
            Some(Op::Read) => "read",
            Some(Op::Write) => "write",
            Some(Op::Discard) => "trim",
            Some(Op::WriteZeroes) => {
                self.zeroes += 1;
                "write"
            }
            Some(Op::Flush) => "sync",
            None => return Ok(()),
        };
        self.levels.queued(entry.queue);
        let file = self.file(entry.queue, labels, out)?;
        let us = entry.time.as_nanos().saturating_sub(self.start_ns) / 1000;
        let bytes = |sectors: u64| sectors * iopath_core::SECTOR_BYTES;
        let line = format!("{us} {file} {action} {} {}", bytes(record.sector()), bytes(record.sectors()));
        self.waiting = Some((entry.queue, record.tag(), line));
        Ok(())
    }

    fn release(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.waiting.take().map_or(Ok(()), |(.., line)| writeln!(out, "{line}"))
    }
}

const fn is_plain(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '/' | '.' | '-' | '_')
}

impl StepWriter for Iolog {
    fn step(&mut self, entry: &Entry, labels: &Labels, out: &mut dyn Write) -> io::Result<()> {
        self.head(out)?;
        if entry.record.event() == Some(Event::Remap) && self.levels.has_above(entry.record) {
            let remapped = (entry.queue, entry.record.tag());
            if self.waiting.take_if(|(queue, number, _)| (*queue, *number) == remapped).is_some() {
                self.remapped += 1;
                return Ok(());
            }
        }
        self.release(out)?;
        match entry.record.event() {
            Some(Event::Queue) => self.queued(entry, labels, out),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, _: &Labels, out: &mut dyn Write) -> io::Result<()> {
        self.head(out)?;
        self.release(out)?;
        let mut files: Vec<_> = self.files.values().collect();
        files.sort_unstable();
        files.iter().try_for_each(|file| writeln!(out, "0 {file} close"))
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = remapped(self.remapped);
        if self.zeroes > 0 {
            notes.push(format!(
                "{} requests that write zeroes are writes: fio has no other action",
                self.zeroes
            ));
        }
        notes
    }
}
