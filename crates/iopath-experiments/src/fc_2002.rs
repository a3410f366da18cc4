//! The modelled machine of the published runs of July 2002: eight Fibre Channel disks behind one link of 2 Gbit/s, two
//! processors, three kernels. The experiments `link`, `cpu` and `skew` use it. Contains no published figure.
//!
//! ```text
//!   8 threads ──▶ 8 queues ──▶ one link ──▶ 8 disks
//!       └── two CPUs: calls, pages, block-sized buffers, requests, interrupts; one lock for all queues or for each
//! ```

use iopath::Readahead;
use iopath_core::BlockDevice;
use iopath_core::elevator::ElevatorSpec;
use iopath_model::{Host, HostModel, Link, LinkModel, LockOrder, Model, ModelDevice, Staged};
use iopath_report::experiment::{Parameter, Row, Settings};

use super::error::ExperimentError;
use super::published::published;
use iopath_bench::cache::CacheSettings;
use iopath_bench::simulated::Span;
use iopath_bench::simulated::Unplug;
use iopath_bench::simulated::machine::{Machine, Outcome, Top, VolumeSetup};
use iopath_bench::workload::{BlockSize, End, Workload};

/// Disks, each with one thread.
pub(super) const DISKS: u64 = 8;

/// The amount that each thread read in the published runs, in MiB.
pub(super) const PUBLISHED_MIB: f64 = 10_240.0;

const MIB: u64 = 1 << 20;

/// Bytes of a page of this machine.
const PAGE_BYTES: u64 = 4096;

/// Bytes of a read through the page cache.
const BUFFERED_BYTES: u32 = 512;

/// The parameters of the machine.
pub(super) const DATA: Parameter = Parameter::count(
    "data_mib",
    "MiB",
    640,
    (64, 10_240),
    "for each disk; the published runs read 10,240 MiB, and the rate does not depend on the amount",
);
/// The scratch file on real storage.
pub(super) const FILE: Parameter =
    Parameter::count("file_mib", "MiB", 512, (64, 1 << 20), "assumed: the scratch file on real storage");
pub(super) const PIN: Parameter = Parameter::number(
    "pin_ns",
    "ns",
    2400.0,
    (0.0, 1e6),
    "calibrated on CPU idle, direct, 2.5.25-direct-to-bio",
);
pub(super) const BUFFER: Parameter = Parameter::number(
    "buffer_ns",
    "ns",
    3800.0,
    (0.0, 1e6),
    "Lincoln Dale, 14 July 2002, lock statistics of 2.5.25 on the same machine: __make_request",
);
pub(super) const BLOCK_2_4: Parameter = Parameter::count(
    "block_2_4_bytes",
    "bytes",
    1024,
    (512, 4096),
    "Linux 2.4 block devices: BLOCK_SIZE; in the profiles of 12 May 2002, O_DIRECT completes half as many buffers as raw",
);
pub(super) const BLOCK_2_5: Parameter = Parameter::count(
    "block_2_5_bytes",
    "bytes",
    4096,
    (512, 4096),
    "Linux 2.5.16, fs/block_dev.c: the largest power of two up to a page that divides the size of the device",
);
pub(super) const PIECE: Parameter = Parameter::count(
    "piece_kib",
    "KiB",
    512,
    (4, 4096),
    "Andrea Arcangeli, linux-kernel, 14 May 2002: O_DIRECT of 2.4 transfers pieces of 512 KiB, one after another",
);
pub(super) const BIO: Parameter =
    Parameter::count("bio_kib", "KiB", 64, (4, 4096), "assumed: the largest bio of 2.5.25, 16 pages");
pub(super) const REQUEST: Parameter = Parameter::count(
    "request_kib",
    "KiB",
    128,
    (4, 1024),
    "driver of the QLogic 2x00: SG_SEGMENTS 32, each a page",
);
pub(super) const READAHEAD: Parameter =
    Parameter::count("readahead_kib", "KiB", 128, (4, 4096), "Linux 2.4 and 2.5: 31 or 32 pages");
/// A kernel of the published runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    /// 2.4.19pre8aa2: pieces one after another, each cut into block-sized buffers; one lock for all queues.
    V24,
    /// The same with buffers of a page: the patch `vary-io`.
    V24VaryIo,
    /// 2.5.25: pieces one after another, in large bios.
    V25,
    /// 2.5.25 with direct-to-BIO: the whole transfer in flight, in large bios.
    V25Bio,
}

impl Kernel {
    /// The kernels of the nine runs of 11 July 2002.
    pub(super) const ALL: [Self; 3] = [Self::V24, Self::V25, Self::V25Bio];

    /// Its name in the published table.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::V24 => "2.4.19pre8aa2",
            Self::V24VaryIo => "2.4.19pre8-vary-io",
            Self::V25 => "2.5.25",
            Self::V25Bio => "2.5.25-direct-to-bio",
        }
    }

    /// `io_request_lock` of Linux 2.4 protects all queues. The kernel defines no order of the waiting threads; the
    /// model serves the devices in the order of their numbers. Linux 2.5 has a lock for each queue. In these runs, only
    /// one thread uses each queue, so the model has no lock for it.
    const fn lock(self) -> Option<LockOrder> {
        match self {
            Self::V24 | Self::V24VaryIo => Some(LockOrder::FirstGroup),
            Self::V25 | Self::V25Bio => None,
        }
    }
}

/// A path of the published runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    /// Through the page cache, 512 bytes a call.
    Buffered,
    /// `O_DIRECT` on the block device, 4 MiB a call.
    Direct,
    /// The raw device, 4 MiB a call.
    Raw,
}

impl Path {
    pub(super) const ALL: [Self; 3] = [Self::Buffered, Self::Direct, Self::Raw];

    /// Its name in the published table.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Direct => "direct",
            Self::Raw => "raw",
        }
    }
}

/// The result of a run, for the published amount of data.
#[derive(Debug)]
pub(super) struct Run {
    /// The throughput: all bytes, divided by the time to the end of the last worker.
    pub(super) mib_per_s: f64,
    /// The idle share of the CPUs, in percent.
    pub(super) idle_percent: f64,
    /// The end of each worker, in seconds, for 10 GiB each.
    pub(super) ends: Vec<f64>,
    pub(super) outcome: Outcome,
}

impl Run {
    /// The time from the end of the first worker to that of the last.
    pub(super) fn spread(&self) -> f64 {
        let (first, last) = (self.ends.iter().copied().fold(f64::MAX, f64::min), self.seconds());
        last - first
    }

    /// The end of the last worker.
    pub(super) fn seconds(&self) -> f64 {
        self.ends.iter().copied().fold(0.0, f64::max)
    }
}

/// Reads `data_mib` from each disk with a kernel and a path.
pub(super) fn run(
    settings: &Settings,
    (kernel, path): (Kernel, Path),
    data_mib: u64,
    log: bool,
) -> Result<Run, ExperimentError> {
    let model = host(settings, kernel, path)?;
    // Buffered reads spend their CPU time outside of the lock, so they run without one.
    let host = match kernel.lock().filter(|_| path != Path::Buffered) {
        Some(order) => Host::with_lock(&model, order),
        None => Host::new(&model),
    };
    let (_, link) = LinkModel::PRESETS.iter().find(|preset| preset.0 == "fc-2g").expect("a preset");
    let link = Link::new(&LinkModel::parse("fc-2g", link)?);
    let request_kib = settings.count(REQUEST.name).to_string();
    let disk = Model::preset_with("fc15k-2002", &[("request_max_kib", &request_kib)])?;
    let volumes = (0..DISKS).map(|number| {
        let disk = Staged::new(ModelDevice::new(&disk, number), link.clone());
        volume(settings, (kernel, path), Box::new(disk), data_mib * MIB)
    });
    let outcome = Machine { host: Some(host), volumes: volumes.collect() }.run(1, log)?;
    let to_published = PUBLISHED_MIB / data_mib as f64;
    let ends = outcome.volumes.iter().map(|volume| volume.jobs[0].ended * to_published);
    Ok(Run {
        mib_per_s: outcome.bytes_per_second() / MIB as f64,
        idle_percent: outcome.cpu.map_or(100.0, |cpu| cpu.idle * 100.0),
        ends: ends.collect(),
        outcome,
    })
}

/// The nine runs of 11 July 2002.
pub(super) fn nine_runs(settings: &Settings) -> Result<Vec<(Kernel, Path, Run)>, ExperimentError> {
    let mut runs = Vec::new();
    for kernel in Kernel::ALL {
        for path in Path::ALL {
            // Runs with reads of 512 bytes are shorter: they have many reads, and their rate is constant from the
            // start.
            let share = if path == Path::Buffered { 8 } else { 1 };
            let data_mib = settings.count(DATA.name) / share;
            runs.push((kernel, path, run(settings, (kernel, path), data_mib, false)?));
        }
    }
    Ok(runs)
}

/// The published figure of one of the nine runs.
pub(super) fn published_figure(kernel: Kernel, path: Path, column: &str) -> f64 {
    let wanted = [("kernel", kernel.name()), ("path", path.name())];
    published("direct").find(&wanted).map_or(f64::NAN, |record| record.number(column))
}

/// A row with a published figure; without one if a parameter of the setup was set.
pub(super) fn row(
    settings: &Settings,
    (what, unit): (String, &'static str),
    published: f64,
    ours: f64,
    is_calibrated: bool,
) -> Row {
    let is_changed = settings.all().any(|(parameter, _, is_set)| is_set && parameter.name != DATA.name);
    match (is_changed, is_calibrated) {
        (true, _) => Row::unpublished(what, unit, ours),
        (false, true) => Row::calibrated(what, unit, published, ours),
        (false, false) => Row::predicted(what, unit, published, ours),
    }
}

fn volume(
    settings: &Settings,
    (kernel, path): (Kernel, Path),
    device: Box<dyn BlockDevice<Memory = Span>>,
    bytes: u64,
) -> VolumeSetup {
    let piece_bytes = settings.count(PIECE.name) << 10;
    let block_bytes = match (path, kernel) {
        (Path::Buffered, _) => u64::from(BUFFERED_BYTES),
        (_, Kernel::V25Bio) => 4 * MIB,
        _ => piece_bytes,
    };
    let top = match path {
        Path::Buffered => {
            let readahead = Readahead::Bytes(settings.count(READAHEAD.name) << 10);
            let cache = CacheSettings { readahead: Some(readahead), ..CacheSettings::default() };
            Top::Buffered { cache, unplug: Unplug::AtOnce }
        }
        _ => Top::Direct { bio_bytes_max: Some(bio_bytes(settings, kernel) as u32), serial: false },
    };
    let workload = Workload {
        block_size: BlockSize::constant(block_bytes as u32),
        end: End::Bytes(bytes),
        ..Workload::default()
    };
    VolumeSetup {
        device,
        elevator: ElevatorSpec::default(),
        device_depth: None,
        requests_max: None,
        top,
        workloads: vec![workload],
    }
}

/// Bytes of a bio, or of a block-sized buffer, of direct I/O.
fn bio_bytes(settings: &Settings, kernel: Kernel) -> u64 {
    match kernel {
        Kernel::V24 => settings.count(BLOCK_2_4.name),
        Kernel::V24VaryIo => PAGE_BYTES,
        Kernel::V25 | Kernel::V25Bio => settings.count(BIO.name) << 10,
    }
}

/// The CPUs of the host. With direct I/O, the cost of a bio includes the cost of each page of the caller. With the page
/// cache, the cost of a page includes the cost of its block-sized buffers. The page cache charges each look-up of a
/// page, so the cost of a page is divided by the number of calls that read it.
fn host(settings: &Settings, kernel: Kernel, path: Path) -> Result<HostModel, ExperimentError> {
    let preset = HostModel::preset("p3-2002")?;
    let value =
        |name: &str| preset.settings().iter().find(|one| one.path == name).map_or(0.0, |one| one.value);
    let (block_bytes, buffer_ns) = match kernel.lock() {
        Some(_) => (settings.count(BLOCK_2_4.name), settings.number(BUFFER.name)),
        None => (settings.count(BLOCK_2_5.name), value("bio_ns")),
    };
    let (bio_ns, page_ns) = if path == Path::Buffered {
        let page_ns = value("page_ns") + (PAGE_BYTES / block_bytes) as f64 * buffer_ns;
        (0.0, page_ns * f64::from(BUFFERED_BYTES) / PAGE_BYTES as f64)
    } else {
        let pages = bio_bytes(settings, kernel) as f64 / PAGE_BYTES as f64;
        (buffer_ns + pages * settings.number(PIN.name), value("page_ns"))
    };
    let [bio_ns, page_ns] = [bio_ns, page_ns].map(|ns| ns.round().to_string());
    Ok(HostModel::preset_with("p3-2002", &[("bio_ns", &bio_ns), ("page_ns", &page_ns)])?)
}

/// Runs an experiment of this machine with these settings. Asserts its verdict and the number of its predictions.
#[cfg(test)]
pub(super) fn assert_verdict(
    experiment: &super::Experiment,
    set: &[&str],
    verdict: Option<iopath_report::experiment::Verdict>,
    predictions: usize,
) -> iopath_report::experiment::Report {
    let set: Vec<String> = set.iter().map(ToString::to_string).collect();
    let report = (experiment.run)(&Settings::new(experiment.parameters, &set).unwrap()).unwrap();
    assert_eq!(report.verdict(), verdict, "{report:?}");
    assert_eq!(report.predictions().count(), predictions, "{report:?}");
    report
}
