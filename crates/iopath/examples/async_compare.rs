//! Reads random blocks of a file with 64 reads in flight, in several ways, and prints the time and the CPU time of
//! each: futures of a volume, driven by a thread or by tokio; a pool of threads with pread(2); `spawn_blocking` with
//! pread(2); and `tokio::fs`. The buffers of `tokio::fs` may not be aligned for direct I/O on the file: then it reads
//! through the page cache of the kernel, which has no page of the file at first. The ways alternate.
//!
//! `cargo run --release --features tokio --example async_compare -- FILE [READS] [ROUNDS]`

use iopath::{AlignedBuf, AsyncVolume, BatchOptions, Options, Volume};
use iopath_os::process_cpu_times;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::fs::{Advice, OFlags, fadvise};
use std::error::Error;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncSeekExt, SeekFrom};
use tokio::runtime::{Builder, Runtime};

const BLOCK: usize = 4096;
const TASKS: u64 = 64;

type Failure = Box<dyn Error + Send + Sync>;

/// The reads of one task or thread.
#[derive(Clone, Copy)]
struct Work {
    task: u64,
    reads: u64,
    blocks: u64,
}

impl Work {
    fn offsets(self) -> impl Iterator<Item = u64> + Send {
        let mut rng = ChaCha8Rng::seed_from_u64(self.task);
        (0..self.reads).map(move |_| rng.random_range(0..self.blocks) * BLOCK as u64)
    }
}

fn works(reads: u64, blocks: u64) -> impl Iterator<Item = Work> {
    (0..TASKS).map(move |task| Work { task, reads: reads / TASKS, blocks })
}

fn check(bytes: usize) -> Result<(), Failure> {
    if bytes == BLOCK { Ok(()) } else { Err("a short read".into()) }
}

/// Runs a task for each share of the reads.
fn run_tasks<F: Future<Output = Result<(), Failure>> + Send + 'static>(
    runtime: &Runtime,
    works: impl Iterator<Item = Work>,
    mut task: impl FnMut(Work) -> F,
) -> Result<(), Failure> {
    runtime.block_on(async {
        let tasks: Vec<_> = works.map(|work| tokio::spawn(task(work))).collect();
        for task in tasks {
            task.await??;
        }
        Ok(())
    })
}

async fn read_volume(volume: AsyncVolume, work: Work) -> Result<(), Failure> {
    let mut block = AlignedBuf::new(BLOCK)?;
    for offset in work.offsets() {
        let (bytes, returned) = volume.read_at(block, offset).await;
        check(bytes?)?;
        block = returned;
    }
    Ok(())
}

async fn read_blocking(file: Arc<File>, work: Work) -> Result<(), Failure> {
    let mut block = AlignedBuf::new(BLOCK)?;
    for offset in work.offsets() {
        let file = Arc::clone(&file);
        block = tokio::task::spawn_blocking(move || file.read_exact_at(&mut block, offset).map(|()| block))
            .await??;
    }
    Ok(())
}

async fn read_tokio_fs(file: Arc<File>, work: Work) -> Result<(), Failure> {
    let mut file = tokio::fs::File::from_std(file.try_clone()?);
    file.set_max_buf_size(BLOCK);
    let mut block = AlignedBuf::new(BLOCK)?;
    for offset in work.offsets() {
        file.seek(SeekFrom::Start(offset)).await?;
        file.read_exact(&mut block).await?;
    }
    Ok(())
}

fn read_in_threads(file: &File, works: impl Iterator<Item = Work>) -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let read = |work: Work| -> Result<(), Failure> {
            let mut block = AlignedBuf::new(BLOCK)?;
            for offset in work.offsets() {
                file.read_exact_at(&mut block, offset)?;
            }
            Ok(())
        };
        let threads: Vec<_> = works.map(|work| scope.spawn(move || read(work))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread has panicked")?)
    })
}

/// The medians of the rounds of one way.
#[derive(Default)]
struct Times {
    wall: Vec<Duration>,
    cpu: Vec<Duration>,
}

impl Times {
    fn measure(&mut self, act: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        let cpu = || process_cpu_times().user + process_cpu_times().system;
        let (started, before) = (Instant::now(), cpu());
        act()?;
        self.wall.push(started.elapsed());
        self.cpu.push(cpu().saturating_sub(before));
        Ok(())
    }

    fn medians(&mut self) -> Option<(f64, f64)> {
        let median = |times: &mut Vec<Duration>| {
            times.sort();
            times.get(times.len() / 2).map(Duration::as_secs_f64)
        };
        Some((median(&mut self.wall)?, median(&mut self.cpu)?))
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: async_compare FILE [READS] [ROUNDS]")?;
    let reads = arguments.next().map_or(Ok(100_000), |reads| reads.parse())?;
    let rounds = arguments.next().map_or(Ok(5), |rounds| rounds.parse::<u32>())?;
    let volume = Volume::open(&path, &Options::new().depth(TASKS as u32))?;
    let blocks = volume.size_bytes() / BLOCK as u64;
    if blocks == 0 {
        return Err("the file is shorter than a block of 4096 bytes".into());
    }
    let works = || works(reads, blocks);
    let flags = OFlags::DIRECT.bits().cast_signed();
    let direct = File::options().read(true).custom_flags(flags).open(&path)?;
    let direct = Arc::new(direct);
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let options = BatchOptions::new(TASKS as u32, 0);
    let by_thread = AsyncVolume::new(&volume, &options)?;
    let by_tokio = runtime.block_on(async { AsyncVolume::on_tokio(&volume, &options) })?;
    let names = ["pread, 64 threads", "iopath on a thread", "iopath on tokio", "spawn_blocking", "tokio::fs"];
    let mut times = names.map(|_| Times::default());
    // Each task has a file of its own, since a clone would share the position.
    let open = |flags| File::options().read(true).custom_flags(flags).open(&path).map(Arc::new);
    let one = Work { task: 0, reads: 1, blocks };
    let accepts_direct = runtime.block_on(read_tokio_fs(open(flags)?, one)).is_ok();
    let fs_flags = if accepts_direct { flags } else { 0 };
    for _ in 0..rounds.max(1) {
        let [pool, thread, tokio, blocking, fs] = &mut times;
        pool.measure(|| read_in_threads(&direct, works()))?;
        thread.measure(|| run_tasks(&runtime, works(), |work| read_volume(by_thread.clone(), work)))?;
        tokio.measure(|| run_tasks(&runtime, works(), |work| read_volume(by_tokio.clone(), work)))?;
        blocking.measure(|| run_tasks(&runtime, works(), |work| read_blocking(Arc::clone(&direct), work)))?;
        let files: Vec<_> = (0..TASKS).map(|_| open(fs_flags)).collect::<io::Result<_>>()?;
        for file in &files {
            fadvise(file, 0, None, Advice::Random)?;
            fadvise(file, 0, None, Advice::DontNeed)?;
        }
        let task = |work: Work| read_tokio_fs(Arc::clone(&files[work.task as usize]), work);
        fs.measure(|| run_tasks(&runtime, works(), task))?;
    }
    println!("{reads} reads of {BLOCK} bytes, {TASKS} in flight, {rounds} rounds, medians");
    let first = times[0].medians().ok_or("no round")?;
    for (name, times) in names.iter().zip(&mut times) {
        if let Some((wall, cpu)) = times.medians() {
            let (wall_ratio, cpu_ratio) = (wall / first.0, cpu / first.1);
            println!("{name:20} {wall:8.3} s {wall_ratio:5.2}×   CPU {cpu:8.3} s {cpu_ratio:5.2}×");
        }
    }
    if !accepts_direct {
        println!("tokio::fs reads through the page cache: the file refuses direct I/O into its buffers");
    }
    Ok(())
}
