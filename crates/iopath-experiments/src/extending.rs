//! The setup of `boundary` and `extent`: one thread writes new space of a file by direct I/O, on a stripe of 64 disks.
//!
//! ```text
//!   write of 512 MiB ─▶ MappedDevice ─▶ thread: bios of pages ─▶ Stripe ─▶ 64 × (interrupts, fabric, disk)
//!                        map, boundary         CPU 0               cuts           CPUs 1 to 7
//! ```
//!
//! The map, its boundary flag, the stripe and the queues of its members determine the requests. This file neither cuts
//! nor counts them by a formula.

mod ext3;
mod work;

use std::cell::Cell;
use std::rc::Rc;

use iopath_core::mapped::{KeptMetadata, MappedDevice, MappedFile};
use iopath_core::mapper::{Boundary, ExtentMap, FileLayout, FreeSpace, Mapper, Space};
use iopath_core::{Extent, Stripe, StripeConfig};
use iopath_log::{Filter, SyncLogWriter};
use iopath_model::{Host, HostModel, Link, LinkModel, Model, ModelDevice, Staged, Submitter};
use iopath_report::Rw;
use iopath_report::experiment::{Parameter, Row, Settings};

use super::error::ExperimentError;
use super::published::published;
use ext3::BlockGroups;
use iopath_bench::error::BenchError;
use iopath_bench::simulated::Span;
use iopath_bench::simulated::machine::{Machine, Memory, Top, VolumeSetup};
use iopath_bench::workload::{BlockSize, End, Workload};
use work::Work;

/// The source of a parameter: the message with the setup and all figures.
pub(super) const SOURCE: &str = "the source";

/// The parameters of both experiments. Some are calibrated on figures of both filesystems.
pub(super) const PARAMETERS: [Parameter; 12] = [
    Parameter::count("io_mib", "MiB", 512, (1, 1024), SOURCE),
    Parameter::count(
        "total_mib",
        "MiB",
        512,
        (1, 32768),
        "assumed: the amount has little effect on the rates",
    ),
    Parameter::count("members", "", 64, (1, 256), SOURCE),
    Parameter::count("chunk_kib", "KiB", 128, (4, 65536), SOURCE),
    Parameter::count("block_bytes", "bytes", 4096, (1024, 4096), "the default of both mkfs for this volume"),
    Parameter::count("page_kib", "KiB", 16, (1, 64), "pages of Linux on ia64, the processor of an Altix"),
    Parameter::count("bio_kib", "KiB", 512, (4, 65536), "Linux 2.6.19: BLK_DEF_MAX_SECTORS, 1024"),
    Parameter::count("raw_mib_per_s", "MiB/s", 2560, (1, 1_000_000), "the source: over 2.5 GiB/s"),
    Parameter::number(
        "request_us",
        "µs",
        9.2,
        (0.0, 1e6),
        "a request to a disk: host p3-2002, lock statistics",
    ),
    Parameter::number("page_us", "µs", 3.2, (0.0, 1e6), "calibrated on system CPU of extent (xfs)"),
    Parameter::number(
        "interrupt_us",
        "µs",
        10.2,
        (0.0, 1e6),
        "calibrated on interrupt CPU, boundary for every block",
    ),
    Parameter::number(
        "interrupt_page_us",
        "µs",
        3.07,
        (0.0, 1e6),
        "calibrated on interrupt CPU of extent (xfs)",
    ),
];

/// The filesystem and its treatment of the boundary flag.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Filesystem {
    /// Indirect blocks and block groups.
    Ext3 {
        boundary: Boundary,
        /// The CPU time of the thread to allocate a block.
        block_us: f64,
        /// The time to read a block bitmap, in addition to the time of the disk.
        bitmap_ms: f64,
    },
    /// Extents, each of which begins at the start of a chunk.
    Xfs,
}

/// The figures of a run.
pub(super) struct Figures {
    pub(super) mib_per_s: f64,
    /// Requests of all disks.
    pub(super) ios_per_s: f64,
    pub(super) ios_per_mib: f64,
    /// CPU time of the thread, in percent of one CPU.
    pub(super) system_percent: f64,
    /// CPU time of the interrupts, in percent of one CPU.
    pub(super) interrupt_percent: f64,
    /// The requests of the second chunk of a disk, from the log of its queue.
    pub(super) evidence: Vec<String>,
}

/// Writes the file.
pub(super) fn measure(settings: &Settings, filesystem: Filesystem) -> Result<Figures, ExperimentError> {
    let total_bytes = settings.count("total_mib") << 20;
    let block_us = if let Filesystem::Ext3 { block_us, .. } = filesystem { block_us } else { 0.0 };
    // The thread allocates the blocks of a page when the write reaches that page.
    let blocks = (settings.count("page_kib") << 10) as f64 / settings.count("block_bytes") as f64;
    let thread_page_us = settings.number("page_us") + blocks * block_us;
    let thread = cpus(1, settings.number("request_us"), thread_page_us, 0.0)?;
    let interrupts = cpus(7, 0.0, settings.number("interrupt_page_us"), settings.number("interrupt_us"))?;
    let ios = Rc::new(Cell::new(0));
    let (log, memory) = Memory::start(&[])?;
    let device = device(settings, filesystem, total_bytes, (&thread, &interrupts), &ios, &log)?;
    let volume = VolumeSetup {
        device: Box::new(device),
        elevator: "none".parse().expect("the elevator is a row of the table"),
        device_depth: None,
        requests_max: None,
        top: Top::Direct { bio_bytes_max: None, serial: false },
        workloads: vec![Workload {
            rw: Rw::Write,
            block_size: BlockSize::new(settings.count("io_mib") << 20)?,
            end: End::Bytes(total_bytes),
            size_bytes: Some(total_bytes),
            ..Workload::default()
        }],
    };
    let outcome = Machine { host: None, volumes: vec![volume] }.run(1, false)?;
    // The first chunk of a disk may begin with metadata.
    let second_chunk = settings.count("chunk_kib") * 2;
    let is_shown = &mut |line: &str| {
        line.contains(" dispatch ") && sector_of(line).is_some_and(|sector| sector >= second_chunk)
    };
    let evidence = memory.finish(log)?.lines(&Filter::default(), 3, is_shown)?;
    let ios = ios.get() as f64;
    let (seconds, mib) = (outcome.seconds, outcome.bytes() as f64 / f64::from(1 << 20));
    let percent = |host: &Host| host.busy().as_secs_f64() / seconds * 100.0;
    Ok(Figures {
        mib_per_s: mib / seconds,
        ios_per_s: ios / seconds,
        ios_per_mib: ios / mib,
        system_percent: percent(&thread),
        interrupt_percent: percent(&interrupts),
        evidence,
    })
}

/// The first sector of a write in a line of the log.
fn sector_of(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace().skip_while(|word| *word != "W").skip(1);
    words.next()?.parse().ok()
}

/// CPUs with these costs of a request, a page and an interrupt.
fn cpus(number: u32, request_us: f64, page_us: f64, interrupt_us: f64) -> Result<Host, ExperimentError> {
    let [io, segment, interrupt] = [request_us, page_us, interrupt_us].map(|us| (us * 1e3).round());
    let text = format!(
        "cpus = {number}\nio_ns = {io}\nsegment_ns = {segment}\ninterrupt_ns = {interrupt}\n\
         request_ns = 0\ncopy_mb_per_s = 1000\n"
    );
    Ok(Host::new(&HostModel::parse("the machine", &text)?))
}

/// A fabric without overhead that all disks share.
fn fabric(mib_per_s: u64) -> Result<Link, ExperimentError> {
    let mbit_per_s = mib_per_s as f64 * 8.388_608;
    let text = format!(
        "bandwidth_mbit_per_s = {mbit_per_s}\nlatency_us = 0\nframe_bytes = 2048\nframe_overhead_bytes = 0\nmessage_bytes = 0\n"
    );
    Ok(Link::new(&LinkModel::parse("the fabric", &text)?))
}

type Members = Stripe<Staged<Staged<ModelDevice<Span>, Link>, Work>>;
type File = MappedDevice<Submitter<Members>, iopath_core::mapped::LengthOnlyHost<Span>>;

/// The file on the stripe, behind the thread that submits.
fn device(
    settings: &Settings,
    filesystem: Filesystem,
    size_bytes: u64,
    (thread, interrupts): (&Host, &Host),
    ios: &Rc<Cell<u64>>,
    log: &SyncLogWriter,
) -> Result<File, ExperimentError> {
    let model = Model::preset("fc15k-2002")?;
    let fabric = fabric(settings.count("raw_mib_per_s"))?;
    let bitmap_ms = if let Filesystem::Ext3 { bitmap_ms, .. } = filesystem { bitmap_ms } else { 0.0 };
    let member = |number: u64| {
        let work = Work::new((thread, interrupts), bitmap_ms, ios);
        Staged::new(Staged::new(ModelDevice::new(&model, number), fabric.clone()), work)
    };
    let chunk_bytes = settings.count("chunk_kib") << 10;
    let config =
        StripeConfig { chunk_sectors: chunk_bytes >> 9, merges_parts: false, ..StripeConfig::default() };
    let refused = |error: &dyn std::fmt::Display| BenchError::Io {
        action: "lay out",
        target: "the modelled file".into(),
        source: std::io::Error::other(error.to_string()),
    };
    let stripe = Stripe::new((0..settings.count("members")).map(member).collect(), &config);
    let mut stripe = stripe.map_err(|error| refused(&error))?;
    let logged = stripe.members().len() / 2;
    stripe.start_log(logged, Box::new(log.add_queue()));
    let page_bytes = settings.count("page_kib") << 10;
    let submitter = Submitter::new(stripe, thread.clone(), page_bytes, settings.count("bio_kib") << 10);
    let capacity_bytes = iopath_core::BlockDevice::limits(&submitter).capacity << 9;
    let layout = FileLayout { block_bytes: settings.count("block_bytes") as u32, size_bytes, capacity_bytes };
    let (map, space, boundary): (Box<dyn Mapper>, Box<dyn Space + Send>, _) = match filesystem {
        Filesystem::Ext3 { boundary, .. } => {
            let groups = BlockGroups::new(&layout).map_err(|error| refused(&error))?;
            let space = groups.space();
            (Box::new(groups), Box::new(space), boundary)
        }
        Filesystem::Xfs => {
            let map = ExtentMap::new(&layout).map_err(|error| refused(&error))?;
            // The first chunk contains the metadata. The stripe unit of `mkfs.xfs` was the chunk.
            let space = Extent::from_bytes(chunk_bytes, capacity_bytes.saturating_sub(chunk_bytes));
            (Box::new(map), Box::new(FreeSpace::new(space.unwrap_or_default())), Boundary::Once)
        }
    };
    let file = MappedFile::new(Box::new(KeptMetadata::new(map)), space);
    let device = MappedDevice::without_bytes(submitter, file, boundary).map_err(|error| refused(&error))?;
    Ok(device.by_pages(page_bytes as u32))
}

/// The rows for one line of the published table. `values` has the quantity, its unit, our figure, the column, and
/// whether a constant was calibrated on it. If the setup differs from the source, the rows have no published figures.
pub(super) fn rows(
    settings: &Settings,
    (kernel, filesystem): (&str, &str),
    name: &str,
    values: &[(&str, &'static str, f64, &str, bool)],
) -> Vec<Row> {
    let table = published("boundary");
    let line = table.find(&[("kernel", kernel), ("filesystem", filesystem)]);
    let line = line.filter(|_| !settings.is_any_set());
    let row = |&(what, unit, ours, column, is_calibrated): &(&str, &'static str, f64, &str, bool)| {
        let what = format!("{what}, {name}");
        match line {
            None => Row::unpublished(what, unit, ours),
            Some(line) if is_calibrated => Row::calibrated(what, unit, line.number(column), ours),
            Some(line) => Row::predicted(what, unit, line.number(column), ours),
        }
    };
    values.iter().map(row).collect()
}

/// Runs an experiment with its defaults, prints the rows, and asserts the verdict.
#[cfg(test)]
pub(super) fn assert_is_reproduced(experiment: &super::Experiment) {
    let report = (experiment.run)(&Settings::new(experiment.parameters, &[]).unwrap()).unwrap();
    for Row { what, published, ours, calibrated, .. } in &report.rows {
        eprintln!("{what}: {published:?} {ours:.2} {calibrated}");
    }
    assert_eq!(report.verdict(), Some(iopath_report::experiment::Verdict::Reproduced));
}
