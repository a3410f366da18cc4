//! One run of one mapped file: two engines, each on a stripe of faulty disks, random operations, and a check of every
//! byte read.

use super::disk::{Arena, Disk, Span};
use super::host::Host;
use iopath_core::mapped::{MappedDevice, MappedFile};
use iopath_core::mapper::{Boundary, FileLayout};
use iopath_core::{
    Bio, Extent, Fault, FaultPlan, FaultyDevice, Instant, IoError, Limits, Op, Priority, QueueConfig,
    QueuedDevice, Sector, Stream, Stripe, StripeConfig,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

const SECTORS: u64 = 1024;
const BLOCK_BYTES: u32 = 4096;
/// The engines own regions of this size alternately. Several regions share a block of the filesystem.
const REGION_SECTORS: u64 = 3;
const ENGINES: usize = 2;
const MEMBERS: usize = 3;

type Engine = QueuedDevice<MappedDevice<Stripe<FaultyDevice<Disk>>, Host>>;

/// A completion: the time, the engine, the token of the bio, and the result.
pub(crate) type Event = (Instant, usize, u64, Result<(), IoError>);

/// The events of the runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Events {
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) faults: u64,
    /// The number of times that an engine waited for the other.
    pub(crate) blocked: u64,
    pub(crate) bytes_checked: u64,
}

impl AddAssign for Events {
    fn add_assign(&mut self, other: Self) {
        self.done += other.done;
        self.failed += other.failed;
        self.faults += other.faults;
        self.blocked += other.blocked;
        self.bytes_checked += other.bytes_checked;
    }
}

#[derive(Debug)]
struct Pending {
    op: Op,
    extent: Extent,
    memory: Option<Span>,
    version: u64,
}

pub(crate) struct Life {
    engines: Vec<Engine>,
    host: Host,
    arena: Arena,
    pending: BTreeMap<(usize, u64), Pending>,
    /// The versions that each sector may have: more than one after a failed write.
    may_hold: Vec<BTreeSet<u64>>,
    submitted: u64,
    now: Instant,
    rng: ChaCha8Rng,
    pub(crate) events: Vec<Event>,
    pub(crate) met: Events,
}

impl Life {
    pub(crate) fn new(seed: u64, mapping: &str, boundary: Boundary) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let arena = Arena::default();
        let limits = Limits { depth_max: 4, volatile_cache: true, ..Limits::with_capacity(4096) };
        let disks: Vec<Disk> = (0..MEMBERS).map(|_| Disk::new(&limits, &arena)).collect();
        let layout = FileLayout {
            block_bytes: BLOCK_BYTES,
            size_bytes: SECTORS * 512,
            capacity_bytes: MEMBERS as u64 * 4096 * 512,
        };
        let host = Host::new(MappedFile::fresh(mapping, &layout).unwrap(), &arena);
        let engines = (0..ENGINES as u64)
            .map(|engine| {
                let faulty = disks.iter().zip(0..).map(|(disk, member)| {
                    let mut plan = FaultPlan::new(seed ^ (engine << 32 | member << 48));
                    plan.add(Fault::error(IoError::Media).one_in(30));
                    plan.add(Fault::short().one_in(4));
                    plan.shuffle(engine == 1);
                    FaultyDevice::new(disk.clone(), plan)
                });
                let config = StripeConfig { chunk_sectors: 16, ..StripeConfig::default() };
                let stripe = Stripe::new(faulty.collect(), &config).unwrap();
                let mapped = MappedDevice::new(stripe, host.clone(), host.add_engine(), boundary).unwrap();
                QueuedDevice::new(mapped, &QueueConfig { bios_max: 16, ..QueueConfig::default() })
            })
            .collect();
        // The identity mapping shows the bytes of the disk.
        let may_hold = vec![BTreeSet::from([0]); SECTORS as usize];
        Self {
            engines,
            host,
            arena,
            pending: BTreeMap::new(),
            may_hold,
            submitted: 0,
            now: Instant::ZERO,
            rng,
            events: Vec::new(),
            met: Events::default(),
        }
    }

    /// Runs `ops` operations, then checks every byte without faults: with the metadata in memory, and read again.
    pub(crate) fn run(mut self, ops: u64) -> (Vec<Event>, Events) {
        while self.submitted < ops {
            for engine in 0..ENGINES {
                for _ in 0..self.rng.random_range(0..4) {
                    self.submit_random(engine);
                }
            }
            self.step();
        }
        self.drain();
        for engine in &mut self.engines {
            for member in engine.device_mut().device_mut().members_mut() {
                self.met.faults += member.faults_mut().injected();
                member.faults_mut().clear();
            }
        }
        for reread in [false, true] {
            self.submit(0, Op::Flush, Extent::EMPTY);
            self.drain();
            if reread {
                self.host.forget_metadata();
            }
            for region in 0..SECTORS / REGION_SECTORS {
                let extent = Extent::new(Sector(region * REGION_SECTORS), REGION_SECTORS).unwrap();
                self.submit((region % ENGINES as u64) as usize, Op::Read, extent);
                self.drain();
            }
        }
        (self.events, self.met)
    }

    fn submit_random(&mut self, engine: usize) {
        let op = match self.rng.random_range(0..20) {
            0..8 => Op::Read,
            8..16 => Op::Write,
            16 => Op::Discard,
            17 => Op::WriteZeroes,
            18 => Op::Flush,
            _ => return self.host.forget_metadata(),
        };
        if op == Op::Flush {
            return self.submit(engine, op, Extent::EMPTY);
        }
        let regions = SECTORS / REGION_SECTORS / ENGINES as u64;
        let region = self.rng.random_range(0..regions) * ENGINES as u64 + engine as u64;
        let first = self.rng.random_range(0..REGION_SECTORS);
        let sectors = self.rng.random_range(1..=REGION_SECTORS - first);
        self.submit(engine, op, Extent::new(Sector(region * REGION_SECTORS + first), sectors).unwrap());
    }

    fn submit(&mut self, engine: usize, op: Op, extent: Extent) {
        if self.engines[engine].queue().bios_in() == 16 {
            return;
        }
        self.submitted += 1;
        let version = self.submitted;
        let memory = op.has_memory().then(|| self.arena.take(extent.bytes() as usize));
        if let (Op::Write, Some(memory)) = (op, memory) {
            self.arena.with(memory, |bytes| {
                for (sector, bytes) in (extent.start().0..).zip(bytes.chunks_mut(512)) {
                    bytes.copy_from_slice(&contents(version, sector));
                }
            });
        }
        let (stream, priority, fua) =
            (Stream(0), Priority::BestEffort, op == Op::Write && version.is_multiple_of(8));
        let bio = Bio { op, extent, memory, fua, stream, priority, token: version };
        self.engines[engine].submit_bio(bio, self.now).unwrap();
        self.pending.insert((engine, version), Pending { op, extent, memory, version });
    }

    fn drain(&mut self) {
        while !self.pending.is_empty() {
            self.step();
        }
    }

    /// Dispatches, advances the clock to the earliest timeout, and collects.
    fn step(&mut self) {
        for engine in &mut self.engines {
            engine.unplug(self.now);
            engine.dispatch(self.now);
            engine.commit(self.now);
        }
        let due = self.engines.iter().filter_map(QueuedDevice::poll_timeout).min();
        match due {
            Some(due) => self.now = self.now.max(due),
            None => assert!(self.pending.is_empty(), "no timeout, but in flight are {:?}", self.pending),
        }
        for engine in 0..ENGINES {
            self.engines[engine].collect(self.now);
            self.met.blocked += u64::from(self.engines[engine].device().is_blocked());
            while let Some(done) = self.engines[engine].poll_completion() {
                self.events.push((self.now, engine, done.token, done.result));
                self.complete(engine, done.token, done.result);
            }
        }
    }

    fn complete(&mut self, engine: usize, token: u64, result: Result<(), IoError>) {
        let Pending { op, extent, memory, version } =
            self.pending.remove(&(engine, token)).expect("completes once");
        self.met.done += u64::from(result.is_ok());
        self.met.failed += u64::from(result.is_err());
        let sectors = extent.start().0..extent.end().0;
        let written = match op {
            Op::Flush => return,
            Op::Read => {
                if let (Ok(()), Some(memory)) = (result, memory) {
                    self.check(sectors, memory, version);
                }
                return;
            }
            Op::Write => version,
            Op::Discard | Op::WriteZeroes => 0,
        };
        for sector in sectors {
            let may_hold = &mut self.may_hold[sector as usize];
            if result.is_ok() {
                may_hold.clear();
            }
            may_hold.insert(written);
        }
    }

    fn check(&mut self, sectors: std::ops::Range<u64>, memory: Span, version: u64) {
        self.met.bytes_checked += memory.bytes_len();
        let bytes = self.arena.with(memory, |bytes| bytes.to_vec());
        for (sector, bytes) in sectors.zip(bytes.chunks(512)) {
            let may_hold = &self.may_hold[sector as usize];
            let found = may_hold.iter().any(|version| bytes == contents(*version, sector));
            assert!(
                found,
                "read {version}: sector {sector} holds {:02x?}, not one of the versions {may_hold:?}",
                &bytes[..16]
            );
        }
    }
}

impl Span {
    fn bytes_len(self) -> u64 {
        iopath_core::Memory::bytes(&self)
    }
}

/// The bytes of a sector in a version; version 0 is zeroes.
fn contents(version: u64, sector: u64) -> [u8; 512] {
    let mut bytes = [0; 512];
    if version > 0 {
        for (chunk, index) in bytes.chunks_mut(8).zip(0_u64..) {
            chunk.copy_from_slice(&(version << 32 | sector << 8 | index).to_le_bytes());
        }
    }
    bytes
}
