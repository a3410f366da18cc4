//! Reads 4 KiB blocks at random offsets, with 32 reads in flight from one thread, and prints the reads per second:
//! `cargo run --release -p iopath --example random_reads -- FILE`.

use iopath::{BatchOptions, Options, Request, Volume};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::process::ExitCode;
use std::time::Instant;

const BLOCK: usize = 4096;
const READS: u64 = 20_000;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("random_reads: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args_os().nth(1).ok_or("usage: random_reads FILE")?;
    let volume = Volume::open(file, &Options::new())?;
    if let Some(fallback) = &volume.facts().fallback {
        eprintln!("{fallback}");
    }
    let blocks = volume.size_bytes() / BLOCK as u64;
    if blocks == 0 {
        return Err("the file is shorter than one block of 4096 bytes".into());
    }
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut batch = volume.batch(&BatchOptions::new(32, BLOCK))?;
    let mut idle: Vec<_> = std::iter::from_fn(|| batch.buffer()).collect();
    let (mut queued, mut completed) = (0, 0);
    let started = Instant::now();
    while completed < READS {
        while let Some(buffer) = idle.pop().filter(|_| queued < READS) {
            batch.queue(Request::read(buffer, rng.random_range(0..blocks) * BLOCK as u64).token(queued))?;
            queued += 1;
        }
        let mut next = batch.wait()?;
        while let Some(done) = next {
            done.result?;
            completed += 1;
            idle.extend(done.buffer);
            next = batch.next_completed();
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{:.0} reads/s with {}, {} system calls for {READS} reads",
        READS as f64 / seconds,
        batch.engine(),
        batch.syscalls()
    );
    Ok(())
}
