//! Cancelled requests and waits with a limit, on each kind of batch.

use iopath::testing::{Fault, Faults, MemoryConfig, MemoryDisk};
use iopath::{BatchOptions, BufferPool, ErrorKind, IoMode, Op, Options, Request, Unaligned, Volume};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::Duration;

const PAGE: usize = 4096;

fn each(op: Op, mut check: impl FnMut(&str, &Volume, &Faults)) {
    let direct = Options::new().write(true).cache_bytes(64 * PAGE as u64);
    let kinds = [
        ("direct", direct.clone()),
        ("elevator", direct.clone().elevator("deadline")),
        ("bounced", direct.clone().unaligned(Unaligned::Bounce)),
        ("buffered", direct.clone().mode(IoMode::Buffered)),
        ("beside a page cache", direct.unaligned(Unaligned::Buffered)),
    ];
    for (name, options) in kinds {
        let faults = Faults::new(1);
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).unwrap();
        let volume = Volume::memory(&disk, &options.faults(&faults)).unwrap();
        faults.add(Fault::stuck().on(op));
        check(name, &volume, &faults);
    }
}

#[test]
fn a_cancelled_request_completes_at_once_and_keeps_its_buffer_until_the_device_is_done() {
    each(Op::Read, |name, volume, faults| {
        let pool = BufferPool::new(2, PAGE).unwrap();
        let mut batch = volume.batch(&BatchOptions::new(2, 0).pool(&pool)).unwrap();
        batch.queue(Request::read(pool.take().unwrap(), 0).token(1)).unwrap();
        batch.queue(Request::read(pool.take().unwrap(), 65536).token(2)).unwrap();
        batch.submit();
        assert!(!batch.cancel(3) && batch.cancel(1) && !batch.cancel(1), "{name}");
        let done = batch.wait().unwrap().unwrap();
        assert_eq!((done.token, done.result.unwrap_err().kind()), (1, ErrorKind::Cancelled), "{name}");
        assert!(done.buffer.is_none() && pool.take().is_none(), "{name}: the device may still fill it");
        assert_eq!(batch.in_flight(), 2, "{name}");
        faults.stop();
        let done = batch.wait().unwrap().unwrap();
        assert_eq!((done.token, done.result.unwrap()), (2, PAGE), "{name}");
        assert!(batch.wait().unwrap().is_none(), "{name}");
        drop(done.buffer);
        let returned = [pool.take(), pool.take()];
        assert!(returned.iter().all(Option::is_some), "{name}");
        assert_eq!(batch.in_flight(), 0, "{name}");
    });
}

#[test]
fn a_cancellation_wakes_the_event_loop() {
    each(Op::Read, |name, volume, faults| {
        let mut batch = volume.batch(&BatchOptions::new(2, PAGE)).unwrap();
        let descriptor = batch.completion_fd().unwrap();
        let is_readable = || {
            let limit = Timespec::default();
            poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit)).unwrap() == 1
        };
        batch.queue(Request::read(batch.buffer().unwrap(), 0).token(1)).unwrap();
        batch.submit();
        while batch.poll().is_some() || is_readable() {}
        assert!(batch.cancel(1) && is_readable(), "{name}");
        assert_eq!(batch.poll().map(|done| done.token), Some(1), "{name}");
        faults.stop();
    });
}

#[test]
fn a_cancelled_write_is_executed_and_then_releases_its_place() {
    each(Op::Write, |name, volume, faults| {
        let mut batch = volume.batch(&BatchOptions::new(1, PAGE).buffered(false)).unwrap();
        let mut buffer = batch.buffer().unwrap();
        buffer.fill(5);
        batch.queue(Request::write(buffer, 0).durable(true).token(1)).unwrap();
        batch.submit();
        assert!(batch.cancel(1) && batch.buffer().is_none(), "{name}");
        faults.stop();
        let done = batch.wait().unwrap().unwrap();
        assert_eq!(done.result.unwrap_err().kind(), ErrorKind::Cancelled, "{name}");
        assert!(batch.wait().unwrap().is_none() && batch.buffer().is_some(), "{name}");
        let mut page = iopath::AlignedBuf::new(PAGE).unwrap();
        volume.direct().read_at(&mut page, 0).unwrap();
        assert!(page.iter().all(|byte| *byte == 5), "{name}");
    });
}

#[test]
fn a_wait_with_a_limit_ends_without_a_completion_and_can_be_repeated() {
    each(Op::Read, |name, volume, faults| {
        let mut batch = volume.batch(&BatchOptions::new(2, PAGE)).unwrap();
        assert!(
            batch.wait_timeout(Duration::from_secs(60)).unwrap().is_none(),
            "{name}: nothing is in flight"
        );
        batch.queue(Request::read(batch.buffer().unwrap(), 0).token(1)).unwrap();
        assert!(batch.wait_timeout(Duration::from_millis(5)).unwrap().is_none(), "{name}");
        assert_eq!(batch.in_flight(), 1, "{name}");
        faults.stop();
        let done = batch.wait_timeout(Duration::from_secs(60)).unwrap().expect("it is no longer stuck");
        assert_eq!((done.token, done.result.unwrap()), (1, PAGE), "{name}");
        assert!(batch.wait_timeout(Duration::MAX).unwrap().is_none(), "{name}");
    });
}

#[test]
fn the_first_wait_with_a_limit_is_refused_with_requests_in_flight() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).unwrap();
    let volume = Volume::memory(&disk, &Options::new()).unwrap();
    let mut batch = volume.batch(&BatchOptions::new(2, PAGE)).unwrap();
    batch.queue(Request::read(batch.buffer().unwrap(), 0)).unwrap();
    let refused = batch.wait_timeout(Duration::ZERO).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Wait);
    assert!(refused.to_string().contains("before the first request"), "{refused}");
    assert!(batch.wait().unwrap().unwrap().result.is_ok());
}
