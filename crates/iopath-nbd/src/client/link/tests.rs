//! A link and our server, joined by byte buffers that are cut at any byte. Each request completes once, with the bytes
//! of a plain model, however often and wherever the connection ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use super::*;
use crate::protocol::TransmissionFlags as Flags;
use crate::{
    Export, Operation, ReplyWriter, ServerHandshake, ServerProgress, ServerRequests, ServerTls, Session,
};

const SIZE: u64 = 1 << 16;

/// A request with the memory of its data.
struct Submitted {
    request: RemoteRequest,
    memory: Vec<u8>,
}

/// The server's end of one connection.
enum Served {
    Handshake(Box<ServerHandshake>),
    Requests(Session),
}

struct World {
    link: Link,
    now: Instant,
    random: Xoshiro256PlusPlus,
    disk: Vec<u8>,
    exports: Arc<[Export]>,
    served: Option<Served>,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    server_input: Vec<u8>,
    client_input: Vec<u8>,
    submitted: BTreeMap<u32, Submitted>,
    /// Results by key.
    completed: BTreeMap<u32, Result<(), IoError>>,
    next_key: u32,
    /// Bytes of both directions until the connection ends.
    until_cut: Option<u64>,
    cuts: u32,
    is_up: bool,
    connects: u32,
}

impl World {
    fn new(seed: u64, patience: Patience) -> Self {
        let flags = Flags::SEND_FLUSH
            | Flags::SEND_FUA
            | Flags::SEND_TRIM
            | Flags::SEND_WRITE_ZEROES
            | Flags::CAN_MULTI_CONN;
        let exports: Arc<[Export]> = Arc::new([Export { flags, ..Export::new("disk", SIZE) }]);
        let common = Arc::new(Common {
            encryption: None,
            server: "nbd://test/disk".to_owned(),
            export: "disk".to_owned(),
            request_bytes_max: u32::MAX,
            patience,
            coverage: Coverage::new(1),
            negotiated: OnceLock::new(),
        });
        let mut world = Self {
            link: Link::new(0, &common),
            now: Instant::from_nanos(1),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            disk: vec![0; SIZE as usize],
            exports,
            served: None,
            to_server: Vec::new(),
            to_client: Vec::new(),
            server_input: Vec::new(),
            client_input: Vec::new(),
            submitted: BTreeMap::new(),
            completed: BTreeMap::new(),
            next_key: 0,
            until_cut: None,
            cuts: 0,
            is_up: true,
            connects: 0,
        };
        world.link.handle_open(world.now);
        world
    }

    fn submit(&mut self, request: RemoteRequest, memory: Vec<u8>) -> u32 {
        let key = self.next_key;
        self.next_key += 1;
        self.submitted.insert(key, Submitted { request, memory });
        self.link.handle_request(key, request, self.now);
        key
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.next_u64() % limit
    }

    /// Runs until all requests have completed.
    fn run(&mut self) {
        for _ in 0..200_000 {
            self.execute_events();
            if self.completed.len() == self.submitted.len() && self.link.failure().is_none() {
                return;
            }
            if self.completed.len() == self.submitted.len() && matches!(self.link.state, State::Down) {
                return;
            }
            if !self.exchange() {
                let time = self.link.poll_timeout().expect("the link waits for nothing");
                self.now = self.now.max(time);
                self.link.handle_timeout(self.now);
            }
        }
        panic!("the session does not end");
    }

    fn execute_events(&mut self) {
        while let Some(event) = self.link.poll_event() {
            match event {
                RemoteEvent::Connect if self.is_up => {
                    self.connects += 1;
                    self.close();
                    let handshake = ServerHandshake::new(Arc::clone(&self.exports), ServerTls::Off);
                    self.served = Some(Served::Handshake(Box::new(handshake)));
                    self.link.handle_connected(self.now);
                }
                RemoteEvent::Connect => self.link.handle_lost("connection refused", self.now),
                RemoteEvent::Close => self.close(),
                RemoteEvent::Ready(_) => {}
                RemoteEvent::Zeroes { key, start, length } => {
                    let memory = &mut self.submitted.get_mut(&key).unwrap().memory;
                    memory[start as usize..(start + length) as usize].fill(0);
                }
                RemoteEvent::Completed { key, result } => {
                    assert!(self.completed.insert(key, result).is_none(), "request {key} completed twice");
                }
                RemoteEvent::Redirect { .. } => panic!("there is one connection"),
                event => panic!("the tests do not execute {event:?}"),
            }
        }
    }

    fn close(&mut self) {
        self.served = None;
        for bytes in
            [&mut self.to_server, &mut self.to_client, &mut self.server_input, &mut self.client_input]
        {
            bytes.clear();
        }
    }

    /// Passes some bytes in both directions. False: none could pass.
    fn exchange(&mut self) -> bool {
        let mut heads = Vec::new();
        while let Some(outgoing) = self.link.poll_outgoing(&mut heads, self.now) {
            self.to_server.append(&mut heads);
            if let Outgoing::Data(key) = outgoing {
                self.to_server.extend(&self.submitted[&key].memory);
            }
        }
        self.execute_events();
        let mut moved = false;
        for is_to_server in [true, false] {
            let available = if is_to_server { self.to_server.len() } else { self.to_client.len() };
            let mut count = 1 + self.below(if available > 4096 { 8192 } else { 64 });
            if let Some(left) = self.until_cut {
                count = count.min(left);
            }
            let count = (count as usize).min(available);
            self.until_cut = self.until_cut.map(|left| left - count as u64);
            moved |= count > 0;
            if is_to_server {
                self.server_input.extend(self.to_server.drain(..count));
                self.serve();
            } else {
                self.client_input.extend(self.to_client.drain(..count));
                self.receive();
            }
            if self.until_cut == Some(0) {
                self.until_cut = None;
                self.cuts += 1;
                self.close();
                self.link.handle_lost("the connection was cut", self.now);
                return true;
            }
        }
        moved
    }

    fn receive(&mut self) {
        while !self.client_input.is_empty() {
            let used = match self.link.incoming() {
                Incoming::Control => {
                    let input = std::mem::take(&mut self.client_input);
                    let used = self.link.handle_input(&input, self.now).unwrap();
                    self.client_input = input;
                    used
                }
                Incoming::Data { key, start, length } => {
                    let count = self.client_input.len().min(length as usize);
                    let memory = &mut self.submitted.get_mut(&key).unwrap().memory;
                    memory[start as usize..start as usize + count]
                        .copy_from_slice(&self.client_input[..count]);
                    self.link.handle_data(count as u32, self.now).unwrap();
                    count
                }
            };
            self.client_input.drain(..used);
            self.execute_events();
            if used == 0 {
                return;
            }
        }
    }

    fn serve(&mut self) {
        if let Some(Served::Handshake(handshake)) = &mut self.served {
            // A client that received mutated bytes may answer with an error of its own.
            let Ok(progress) = handshake.handle_input(&mut self.server_input) else { return self.end() };
            self.to_client.extend(handshake.take_output());
            if let ServerProgress::Transmission(session) = progress {
                self.served = Some(Served::Requests(session));
            }
        }
        let Some(Served::Requests(session)) = &self.served else { return };
        let requests = ServerRequests::new(*session, &self.exports[0]);
        let writer = ReplyWriter::new(requests.format());
        loop {
            let Ok(decoded) = requests.decode(&self.server_input) else { return self.end() };
            let Some((request, head, payload)) = decoded else { return };
            let end = head + payload as usize;
            if self.server_input.len() < end {
                return;
            }
            let payload = self.server_input[head..end].to_vec();
            self.server_input.drain(..end);
            let range = |offset: u64, length: u64| offset as usize..(offset + length) as usize;
            let Ok(operation) = requests.check(&request) else { return self.end() };
            match operation {
                Operation::Read { offset, length, .. } => {
                    self.to_client.extend(writer.read(request.cookie, offset, length));
                    self.to_client.extend(&self.disk[range(offset, length.into())]);
                    continue;
                }
                Operation::Write { offset, length, .. } => {
                    self.disk[range(offset, length.into())].copy_from_slice(&payload);
                }
                Operation::WriteZeroes { offset, length, .. } | Operation::Trim { offset, length, .. } => {
                    self.disk[range(offset, length)].fill(0);
                }
                _ => {}
            }
            self.to_client.extend(writer.done(request.cookie, request.offset));
        }
    }

    /// The server ends the connection.
    fn end(&mut self) {
        self.close();
        self.link.handle_lost("the server closed the connection", self.now);
    }

    fn take(&mut self) -> (BTreeMap<u32, Submitted>, BTreeMap<u32, Result<(), IoError>>) {
        (std::mem::take(&mut self.submitted), std::mem::take(&mut self.completed))
    }
}

const fn request(op: Op, offset: u64, length: u64) -> RemoteRequest {
    RemoteRequest { op, offset, length, fua: false }
}

/// The bytes of a session without a cut, to find all places of a cut.
fn fixed_session(until_cut: Option<u64>) -> (u64, u32) {
    let mut world = World::new(7, Patience::default());
    world.until_cut = until_cut;
    let mut passed = 0;
    for round in 0..2u8 {
        let writes: Vec<u32> = (0..3u64)
            .map(|at| world.submit(request(Op::Write, at * 1024, 512), vec![round + 1 + at as u8; 512]))
            .collect();
        world.run();
        assert!(writes.iter().all(|key| world.completed[key].is_ok()));
        for at in 0..3u64 {
            world.submit(request(Op::Read, at * 1024, 1024), vec![0xee; 1024]);
        }
        world.submit(request(Op::WriteZeroes, 8192, 4096), Vec::new());
        world.run();
        let (submitted, completed) = world.take();
        for (key, Submitted { request, memory }) in submitted {
            assert_eq!(completed[&key], Ok(()), "cut after {until_cut:?}");
            if request.op == Op::Read {
                let expected = round + 1 + (request.offset / 1024) as u8;
                assert!(memory[..512].iter().all(|byte| *byte == expected), "cut after {until_cut:?}");
                assert!(memory[512..].iter().all(|byte| *byte == 0), "cut after {until_cut:?}");
            }
        }
        passed += 1;
    }
    (passed, world.cuts)
}

#[test]
fn a_cut_after_any_byte_of_a_session_loses_and_repeats_nothing() {
    let (_, cuts) = fixed_session(None);
    assert_eq!(cuts, 0);
    let mut at = 1;
    // The first negotiation must succeed: before its end, a loss is an error of the caller that connects.
    let negotiation = {
        let mut world = World::new(7, Patience::default());
        world.until_cut = Some(u64::MAX);
        world.run_until_ready();
        u64::MAX - world.until_cut.unwrap()
    };
    loop {
        let (_, cuts) = fixed_session(Some(negotiation + at));
        if cuts == 0 {
            break;
        }
        at += if cfg!(miri) { 97 } else { 1 };
    }
    assert!(at > 5000, "the session has only {at} bytes");
}

impl World {
    fn run_until_ready(&mut self) {
        while !matches!(self.link.state, State::Ready { .. }) {
            self.execute_events();
            self.exchange();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    #[test]
    fn random_operations_with_random_cuts_agree_with_a_model(seed in any::<u64>()) {
        let mut world = World::new(seed, Patience::default());
        world.run_until_ready();
        let mut model = vec![0u8; SIZE as usize];
        for _ in 0..20 {
            // Disjoint slots, as the queue above guarantees; reads and writes of one slot do not meet.
            let mut reads = Vec::new();
            for slot in 0..16u64 {
                let (offset, length) = (slot * 4096, 512 * (1 + world.below(8)));
                let range = offset as usize..(offset + length) as usize;
                match world.below(5) {
                    0 => {
                        let fill = world.below(256) as u8;
                        model[range].fill(fill);
                        world.submit(request(Op::Write, offset, length), vec![fill; length as usize]);
                    }
                    1 => {
                        model[range].fill(0);
                        world.submit(request(Op::WriteZeroes, offset, length), Vec::new());
                    }
                    2 | 3 => reads.push((
                        world.submit(request(Op::Read, offset, length), vec![0xee; length as usize]),
                        range,
                    )),
                    _ => {}
                }
            }
            if world.below(2) == 0 {
                world.until_cut = Some(1 + world.below(30_000));
            }
            world.run();
            let (submitted, completed) = world.take();
            prop_assert!(completed.values().all(Result::is_ok));
            for (key, range) in reads {
                prop_assert!(submitted[&key].memory == model[range], "read {} has other bytes", key);
            }
        }
        prop_assert!(world.disk == model);
    }

    #[test]
    fn mutated_replies_neither_panic_nor_complete_a_request_twice(seed in any::<u64>()) {
        let mut world = World::new(seed, Patience { reconnect_attempts: 3, ..Patience::default() });
        world.run_until_ready();
        for slot in 0..8 {
            world.submit(request(Op::Read, slot * 4096, 4096), vec![0; 4096]);
        }
        for _ in 0..2000 {
            world.execute_events();
            let mut heads = Vec::new();
            while let Some(outgoing) = world.link.poll_outgoing(&mut heads, world.now) {
                world.to_server.append(&mut heads);
                prop_assert_eq!(outgoing, Outgoing::Control);
            }
            let input = std::mem::take(&mut world.to_server);
            let has_sent = !input.is_empty();
            world.server_input.extend(input);
            world.serve();
            let mut output = std::mem::take(&mut world.to_client);
            if !output.is_empty() && world.below(3) == 0 {
                let at = world.below(output.len() as u64) as usize;
                output[at] ^= 1 << world.below(8);
            }
            let has_received = !output.is_empty();
            world.client_input.extend(output);
            world.receive_or_close();
            if world.completed.len() == 8 {
                break;
            }
            if !has_sent && !has_received {
                world.now = world.link.poll_timeout().map_or(world.now, |time| time.max(world.now));
                world.link.handle_timeout(world.now);
            }
        }
        prop_assert_eq!(world.completed.len(), 8);
    }
}

impl World {
    /// As the thread of a connection: closes the stream after a violation.
    fn receive_or_close(&mut self) {
        while !self.client_input.is_empty() {
            let input = std::mem::take(&mut self.client_input);
            let handled = match self.link.incoming() {
                Incoming::Control => self.link.handle_input(&input, self.now),
                Incoming::Data { length, .. } => {
                    let count = input.len().min(length as usize);
                    self.link.handle_data(count as u32, self.now).map(|()| count)
                }
            };
            let Ok(used) = handled else {
                self.close();
                return self.execute_events();
            };
            self.client_input = input;
            self.client_input.drain(..used);
            self.execute_events();
            if used == 0 {
                return;
            }
        }
    }
}

#[test]
fn a_server_that_stays_away_fails_requests_after_the_attempts_and_the_time() {
    for (patience, attempts_max, seconds_max) in [
        (Patience { reconnect_attempts: 3, ..Patience::default() }, 3, 1),
        (Patience { reconnect: Duration::from_secs(5), ..Patience::default() }, 100, 5),
        (Patience { reconnect_attempts: 0, ..Patience::default() }, 0, 0),
    ] {
        let mut world = World::new(1, patience);
        world.run_until_ready();
        let key = world.submit(request(Op::Read, 0, 512), vec![0; 512]);
        let begun = world.now;
        world.is_up = false;
        world.close();
        world.link.handle_lost("the server ended", world.now);
        world.run();
        assert_eq!(world.completed[&key], Err(IoError::Disconnected));
        let took = world.now.saturating_since(begun);
        assert!(took <= Duration::from_secs(seconds_max), "{patience:?} took {took:?}");
        let failure = world.link.failure().unwrap().to_owned();
        assert!(failure.contains("attempts"), "{failure}");
        assert!(attempts_max >= 100 || failure.contains(&format!("({attempts_max} attempts")), "{failure}");
        // The server is back: the next request connects.
        world.is_up = true;
        let key = world.submit(request(Op::Read, 0, 512), vec![0; 512]);
        world.run();
        assert_eq!(world.completed[&key], Ok(()));
    }
}

#[test]
fn a_silent_server_is_lost_after_the_time_and_an_idle_one_is_not() {
    let silence = Duration::from_secs(60);
    let mut world = World::new(1, Patience { silence, ..Patience::default() });
    world.run_until_ready();
    assert_eq!(world.link.poll_timeout(), None, "no request is in flight");
    let key = world.submit(request(Op::Read, 0, 512), vec![0; 512]);
    let mut heads = Vec::new();
    world.link.poll_outgoing(&mut heads, world.now).unwrap();
    let due = world.link.poll_timeout().unwrap();
    assert_eq!(due.saturating_since(world.now), silence);
    world.now = due;
    world.link.handle_timeout(due);
    world.run();
    assert_eq!((world.completed[&key], world.connects), (Ok(()), 2));
}

#[test]
fn a_request_that_ends_each_connection_fails_and_the_others_complete() {
    let mut world = World::new(1, Patience::default());
    world.run_until_ready();
    let key = world.submit(request(Op::Read, 0, 512), vec![0; 512]);
    for _ in 0..1000 {
        world.execute_events();
        if world.completed.contains_key(&key) {
            break;
        }
        if world.link.in_flight() {
            world.close();
            world.link.handle_lost("the server crashed", world.now);
        } else if !world.exchange_once_negotiating() {
            world.now = world.link.poll_timeout().unwrap().max(world.now);
            world.link.handle_timeout(world.now);
        }
    }
    assert_eq!(world.completed[&key], Err(IoError::Disconnected));
    assert!(world.connects <= SENDS_MAX + 1, "{} connections", world.connects);
}

impl Link {
    fn in_flight(&self) -> bool {
        matches!(&self.state, State::Ready { requests, .. } if requests.in_flight_count() > 0)
    }
}

impl World {
    /// Exchanges bytes until a request is in flight.
    fn exchange_once_negotiating(&mut self) -> bool {
        if matches!(self.link.state, State::Ready { .. }) {
            let mut heads = Vec::new();
            return self.link.poll_outgoing(&mut heads, self.now).is_some();
        }
        self.exchange()
    }
}
