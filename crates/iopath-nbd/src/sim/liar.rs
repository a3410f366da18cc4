//! A server that lies: it executes requests honestly, and its messages are wrong, missing, repeated or late.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::channel::End;
use super::clock::{Clock, Nanos, SECOND};
use super::random::Random;
use super::store::Disk;
use crate::errno::Errno;
use crate::export::Export;
use crate::protocol::{STRUCTURED_REPLY_MAGIC, chunk};
use crate::reply::{ReplyFormat, ReplyWriter};
use crate::server::{Operation, ServerHandshake, ServerProgress, ServerRequests, ServerTls};
use crate::wire::Append;

/// How often, and how, a server lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Habit {
    /// One reply in so many is a lie.
    pub(super) one_in: u64,
    /// One connection in so many has a wrong negotiation.
    pub(super) handshake: u64,
    /// One flush in so many fails, and one read.
    pub(super) error: u64,
    /// It never answers one request of each connection.
    pub(super) overtakes: bool,
    /// One reply in so many comes later, up to this time.
    pub(super) late: u64,
    pub(super) late_max: Nanos,
}

/// A wrong reply.
#[derive(Debug, Clone, Copy)]
enum Lie {
    UnknownCookie,
    Twice,
    Short,
    Long,
    Overlap,
    EmptyChunk,
    NoEnd,
    WrongKind,
    UnknownKind,
    UnknownFlags,
    NoError,
    LongText,
    HugeControl,
    SimpleRead,
    Magic,
    Garbage,
    Nothing,
    Ends,
    Truncated,
    ManyErrors,
    OtherOffset,
    EndBeforeData,
}

impl Lie {
    const ALL: [Self; 22] = [
        Self::UnknownCookie,
        Self::Twice,
        Self::Short,
        Self::Long,
        Self::Overlap,
        Self::EmptyChunk,
        Self::NoEnd,
        Self::WrongKind,
        Self::UnknownKind,
        Self::UnknownFlags,
        Self::NoError,
        Self::LongText,
        Self::HugeControl,
        Self::SimpleRead,
        Self::Magic,
        Self::Garbage,
        Self::Nothing,
        Self::Ends,
        Self::Truncated,
        Self::ManyErrors,
        Self::OtherOffset,
        Self::EndBeforeData,
    ];
}

/// A connection of a lying server.
#[derive(Debug)]
pub(super) struct Liar {
    stream: Option<End>,
    clock: Clock,
    random: Random,
    habit: Habit,
    disk: Rc<RefCell<Disk>>,
    export: Export,
    handshake: Option<ServerHandshake>,
    requests: Option<ServerRequests>,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Bytes of the output that are sent at all, in a negotiation that ends early.
    cut: Option<usize>,
    flips: bool,
    /// Replies that come later.
    late: Vec<(Nanos, Vec<u8>)>,
    ignored: Option<u64>,
    /// It sends nothing more.
    is_mute: bool,
    closes: bool,
}

impl Liar {
    pub(super) fn new(
        stream: End,
        export: &Export,
        disk: &Rc<RefCell<Disk>>,
        habit: Habit,
        clock: &Clock,
        mut random: Random,
    ) -> Self {
        let mut export = export.clone();
        let is_wrong = random.one_in(habit.handshake);
        let (mut cut, mut flips) = (None, false);
        if is_wrong {
            match random.below(5) {
                0 => export.size /= 2,
                1 => cut = Some(random.below(200) as usize),
                2 => flips = true,
                3 => export.flags = crate::TransmissionFlags::READ_ONLY,
                _ => cut = Some(0),
            }
        }
        let handshake = ServerHandshake::new(Arc::from([export.clone()]), ServerTls::Off);
        Self {
            stream: Some(stream),
            clock: clock.clone(),
            random,
            habit,
            disk: Rc::clone(disk),
            export,
            handshake: Some(handshake),
            requests: None,
            input: Vec::new(),
            output: Vec::new(),
            cut,
            flips,
            late: Vec::new(),
            ignored: None,
            is_mute: false,
            closes: false,
        }
    }

    /// It lies no longer.
    pub(super) fn calm(&mut self) {
        self.habit = Habit { one_in: 0, handshake: 0, error: 0, overtakes: false, late: 0, ..self.habit };
    }

    pub(super) fn is_over(&self) -> bool {
        self.stream.is_none()
    }

    pub(super) fn next(&self) -> Option<Nanos> {
        let stream = self.stream.as_ref()?;
        let late = self.late.iter().map(|(at, _)| *at);
        stream.next_arrival().into_iter().chain(late).filter(|at| *at > self.clock.now()).min()
    }

    /// Does what is due. Returns whether anything was.
    pub(super) fn advance(&mut self) -> bool {
        let now = self.clock.now();
        let Some(stream) = &mut self.stream else { return false };
        let mut has_worked = false;
        if stream.is_readable() {
            has_worked = true;
            let mut buffer = [0; 16384];
            match stream.receive_bytes(&mut buffer) {
                Some(0) => {
                    self.stream = None;
                    return true;
                }
                count => self.input.extend(&buffer[..count.unwrap_or(0)]),
            }
        }
        if self.handshake.is_some() {
            self.negotiate();
        }
        if self.requests.is_some() {
            self.serve();
        }
        if self.is_mute {
            self.late.clear();
        }
        for (at, reply) in std::mem::take(&mut self.late) {
            if at <= now {
                self.output.extend(reply);
            } else {
                self.late.push((at, reply));
            }
        }
        let Some(stream) = &mut self.stream else { return true };
        if !self.output.is_empty() && stream.is_writable() {
            has_worked = true;
            match stream.send_bytes(&self.output) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(_) => self.stream = None,
            }
        }
        if self.closes && self.output.is_empty() {
            self.stream = None;
        }
        has_worked
    }

    fn negotiate(&mut self) {
        let Some(handshake) = &mut self.handshake else { return };
        let progress = handshake.handle_input(&mut self.input);
        let mut output = handshake.take_output();
        if self.flips && !output.is_empty() && self.random.one_in(2) {
            let at = self.random.below(output.len() as u64) as usize;
            output[at] ^= 1 << self.random.below(8);
        }
        if let Some(left) = &mut self.cut {
            output.truncate(*left);
            *left -= output.len();
        }
        self.output.extend(output);
        match progress {
            Ok(ServerProgress::Transmission(session)) if self.cut.is_none() => {
                self.handshake = None;
                self.requests = Some(ServerRequests::new(session, &self.export));
            }
            Ok(ServerProgress::Disconnect) | Err(_) => self.closes = true,
            Ok(_) => {}
        }
    }

    fn serve(&mut self) {
        while !self.closes {
            let Some(requests) = &self.requests else { return };
            let Ok(decoded) = requests.decode(&self.input) else {
                self.closes = true;
                return;
            };
            let Some((request, head, payload)) = decoded else { return };
            let end = head + payload as usize;
            if self.input.len() < end {
                return;
            }
            let data = self.input[head..end].to_vec();
            self.input.drain(..end);
            if self.is_mute {
                continue;
            }
            let (format, checked) = (requests.format(), requests.check(&request));
            if self.habit.overtakes && self.ignored.is_none() && self.random.one_in(4) {
                self.ignored = Some(request.cookie);
                continue;
            }
            let operation = match checked {
                Ok(Operation::Disconnect) => {
                    self.closes = true;
                    return;
                }
                Ok(operation) => operation,
                Err((error, reason)) => {
                    let reply = ReplyWriter::new(format).error(request.cookie, request.offset, error, reason);
                    self.output.extend(reply);
                    continue;
                }
            };
            let reply = self.execute(operation, &data, request.cookie, format);
            // The success of a request that has failed would be a lie that no client can detect.
            let has_failed = reply.get(6).is_some_and(|kind| kind & 0x80 != 0);
            let may_lie = format == ReplyFormat::Structured && !has_failed;
            let reply = if may_lie && self.random.one_in(self.habit.one_in) {
                self.lie(operation, request.cookie, reply)
            } else {
                reply
            };
            if self.random.one_in(self.habit.late) && !self.is_mute {
                let at = self.clock.now() + self.random.below(self.habit.late_max + 1);
                self.late.push((at, reply));
            } else {
                self.output.extend(reply);
            }
        }
    }

    /// Executes a request. Returns its honest reply.
    fn execute(&mut self, operation: Operation, data: &[u8], cookie: u64, format: ReplyFormat) -> Vec<u8> {
        let writer = ReplyWriter::new(format);
        let mut disk = self.disk.borrow_mut();
        let is_calm = disk.is_calm;
        let fails = !is_calm && self.random.one_in(self.habit.error);
        match operation {
            Operation::Read { offset, .. } if fails => writer.error(cookie, offset, Errno::IO, "a lie"),
            Operation::Read { offset, length, .. } => {
                let mut reply = writer.read(cookie, offset, length).to_vec();
                reply.extend(&disk.volatile[offset as usize..offset as usize + length as usize]);
                reply
            }
            Operation::Flush if fails => writer.error(cookie, 0, Errno::IO, "not flushed"),
            Operation::Flush => {
                disk.flush_all();
                writer.done(cookie, 0).to_vec()
            }
            Operation::Write { offset, fua, .. } => {
                disk.write_range(offset, data, fua);
                writer.done(cookie, offset).to_vec()
            }
            Operation::WriteZeroes { offset, length, fua, .. } | Operation::Trim { offset, length, fua } => {
                disk.write_range(offset, &vec![0; length as usize], fua);
                writer.done(cookie, offset).to_vec()
            }
            Operation::Cache { offset, .. } | Operation::BlockStatus { offset, .. } => {
                writer.done(cookie, offset).to_vec()
            }
            Operation::Disconnect => Vec::new(),
        }
    }

    fn chunk(flags: u16, kind: u16, cookie: u64, payload: &[u8], length: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.append_u32(STRUCTURED_REPLY_MAGIC);
        bytes.append_u16(flags);
        bytes.append_u16(kind);
        bytes.append_u64(cookie);
        bytes.append_u32(length);
        bytes.extend(payload);
        bytes
    }

    /// A wrong reply instead of the honest one.
    fn lie(&mut self, operation: Operation, cookie: u64, mut honest: Vec<u8>) -> Vec<u8> {
        let whole =
            |flags, kind, payload: &[u8]| Self::chunk(flags, kind, cookie, payload, payload.len() as u32);
        let (offset, length) = match operation {
            Operation::Read { offset, length, .. } => (offset, length as usize),
            _ => (0, 0),
        };
        let is_read = length > 0;
        let data = |disk: &Disk, from: u64, count: usize| {
            let mut payload = Vec::new();
            payload.append_u64(from);
            let at = (from as usize).min(disk.volatile.len());
            let end = (at + count).min(disk.volatile.len());
            payload.extend(&disk.volatile[at..end]);
            payload
        };
        let disk = Rc::clone(&self.disk);
        let disk = disk.borrow();
        match *self.random.pick(&Lie::ALL) {
            Lie::UnknownCookie => {
                // The generation of a slot: another slot may be that of a write that has not arrived.
                let wrong = cookie ^ (1 << self.random.between(40, 63));
                honest[8..16].copy_from_slice(&wrong.to_be_bytes());
                honest
            }
            Lie::Twice => [honest.clone(), honest].concat(),
            Lie::Short if is_read => whole(chunk::DONE, chunk::OFFSET_DATA, &data(&disk, offset, length / 2)),
            Lie::Long if is_read => {
                whole(chunk::DONE, chunk::OFFSET_DATA, &data(&disk, offset, length + 512))
            }
            Lie::Overlap if is_read => {
                let first = whole(0, chunk::OFFSET_DATA, &data(&disk, offset, length));
                let second = whole(chunk::DONE, chunk::OFFSET_DATA, &data(&disk, offset, 512));
                [first, second].concat()
            }
            Lie::EmptyChunk if is_read => {
                let first = whole(0, chunk::OFFSET_DATA, &data(&disk, offset, 0));
                [first, honest].concat()
            }
            Lie::NoEnd => whole(0, chunk::NONE, &[]),
            Lie::WrongKind if is_read => whole(chunk::DONE, chunk::BLOCK_STATUS, &[0; 12]),
            Lie::WrongKind => whole(chunk::DONE, chunk::OFFSET_DATA, &[0; 16]),
            Lie::UnknownKind => whole(chunk::DONE, 99, &[]),
            Lie::UnknownFlags => {
                honest[4] |= 0x80;
                honest
            }
            Lie::NoError => whole(chunk::DONE, chunk::ERROR, &[0; 6]),
            Lie::LongText => whole(chunk::DONE, chunk::ERROR, &[0, 0, 0, 5, 1, 0]),
            Lie::HugeControl => Self::chunk(chunk::DONE, chunk::ERROR, cookie, &[0; 64], u32::MAX),
            Lie::SimpleRead => {
                let mut bytes = Vec::new();
                bytes.append_u32(crate::protocol::SIMPLE_REPLY_MAGIC);
                bytes.append_u32(0);
                bytes.append_u64(cookie);
                // Data that is wrong, if the client takes it.
                bytes.resize(bytes.len() + length, 0xbb);
                bytes
            }
            Lie::Magic => {
                honest[0] ^= 0x40;
                honest
            }
            Lie::Garbage => (0..self.random.magnitude(1, 4096)).map(|at| (at * 37) as u8).collect(),
            Lie::Nothing => Vec::new(),
            Lie::Ends => {
                self.closes = true;
                honest.truncate(honest.len() / 2);
                honest
            }
            Lie::Truncated => {
                honest.truncate(self.random.below(honest.len() as u64) as usize);
                // Silence follows: the client would take further replies for the rest of this one.
                self.is_mute = true;
                honest
            }
            Lie::ManyErrors => {
                let one = whole(0, chunk::ERROR, &[0, 0, 0, 5, 0, 0]);
                one.repeat(self.random.magnitude(1, 3000) as usize)
            }
            Lie::OtherOffset if is_read => {
                let other = offset ^ (512 << self.random.below(8));
                let mut payload = data(&disk, offset, length);
                payload[..8].copy_from_slice(&other.to_be_bytes());
                whole(chunk::DONE, chunk::OFFSET_DATA, &payload)
            }
            Lie::EndBeforeData if is_read => [whole(chunk::DONE, chunk::NONE, &[]), honest].concat(),
            _ => whole(0, chunk::OFFSET_HOLE, &[0; 12]),
        }
    }
}

/// A late reply comes within this time.
pub(super) const LATE_MAX: Nanos = 20 * SECOND;
