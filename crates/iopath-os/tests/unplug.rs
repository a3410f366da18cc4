//! On a ring, one system call submits a whole plug to the kernel. The test counts the calls.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use iopath_core::log::{Event, NoRoom};
use iopath_core::{Extent, LogSink, Op, Priority, QueueConfig, RecordBatch, Stream};
use iopath_os::{BufferPool, Geometry, Job, OneThread, RealDevice, Runner, Uring, UringConfig, limits_of};

const DEPTH: u32 = 64;

/// A ring over a scratch file. `None`, with a message on stderr, if `io_uring` is refused.
fn runner(pool: &BufferPool, plug_requests_max: u32) -> Option<Runner<Uring<OneThread>>> {
    let file: File = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.set_len(1 << 24).unwrap();
    let geometry =
        Geometry { memory_align_bytes: 512, logical_block_bytes: 4096, request_bytes_max: 1 << 20 };
    let limits = limits_of(&file, &geometry).unwrap();
    let config = UringConfig { depth: DEPTH, pool: Some(pool.clone()) };
    match Uring::<OneThread>::new(Arc::new(file), &limits, &config) {
        Ok(device) => {
            let config =
                QueueConfig { bios_max: DEPTH, depth: DEPTH, plug_requests_max, ..QueueConfig::default() };
            Some(Runner::new(Box::new(device), &config))
        }
        Err(refused) => {
            eprintln!("skipped: io_uring is refused here: {refused}");
            None
        }
    }
}

/// Adds a read that is not adjacent to any other.
fn submit<D: RealDevice>(runner: &mut Runner<D>, pool: &BufferPool, token: u64) {
    let job = Job {
        op: Op::Read,
        extent: Extent::from_bytes(token << 14, 4096).unwrap(),
        buffer: pool.take(),
        fua: false,
        stream: Stream(0),
        priority: Priority::default(),
        token,
    };
    runner.queue(job).unwrap();
}

fn collect<D: RealDevice>(runner: &mut Runner<D>) -> u32 {
    let mut over = 0;
    while let Some(done) = runner.poll_completion() {
        done.result.unwrap();
        over += 1;
    }
    over
}

#[test]
fn a_short_batch_and_the_wait_for_it_are_one_system_call() {
    let pool = BufferPool::new(DEPTH, 4096).unwrap();
    let Some(mut runner) = runner(&pool, DEPTH) else { return };
    for count in [1, 2, 3] {
        let before = runner.syscalls();
        (0..count.into()).for_each(|token| submit(&mut runner, &pool, token));
        assert_eq!(runner.syscalls(), before, "plugged requests need no system call");
        runner.wait(count).unwrap();
        assert_eq!((collect(&mut runner), runner.syscalls() - before), (count, 1));
    }
}

#[test]
fn an_idle_device_gets_a_long_batch_in_growing_parts_of_one_system_call_each() {
    let pool = BufferPool::new(DEPTH, 4096).unwrap();
    let Some(mut runner) = runner(&pool, DEPTH) else { return };
    let calls: Vec<u64> = (0..DEPTH.into())
        .map(|token| {
            submit(&mut runner, &pool, token);
            runner.syscalls()
        })
        .collect();
    let parts = calls.chunk_by(|one, next| one == next).map(<[u64]>::len).collect::<Vec<_>>();
    // The request that completes a part is the first with its call: 4, 4, 8, 16 and 32 requests.
    assert_eq!(parts, [3, 4, 8, 16, 32, 1]);
    runner.submit();
    assert_eq!(runner.syscalls(), 5, "there was nothing to submit");
    while runner.in_flight() > 0 {
        runner.wait(DEPTH).unwrap();
        collect(&mut runner);
    }
}

/// Counts the unplugs of a queue.
#[derive(Debug)]
struct Unplugs(Arc<AtomicU64>);

impl LogSink for Unplugs {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        let unplugs = batch.records().iter().filter(|record| record.event() == Some(Event::Unplug));
        self.0.fetch_add(unplugs.count() as u64, Relaxed);
        batch.clear();
        Ok(())
    }
}

#[test]
fn a_plug_that_overflows_is_one_system_call_each_time() {
    let pool = BufferPool::new(DEPTH, 4096).unwrap();
    let Some(mut runner) = runner(&pool, 8) else { return };
    let unplugs = Arc::new(AtomicU64::new(0));
    runner.start_log(Box::new(Unplugs(Arc::clone(&unplugs))));
    let mut over = 0;
    for token in 0..DEPTH.into() {
        submit(&mut runner, &pool, token);
    }
    // 4, 4 and 8 requests for an idle device, then a full plug for each call. The last eight are still in the plug, and
    // the wait submits them.
    let submitted = runner.syscalls();
    assert_eq!(submitted, 3 + u64::from(DEPTH - 16) / 8 - 1);
    while over < DEPTH {
        runner.wait(DEPTH).unwrap();
        over += collect(&mut runner);
    }
    let syscalls = runner.syscalls();
    drop(runner);
    assert_eq!((syscalls, unplugs.load(Relaxed)), (submitted + 1, submitted + 1));
}
