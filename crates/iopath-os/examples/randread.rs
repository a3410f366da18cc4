//! Measures random reads on a device. The program reads random 4 KiB blocks of a file or block device for some time,
//! and prints the reads per second and the processor time of each.
//!
//! `cargo run --release -p iopath-os --example randread -- PATH [SECONDS [DEPTH [ENGINE [BATCH]]]]`
//!
//! BATCH is the number of completions in one wait. The program opens PATH for reading only, with `O_DIRECT`.

use std::error::Error;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iopath_core::elevator::ElevatorSpec;
use iopath_core::{Bio, Extent, Memory, QueueConfig, RequestQueue, Sector};
use iopath_os::{
    BufferPool, Engine, EngineConfig, Geometry, REQUEST_BYTES, RealDevice, Segment, limits_of, now,
};

const BLOCK: u32 = 4096;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("randread: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path =
        arguments.next().ok_or("which file? usage: randread PATH [SECONDS [DEPTH [ENGINE [BATCH]]]]")?;
    let seconds: f64 = arguments.next().map_or(Ok(2.0), |seconds| seconds.parse())?;
    let depth: u32 = arguments.next().map_or(Ok(32), |depth| depth.parse())?;
    let engine: Engine = arguments.next().map_or(Ok(Engine::Auto), |engine| engine.parse())?;
    let batch: u32 = arguments.next().map_or(Ok(1), |batch| batch.parse())?;

    let file = Arc::new(OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path)?);
    let geometry =
        Geometry { memory_align_bytes: 512, logical_block_bytes: BLOCK, request_bytes_max: REQUEST_BYTES };
    let limits = limits_of(&file, &geometry)?;
    let pool = BufferPool::new(1, depth as usize * BLOCK as usize)?;
    let buffer = pool.take().ok_or("an empty pool")?;
    let opened =
        engine.open(&file, &limits, &EngineConfig { depth, pool: Some(pool), ..Default::default() })?;
    if let Some(fallback) = &opened.fallback {
        eprintln!("{fallback}");
    }
    let config = QueueConfig {
        bios_max: depth,
        requests_max: depth,
        depth,
        plug_requests_max: depth,
        elevator: ElevatorSpec::default(),
    };
    let queue = RequestQueue::new(opened.device.limits().clone(), &config);
    // SAFETY: the program does not access the buffer, which outlives the device. `Reader` owns the device.
    let memory = unsafe { buffer.segment() };
    let mut reader = Reader { queue, device: opened.device, memory, random: 0x9e37_79b9_7f4a_7c15 };

    let (cpu, calls, started) = (cpu_seconds(), reader.device.syscalls(), Instant::now());
    let reads = reader.run(depth, batch, Duration::from_secs_f64(seconds))?;
    let elapsed = started.elapsed().as_secs_f64();
    let (user, system) = (cpu_seconds().0 - cpu.0, cpu_seconds().1 - cpu.1);
    let micros = |seconds: f64| seconds * 1e6 / reads as f64;
    println!(
        "{:.0} reads/s, {:.3} µs of processor each ({:.3} user, {:.3} system), {:.2} per system call, {}",
        reads as f64 / elapsed,
        micros(user + system),
        micros(user),
        micros(system),
        reads as f64 / (reader.device.syscalls() - calls) as f64,
        opened.engine.name(),
    );
    Ok(())
}

struct Reader {
    queue: RequestQueue<Segment>,
    device: Box<dyn RealDevice>,
    memory: Segment,
    random: u64,
}

impl Reader {
    /// Keeps `depth` reads in flight until the time is over. Returns the number of reads.
    fn run(&mut self, depth: u32, batch: u32, time: Duration) -> Result<u64, Box<dyn Error>> {
        let end = now() + time;
        let mut reads = 0;
        let mut idle: Vec<u64> = (0..u64::from(depth)).collect();
        loop {
            let time = now();
            if time >= end && idle.len() == depth as usize {
                return Ok(reads);
            }
            if time < end {
                self.queue.plug();
                while let Some(number) = idle.pop() {
                    let bio = self.read(number);
                    self.queue.submit_bio(bio, time)?;
                }
                self.queue.unplug(time);
            }
            while let Some(io) = self.queue.poll_dispatch(time) {
                self.device.submit(&io, time)?;
            }
            self.device.commit_and_wait(batch, None)?;
            while let Some(done) = self.device.poll_completion(time) {
                self.queue.handle_completion(done.tag, done.result, time);
            }
            while let Some(done) = self.queue.poll_completion() {
                done.result?;
                idle.push(done.token);
                reads += 1;
            }
        }
    }

    /// A read of a random block into part `number` of the buffer.
    fn read(&mut self, number: u64) -> Bio<Segment> {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let blocks = self.device.limits().capacity / 8;
        let extent = Extent::new(Sector(self.random % blocks * 8), 8).expect("inside the device");
        Bio::read(extent, self.memory.slice(number * u64::from(BLOCK), u64::from(BLOCK)), number)
    }
}

/// Processor time of this process, user and system, in seconds.
fn cpu_seconds() -> (f64, f64) {
    // SAFETY: all zeroes is a value of this struct of numbers, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (seconds(usage.ru_utime), seconds(usage.ru_stime))
}
