//! Unfair clients, which share a server with the client under test: they send and never read, read a byte at a time,
//! stop in the middle of a message, send garbage, or keep the server busy. Their I/O is in cells of their own.

use super::CELL;
use super::channel::End;
use super::clock::{Clock, MILLISECOND, Nanos, SECOND};
use super::random::Random;
use crate::protocol::{OPTION_MAGIC, REQUEST_MAGIC, command, option};
use crate::wire::Append;

/// What a peer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Connects, and sends nothing.
    Silent,
    /// Ends in the middle of the negotiation.
    HalfHandshake,
    /// Ends in the middle of the head of a request.
    HalfHead,
    /// Ends in the middle of the data of a write.
    HalfWrite,
    /// Sends reads, and never reads a reply.
    DeafReader,
    /// Sends writes, and never reads a reply.
    DeafWriter,
    /// Sends requests that the server refuses, and never reads a reply.
    DeafRefused,
    /// Sends reads, and reads a byte now and then.
    SlowReader,
    /// Sends a write, a byte now and then.
    Dripper,
    /// Keeps many reads in flight.
    GreedyReader,
    /// Keeps many writes in flight.
    GreedyWriter,
    /// Sends random bytes instead of a negotiation.
    Garbage,
    /// Sends random bytes instead of requests.
    GarbageRequests,
    /// Negotiates options without end.
    Options,
    /// Leaves with requests in flight.
    Vanishes,
    /// Sends requests and the end of the connection, and counts the replies.
    Polite,
}

impl Manner {
    pub(super) const ALL: [Self; 16] = [
        Self::Silent,
        Self::HalfHandshake,
        Self::HalfHead,
        Self::HalfWrite,
        Self::DeafReader,
        Self::DeafWriter,
        Self::DeafRefused,
        Self::SlowReader,
        Self::Dripper,
        Self::GreedyReader,
        Self::GreedyWriter,
        Self::Garbage,
        Self::GarbageRequests,
        Self::Options,
        Self::Vanishes,
        Self::Polite,
    ];

    /// Whether the server must end the connection by itself.
    pub(super) const fn is_endless(self) -> bool {
        !matches!(self, Self::GreedyReader | Self::GreedyWriter | Self::Vanishes | Self::Polite)
    }

    /// Whether it moves no more bytes at some time, in the middle of a message.
    pub(super) const fn is_silent(self) -> bool {
        matches!(self, Self::Silent | Self::HalfHandshake | Self::HalfHead | Self::HalfWrite)
    }

    const fn reads(self) -> bool {
        matches!(
            self,
            Self::GreedyReader
                | Self::GreedyWriter
                | Self::Garbage
                | Self::GarbageRequests
                | Self::Options
                | Self::Vanishes
                | Self::Polite
        )
    }

    const fn is_slow(self) -> bool {
        matches!(self, Self::SlowReader | Self::Dripper)
    }
}

/// The replies of a simple read have this many bytes before the data.
const REPLY: u64 = 16;

/// One peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) manner: Manner,
    stream: Option<End>,
    clock: Clock,
    random: Random,
    /// Its cells.
    cells: std::ops::Range<u64>,
    length: u64,
    depth: u64,
    output: Vec<u8>,
    requests: u64,
    received: u64,
    pub(super) connected: Nanos,
    next_byte: Nanos,
    interval: Nanos,
    leaves: Nanos,
    is_excused: bool,
}

impl Peer {
    pub(super) fn new(
        manner: Manner,
        cells: std::ops::Range<u64>,
        stream: End,
        clock: &Clock,
        mut random: Random,
    ) -> Self {
        let length = random.magnitude(1, cells.end - cells.start) * CELL as u64;
        let now = clock.now();
        let mut peer = Self {
            manner,
            stream: Some(stream),
            clock: clock.clone(),
            cells,
            length,
            depth: random.magnitude(1, 256),
            output: Vec::new(),
            requests: 0,
            received: 0,
            connected: now,
            next_byte: now,
            interval: random.magnitude(MILLISECOND, 2 * SECOND),
            leaves: now + random.magnitude(MILLISECOND, 5 * SECOND),
            is_excused: false,
            random,
        };
        peer.begin();
        peer
    }

    fn begin(&mut self) {
        use Manner as M;
        if matches!(self.manner, M::Silent) {
            return;
        }
        if matches!(self.manner, M::Garbage) {
            let count = self.random.magnitude(1, 100_000);
            let random = &mut self.random;
            self.output.extend((0..count).map(|_| random.below(256) as u8));
            return;
        }
        self.output.append_u32(3);
        let name = b"disk";
        self.output.append_u64(OPTION_MAGIC);
        self.output.append_u32(option::EXPORT_NAME);
        self.output.append_u32(name.len() as u32);
        self.output.extend(name);
        match self.manner {
            M::HalfHandshake => {
                let left = self.random.below(self.output.len() as u64) as usize;
                self.output.truncate(left);
            }
            M::Options => self.output.truncate(4),
            M::HalfHead => {
                let head = self.output.len();
                self.request(command::READ, 0);
                let left = head + self.random.between(1, 27) as usize;
                self.output.truncate(left);
            }
            M::HalfWrite => {
                let head = self.output.len() + 28;
                self.request(command::WRITE, 0);
                let left = head + self.random.below(self.length) as usize;
                self.output.truncate(left);
            }
            M::GarbageRequests => {
                let count = self.random.magnitude(1, 10_000);
                let random = &mut self.random;
                self.output.extend((0..count).map(|_| random.below(256) as u8));
            }
            M::Polite => {
                self.requests = self.random.magnitude(1, 100);
                for cookie in 0..self.requests {
                    self.request(command::WRITE, cookie);
                }
                self.request(command::DISCONNECT, 0);
            }
            _ => {}
        }
    }

    /// Appends a request, with its data.
    fn request(&mut self, code: u16, cookie: u64) {
        let count = self.length / CELL as u64;
        let cell = self.random.between(self.cells.start, self.cells.end - count);
        self.output.append_u32(REQUEST_MAGIC);
        self.output.append_u16(0);
        self.output.append_u16(code);
        self.output.append_u64(cookie);
        self.output.append_u64(cell * CELL as u64);
        self.output.append_u32(self.length as u32);
        if code == command::WRITE {
            self.output.resize(self.output.len() + self.length as usize, 7);
        }
    }

    /// The server ends: it need not answer.
    pub(super) fn excuse(&mut self) {
        self.is_excused = true;
    }

    /// Whether the server has ended the connection.
    pub(super) fn is_over(&self) -> bool {
        self.stream.is_none()
    }

    pub(super) fn next(&self) -> Option<Nanos> {
        let stream = self.stream.as_ref()?;
        let arrival = stream.next_arrival();
        let tick = self.manner.is_slow().then_some(self.next_byte);
        let leaves = (self.manner == Manner::Vanishes).then_some(self.leaves);
        arrival.into_iter().chain(tick).chain(leaves).filter(|at| *at > self.clock.now()).min()
    }

    /// Does what is due. Returns whether anything was.
    pub(super) fn advance(&mut self) -> Result<bool, String> {
        let now = self.clock.now();
        if self.manner == Manner::Vanishes && now >= self.leaves {
            return Ok(self.stream.take().is_some());
        }
        let Some(stream) = &mut self.stream else { return Ok(false) };
        let is_tick = self.manner.is_slow() && now >= self.next_byte;
        if is_tick {
            self.next_byte = now + self.interval;
        }
        let mut has_worked = false;
        let mut buffer = [0; 4096];
        let room = match self.manner {
            Manner::SlowReader if is_tick => 1,
            manner if manner.reads() => buffer.len(),
            _ => 0,
        };
        if room > 0 && stream.is_readable() {
            has_worked = true;
            match stream.receive_bytes(&mut buffer[..room]) {
                Some(0) => {
                    self.stream = None;
                    return self.check_end().map(|()| true);
                }
                count => self.received += count.unwrap_or(0) as u64,
            }
        }
        if !self.manner.reads() && stream.is_hung_up() {
            self.stream = None;
            return Ok(true);
        }
        self.produce();
        let Some(stream) = &mut self.stream else { return Ok(true) };
        let count = match self.manner {
            Manner::Dripper if self.output.len() < 64 => self.output.len().min(usize::from(is_tick)),
            _ => self.output.len(),
        };
        if count > 0 && stream.is_writable() {
            has_worked = true;
            match stream.send_bytes(&self.output[..count]) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(_) => self.stream = None,
            }
        }
        Ok(has_worked)
    }

    /// The next requests of a peer that has them without end.
    fn produce(&mut self) {
        use Manner as M;
        if !self.output.is_empty() && self.manner != M::Dripper {
            return;
        }
        // The negotiation of a server without zeroes has 28 bytes.
        let replies = self.received.saturating_sub(28);
        match self.manner {
            M::DeafReader | M::SlowReader | M::Vanishes => self.next_request(command::READ),
            M::DeafWriter => self.next_request(command::WRITE),
            M::DeafRefused => self.next_request(99),
            M::Dripper if self.output.is_empty() => {
                self.next_request(command::WRITE);
                self.output.truncate(60);
            }
            M::GreedyReader if self.requests < replies / (REPLY + self.length) + self.depth => {
                self.next_request(command::READ);
            }
            M::GreedyWriter if self.requests < replies / REPLY + self.depth => {
                self.next_request(command::WRITE);
            }
            M::Options => {
                self.output.append_u64(OPTION_MAGIC);
                self.output.append_u32(option::LIST);
                self.output.append_u32(0);
            }
            _ => {}
        }
    }

    fn next_request(&mut self, code: u16) {
        let cookie = self.requests;
        self.requests += 1;
        self.request(code, cookie);
    }

    /// The connection of a polite peer ends after all replies.
    fn check_end(&self) -> Result<(), String> {
        let replies = self.received.saturating_sub(28) / REPLY;
        if self.manner == Manner::Polite
            && self.received >= 28
            && !self.is_excused
            && replies != self.requests
        {
            return Err(format!(
                "the server answered {replies} of {} requests before it ended the connection",
                self.requests
            ));
        }
        Ok(())
    }
}
