//! Reads a file in tokio: requests go through a batch, and a task awaits their completions. No thread waits for the
//! disk.
//!
//! `cargo run --release --example tokio_batch -- FILE`

use iopath::{Batch, BatchOptions, Completion, Options, Request, Volume};
use std::error::Error;
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, timeout};

const BLOCK: usize = 128 << 10;
const DEPTH: u32 = 16;

/// A batch whose completions can be awaited.
struct AsyncBatch {
    batch: Batch,
    ready: AsyncFd<OwnedFd>,
}

impl AsyncBatch {
    fn new(mut batch: Batch) -> io::Result<Self> {
        #[allow(
            deprecated,
            reason = "its replacement is unsafe; an owned descriptor stays open as long as the value"
        )]
        let ready = AsyncFd::new(batch.completion_fd()?)?;
        Ok(Self { batch, ready })
    }

    /// The next completion; `None` if nothing is in flight.
    async fn next(&mut self) -> io::Result<Option<Completion>> {
        self.batch.submit();
        loop {
            if let Some(done) = self.batch.poll() {
                return Ok(Some(done));
            }
            if self.batch.in_flight() == 0 {
                return Ok(None);
            }
            // No completion was found: the next one makes the descriptor readable.
            match self.batch.next_timeout() {
                None => self.ready.readable().await?.clear_ready(),
                Some(limit) => {
                    if let Ok(ready) = timeout(limit, self.ready.readable()).await {
                        ready?.clear_ready();
                    }
                }
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: tokio_batch FILE")?;
    let volume = Volume::open(path, &Options::new())?;
    let mut batch = AsyncBatch::new(volume.batch(&BatchOptions::new(DEPTH, BLOCK))?)?;
    let mut offsets = (0..volume.size_bytes()).step_by(BLOCK);
    let (started, mut bytes, mut sum) = (Instant::now(), 0, 0_u64);
    loop {
        while let Some(buffer) = batch.batch.buffer() {
            let Some(offset) = offsets.next() else { break };
            batch.batch.queue(Request::read(buffer, offset))?;
        }
        // Other tasks of the program run while this one waits.
        let Some(done) = batch.next().await? else { break };
        let read = done.result?;
        let buffer = done.buffer.ok_or("a read returns its buffer")?;
        sum = buffer[..read].iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)));
        bytes += read;
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{bytes} bytes in {seconds:.3} s by {}, sum of all bytes {sum}", batch.batch.engine());
    Ok(())
}
