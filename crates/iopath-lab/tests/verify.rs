//! Verification of data: each injected fault is found and named, and correct storage has none. The storage is the disk
//! in memory of the library, with faults injected between job and volume; the paths to files are tested without faults.

use std::io;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};

use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{Options, Volume};
use iopath_bench::path::{
    Capabilities, Connection, Direction, Done, IoPath, JobSpec, OpenSpec, PathRow, Transfer,
};
use iopath_bench::paths::PATHS;
use iopath_bench::progress::Silent;
use iopath_bench::{BenchError, BlockSize, Depth, End, Repetitions, Verify, Workload, run};
use iopath_fio::{JobFile, RunSettings, System};
use iopath_report::Rw;
use iopath_report::result::VerifyResult;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 16;

/// A fault of the storage at block 5, in its second write or after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Injected {
    None,
    /// The second write of the block is acknowledged, and has no effect.
    Lost,
    /// The first read after the second write returns the content of the first write.
    Stale,
    /// From its second read on, the block has the content of the first write.
    OldAgain,
    /// The second write of the block has an effect on its first three sectors only.
    Torn,
    /// The second write of block 9 goes to block 5.
    Misdirected,
    /// One bit of the block changes after its second write.
    Corrupt,
    /// The first write of the block has no effect: the block keeps the content of the new disk.
    NeverWritten,
    /// Flushes have no effect, and power fails after the job: all sectors lose their last write.
    NoFlush,
    /// As `NoFlush`, but a part of the sectors keep the last write.
    NoFlushPartly,
}

macro_rules! rows {
    ($($name:ident = $injected:ident),* $(,)?) => {
        $(static $name: PathRow = PathRow {
            name: stringify!($injected),
            about: "a disk in memory with a fault",
            capabilities: Capabilities {
                needs_target: true,
                direct: false,
                synchronous: false,
                queue: false,
                cache: false,
                priorities: false,
                polls: false,
                durable_writes: true,
                stripes: false,
            },
            open: |spec| open(spec, Injected::$injected),
        };)*
    };
}

rows! {
    NONE = None,
    LOST = Lost,
    STALE = Stale,
    OLD_AGAIN = OldAgain,
    TORN = Torn,
    MISDIRECTED = Misdirected,
    CORRUPT = Corrupt,
    NEVER_WRITTEN = NeverWritten,
    NO_FLUSH = NoFlush,
    NO_FLUSH_PARTLY = NoFlushPartly,
}

fn open(spec: &OpenSpec, injected: Injected) -> Result<Box<dyn IoPath>, BenchError> {
    let config = MemoryConfig { cache_bytes: 1 << 20, ..MemoryConfig::of_bytes(spec.size_bytes) };
    let disk = MemoryDisk::new(&config)?;
    let disk = Mutex::new(Disk {
        volume: volume(&disk),
        medium: disk,
        injected,
        writes: [0; 2],
        reads: 0,
        old: vec![],
    });
    Ok(Box::new(Faulty(Arc::new(disk))))
}

fn volume(disk: &MemoryDisk) -> Volume {
    Volume::memory(disk, &Options::new().write(true)).unwrap()
}

struct Disk {
    medium: MemoryDisk,
    volume: Volume,
    injected: Injected,
    /// Writes of block 5 and of block 9.
    writes: [u32; 2],
    /// Reads of block 5.
    reads: u32,
    /// The content of the first write of block 5.
    old: Vec<u8>,
}

impl Disk {
    fn transfer(&mut self, transfer: Transfer, bytes: &mut [u8]) {
        // The blocks of a job may be smaller or larger than those with the fault.
        if transfer.offset != 5 * BLOCK && transfer.offset != 9 * BLOCK {
            return self.pass(transfer, bytes);
        }
        let is_fifth = transfer.offset == 5 * BLOCK;
        if transfer.direction == Direction::Read {
            self.reads += u32::from(is_fifth);
            self.pass(transfer, bytes);
            let is_old = (self.injected == Injected::Stale && self.reads == 1)
                || (self.injected == Injected::OldAgain && self.reads >= 2);
            if is_fifth && is_old {
                bytes.copy_from_slice(&self.old);
            }
            return;
        }
        let writes = &mut self.writes[usize::from(!is_fifth)];
        *writes += 1;
        let number = *writes;
        if is_fifth && number == 1 {
            self.old = bytes.to_vec();
        }
        match (self.injected, is_fifth, number) {
            (Injected::Lost, true, 2) | (Injected::NeverWritten, true, 1) => {}
            (Injected::Torn, true, 2) => self.pass(transfer, &mut bytes[..3 * 512]),
            (Injected::Misdirected, false, 2) => {
                self.pass(Transfer { offset: 5 * BLOCK, ..transfer }, bytes);
            }
            (Injected::Corrupt, true, 2) => {
                let mut changed = bytes.to_vec();
                changed[1000] ^= 1;
                self.pass(transfer, &mut changed);
            }
            _ => self.pass(transfer, bytes),
        }
    }

    fn pass(&self, transfer: Transfer, bytes: &mut [u8]) {
        match transfer.direction {
            Direction::Read => self.volume.read_exact_at(bytes, transfer.offset).unwrap(),
            Direction::Write => self.volume.write_at(bytes, transfer.offset).unwrap(),
            Direction::Trim => unreachable!("a workload that verifies has no trims"),
        }
    }
}

struct Faulty(Arc<Mutex<Disk>>);

impl IoPath for Faulty {
    fn connect(&self, job: &JobSpec) -> Result<Box<dyn Connection>, BenchError> {
        let buffers = vec![vec![0; job.block_bytes as usize]; job.depth as usize];
        Ok(Box::new(FaultyConnection { disk: Arc::clone(&self.0), buffers, queued: Vec::new() }))
    }

    fn drop_cache(&self) -> Result<(), BenchError> {
        let mut disk = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut number = 0;
        match disk.injected {
            Injected::NoFlush => disk.medium.crash(|versions| versions - 1),
            // Every third sector keeps its last write.
            Injected::NoFlushPartly => disk.medium.crash(|versions| {
                number += 1;
                if number % 3 == 0 { versions } else { versions - 1 }
            }),
            _ => return Ok(()),
        }
        disk.volume = volume(&disk.medium);
        Ok(())
    }
}

struct FaultyConnection {
    disk: Arc<Mutex<Disk>>,
    buffers: Vec<Vec<u8>>,
    queued: Vec<(u32, Transfer)>,
}

impl Connection for FaultyConnection {
    fn depth(&self) -> u32 {
        self.buffers.len() as u32
    }

    fn submit(&mut self, slot: u32, transfer: Transfer) -> io::Result<()> {
        self.queued.push((slot, transfer));
        Ok(())
    }

    /// Completes in reverse order.
    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((slot, transfer)) = self.queued.pop() {
            disk.transfer(transfer, &mut self.buffers[slot as usize][..transfer.bytes as usize]);
            done.push(Done { slot, result: Ok(()) });
        }
        Ok(())
    }

    fn buffer(&mut self, slot: u32) -> Option<&mut [u8]> {
        Some(&mut self.buffers[slot as usize])
    }

    fn flush(&mut self) -> io::Result<()> {
        let disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(disk.injected, Injected::NoFlush | Injected::NoFlushPartly) {
            disk.volume.flush().unwrap();
        }
        Ok(())
    }
}

/// Two passes of sequential writes, each block read back once after them.
fn workload(path: &'static PathRow, depth: u32) -> Workload {
    Workload {
        path,
        target: Some(std::env::temp_dir()),
        rw: Rw::Write,
        block_size: BlockSize::constant(BLOCK as u32),
        depth: Depth::new(depth).unwrap(),
        size_bytes: Some(BLOCKS * BLOCK),
        end: End::Bytes(2 * BLOCKS * BLOCK),
        repetitions: Repetitions::constant(1),
        verify: Some(Verify::default()),
        ..Workload::default()
    }
}

fn verified(workload: &Workload) -> VerifyResult {
    run(workload, &mut Silent).unwrap().verify.unwrap()
}

/// Kind, block, expected write, found write, and the block that the content belongs to.
type Found = (String, u64, Option<u32>, Option<u64>, Option<u64>);

fn found(result: &VerifyResult) -> Vec<Found> {
    let mut found: Vec<Found> = result
        .first
        .iter()
        .map(|fault| {
            let from = fault.belongs_to.map(|offset| offset / BLOCK);
            (fault.kind.clone(), fault.offset / BLOCK, fault.expected, fault.found, from)
        })
        .collect();
    found.sort_by_key(|fault| fault.1);
    found
}

#[test]
fn storage_without_faults_has_none() {
    for depth in [1, 4, 32] {
        let result = verified(&workload(&NONE, depth));
        assert_eq!((result.blocks, result.faults()), (BLOCKS, 0), "depth {depth}: {result:?}");
    }
}

#[test]
fn each_injected_fault_is_found_and_named() {
    let one = |kind: &str, found: Option<u64>| vec![(kind.to_owned(), 5, Some(2), found, None)];
    for depth in [1, 4] {
        let of = |path| found(&verified(&workload(path, depth)));
        assert_eq!(of(&LOST), one("lost", Some(1)));
        assert_eq!(of(&STALE), one("stale", Some(1)));
        assert_eq!(of(&TORN), one("torn", Some(1)));
        assert_eq!(of(&CORRUPT), one("corrupt", None));
        let misdirected = ("misdirected".to_owned(), 5, Some(2), Some(2), Some(9));
        assert_eq!(of(&MISDIRECTED), [misdirected, ("lost".to_owned(), 9, Some(2), Some(1), None)]);
    }
    let first_only = Workload { end: End::Pass, ..workload(&NEVER_WRITTEN, 1) };
    assert_eq!(found(&verified(&first_only)), [("lost".to_owned(), 5, Some(1), Some(0), None)]);
}

#[test]
fn an_old_content_after_a_newer_one_was_read_is_stale_although_it_persists() {
    // The backlog is read at the end of the job, and each block again after it.
    let verify = Verify { backlog: NonZeroU64::new(2 * BLOCKS), ..Verify::default() };
    let result = verified(&Workload { verify: Some(verify), ..workload(&OLD_AGAIN, 4) });
    assert_eq!((result.stale, result.faults()), (1, 1), "{result:?}");
    assert_eq!(found(&result)[0].3, Some(1));
}

#[test]
fn a_device_that_does_not_flush_loses_or_tears_the_last_writes() {
    let result = verified(&workload(&NO_FLUSH, 4));
    assert_eq!((result.lost, result.faults()), (BLOCKS, BLOCKS), "{result:?}");
    let result = verified(&workload(&NO_FLUSH_PARTLY, 4));
    assert_eq!((result.torn, result.faults()), (BLOCKS, BLOCKS), "{result:?}");
}

#[test]
fn a_backlog_finds_a_fault_during_the_job_and_a_fatal_one_ends_it() {
    let verify =
        Verify { after: false, backlog: NonZeroU64::new(4), fatal: true, dump: false, is_pattern: false };
    let fatal = Workload { verify: Some(verify), ..workload(&LOST, 2) };
    let result = run(&fatal, &mut Silent).unwrap();
    assert_eq!(result.verify.unwrap().lost, 1);
    assert!((BLOCKS + 6..2 * BLOCKS).contains(&result.ios), "{}", result.ios);
    let not_fatal = Workload { verify: Some(Verify { fatal: false, ..verify }), ..fatal };
    let result = run(&not_fatal, &mut Silent).unwrap();
    assert_eq!((result.verify.unwrap().lost, result.ios), (1, 2 * BLOCKS));
}

#[test]
fn every_path_to_a_file_keeps_its_data() {
    let directory = tempfile::tempdir().unwrap();
    for path in PATHS.iter().filter(|path| path.capabilities.needs_target && path.name != "iopath-raw") {
        for rw in [Rw::RandRw, Rw::Write, Rw::Rewrite] {
            let workload = Workload {
                rw,
                target: Some(directory.path().to_owned()),
                size_bytes: Some(64 * BLOCK),
                end: End::Bytes(256 * BLOCK),
                verify: Some(Verify { backlog: NonZeroU64::new(50), ..Verify::default() }),
                ..workload(path, 8)
            };
            match run(&workload, &mut Silent) {
                Ok(result) => {
                    let verify = result.verify.unwrap();
                    assert_eq!(verify.faults(), 0, "{} {rw}: {verify:?}", path.name);
                    assert!(verify.blocks >= 32, "{} {rw}: {verify:?}", path.name);
                }
                Err(BenchError::UringRefused { .. } | BenchError::Direct { .. }) => {
                    eprintln!("skipped: {}", path.name);
                }
                Err(error) => panic!("{} {rw}: {error}", path.name),
            }
        }
    }
}

#[test]
fn a_job_checks_the_blocks_of_a_job_of_an_earlier_group_and_of_an_earlier_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("data");
    std::fs::write(&file, vec![0; 64 << 10]).unwrap();
    let run = |text: &str| {
        let text = format!("[global]\nfilename={}\nsize=64k\nverify=crc32c\n{text}", file.display());
        let file = JobFile::parse("f.fio", text.as_bytes(), &System, false).unwrap();
        let base = Workload { overwrite: true, ..RunSettings::default().base };
        file.run(&RunSettings { base, ..RunSettings::default() }, &mut Silent)
    };
    let report = run("[w]\nrw=randwrite\ndo_verify=0\n[r]\nstonewall\nbs=8k\n").unwrap();
    let blocks = |index: usize| report.runs[index].verify.as_ref().unwrap();
    assert_eq!((blocks(0).blocks, blocks(1).faults()), (0, 0));
    assert_eq!(blocks(1).blocks, 16, "random writes reach each block: {:?}", blocks(1));
    run("[w]\nrw=write\nverify_interval=512\n").unwrap();
    let report = run("[r]\nbs=16k\n").unwrap();
    let verify = report.runs[0].verify.as_ref().unwrap();
    assert_eq!((verify.blocks, verify.faults()), (4, 0), "{verify:?}");
    // Another writer's block, and one that belongs elsewhere.
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[8192..12288].fill(7);
    bytes.copy_within(0..4096, 20480);
    std::fs::write(&file, bytes).unwrap();
    let report = run("[r]\n").unwrap();
    let verify = report.runs[0].verify.as_ref().unwrap();
    assert_eq!((verify.unstamped, verify.misdirected, verify.faults()), (1, 1, 2), "{verify:?}");
    let warnings = &report.runs[0].warnings;
    let expected = "block of 4096 bytes at offset 20480 is misdirected: from byte 20480 on, it has the content of offset 0";
    assert!(warnings.iter().any(|warning| warning.contains(expected)), "{warnings:?}");

    for (text, named) in [
        ("[w]\nrw=randwrite\nnumjobs=2\n", "verify needs one job at a time for each block"),
        ("[w]\nrw=write\n[r]\n", "verify needs one job at a time for each block"),
        (
            "[w]\nrw=write\n[x]\nstonewall\nverify=0\nrw=write\n",
            "job x writes to the same range without verify",
        ),
        ("[w]\nrw=write\nbs=1000\nsize=5000\n", "must be multiples of 512"),
    ] {
        let error = run(text).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn a_workload_that_cannot_be_verified_is_refused() {
    let refused = |workload: &Workload| workload.check().unwrap_err().to_string();
    let jobs = iopath_bench::Jobs::new(2_u32).unwrap();
    let random = Workload { rw: Rw::RandWrite, jobs, ..workload(&NONE, 1) };
    assert!(refused(&random).contains("overwrite the blocks of each other"));
    let null = PATHS.iter().find(|path| path.name == "null").unwrap();
    assert!(refused(&workload(null, 1)).contains("transfers no data"));
    let model = Workload {
        target: Some("model:hdd-20tb".into()),
        path: PATHS.iter().find(|path| path.name == "iopath-direct").unwrap(),
        ..workload(&NONE, 1)
    };
    assert!(run(&model, &mut Silent).unwrap_err().to_string().contains("a model holds no data"));
}

#[test]
fn workloads_that_alternate_on_one_file_do_not_disturb_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = PATHS.iter().find(|path| path.name == "kernel-buffered").unwrap();
    let sized = |bytes| Workload {
        rw: Rw::Rw,
        block_size: BlockSize::constant(bytes),
        target: Some(directory.path().to_owned()),
        repetitions: Repetitions::constant(2),
        ..workload(path, 1)
    };
    let report = iopath_lab::report_all(&[sized(4096), sized(8192)], &mut Silent).unwrap();
    let faults: Vec<u64> = report.runs.iter().map(|run| run.verify.as_ref().unwrap().faults()).collect();
    assert_eq!(faults, [0, 0], "{:?}", report.runs[0].warnings);
}
