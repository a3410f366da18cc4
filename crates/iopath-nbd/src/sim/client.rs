//! The client's end of one connection: drives the production [`Link`] as the thread of a connection does
//! (`iopath-os/src/device/remote`), with a channel instead of a socket.

use std::collections::{BTreeMap, VecDeque};

use iopath::IoError;
use iopath::remote::{Incoming, Outgoing, RemoteEvent, RemoteRequest, RemoteSession};

use super::channel::End;
use super::clock::{Clock, Nanos, nanos_of};
use crate::client::link::Link;

/// Pieces of output that wait for the channel.
const PARTS_MAX: usize = 128;

/// Bytes that are received at once.
const INPUT_BYTES: usize = 16 << 10;

/// A request with its memory.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) call: usize,
    pub(super) request: RemoteRequest,
    pub(super) memory: Vec<u8>,
    /// When this connection got it.
    since: Nanos,
    is_sending: bool,
    ended: Option<Result<(), IoError>>,
}

/// An event for the world.
#[derive(Debug)]
pub(super) enum Event {
    Connect,
    /// The request has ended, on a connection to this incarnation of the server.
    Completed(Entry, Result<(), IoError>, u32),
    Redirect(Entry, usize),
}

#[derive(Debug, Clone, Copy)]
enum Part {
    Heads(usize),
    Data(u32, usize),
}

/// One connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) link: Link,
    clock: Clock,
    stream: Option<End>,
    /// The incarnation of the server of the last connection.
    epoch: u32,
    connected: Nanos,
    /// It has been connected.
    pub(super) is_open: bool,
    /// Encoded bytes and data that are not sent.
    output: VecDeque<u8>,
    parts: VecDeque<Part>,
    input: Vec<u8>,
    buffer: Box<[u8]>,
    entries: BTreeMap<u32, Entry>,
    free: Vec<u32>,
    events: VecDeque<Event>,
}

impl Client {
    pub(super) fn new(link: Link, clock: &Clock) -> Self {
        Self {
            link,
            clock: clock.clone(),
            stream: None,
            epoch: 0,
            connected: 0,
            is_open: false,
            output: VecDeque::new(),
            parts: VecDeque::new(),
            input: Vec::new(),
            buffer: vec![0; INPUT_BYTES].into(),
            entries: BTreeMap::new(),
            free: Vec::new(),
            events: VecDeque::new(),
        }
    }

    pub(super) fn open(&mut self) {
        self.link.handle_open(self.clock.of_client());
        self.execute_events();
    }

    pub(super) fn submit(&mut self, call: usize, request: RemoteRequest, memory: Vec<u8>) {
        let key = self.free.pop().unwrap_or(self.entries.len() as u32);
        let entry = Entry { call, request, memory, since: self.clock.now(), is_sending: false, ended: None };
        self.entries.insert(key, entry);
        self.link.handle_request(key, request, self.clock.of_client());
        self.execute_events();
    }

    /// The stream of a connect.
    pub(super) fn handle_connected(&mut self, stream: End, epoch: u32) {
        self.epoch = epoch;
        self.connected = self.clock.now();
        self.stream = Some(stream);
        self.link.handle_connected(self.clock.of_client());
        self.execute_events();
    }

    /// The stream failed, or could not be connected.
    pub(super) fn handle_lost(&mut self, reason: &str) {
        self.close();
        self.link.handle_lost(reason, self.clock.of_client());
        self.execute_events();
    }

    /// The longest time of a request on the present connection, and its call.
    pub(super) fn longest(&self) -> Option<(Nanos, usize)> {
        self.stream.as_ref()?;
        let now = self.clock.now();
        let waits = |entry: &Entry| (now - entry.since.max(self.connected), entry.call);
        self.entries.values().map(waits).max()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.stream.is_some()
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next time at which it has work.
    pub(super) fn next(&self) -> Option<Nanos> {
        let timeout = self.link.poll_timeout().map(nanos_of);
        let arrival = self.stream.as_ref().and_then(End::next_arrival);
        timeout.into_iter().chain(arrival).min()
    }

    /// Does what is due. Returns whether anything was.
    pub(super) fn advance(&mut self) -> bool {
        let mut has_worked = false;
        if self.link.poll_timeout().is_some_and(|time| nanos_of(time) <= self.clock.now()) {
            self.link.handle_timeout(self.clock.of_client());
            self.execute_events();
            has_worked = true;
        }
        has_worked |= self.send();
        if self.stream.as_ref().is_some_and(End::is_readable) {
            has_worked = true;
            self.receive();
        }
        has_worked
    }

    fn close(&mut self) {
        // The server may read these bytes later: a write that is sent again on the next connection is then executed
        // once more, after a later write. No client can prevent that, so these bytes are lost here.
        if let Some(stream) = self.stream.take() {
            stream.reset();
        }
        self.output.clear();
        self.parts.clear();
        self.input.clear();
        for entry in self.entries.values_mut() {
            entry.is_sending = false;
        }
        let ended: Vec<u32> =
            self.entries.iter().filter(|(_, entry)| entry.ended.is_some()).map(|(key, _)| *key).collect();
        for key in ended {
            if let Some(result) = self.entries[&key].ended {
                self.complete(key, result);
            }
        }
    }

    fn complete(&mut self, key: u32, result: Result<(), IoError>) {
        let entry = self.entries.remove(&key).expect("a request completes once");
        self.free.push(key);
        self.events.push_back(Event::Completed(entry, result, self.epoch));
    }

    fn send(&mut self) -> bool {
        let mut has_worked = false;
        loop {
            if self.stream.is_none() {
                return has_worked;
            }
            self.encode();
            let Some(stream) = &mut self.stream else { return has_worked };
            if self.output.is_empty() || !stream.is_writable() {
                return has_worked;
            }
            has_worked = true;
            match stream.send_bytes(self.output.make_contiguous()) {
                Ok(count) => {
                    self.link.handle_sent(count as u64, self.clock.of_client());
                    self.output.drain(..count);
                    self.note_sent(count);
                    self.execute_events();
                }
                Err(error) => {
                    self.handle_lost(&error.to_string());
                    return true;
                }
            }
        }
    }

    fn encode(&mut self) {
        let mut heads = Vec::new();
        while self.parts.len() < PARTS_MAX {
            let Some(outgoing) = self.link.poll_outgoing(&mut heads, self.clock.of_client()) else { break };
            match self.parts.back_mut() {
                Some(Part::Heads(bytes)) => *bytes += heads.len(),
                _ => self.parts.push_back(Part::Heads(heads.len())),
            }
            self.output.extend(heads.drain(..));
            if let Outgoing::Data(key) = outgoing {
                let entry = self.entries.get_mut(&key).expect("a write has data");
                entry.is_sending = true;
                self.output.extend(&entry.memory);
                self.parts.push_back(Part::Data(key, entry.memory.len()));
            }
        }
        self.execute_events();
    }

    fn note_sent(&mut self, mut count: usize) {
        while let Some(Part::Heads(left) | Part::Data(_, left)) = self.parts.front_mut() {
            let now = (*left).min(count);
            *left -= now;
            count -= now;
            if *left > 0 {
                return;
            }
            if let Some(Part::Data(key, _)) = self.parts.pop_front() {
                let entry = self.entries.get_mut(&key).expect("its memory stays");
                entry.is_sending = false;
                if let Some(result) = entry.ended {
                    self.complete(key, result);
                }
            }
        }
    }

    fn receive(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        let received = stream.receive_bytes(&mut self.buffer);
        if received == Some(0) {
            return self.handle_lost("the server closed the connection");
        }
        self.input.extend_from_slice(&self.buffer[..received.unwrap_or(0)]);
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        while at < input.len() {
            let now = self.clock.of_client();
            let handled = match self.link.incoming() {
                Incoming::Control => self.link.handle_input(&input[at..], now),
                Incoming::Data { key, start, length } => {
                    let count = (input.len() - at).min(length as usize);
                    let entry = self.entries.get_mut(&key).expect("data of a request in flight");
                    assert!(entry.request.op == iopath::Op::Read, "data of a read");
                    entry.memory[start as usize..start as usize + count]
                        .copy_from_slice(&input[at..at + count]);
                    self.link.handle_data(count as u32, now).map(|()| count)
                }
            };
            let Ok(used) = handled else {
                // A violation: the link has failed its requests.
                self.execute_events();
                self.close();
                return;
            };
            self.execute_events();
            if used == 0 || self.stream.is_none() {
                break;
            }
            at += used;
        }
        if self.stream.is_some() {
            self.input = input;
            self.input.drain(..at);
            assert!(self.input.len() <= 2 << 20, "the session limits the length of messages");
        }
    }

    fn execute_events(&mut self) {
        while let Some(event) = self.link.poll_event() {
            match event {
                RemoteEvent::Connect => self.events.push_back(Event::Connect),
                RemoteEvent::Close => self.close(),
                RemoteEvent::Ready(_) => self.is_open = true,
                RemoteEvent::Zeroes { key, start, length } => {
                    let entry = self.entries.get_mut(&key).expect("zeroes of a request in flight");
                    entry.memory[start as usize..(start + length) as usize].fill(0);
                }
                RemoteEvent::Completed { key, result } => {
                    let entry = self.entries.get_mut(&key).expect("a request completes once");
                    assert!(entry.ended.is_none(), "a request completes once");
                    if entry.is_sending {
                        entry.ended = Some(result);
                    } else {
                        self.complete(key, result);
                    }
                }
                RemoteEvent::Redirect { key, to } => {
                    let entry = self.entries.remove(&key).expect("a request in flight");
                    self.free.push(key);
                    self.events.push_back(Event::Redirect(entry, to));
                }
                event => panic!("the simulator does not execute {event:?}"),
            }
        }
    }
}
