//! A run: calls of a program on the client, events in virtual time, and the checks.

mod bounds;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::{AddAssign, Range};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use iopath::remote::RemoteRequest;
use iopath::{IoError, Op};

use super::CELL;
use super::channel::{self, End};
use super::client::{Client, Entry, Event};
use super::clock::{Clock, MILLISECOND, Nanos, SECOND};
use super::liar::{Habit, Liar};
use super::model::{self, Model};
use super::peer::Peer;
use super::random::Random;
use super::scenario::Scenario;
use super::server::Server;
use super::store::Disk;
use crate::client::coverage::Coverage;
use crate::client::link::{Common, Link};
use crate::export::{BlockSizes, Export};
use crate::protocol::TransmissionFlags as Flags;

/// Cells of the unfair peers, behind those of the program.
const PEER_CELLS: usize = 64;

/// Steps without virtual time after which a run has a loop.
const STEPS_MAX: u32 = 20_000;

/// Steps after which the program has no further calls, so that no run takes long.
const BUDGET: u64 = 6000;

/// Longest call if only unfair peers and the delays of the disk can make it late.
const CALM_MAX: Nanos = 60 * SECOND;

/// Failures of the last calls: each connection may report a loss once, and fail while its server still lies.
const LAST_MAX: u32 = 12;

/// Counts of runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Runs.
    pub runs: u64,
    /// Calls of the program, and those that failed.
    pub calls: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Connections of the program.
    pub connections: u64,
    /// Connections of unfair peers.
    pub peers: u64,
    /// Deaths and stops of servers.
    pub deaths: u64,
    /// Bytes of reads that were checked.
    pub bytes: u64,
    /// A hash of the ends of all calls and their times.
    pub hash: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.runs += other.runs;
        self.calls += other.calls;
        self.failed += other.failed;
        self.connections += other.connections;
        self.peers += other.peers;
        self.deaths += other.deaths;
        self.bytes += other.bytes;
        self.hash ^= other.hash;
    }
}

/// A call of the program.
#[derive(Debug)]
struct Call {
    op: Op,
    cells: Range<usize>,
    fua: bool,
    began: model::Event,
    began_at: Nanos,
    is_over: bool,
}

/// The server that listens.
#[derive(Debug)]
enum Serving {
    Down,
    Ours(Box<Server>),
    Lying(Habit, Vec<Liar>),
}

/// The progress of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Opens,
    Calls,
    /// No more faults; the last calls end.
    Drains,
    /// The last flush or read, until it succeeds or has failed so often.
    Last(Op, u32),
    Over,
}

struct World<'a> {
    scenario: &'a Scenario,
    random: Random,
    clock: Clock,
    disk: Rc<RefCell<Disk>>,
    export: Export,
    common: Arc<Common>,
    serving: Serving,
    clients: Vec<Client>,
    /// Connections that are refused later.
    refusals: VecDeque<(Nanos, usize)>,
    peers: Vec<Peer>,
    calls: Vec<Call>,
    open_calls: Vec<usize>,
    model: Model,
    stage: Stage,
    next_call: Nanos,
    next_cut: Nanos,
    next_death: Nanos,
    next_start: Nanos,
    is_calm: bool,
    numbers: u32,
    steps: u64,
    counts: Counts,
}

/// Runs a scenario.
pub(super) fn run(scenario: &Scenario) -> Result<Counts, String> {
    let mut world = World::new(scenario);
    let result = world.run();
    let now = world.clock.now();
    world.counts.runs = 1;
    result.map(|()| world.counts).map_err(|error| format!("at {:.6} s: {error}", now as f64 / 1e9))
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let mut random = Random::new(scenario.seed ^ 0x5eed);
        let clock = Clock::new();
        clock.set(1);
        let cells = scenario.cells + PEER_CELLS;
        let disk = Disk::new(cells, scenario.faults, scenario.depth, random.fork());
        let disk = Rc::new(RefCell::new(disk));
        let flags = Flags::SEND_FLUSH
            | Flags::SEND_FUA
            | Flags::SEND_TRIM
            | Flags::SEND_WRITE_ZEROES
            | Flags::CAN_MULTI_CONN;
        let block_sizes = BlockSizes { min: CELL as u32, preferred: 4096, max: 32 << 20 };
        let size = (cells * CELL) as u64;
        let export = Export { flags, block_sizes, ..Export::new("disk", size) };
        let common = Arc::new(Common {
            encryption: None,
            server: "nbd://simulated/disk".to_owned(),
            export: "disk".to_owned(),
            request_bytes_max: u32::MAX,
            patience: scenario.patience,
            coverage: Coverage::new(scenario.links),
            negotiated: OnceLock::new(),
        });
        let clients = (0..scenario.links).map(|number| Client::new(Link::new(number, &common), &clock));
        Self {
            scenario,
            clients: clients.collect(),
            serving: Serving::Down,
            clock,
            disk,
            export,
            common,
            refusals: VecDeque::new(),
            peers: Vec::new(),
            calls: Vec::new(),
            open_calls: Vec::new(),
            model: Model::new(scenario.cells),
            stage: Stage::Opens,
            next_call: 0,
            next_cut: Nanos::MAX,
            next_death: Nanos::MAX,
            next_start: 0,
            is_calm: false,
            numbers: 0,
            steps: 0,
            counts: Counts::default(),
            random,
        }
    }

    /// A random time from now on; zero: never.
    fn after(&mut self, longest: Nanos) -> Nanos {
        if longest == 0 { Nanos::MAX } else { self.clock.now() + self.random.magnitude(MILLISECOND, longest) }
    }

    fn run(&mut self) -> Result<(), String> {
        self.start_server();
        // Peers that come first have the first buffers and turns.
        (0..self.scenario.early_peers).for_each(|_| self.add_peer());
        self.clients.iter_mut().for_each(Client::open);
        let mut idle = 0;
        while self.stage != Stage::Over {
            let mut steps = 0;
            while self.step()? {
                steps += 1;
                self.steps += 1;
                if steps > STEPS_MAX {
                    return Err("liveness: no time passes".to_owned());
                }
            }
            self.check_times()?;
            if self.stage == Stage::Over {
                break;
            }
            let next = self.next().ok_or("liveness: nothing is due, and the run is not over")?;
            if next <= self.clock.now() {
                idle += 1;
                if idle > STEPS_MAX {
                    return Err("liveness: something is due, and nothing happens".to_owned());
                }
            } else {
                idle = 0;
            }
            self.clock.set(next.max(self.clock.now()));
        }
        Ok(())
    }

    /// The next time at which something is due.
    fn next(&self) -> Option<Nanos> {
        let server = match &self.serving {
            Serving::Down => Some(self.next_start),
            Serving::Ours(server) => server.next(),
            Serving::Lying(_, liars) => liars.iter().filter_map(Liar::next).min(),
        };
        // A server that is down has no further faults.
        let has_faults = !self.is_calm && !matches!(self.serving, Serving::Down);
        let faults = [self.next_cut, self.next_death].into_iter().filter(|_| has_faults);
        let calls = match self.stage {
            Stage::Calls => self.open_calls.len() < self.scenario.width,
            Stage::Last(_, _) => self.open_calls.is_empty(),
            _ => false,
        };
        let call = calls.then_some(self.next_call);
        let clients = self.clients.iter().filter_map(Client::next);
        let peers = self.peers.iter().filter_map(Peer::next);
        let refusals = self.refusals.iter().map(|(at, _)| *at);
        let all = clients.chain(peers).chain(refusals).chain(faults).chain(server).chain(call);
        all.filter(|at| *at < Nanos::MAX).min()
    }

    /// Executes what is due. Returns whether anything was.
    fn step(&mut self) -> Result<bool, String> {
        let mut has_worked = self.execute_faults()?;
        match &mut self.serving {
            Serving::Down => {}
            Serving::Ours(server) => has_worked |= server.advance()?,
            Serving::Lying(_, liars) => {
                for liar in &mut *liars {
                    has_worked |= liar.advance();
                }
                liars.retain(|liar| !liar.is_over());
            }
        }
        for index in 0..self.clients.len() {
            has_worked |= self.clients[index].advance();
            has_worked |= self.execute_events(index)?;
        }
        while self.refusals.front().is_some_and(|(at, _)| *at <= self.clock.now()) {
            let Some((_, index)) = self.refusals.pop_front() else { break };
            has_worked = true;
            self.clients[index].handle_lost("connection refused");
            self.execute_events(index)?;
        }
        for peer in &mut self.peers {
            has_worked |= peer.advance()?;
        }
        self.peers.retain(|peer| !peer.is_over());
        has_worked |= self.advance_program();
        Ok(has_worked)
    }

    fn execute_events(&mut self, index: usize) -> Result<bool, String> {
        let mut has_worked = false;
        while let Some(event) = self.clients[index].poll_event() {
            has_worked = true;
            match event {
                Event::Connect => self.connect(index),
                Event::Completed(entry, result, epoch) => self.end_call(entry, result, epoch)?,
                Event::Redirect(entry, to) => {
                    if to == index {
                        return Err("a flush was passed to its own connection".to_owned());
                    }
                    self.clients[to].submit(entry.call, entry.request, entry.memory);
                }
            }
        }
        Ok(has_worked)
    }

    fn connect(&mut self, index: usize) {
        let is_first = !self.clients[index].is_open;
        self.counts.connections += 1;
        if !self.is_calm && !is_first && self.random.one_in(self.scenario.refused) {
            // Refused, at once or after some time, perhaps later than the client waits.
            let at = self.after(20 * SECOND);
            self.refusals.push_back((at, index));
            self.refusals.make_contiguous().sort_unstable();
            return;
        }
        if matches!(self.serving, Serving::Down) {
            self.refusals.push_front((self.clock.now(), index));
            return;
        }
        let stream = self.accept(is_first);
        let epoch = self.model.epoch;
        self.clients[index].handle_connected(stream, epoch);
    }

    /// A new connection to the server. Returns the end of the client.
    fn accept(&mut self, is_honest: bool) -> End {
        self.numbers += 1;
        let (client, server) =
            channel::connect(&self.clock, self.numbers, self.scenario.link, &mut self.random);
        match &mut self.serving {
            Serving::Ours(ours) => ours.add(server),
            Serving::Lying(habit, liars) => {
                let honest = Habit { one_in: 0, handshake: 0, overtakes: false, ..*habit };
                let habit = if is_honest { Habit { handshake: 0, ..*habit } } else { *habit };
                let habit = if self.is_calm { Habit { error: 0, late: 0, ..honest } } else { habit };
                let random = self.random.fork();
                liars.push(Liar::new(server, &self.export, &self.disk, habit, &self.clock, random));
            }
            Serving::Down => {}
        }
        client
    }

    fn start_server(&mut self) {
        self.serving = if let Some(habit) = self.scenario.lies {
            Serving::Lying(habit, Vec::new())
        } else {
            Serving::Ours(Box::new(Server::new(self.scenario, &self.export, &self.disk, &self.clock)))
        };
    }

    /// Starts and ends servers, and cuts connections.
    fn execute_faults(&mut self) -> Result<bool, String> {
        let now = self.clock.now();
        if matches!(self.serving, Serving::Down) {
            if now < self.next_start {
                return Ok(false);
            }
            self.start_server();
            return Ok(true);
        }
        if matches!(&self.serving, Serving::Ours(server) if server.has_stopped()) {
            self.disk.borrow_mut().flush_all();
            self.end_server(false);
            return Ok(true);
        }
        if self.is_calm || self.stage == Stage::Opens {
            return Ok(false);
        }
        if now >= self.next_cut {
            self.next_cut = self.after(self.scenario.cut);
            let index = self.random.below(self.clients.len() as u64) as usize;
            if self.clients[index].is_connected() {
                self.clients[index].handle_lost("the network was cut");
                self.execute_events(index)?;
            }
            return Ok(true);
        }
        if now >= self.next_death {
            self.next_death = self.after(self.scenario.death);
            let limit = self.after(10 * SECOND);
            match &mut self.serving {
                Serving::Ours(server) if server.stops_at.is_none() && self.random.one_in(2) => {
                    server.stop(limit);
                    self.peers.iter_mut().for_each(Peer::excuse);
                }
                _ => self.end_server(true),
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// The server process ends, perhaps with the power of its disk.
    fn end_server(&mut self, is_death: bool) {
        self.counts.deaths += 1;
        self.peers.iter_mut().for_each(Peer::excuse);
        if let Serving::Ours(server) = std::mem::replace(&mut self.serving, Serving::Down) {
            server.kill();
        }
        if is_death && self.random.one_in(2) {
            self.disk.borrow_mut().fail_power();
        }
        self.model.epoch += 1;
        self.next_start = self.after(self.scenario.down_max);
    }

    fn advance_program(&mut self) -> bool {
        let now = self.clock.now();
        match self.stage {
            Stage::Opens if self.clients.iter().all(|client| client.is_open) => {
                self.stage = Stage::Calls;
                self.next_cut = self.after(self.scenario.cut);
                self.next_death = self.after(self.scenario.death);
                true
            }
            Stage::Calls if self.calls.len() == self.scenario.calls || self.steps > BUDGET => {
                self.stage = Stage::Drains;
                self.is_calm = true;
                self.clock.is_fast.set(true);
                self.disk.borrow_mut().is_calm = true;
                match &mut self.serving {
                    Serving::Lying(_, liars) => liars.iter_mut().for_each(Liar::calm),
                    Serving::Ours(server) => server.calm(),
                    Serving::Down => {}
                }
                true
            }
            Stage::Calls if now >= self.next_call && self.open_calls.len() < self.scenario.width => {
                self.next_call = now + self.random.below(self.scenario.think_max + 1);
                self.begin_random_call();
                self.add_peer();
                true
            }
            Stage::Drains if self.open_calls.is_empty() => {
                self.stage = Stage::Last(Op::Flush, LAST_MAX);
                self.peers.clear();
                true
            }
            Stage::Drains if self.steps > 3 * BUDGET && !self.peers.is_empty() => {
                self.peers.clear();
                true
            }
            Stage::Last(op, _) if self.open_calls.is_empty() && now >= self.next_call => {
                let all = if op == Op::Flush { 0 } else { self.scenario.cells };
                self.begin_call(op, 0..all, false);
                true
            }
            _ => false,
        }
    }

    /// The next unfair peer connects.
    fn add_peer(&mut self) {
        let next = self.counts.peers as usize;
        let Some(manner) = self.scenario.peers.get(next) else { return };
        if !matches!(self.serving, Serving::Ours(_)) {
            return;
        }
        self.counts.peers += 1;
        let stream = self.accept(false);
        let first = self.scenario.cells as u64;
        let cells = first..first + PEER_CELLS as u64;
        self.peers.push(Peer::new(*manner, cells, stream, &self.clock, self.random.fork()));
    }

    fn begin_random_call(&mut self) {
        let op = if self.random.one_in(self.scenario.flush) {
            Op::Flush
        } else {
            *self.random.pick(&[Op::Read, Op::Read, Op::Write, Op::Write, Op::WriteZeroes, Op::Discard])
        };
        let all = self.scenario.cells as u64;
        let count = self.random.magnitude(1, self.scenario.length_max);
        let first = self.random.below(all - count + 1) as usize;
        let cells = if op == Op::Flush { 0..0 } else { first..first + count as usize };
        let meets = |call: &usize| {
            let other = &self.calls[*call];
            (op != Op::Read || other.op != Op::Read)
                && other.cells.start < cells.end
                && cells.start < other.cells.end
        };
        // The queue above never has them in flight.
        if !self.scenario.may_overlap && self.open_calls.iter().any(meets) {
            return;
        }
        let fua = !matches!(op, Op::Read | Op::Flush) && self.random.one_in(8);
        self.begin_call(op, cells, fua);
    }

    fn begin_call(&mut self, op: Op, cells: Range<usize>, fua: bool) {
        let number = self.calls.len();
        self.counts.calls += 1;
        let mut memory = vec![0xee; if op == Op::Read || op == Op::Write { cells.len() * CELL } else { 0 }];
        let began = match op {
            Op::Read | Op::Flush => self.model.event(),
            Op::Write => {
                let write = number as u64 + 1;
                for (cell, bytes) in cells.clone().zip(memory.chunks_exact_mut(CELL)) {
                    Model::fill(write, cell, bytes);
                }
                self.model.begin_write(number, cells.clone(), write)
            }
            Op::WriteZeroes | Op::Discard => self.model.begin_write(number, cells.clone(), 0),
        };
        let request = RemoteRequest {
            op,
            offset: (cells.start * CELL) as u64,
            length: (cells.len() * CELL) as u64,
            fua,
        };
        let began_at = self.clock.now();
        self.calls.push(Call { op, cells, fua, began, began_at, is_over: false });
        self.open_calls.push(number);
        let candidate = (op == Op::Flush).then(|| self.common.coverage.candidate()).flatten();
        let index = candidate.unwrap_or_else(|| self.random.below(self.clients.len() as u64) as usize);
        self.clients[index].submit(number, request, memory);
    }

    fn end_call(&mut self, entry: Entry, result: Result<(), IoError>, epoch: u32) -> Result<(), String> {
        let Entry { call: number, memory, .. } = entry;
        let began = |call: &usize| self.calls[*call].began;
        self.model.oldest = self.open_calls.iter().map(began).min().unwrap_or(0);
        let call = &mut self.calls[number];
        if std::mem::replace(&mut call.is_over, true) {
            return Err(format!("call {number} ended twice"));
        }
        self.open_calls.retain(|open| *open != number);
        self.counts.failed += u64::from(result.is_err());
        self.counts.hash =
            (self.counts.hash ^ (number as u64) ^ self.clock.now() << 1 ^ u64::from(result.is_ok()))
                .wrapping_mul(0x0100_0000_01b3);
        let (op, cells, fua, began) = (call.op, call.cells.clone(), call.fua, call.began);
        let context = |error| format!("call {number}, {op:?} of cells {cells:?}: {error}");
        if result.is_err() && self.expects_success() {
            return Err(context(format!("failed without a fault: {result:?}")));
        }
        match op {
            Op::Read if result.is_ok() => {
                for (cell, bytes) in cells.clone().zip(memory.chunks_exact(CELL)) {
                    self.model.check_read(cell, bytes, began).map_err(context)?;
                }
                self.counts.bytes += memory.len() as u64;
            }
            Op::Write | Op::WriteZeroes => {
                self.model.end_write(number, cells.clone(), result.is_ok(), fua, epoch);
            }
            // The server may ignore a discard.
            Op::Discard => self.model.end_write(number, cells.clone(), false, false, epoch),
            Op::Flush if result.is_ok() => {
                let disk = self.disk.borrow();
                for cell in 0..self.scenario.cells {
                    let bytes = &disk.durable[cell * CELL..(cell + 1) * CELL];
                    let checked = self.model.check_durable(cell, bytes, began);
                    checked.map_err(|error| format!("call {number}, a flush that succeeded: {error}"))?;
                }
                drop(disk);
                self.model.end_flush(began, false);
            }
            Op::Flush if result == Err(IoError::Disconnected) => self.model.end_flush(began, true),
            Op::Read | Op::Flush => {}
        }
        if let Stage::Last(op, left) = self.stage {
            self.stage = match (op, result.is_ok()) {
                (Op::Flush, true) => Stage::Last(Op::Read, LAST_MAX),
                (_, true) => Stage::Over,
                (_, false) if left == 0 => {
                    return Err(context(format!("fails again and again after the faults: {result:?}")));
                }
                (_, false) => Stage::Last(op, left - 1),
            };
            // After violations of the protocol, a link fails its requests for a time.
            self.next_call = self.clock.now() + 2 * SECOND;
        }
        Ok(())
    }

    /// Whether no fault can fail a call.
    fn expects_success(&self) -> bool {
        self.scenario.is_calm() && self.scenario.faults.error == 0 && self.scenario.faults.flush_error == 0
    }
}
