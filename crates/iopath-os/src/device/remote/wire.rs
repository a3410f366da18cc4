//! The bytes of one connection: sends encoded requests and the data of writes from their memory, and receives the data
//! of reads into their memory. Events and connects are in `connection.rs`.

use std::collections::VecDeque;

use super::entries::Entries;
use super::session::{Incoming, Outgoing, RemoteSession};
use super::stream::{IOVECS_MAX, Moved, Stream};
use crate::clock;

/// Bytes of the buffer for replies and short data: the replies of many short reads arrive in one system call.
const INPUT_BYTES: usize = 128 << 10;

/// The longest incomplete message for which the buffer grows.
const INPUT_BYTES_MAX: usize = 2 << 20;

/// Bytes received beyond the data of a read while only long reads are in flight: a few heads. The data that follows
/// them then arrives in the memory of its read, without a copy.
const HEADS_BYTES: usize = 64;

/// Bytes passed to the encryption in one call: a few records of TLS.
const PLAIN_BYTES: usize = 64 << 10;

/// Pieces of output that wait for the socket.
const PARTS_MAX: usize = 128;

/// System calls in a row that receive, so that requests are sent in between.
const RECEIVES_MAX: usize = 8;

/// The memory of one call that receives, in bytes.
struct Room {
    /// The memory of a read, which comes first.
    data: u64,
    /// All memory: that of the read, and the buffer.
    wanted: u64,
}

/// Bytes that wait for the socket.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// This many bytes of `heads`.
    Heads(usize),
    Data {
        key: u32,
        start: u64,
        end: u64,
    },
}

/// The progress of a call.
#[derive(Debug)]
pub(super) enum Progress {
    /// Nothing more without the socket.
    Waits,
    /// The stream has failed.
    Lost(String),
    /// The server violated the protocol; the session knows.
    Violated,
}

/// Input and output of one connection.
#[derive(Debug)]
pub(super) struct Wire {
    /// Encoded bytes that are not sent; those before `heads_sent` are.
    heads: Vec<u8>,
    heads_sent: usize,
    parts: VecDeque<Part>,
    iovecs: Vec<libc::iovec>,
    /// Output of an encrypted stream. The memory of requests is copied before its encryption.
    plain: Vec<u8>,
    /// Received bytes that are not handled lie at `input[..input_end]`.
    input: Vec<u8>,
    input_end: usize,
    /// The socket accepts no bytes now.
    pub(super) is_blocked: bool,
    pub(super) syscalls: u32,
}

// SAFETY: the iovecs are used only within one call, and point to memory that any thread may access.
unsafe impl Send for Wire {}

impl Wire {
    pub(super) fn new() -> Self {
        Self {
            heads: Vec::new(),
            heads_sent: 0,
            parts: VecDeque::new(),
            iovecs: Vec::with_capacity(IOVECS_MAX),
            plain: Vec::new(),
            input: vec![0; INPUT_BYTES],
            input_end: 0,
            is_blocked: false,
            syscalls: 0,
        }
    }

    /// Forgets the bytes of a stream that has ended.
    pub(super) fn reset(&mut self) {
        self.heads.clear();
        self.parts.clear();
        self.input.truncate(INPUT_BYTES);
        (self.heads_sent, self.input_end, self.is_blocked) = (0, 0, false);
    }

    /// Sends as much as the socket accepts. Appends the keys of writes whose data has been sent to `sent`.
    pub(super) fn send(
        &mut self,
        stream: &mut Stream,
        session: &mut dyn RemoteSession,
        entries: &mut Entries,
    ) -> Progress {
        if let Err(error) = stream.flush() {
            return Progress::Lost(error.to_string());
        }
        loop {
            self.encode(session, entries);
            if self.parts.is_empty() {
                return Progress::Waits;
            }
            self.syscalls += 1;
            let (sent, wanted) = if stream.is_encrypted() {
                self.collect_output(entries);
                (stream.send_encrypted(&self.plain), 0)
            } else {
                let wanted = self.describe_output(entries);
                // SAFETY: `heads` lives during the call. The other iovecs describe the memory of writes that have not
                // completed, as the makers of the segments promised.
                (unsafe { stream.send(&mut self.iovecs) }, wanted)
            };
            match sent {
                Moved::Bytes(count) => {
                    session.handle_sent(count as u64, clock::now());
                    self.note_sent(count as u64, entries);
                    self.is_blocked = (count as u64) < wanted || stream.has_output();
                }
                Moved::Blocked => self.is_blocked = true,
                Moved::End => return Progress::Lost("the server closed the connection".to_owned()),
                Moved::Failed(error) => return Progress::Lost(error.to_string()),
            }
            if self.is_blocked {
                return Progress::Waits;
            }
        }
    }

    /// Sends the end of the session, if nothing else is being sent. Does not wait for the socket.
    pub(super) fn send_last(&mut self, stream: &mut Stream, session: &mut dyn RemoteSession) {
        if !self.parts.is_empty() {
            return;
        }
        session.disconnect(&mut self.heads);
        if stream.is_encrypted() {
            stream.send_encrypted(&self.heads);
            return;
        }
        self.iovecs.clear();
        let (iov_base, iov_len) = (self.heads.as_ptr().cast_mut().cast(), self.heads.len());
        self.iovecs.push(libc::iovec { iov_base, iov_len });
        // SAFETY: `heads` lives during the call.
        unsafe { stream.send(&mut self.iovecs) };
    }

    fn encode(&mut self, session: &mut dyn RemoteSession, entries: &mut Entries) {
        let now = clock::now();
        while self.parts.len() < PARTS_MAX {
            let before = self.heads.len();
            let Some(outgoing) = session.poll_outgoing(&mut self.heads, now) else { return };
            let count = self.heads.len() - before;
            match self.parts.back_mut() {
                Some(Part::Heads(bytes)) => *bytes += count,
                _ => self.parts.push_back(Part::Heads(count)),
            }
            if let Outgoing::Data(key) = outgoing {
                let end = entries.begin_sending(key);
                self.parts.push_back(Part::Data { key, start: 0, end });
            }
        }
    }

    /// Describes the output in `iovecs`, as far as they reach. Returns its bytes.
    fn describe_output(&mut self, entries: &mut Entries) -> u64 {
        self.iovecs.clear();
        let mut head = self.heads_sent;
        let mut total = 0;
        for part in &self.parts {
            if self.iovecs.len() == IOVECS_MAX {
                break;
            }
            match *part {
                Part::Heads(count) => {
                    let bytes = &self.heads[head..head + count];
                    self.iovecs
                        .push(libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: count });
                    head += count;
                    total += count as u64;
                }
                Part::Data { key, start, end } => {
                    let job = entries.job(key);
                    let appended = job.append_iovecs(start, end, &mut self.iovecs, IOVECS_MAX);
                    total += appended;
                    if appended < end - start {
                        break;
                    }
                }
            }
        }
        total
    }

    /// Copies the output to `plain`, up to its maximum.
    fn collect_output(&mut self, entries: &mut Entries) {
        self.plain.clear();
        let mut head = self.heads_sent;
        for part in &self.parts {
            let room = PLAIN_BYTES - self.plain.len();
            match *part {
                Part::Heads(count) => {
                    let now = count.min(room);
                    self.plain.extend_from_slice(&self.heads[head..head + now]);
                    head += now;
                }
                Part::Data { key, start, end } => {
                    let end = end.min(start + room as u64);
                    entries.job(key).append_bytes(start, end, &mut self.plain);
                }
            }
            if self.plain.len() == PLAIN_BYTES {
                break;
            }
        }
    }

    fn note_sent(&mut self, mut count: u64, entries: &mut Entries) {
        while count > 0 {
            match self.parts.front_mut().expect("only the output is sent") {
                Part::Heads(bytes) => {
                    let now = (*bytes as u64).min(count);
                    *bytes -= now as usize;
                    self.heads_sent += now as usize;
                    count -= now;
                    if *bytes == 0 {
                        self.parts.pop_front();
                    }
                }
                Part::Data { key, start, end } => {
                    let now = (*end - *start).min(count);
                    *start += now;
                    count -= now;
                    if start == end {
                        entries.end_sending(*key);
                        self.parts.pop_front();
                    }
                }
            }
        }
        if self.parts.is_empty() {
            self.heads.clear();
            self.heads_sent = 0;
        }
    }

    /// Receives and handles as much as the socket has.
    pub(super) fn receive(
        &mut self,
        stream: &mut Stream,
        session: &mut dyn RemoteSession,
        entries: &mut Entries,
    ) -> Progress {
        let mut calls = 0;
        // Bytes that are decrypted already are not announced by a further wait for the socket.
        while calls < RECEIVES_MAX || stream.has_input() {
            calls += 1;
            self.syscalls += 1;
            let (received, data, wanted) = if stream.is_encrypted() {
                let room = &mut self.input[self.input_end..];
                let wanted = room.len() as u64;
                (stream.receive_encrypted(room), 0, wanted)
            } else {
                let Room { data, wanted } = self.describe_input(session, entries);
                // SAFETY: `input` lives during the call. The other iovecs describe the memory of one read that has not
                // completed, as the makers of the segments promised.
                (unsafe { stream.receive(&mut self.iovecs) }, data, wanted)
            };
            let count = match received {
                Moved::Bytes(count) => count as u64,
                Moved::Blocked => break,
                Moved::End => return Progress::Lost("the server closed the connection".to_owned()),
                Moved::Failed(error) => return Progress::Lost(error.to_string()),
            };
            let of_data = data.min(count);
            self.input_end += (count - of_data) as usize;
            if of_data > 0 && session.handle_data(of_data as u32, clock::now()).is_err() {
                return Progress::Violated;
            }
            if self.handle(session, entries).is_err() {
                return Progress::Violated;
            }
            if let Some(encryption) = session.poll_encryption() {
                stream.encrypt(encryption);
                break;
            }
            if count < wanted {
                break;
            }
        }
        // A handshake or a change of keys sends bytes, too.
        self.is_blocked |= stream.has_output();
        Progress::Waits
    }

    /// Describes the memory for the next bytes: that of a read, then the buffer.
    fn describe_input(&mut self, session: &dyn RemoteSession, entries: &mut Entries) -> Room {
        self.iovecs.clear();
        let mut data = 0;
        if let Incoming::Data { key, start, length } = session.incoming() {
            let job = entries.job(key);
            let end = start + u64::from(length);
            assert!(job.reads() && end <= job.request.length, "data outside of a read");
            data = job.append_iovecs(start, end, &mut self.iovecs, IOVECS_MAX - 1);
            if data < end - start {
                return Room { data, wanted: data };
            }
        }
        let room = self.input.len() - self.input_end;
        let room = if entries.has_only_long_reads() { room.min(HEADS_BYTES) } else { room };
        let into = &mut self.input[self.input_end..self.input_end + room];
        self.iovecs.push(libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: room });
        Room { data, wanted: data + room as u64 }
    }

    /// Handles the bytes in the buffer, and keeps those of an incomplete message at its start.
    fn handle(&mut self, session: &mut dyn RemoteSession, entries: &mut Entries) -> Result<(), String> {
        let mut at = 0;
        let now = clock::now();
        entries.execute_events(session);
        while at < self.input_end {
            let rest = &self.input[at..self.input_end];
            let used = match session.incoming() {
                Incoming::Control => session.handle_input(rest, now)?,
                Incoming::Data { key, start, length } => {
                    let count = rest.len().min(length as usize);
                    entries.job_mut(key).fill(start, &rest[..count]);
                    session.handle_data(count as u32, now)?;
                    count
                }
            };
            entries.execute_events(session);
            if used == 0 {
                break;
            }
            at += used;
        }
        self.input.copy_within(at..self.input_end, 0);
        self.input_end -= at;
        if self.input_end == self.input.len() && self.input.len() < INPUT_BYTES_MAX {
            let longer = self.input.len() * 2;
            self.input.resize(longer, 0);
        }
        assert!(self.input_end < self.input.len(), "the session limits the length of messages");
        Ok(())
    }
}
