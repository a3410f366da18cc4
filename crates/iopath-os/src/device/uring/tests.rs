//! Entries that the kernel does not take at first: each way to wait completes them. The tests simulate the refusal
//! between ring and kernel, since a real shortage of memory cannot be produced on demand.

use std::os::fd::RawFd;
use std::sync::Mutex;

use iopath_core::cache::CacheConfig;
use iopath_core::{Extent, Op, QueueConfig, StripeConfig, Tag};

use super::*;
use crate::aligned::{AlignedBuf, NoMemory};
use crate::buffered::{Buffered, BufferedConfig};
use crate::device::Striped;
use crate::runner::{RunError, Runner};

const BYTES: u64 = 1 << 20;
const BLOCK: u32 = 4096;

/// A test that takes longer hangs. The tests need much less time.
const PATIENCE: Duration = Duration::from_secs(20);

/// Simulates a kernel without memory.
#[derive(Debug)]
pub(super) struct Shortage(Mutex<Short>);

#[derive(Debug, Clone, Copy)]
struct Short {
    /// The number of submitting calls that succeed before the shortage.
    spared: u32,
    /// The number of calls that then fail.
    attempts: u32,
    /// The time from which every call succeeds.
    until: Option<Instant>,
    answer: Answer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// The kernel takes no entry.
    Error(i32),
    /// The kernel takes one entry.
    One,
}

impl Shortage {
    fn new(spared: u32, attempts: u32, answer: Answer) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Short { spared, attempts, until: None, answer })))
    }

    /// A shortage that lasts for this time, for any number of attempts.
    fn lasting(time: Duration) -> Arc<Self> {
        let until = Some(clock::now() + time);
        let answer = Answer::Error(libc::EAGAIN);
        Arc::new(Self(Mutex::new(Short { spared: 0, attempts: u32::MAX, until, answer })))
    }

    /// Does the same as [`enter`], as long as there is no shortage.
    pub(super) fn enter(
        &self,
        ring: RawFd,
        to_submit: u32,
        completions: u32,
        timeout: Option<Duration>,
    ) -> io::Result<u32> {
        let mut short = self.0.lock().unwrap();
        if short.until.is_some_and(|until| until <= clock::now()) {
            return enter(ring, to_submit, completions, timeout);
        }
        if to_submit > 0 && short.spared > 0 {
            short.spared -= 1;
        } else if to_submit > 0 && short.attempts > 0 {
            short.attempts -= 1;
            return match short.answer {
                Answer::Error(errno) => Err(io::Error::from_raw_os_error(errno)),
                // The kernel does the same: it takes fewer entries than requested, and does not wait.
                Answer::One if to_submit > 1 => enter(ring, 1, 0, None),
                Answer::One => enter(ring, 1, completions, timeout),
            };
        }
        drop(short);
        enter(ring, to_submit, completions, timeout)
    }

    fn attempts_left(&self) -> u32 {
        self.0.lock().unwrap().attempts
    }
}

/// Every kind of shortage: once, twice in a row and for long, from the first call and later, in part.
fn shortages() -> impl Iterator<Item = (u32, u32, Answer)> {
    let errors = [libc::EAGAIN, libc::EBUSY, libc::ENOMEM].map(Answer::Error);
    let whole = errors.into_iter().flat_map(|answer| {
        [1, 2, 40].into_iter().flat_map(move |attempts| [0, 3].map(|spared| (spared, attempts, answer)))
    });
    whole.chain([(0, 40, Answer::One), (2, 40, Answer::One)])
}

fn scratch() -> Arc<File> {
    let file = tempfile::tempfile().unwrap();
    file.set_len(BYTES).unwrap();
    Arc::new(file)
}

/// A ring on a scratch file; `None` if the system refuses rings.
fn ring<T>(one: bool, shortage: &Arc<Shortage>) -> Option<Uring<T>> {
    let limits = Limits { logical_block_bytes: BLOCK, ..Limits::with_capacity(BYTES / 512) };
    let config = UringConfig { depth: 8, pool: None };
    match Uring::open(scratch(), &limits, &config, one, None) {
        Ok(mut ring) => {
            ring.shortage = Some(Arc::clone(shortage));
            Some(ring)
        }
        Err(refused) => {
            eprintln!("skipped: io_uring is refused here ({})", refused.source);
            None
        }
    }
}

/// Submits reads of every third block into `memory`; the test keeps the memory until they have completed. No two reads
/// are adjacent, and neither are their parts on a member of a stripe of two.
fn submit(device: &mut dyn RealDevice, memory: &mut AlignedBuf) -> u32 {
    let parts = memory.chunks_mut(BLOCK as usize);
    (0..).zip(parts).for_each(|(tag, part)| {
        let extent = Extent::from_bytes(u64::from(tag) * 3 * u64::from(BLOCK), BLOCK.into()).unwrap();
        // SAFETY: no code accesses the memory until the request has completed: every test here waits for all.
        let segment = unsafe { Segment::new(std::ptr::NonNull::from(part).cast(), BLOCK as usize) };
        device.submit(&Io::new(Tag::from_bits(tag), Op::Read, extent, &[segment]), clock::now()).unwrap();
    });
    memory.len() as u32 / BLOCK
}

/// Runs rounds of eight reads with `wait` between polls, and checks that all complete in time.
fn rounds(
    device: &mut dyn RealDevice,
    shortage: &Shortage,
    mut wait: impl FnMut(&mut dyn RealDevice),
    about: &str,
) {
    let mut memory = AlignedBuf::new(8 * BLOCK as usize).unwrap();
    let begun = clock::now();
    for _ in 0..8 {
        let submitted = submit(device, &mut memory);
        let mut over = 0;
        while over < submitted {
            wait(device);
            while let Some(completion) = device.poll_completion(clock::now()) {
                assert_eq!(completion.result, Ok(()), "{about}");
                over += 1;
            }
            assert!(clock::now().saturating_since(begun) < PATIENCE, "{about}: {over} of {submitted}");
        }
    }
    assert_eq!(shortage.attempts_left(), 0, "{about}: the shortage did not occur");
}

/// Waits by a watch according to its contract, for at most [`PATIENCE`].
fn wait_by_watch(device: &mut dyn RealDevice) {
    let now = clock::now();
    device.commit(now);
    let due = device.poll_timeout().map_or(PATIENCE, |due| due.saturating_since(now));
    device.watch().wait(Some(due.min(PATIENCE))).unwrap();
}

#[test]
fn a_wait_completes_entries_refused_for_lack_of_memory() {
    for (spared, attempts, answer) in shortages() {
        let shortage = Shortage::new(spared, attempts, answer);
        let Some(mut device) = ring::<OneThread>(true, &shortage) else { return };
        let about = format!("{answer:?} {attempts} times after {spared}");
        let wait = |device: &mut dyn RealDevice| device.commit_and_wait(8, Some(PATIENCE)).unwrap();
        rounds(&mut device, &shortage, wait, &about);
    }
}

#[test]
fn a_watch_completes_entries_refused_for_lack_of_memory() {
    for (spared, attempts, answer) in shortages() {
        let shortage = Shortage::new(spared, attempts, answer);
        let Some(mut device) = ring::<AnyThread>(false, &shortage) else { return };
        let about = format!("{answer:?} {attempts} times after {spared}");
        rounds(&mut device, &shortage, wait_by_watch, &about);
    }
}

#[test]
fn polls_alone_complete_entries_refused_for_lack_of_memory() {
    for (spared, attempts, answer) in shortages() {
        let shortage = Shortage::new(spared, attempts, answer);
        let Some(mut device) = ring::<OneThread>(true, &shortage) else { return };
        let mut memory = AlignedBuf::new(8 * BLOCK as usize).unwrap();
        for round in 0..8 {
            let submitted = submit(&mut device, &mut memory);
            device.commit(clock::now());
            let begun = clock::now();
            let mut over = 0;
            while over < submitted {
                over += u32::from(device.poll_completion(clock::now()).is_some());
                let late = clock::now().saturating_since(begun) > PATIENCE;
                assert!(!late, "{answer:?} {attempts} times after {spared}: {over} in round {round}");
            }
        }
        assert_eq!(shortage.attempts_left(), 0);
    }
}

#[test]
fn a_stripe_completes_entries_refused_for_lack_of_memory() {
    for (spared, attempts, answer) in shortages() {
        let shortage = Shortage::new(spared, attempts, answer);
        let members: Option<Vec<_>> = (0..2).map(|_| ring::<OneThread>(true, &shortage)).collect();
        let Some(members) = members else { return };
        let config = StripeConfig { chunk_sectors: 8, ..StripeConfig::default() };
        let mut device = Striped::new(members, &config).unwrap();
        let about = format!("{answer:?} {attempts} times after {spared}");
        let wait = |device: &mut dyn RealDevice| device.commit_and_wait(8, Some(PATIENCE)).unwrap();
        // The first rounds by a wait, the others by a watch.
        let mut waits = 0;
        let either = |device: &mut dyn RealDevice| {
            waits += 1;
            if waits % 2 == 0 { wait(device) } else { wait_by_watch(device) }
        };
        rounds(&mut device, &shortage, either, &about);
    }
}

/// The duration of a shortage, and the maximum number of attempts meanwhile: two for each pause (poll and commit) of
/// each of two rings, and the same again as a margin.
const SHORTAGE: Duration = Duration::from_millis(100);
const ATTEMPTS_MAX: u128 = 8 * SHORTAGE.as_nanos() / RETRY_AFTER.as_nanos();

#[test]
fn each_way_to_wait_pauses_between_attempts() {
    type Way = fn(&mut dyn RealDevice);
    let ways: [(&str, Way); 2] =
        [("a wait", |device| device.commit_and_wait(8, Some(PATIENCE)).unwrap()), ("a watch", wait_by_watch)];
    for (name, wait) in ways {
        for is_striped in [false, true] {
            let shortage = Shortage::lasting(SHORTAGE);
            let Some(one) = ring::<AnyThread>(false, &shortage) else { return };
            let mut device: Box<dyn RealDevice> = Box::new(one);
            if is_striped {
                let members = vec![device, Box::new(ring::<AnyThread>(false, &shortage).unwrap())];
                let config = StripeConfig { chunk_sectors: 8, ..StripeConfig::default() };
                device = Box::new(Striped::new(members, &config).unwrap());
            }
            let mut memory = AlignedBuf::new(8 * BLOCK as usize).unwrap();
            let submitted = submit(&mut *device, &mut memory);
            let mut over = 0;
            while over < submitted {
                wait(&mut *device);
                over += std::iter::from_fn(|| device.poll_completion(clock::now())).count() as u32;
            }
            let attempts = u128::from(u32::MAX - shortage.attempts_left());
            assert!(
                (1..=ATTEMPTS_MAX).contains(&attempts),
                "{name}, striped {is_striped}: {attempts} attempts in {SHORTAGE:?}, a busy loop"
            );
        }
    }
}

#[test]
fn the_page_cache_completes_entries_refused_for_lack_of_memory() {
    for (spared, attempts, answer) in shortages() {
        let shortage = Shortage::new(spared, attempts, answer);
        let Some(device) = ring::<AnyThread>(false, &shortage) else { return };
        let config = BufferedConfig {
            cache: CacheConfig { frames: 16, ..CacheConfig::default() },
            block_bytes: BLOCK,
            ..BufferedConfig::of_bytes(BYTES)
        };
        let opened: Result<_, NoMemory> =
            Buffered::new(config, |_| Ok(Runner::new(Box::new(device) as Box<_>, &QueueConfig::default())));
        let buffered = opened.unwrap();
        let (ended, has_ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for page in 0..200 {
                buffered.read_at(&mut [0; 3], page * u64::from(BLOCK)).unwrap();
            }
            let _ = ended.send(());
        });
        let in_time = has_ended.recv_timeout(PATIENCE).is_ok();
        assert!(in_time, "{answer:?} {attempts} times after {spared}: the reader hangs");
        assert_eq!(shortage.attempts_left(), 0);
    }
}

/// A system that refuses all calls which submit, after the first `spared`.
fn refusal(spared: u32) -> Arc<Shortage> {
    Shortage::new(spared, u32::MAX, Answer::Error(libc::EPERM))
}

const REFUSED: Result<(), IoError> = Err(IoError::Os(libc::EPERM));

/// Waits until all requests in flight have completed.
fn results(
    device: &mut dyn RealDevice,
    mut wait: impl FnMut(&mut dyn RealDevice),
) -> Vec<Result<(), IoError>> {
    let mut results = Vec::new();
    let begun = clock::now();
    while device.in_flight() > 0 {
        wait(device);
        results.extend(std::iter::from_fn(|| device.poll_completion(clock::now())).map(|it| it.result));
        assert!(clock::now().saturating_since(begun) < PATIENCE, "{} requests hang", device.in_flight());
    }
    results
}

#[test]
fn requests_that_a_refused_ring_never_took_fail_in_each_way_to_wait() {
    type Way = fn(&mut dyn RealDevice);
    let ways: [Way; 3] = [
        |device| device.commit_and_wait(8, Some(PATIENCE)).unwrap(),
        wait_by_watch,
        |device| device.commit(clock::now()),
    ];
    for wait in ways {
        for is_striped in [false, true] {
            let Some(one) = ring::<AnyThread>(false, &refusal(0)) else { return };
            let mut device: Box<dyn RealDevice> = Box::new(one);
            if is_striped {
                let members = vec![device, Box::new(ring::<AnyThread>(false, &refusal(0)).unwrap())];
                let config = StripeConfig { chunk_sectors: 8, ..StripeConfig::default() };
                device = Box::new(Striped::new(members, &config).unwrap());
            }
            let mut memory = AlignedBuf::new(8 * BLOCK as usize).unwrap();
            // The second round begins on a ring that is refused already.
            for _ in 0..2 {
                let submitted = submit(&mut *device, &mut memory);
                let results = results(&mut *device, wait);
                assert!(
                    results.len() as u32 == submitted && results.iter().all(|it| *it == REFUSED),
                    "{results:?}"
                );
            }
            // Their wait ends without the kernel, and so does the drop.
            submit(&mut *device, &mut memory);
            device.commit(clock::now());
            device.end_watch();
            device.watch().wait(None).unwrap();
        }
    }
}

#[test]
fn a_refused_ring_notifies_of_the_requests_that_it_took_and_of_the_others() {
    let Some(mut device) = ring::<OneThread>(true, &refusal(1)) else { return };
    let notifier = Notifier::new().unwrap();
    device.set_notifier(&notifier).unwrap();
    let (mut taken, mut refused) = (AlignedBuf::new(12 << 10).unwrap(), AlignedBuf::new(20 << 10).unwrap());
    for memory in [&mut taken, &mut refused] {
        submit(&mut device, memory);
        device.commit(clock::now());
    }
    let results = results(&mut device, |device| {
        notifier.wait(Some(PATIENCE)).unwrap();
        device.commit(clock::now());
    });
    assert_eq!(results.iter().filter(|it| it.is_ok()).count(), 3, "{results:?}");
    assert_eq!(results.iter().filter(|it| **it == REFUSED).count(), 5, "{results:?}");
}

#[test]
fn a_blocking_read_on_a_refused_ring_is_an_error() {
    let Some(device) = ring::<OneThread>(true, &refusal(0)) else { return };
    let mut runner = Runner::new(Box::new(device), &QueueConfig::default());
    let extent = Extent::from_bytes(0, BLOCK.into()).unwrap();
    let read = runner.read(extent, &mut AlignedBuf::new(BLOCK as usize).unwrap());
    assert!(matches!(read, Err(RunError::Io(IoError::Os(libc::EPERM)))), "{read:?}");
}

#[test]
fn a_stale_flag_makes_a_poll_enter_the_kernel_once() {
    for has_notifier in [false, true] {
        // Behaves like `poll_completion` with a flag that stays set and no completion.
        let mut is_fresh = false;
        let mut has_entered = false;
        let mut calls = 0;
        while calls < 10 && may_hold_back(is_fresh, has_notifier, has_entered) {
            calls += 1;
            (is_fresh, has_entered) = (true, true);
        }
        assert_eq!(calls, 1, "with a notifier: {has_notifier}");
    }
    assert!(may_hold_back(true, true, false), "the notification of a held-back completion has ended a wait");
}

/// Submits a flush.
fn submit_flush(device: &mut dyn RealDevice) {
    let flush = Io::new(Tag::from_bits(99), Op::Flush, Extent::EMPTY, &[]);
    device.submit(&flush, clock::now()).unwrap();
}

#[test]
fn a_flush_alone_in_flight_is_executed_by_the_thread_that_waits_for_it() {
    // The ring accepts no entry, so only a flush without an entry completes.
    let shortage = Shortage::new(0, u32::MAX, Answer::Error(libc::EAGAIN));
    let Some(mut device) = ring::<OneThread>(true, &shortage) else { return };
    for round in 1..=3 {
        submit_flush(&mut device);
        assert_eq!((device.in_flight(), device.poll_completion(clock::now())), (1, None));
        device.commit_and_wait(1, None).unwrap();
        device.commit_and_wait(1, None).unwrap();
        assert_eq!(device.syscalls(), round, "the second wait has nothing to wait for");
        let completion = device.poll_completion(clock::now()).unwrap();
        assert_eq!((completion.tag, completion.result), (Tag::from_bits(99), Ok(())));
        assert_eq!(device.in_flight(), 0);
    }
}

#[test]
fn a_flush_beside_other_work_or_on_a_ring_of_several_threads_has_an_entry() {
    let shortage = Shortage::new(0, 0, Answer::Error(libc::EAGAIN));
    let Some(mut device) = ring::<OneThread>(true, &shortage) else { return };
    let mut memory = AlignedBuf::new(2 * BLOCK as usize).unwrap();
    let complete = |device: &mut dyn RealDevice, count: u32| {
        device.commit_and_wait(count, Some(PATIENCE)).unwrap();
        let results: Vec<_> = std::iter::from_fn(|| device.poll_completion(clock::now())).collect();
        assert!(results.len() as u32 == count && results.iter().all(|it| it.result.is_ok()), "{results:?}");
    };
    submit_flush(&mut device);
    assert!(device.ring.submission().is_empty());
    let reads = submit(&mut device, &mut memory);
    assert_eq!(device.ring.submission().len() as u32, reads + 1, "work after the flush");
    complete(&mut device, reads + 1);

    submit_flush(&mut device);
    device.commit(clock::now());
    complete(&mut device, 1);

    submit_flush(&mut device);
    complete(&mut device, 1); // With a timeout.

    let Some(mut shared) = ring::<AnyThread>(false, &shortage) else { return };
    submit_flush(&mut shared);
    assert_eq!(shared.ring.submission().len(), 1);
    complete(&mut shared, 1);
}

#[test]
fn a_device_with_a_flush_that_was_not_executed_or_not_polled_can_be_dropped() {
    let shortage = Shortage::new(0, 0, Answer::Error(libc::EAGAIN));
    for is_executed in [false, true] {
        let Some(mut device) = ring::<OneThread>(true, &shortage) else { return };
        submit_flush(&mut device);
        if is_executed {
            device.commit_and_wait(1, None).unwrap();
        }
        drop(device);
    }
}
