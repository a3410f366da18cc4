//! A loop in virtual time around a modelled device without a queue: submits at a depth, follows `poll_timeout`, and
//! checks that each request completes exactly once.
use std::collections::HashMap;

use iopath_core::{BlockDevice, Extent, Instant, Io, IoError, LengthOnly, Op, Sector, Tag};
use iopath_model::{Model, ModelDevice, Preset};

pub(crate) type Device = ModelDevice<LengthOnly>;

/// Models that contain models, by name: one of each kind, and one with all of them.
pub(crate) const LAYERED: &[(&str, &str)] = &[
    ("stripe", "kind = 'stripe'\nmembers = 4\nchunk_kib = 4\ndevice.base = 'sata-2006'\n"),
    ("extent file", "kind = 'mapped'\nsize_mib = 100\ndevice.base = 'ssd-sata'\n"),
    (
        "indirect file",
        "kind = 'mapped'\nmapper = 'indirect'\nblock_bytes = 1024\nsize_mib = 12.3\nboundary = 'ignore'\n\
         device.base = 'sata-2006'\n",
    ),
    ("delay", "kind = 'delay'\ndelay_us = 250\ndevice.base = 'cloud'\n"),
    ("throttle", "kind = 'throttle'\ncap_iops = 2000\ncap_mib_per_s = 40\ndevice.base = 'ssd-nvme'\n"),
    ("faulty", "kind = 'faulty'\nshort_one_in = 5\nreorder = 1\ndevice.base = 'sata-2006'\n"),
    (
        "all",
        "kind = 'mapped'\nsize_mib = 24\nmapper = 'indirect'\n[device]\nkind = 'stripe'\nmembers = 3\nchunk_kib = 64\n\
         [device.device]\nkind = 'delay'\ndelay_us = 10\n[device.device.device]\nkind = 'throttle'\ncap_iops = 5000\n\
         [device.device.device.device]\nkind = 'faulty'\nreorder = 1\n\
         [device.device.device.device.device]\nbase = 'iscsi-gbe'\n",
    ),
];

/// Every preset and every model of [`LAYERED`].
pub(crate) fn models() -> Vec<(&'static str, Model)> {
    let preset = |preset: &Preset| (preset.name, Model::preset(preset.name).expect("a preset is valid"));
    let layered = |&(name, text): &(&'static str, &str)| {
        (name, Model::parse(name, text).unwrap_or_else(|error| panic!("{error}")))
    };
    Preset::ALL.iter().map(preset).chain(LAYERED.iter().map(layered)).collect()
}

pub(crate) fn device(model: &Model) -> Device {
    Device::new(model, 1)
}

/// A completed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) number: u32,
    pub(crate) op: Op,
    pub(crate) sector: u64,
    pub(crate) bytes: u64,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) result: Result<(), IoError>,
}

impl Done {
    pub(crate) fn latency(&self) -> u64 {
        self.end - self.begin
    }
}

/// A device, its clock, and the requests in flight.
pub(crate) struct Rig<D> {
    pub(crate) device: D,
    pub(crate) now: u64,
    in_flight: HashMap<u32, Done>,
    next: u32,
}

impl<D: BlockDevice<Memory = LengthOnly>> Rig<D> {
    pub(crate) fn new(device: D) -> Self {
        Self { device, now: 0, in_flight: HashMap::new(), next: 0 }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    pub(crate) fn submit(&mut self, op: Op, sector: u64, bytes: u64) -> u32 {
        self.try_submit(op, sector, bytes).expect("the device has room")
    }

    /// Submits without commit; the number of the request.
    pub(crate) fn try_submit(&mut self, op: Op, sector: u64, bytes: u64) -> Option<u32> {
        let number = self.next;
        let extent = Extent::new(Sector(sector), bytes / 512).expect("within the address space");
        let memory = [LengthOnly::new(bytes)];
        let memory = if op.has_memory() { &memory[..] } else { &[] };
        self.device
            .submit(&Io::new(Tag::from_bits(number), op, extent, memory), Instant::from_nanos(self.now))
            .ok()?;
        self.next += 1;
        let done = Done { number, op, sector, bytes, begin: self.now, end: 0, result: Ok(()) };
        self.in_flight.insert(number, done);
        Some(number)
    }

    pub(crate) fn commit(&mut self) {
        self.device.commit(Instant::from_nanos(self.now));
    }

    pub(crate) fn poll(&mut self) -> Option<Done> {
        let done = self.device.poll_completion(Instant::from_nanos(self.now))?;
        let mut request = self.in_flight.remove(&done.tag.to_bits()).expect("a request completes once");
        (request.end, request.result) = (self.now, done.result);
        Some(request)
    }

    /// Advances the clock to the next event.
    pub(crate) fn step(&mut self) {
        let next = self.device.poll_timeout().expect("requests in flight have a time").as_nanos();
        assert!(next >= self.now || self.in_flight() > 0);
        self.now = self.now.max(next);
    }

    /// The next completion, however long it takes.
    pub(crate) fn wait(&mut self) -> Done {
        let mut events = 0;
        loop {
            if let Some(done) = self.poll() {
                return done;
            }
            self.step();
            events += 1;
            assert!(events < 1_000_000, "events without a completion");
        }
    }

    /// Submits, commits and waits for all.
    pub(crate) fn run(&mut self, op: Op, sector: u64, bytes: u64) -> Done {
        self.submit(op, sector, bytes);
        self.commit();
        self.wait()
    }

    /// Keeps `depth` requests in flight until `count` have completed.
    pub(crate) fn keep(
        &mut self,
        depth: u32,
        count: u32,
        mut next: impl FnMut(u32) -> (Op, u64, u64),
    ) -> Vec<Done> {
        let (mut submitted, mut completed) = (0, Vec::with_capacity(count as usize));
        while completed.len() < count as usize {
            while submitted < count && self.in_flight() < depth as usize {
                let (op, sector, bytes) = next(submitted);
                self.submit(op, sector, bytes);
                submitted += 1;
            }
            self.commit();
            completed.push(self.wait());
            while let Some(done) = self.poll() {
                completed.push(done);
            }
        }
        completed
    }
}

/// A reproducible sequence of numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(z ^ (z >> 31)) * u128::from(limit)) >> 64) as u64
    }
}

/// Bytes a second (10^6) of completed requests, from the first submission to the last completion.
pub(crate) fn mb_per_s(done: &[Done]) -> f64 {
    let bytes: u64 = done.iter().map(|one| one.bytes).sum();
    bytes as f64 * 1e3 / span(done) as f64
}

/// Requests a second.
pub(crate) fn iops(done: &[Done]) -> f64 {
    done.len() as f64 * 1e9 / span(done) as f64
}

pub(crate) fn span(done: &[Done]) -> u64 {
    let begin = done.iter().map(|one| one.begin).min().unwrap_or(0);
    let end = done.iter().map(|one| one.end).max().unwrap_or(0);
    (end - begin).max(1)
}
