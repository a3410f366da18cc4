//! The request log of a modelled machine, in memory: its summary, its lines and its steps. The format is that of
//! `iopath-log`.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use iopath_core::log::Step;
use iopath_log::{Block, Filter, LogInfo, LogOptions, LogReader, Report, SyncLogWriter};

use super::VolumeSetup;
use crate::error::BenchError;

/// The request log of a run, in memory.
pub struct MachineLog {
    /// The summary of the whole log.
    pub report: Report,
    pub(super) bytes: Vec<u8>,
}

impl MachineLog {
    /// The first `lines_max` lines of `iopath log dump` that pass the filter and for which `pick` returns true.
    ///
    /// # Errors
    /// [`BenchError::Log`]: the log cannot be read.
    pub fn lines(
        &self,
        filter: &Filter,
        lines_max: usize,
        pick: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Vec<String>, BenchError> {
        let mut lines = Lines { line: Vec::new(), picked: Vec::new(), picked_max: lines_max, pick };
        let dumped = LogReader::new(&self.bytes[..])?.dump(filter, &mut lines);
        // A full list refuses further lines.
        match dumped {
            Err(error) if lines.picked.len() < lines_max => Err(error.into()),
            _ => Ok(lines.picked),
        }
    }

    /// Passes each step to `each`, in the order of the log.
    ///
    /// # Errors
    /// [`BenchError::Log`]: the log cannot be read.
    pub fn steps(&self, each: &mut dyn FnMut(Step)) -> Result<(), BenchError> {
        let (mut reader, mut block) = (LogReader::new(&self.bytes[..])?, Block::default());
        while reader.read_block(&mut block)? {
            block.entries().filter_map(|entry| entry.record.step().ok()).for_each(&mut *each);
        }
        Ok(())
    }
}

impl std::fmt::Debug for MachineLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MachineLog").field("report", &self.report).finish_non_exhaustive()
    }
}

/// Collects lines of a dump, at most `picked_max`.
struct Lines<'a> {
    /// The bytes of a line so far.
    line: Vec<u8>,
    picked: Vec<String>,
    picked_max: usize,
    pick: &'a mut dyn FnMut(&str) -> bool,
}

impl Write for Lines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            if self.picked.len() == self.picked_max {
                return Err(io::ErrorKind::WriteZero.into());
            }
            if byte != b'\n' {
                self.line.push(byte);
                continue;
            }
            let line = String::from_utf8_lossy(&self.line).into_owned();
            self.line.clear();
            if (self.pick)(&line) {
                self.picked.push(line);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The memory to which a log is written.
#[derive(Debug, Clone, Default)]
pub struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    /// A log in memory, and its writer.
    pub fn start(volumes: &[VolumeSetup]) -> Result<(SyncLogWriter, Self), BenchError> {
        let memory = Self::default();
        let info = LogInfo {
            elevator: volumes.first().map(|volume| volume.elevator.to_string()).unwrap_or_default(),
            target: "modelled machine".to_owned(),
            clock: "virtual".to_owned(),
            ..LogInfo::default()
        };
        Ok((SyncLogWriter::to(memory.clone(), &info, &LogOptions::default())?, memory))
    }

    /// Completes the log. All sinks of the writer must have been dropped.
    pub fn finish(self, log: SyncLogWriter) -> Result<MachineLog, BenchError> {
        log.finish()?;
        let bytes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let report = LogReader::new(&bytes[..])?.summarise(&Filter::default())?;
        Ok(MachineLog { report, bytes })
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
