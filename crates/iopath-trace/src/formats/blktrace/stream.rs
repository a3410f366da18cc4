//! The records of one file.

use iopath_log::{LogError, NumberMap, Position};

use super::record::{BYTES_7, BYTES_8, Head};
use crate::input::Input;

/// The buffer of a file: larger than a record with the longest payload.
const BUFFER_BYTES: usize = 1 << 18;

/// The maximum number of CPUs whose sequence is followed.
const CPUS_MAX: usize = 1 << 16;

/// A file, positioned at a record.
pub(super) struct Stream {
    input: Input,
    buffer: Vec<u8>,
    /// The bytes of the buffer that are not processed.
    unread: std::ops::Range<usize>,
    /// The position of the buffer in the file.
    buffer_at: u64,
    current: Option<Head>,
    /// The last sequence number of each CPU, and that of the CPU of the record before.
    sequences: NumberMap<u32, u32>,
    last: Option<(u32, u32)>,
    missing: u64,
    cut_off: Option<u64>,
}

impl Stream {
    pub(super) fn new(input: Input) -> Result<Self, LogError> {
        let mut stream = Self {
            input,
            buffer: vec![0; BUFFER_BYTES],
            unread: 0..0,
            buffer_at: 0,
            current: None,
            sequences: NumberMap::default(),
            last: None,
            missing: 0,
            cut_off: None,
        };
        stream.parse()?;
        Ok(stream)
    }

    /// The time of the current record; none at the end.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.current.map(|head| head.time_ns)
    }

    /// The current record and its payload.
    pub(super) fn current(&self) -> (Head, &[u8]) {
        let head = self.current.expect("a record is current until the end");
        let start = self.unread.start + head.length();
        let payload = &self.buffer[start..start + usize::from(head.payload_bytes)];
        (head, payload.get(head.cgroup_bytes()..).unwrap_or_default())
    }

    /// Continues with the next record.
    pub(super) fn advance(&mut self) -> Result<(), LogError> {
        if let Some(head) = self.current {
            self.unread.start += head.length() + usize::from(head.payload_bytes);
        }
        self.parse()
    }

    fn at(&self) -> u64 {
        self.buffer_at + self.unread.start as u64
    }

    /// Parses the record at the start of the unread bytes.
    fn parse(&mut self) -> Result<(), LogError> {
        self.current = None;
        self.fill(BYTES_8)?;
        let unread = &self.buffer[self.unread.clone()];
        if unread.is_empty() {
            return Ok(());
        }
        let Some(head) = Head::parse(unread) else {
            if unread.len() < BYTES_7 || unread.len() < BYTES_8 && Head::parse(&with_zeroes(unread)).is_some()
            {
                self.cut_off = Some(self.at());
                return Ok(());
            }
            let problem = "no record of blktrace, version 7 or 8, begins here";
            return Err(self.input.error(Position::Byte(self.at()), problem.to_owned()));
        };
        let bytes = head.length() + usize::from(head.payload_bytes);
        self.fill(bytes)?;
        if self.unread.len() < bytes {
            self.cut_off = Some(self.at());
            return Ok(());
        }
        // The kernel does not number the other records.
        if !head.is_notify() {
            self.follow_sequence(&head);
        }
        self.current = Some(head);
        Ok(())
    }

    /// The kernel numbers the events of each CPU. Events that are not in the file leave a gap.
    #[inline]
    fn follow_sequence(&mut self, head: &Head) {
        match &mut self.last {
            Some((cpu, sequence)) if *cpu == head.cpu && sequence.wrapping_add(1) == head.sequence => {
                *sequence = head.sequence;
            }
            _ => self.follow_gap(head),
        }
    }

    #[cold]
    fn follow_gap(&mut self, head: &Head) {
        if let Some((cpu, sequence)) = self.last.replace((head.cpu, head.sequence))
            && (self.sequences.len() < CPUS_MAX || self.sequences.contains_key(&cpu))
        {
            self.sequences.insert(cpu, sequence);
        }
        let before = self.sequences.get(&head.cpu);
        let gap = before.map_or(0, |before| head.sequence.wrapping_sub(*before).saturating_sub(1));
        // A sequence that goes back begins another run.
        if gap < 1 << 31 {
            self.missing += u64::from(gap);
        }
    }

    /// Reads until the buffer has this number of unread bytes, or the file ends.
    fn fill(&mut self, bytes: usize) -> Result<(), LogError> {
        if self.unread.len() >= bytes {
            return Ok(());
        }
        self.buffer.copy_within(self.unread.clone(), 0);
        self.buffer_at += self.unread.start as u64;
        self.unread = 0..self.unread.len();
        let read = self.input.read_full(&mut self.buffer[self.unread.end..])?;
        self.unread.end += read;
        Ok(())
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let name = self.input.path().display();
        let mut notes: Vec<String> = self.input.note().into_iter().collect();
        if let Some(at) = self.cut_off {
            notes.push(format!("{name} is cut off in the record at byte {at}, which is not used"));
        }
        if self.missing > 0 {
            notes.push(format!("{name} lacks {} events, by its sequence numbers", self.missing));
        }
        notes
    }
}

/// The bytes, as if zeroes followed them.
fn with_zeroes(bytes: &[u8]) -> [u8; BYTES_8] {
    let mut padded = [0; BYTES_8];
    let length = bytes.len().min(BYTES_8);
    padded[..length].copy_from_slice(&bytes[..length]);
    padded
}
