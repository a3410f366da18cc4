//! The streams of a log: a number for each process and command name.

use crate::labels::StreamLabel;
use crate::number_map::NumberMap;
use iopath_core::{Record, Stream};
use std::collections::HashSet;

/// The maximum number of processes of the recorded command that are remembered.
const OWN_MAX: usize = 1 << 20;

/// The processes seen so far.
#[derive(Debug, Default)]
pub(super) struct Processes {
    streams: NumberMap<(u32, [u8; 16]), u16>,
    /// The process of the last event, with its stream: consecutive events are often of one process.
    last: Option<((u32, [u8; 16]), u16)>,
    /// The recorded command.
    command: Option<u32>,
    /// The recorded command, and the processes that it started.
    own: HashSet<u32>,
    /// Labels that the log does not have yet.
    pub(super) new: Vec<StreamLabel>,
}

impl Processes {
    /// The process is the recorded command. The event of its creation may follow.
    pub(super) fn begin_own(&mut self, pid: u32) {
        self.command = Some(pid);
        self.add_own(pid);
    }

    fn add_own(&mut self, pid: u32) {
        if self.own.len() < OWN_MAX {
            self.own.insert(pid);
        }
    }

    /// A process started another one.
    pub(super) fn forked(&mut self, child: u32, parent: u32) {
        if self.own.contains(&parent) {
            self.add_own(child);
        } else if self.command != Some(child) {
            // The number of a process that has ended is used again.
            self.own.remove(&child);
        }
    }

    /// The stream of a process. A process that executes another program, or a thread with a name of its own, is another
    /// stream. Streams beyond the largest number share that number.
    pub(super) fn stream(&mut self, pid: u32, command: [u8; 16]) -> Stream {
        let key = (pid, command);
        if let Some((last, stream)) = self.last
            && last == key
        {
            return Stream(stream.into());
        }
        let count = self.streams.len();
        let stream = match self.streams.get(&key) {
            Some(stream) => *stream,
            None if count >= Record::STREAM_MAX as usize => return Stream(Record::STREAM_MAX),
            None => {
                let stream = count as u16;
                self.streams.insert(key, stream);
                self.new.push(StreamLabel {
                    stream,
                    pid: Some(pid),
                    command: kernel_name(&command),
                    is_own: self.own.contains(&pid),
                });
                stream
            }
        };
        self.last = Some((key, stream));
        Stream(stream.into())
    }
}

/// The text before the first zero of a name as the kernel has it, such as that of a task.
pub fn kernel_name(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
