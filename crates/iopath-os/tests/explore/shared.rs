//! Threads that share a queue: blocking calls, batches, clients that are dropped, changes of the elevator, and an
//! elevator that delays requests. The devices complete later or at once.

use std::time::Duration;

use iopath_core::elevator::{ELEVATORS, ElevatorSpec};
use iopath_core::{Extent, Op, Priority, QueueConfig, Stream};
use iopath_os::sync::{Exploration, elapsed, is_timed, pick, thread};
use iopath_os::{BufferPool, Job, QueueClient, RealDevice, SharedQueue};

use crate::buffered::on_threads;
use crate::device::{Delayed, Failures, disk_of, limits_of};
use crate::hold::{HELD_FOR, HOLD};

const PAGE: u64 = 4096;
const PAGES: u64 = 6;

type Device = dyn RealDevice + Send;

/// A queue over a device that completes later or at once. All bytes of a page are its number. The device accepts few
/// requests at once, and the queue few bios, so that some wait in the rings.
fn queue(elevator: ElevatorSpec) -> SharedQueue<Device> {
    let disk = disk_of(PAGES * PAGE);
    let device: Box<Device> = if pick(3) == 0 {
        Box::new(disk.open_with(limits_of(&disk)))
    } else {
        Box::new(Delayed::new(&disk, &Failures::default()))
    };
    let bios_max = [2, 64][pick(2) as usize];
    let config =
        QueueConfig { bios_max, requests_max: 8, depth: 1 << pick(3), plug_requests_max: 4, elevator };
    SharedQueue::new(device, &config)
}

fn any_elevator() -> ElevatorSpec {
    ElevatorSpec::new(ELEVATORS[pick(ELEVATORS.len() as u64) as usize])
}

fn extent(page: u64) -> Extent {
    Extent::from_bytes(page * PAGE, PAGE).unwrap()
}

/// A blocking read. Checks that the page contains its number.
fn read(client: &mut QueueClient<Device>, page: u64) {
    let mut bytes = [0xee; PAGE as usize];
    client.read(extent(page), &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == page as u8), "page {page} is {}", bytes[0]);
}

/// Queues a read of each page from `first` on, as many as `pool` has buffers for.
fn read_ahead(client: &mut QueueClient<Device>, pool: &BufferPool, first: u64) {
    while let Some(buffer) = pool.take() {
        let page = (first + u64::from(client.in_flight())) % PAGES;
        let job = Job {
            op: Op::Read,
            extent: extent(page),
            buffer: Some(buffer),
            fua: false,
            stream: Stream(first as u32),
            priority: Priority::default(),
            token: page,
        };
        client.queue(job).unwrap();
    }
}

fn take(client: &mut QueueClient<Device>) -> u32 {
    let mut taken = 0;
    while let Some(finished) = client.poll_completion() {
        finished.result.unwrap();
        let buffer = finished.buffer.unwrap();
        assert!(buffer[..PAGE as usize].iter().all(|byte| u64::from(*byte) == finished.token));
        taken += 1;
    }
    taken
}

#[test]
fn threads_that_share_a_queue_end() {
    Exploration::new("threads_that_share_a_queue_end").run(|| {
        let queue = queue(any_elevator());
        on_threads(3, move |number| {
            let mut client = queue.client(3, 1 + pick(4) as u32);
            let pool = BufferPool::new(3, PAGE as usize).unwrap();
            for round in 0..2 {
                if pick(2) == 0 {
                    read(&mut client, pick(PAGES));
                    continue;
                }
                read_ahead(&mut client, &pool, number + round);
                match pick(4) {
                    0 => client.submit(),
                    1 => client.reap(),
                    _ => (),
                }
                let gather = 1 + pick(3) as u32;
                while client.in_flight() > 0 {
                    client.wait(gather).unwrap();
                    assert!(take(&mut client) > 0, "a wait returns with a completion");
                }
            }
        });
    });
}

#[test]
fn clients_that_rest_get_their_completions() {
    const THREADS: u64 = 5;
    const ROUNDS: u64 = 4;
    // Each wait, and that of the dropped client, has five rests at most, of 64 µs for each client.
    const RESTS: Duration = Duration::from_micros(64 * THREADS * 5 * (2 * ROUNDS + 1));
    let exploration = Exploration::new("clients_that_rest_get_their_completions");
    exploration.within(RESTS).run(|| {
        let queue = queue(any_elevator());
        on_threads(THREADS, move |number| {
            let mut client = queue.client(2, 2);
            let pool = BufferPool::new(2, PAGE as usize).unwrap();
            for round in 0..ROUNDS {
                read_ahead(&mut client, &pool, number + round);
                client.wait(1 + pick(2) as u32).unwrap();
                assert!(take(&mut client) > 0, "a wait returns with a completion");
                if pick(2) == 0 {
                    thread::yield_now();
                }
            }
        });
    });
}

#[test]
fn a_client_that_leaves_passes_the_polling_on() {
    Exploration::new("a_client_that_leaves_passes_the_polling_on").run(|| {
        let queue = queue(any_elevator());
        on_threads(3, move |number| {
            if number == 0 {
                return (0..2).for_each(|_| read(&mut queue.client(1, 1), pick(PAGES)));
            }
            let mut client = queue.client(2, 4);
            let pool = BufferPool::new(2, PAGE as usize).unwrap();
            read_ahead(&mut client, &pool, number);
            if pick(2) == 0 {
                client.submit();
                client.wait(1).unwrap();
                take(&mut client);
            }
            // Dropped with I/O in flight or in the plug.
        });
    });
}

/// A client that was woken to poll may find its own completions instead, and stay away from the queue.
#[test]
fn a_client_that_stays_away_delays_no_other() {
    // Longer than the rests of a wait.
    const AWAY: Duration = Duration::from_millis(10);
    Exploration::new("a_client_that_stays_away_delays_no_other").run(|| {
        let queue = queue(any_elevator());
        on_threads(4, move |_| {
            let mut client = queue.client(2, 2);
            for _ in 0..3 {
                let began = elapsed();
                read(&mut client, pick(PAGES));
                assert!(!is_timed() || elapsed() < began + AWAY, "no thread polled while another was away");
                if pick(2) == 0 {
                    thread::sleep(AWAY);
                }
            }
        });
    });
}

#[test]
fn an_elevator_changes_while_threads_wait() {
    Exploration::new("an_elevator_changes_while_threads_wait").run(|| {
        let queue = queue(any_elevator());
        on_threads(3, move |number| {
            if number == 0 {
                for _ in 0..2 {
                    queue.follow(&any_elevator());
                    queue.set_weight(Stream(1), 300);
                }
                assert!(queue.stats().dispatched <= 8);
                return;
            }
            let mut client = queue.client(2, 2);
            (0..3).for_each(|_| read(&mut client, pick(PAGES)));
        });
    });
}

#[test]
fn an_io_that_was_accepted_past_a_growing_end_succeeds() {
    Exploration::new("an_io_that_was_accepted_past_a_growing_end_succeeds").run(|| {
        let queue = queue(any_elevator());
        queue.set_capacity(extent(PAGES - 2).end().0);
        on_threads(3, move |number| {
            if number == 0 {
                return queue.set_capacity(extent(PAGES - 1).end().0);
            }
            let mut client = queue.client(3, 1);
            let pool = BufferPool::new(3, PAGE as usize).unwrap();
            for page in [0, PAGES - 1, PAGES - 1] {
                let job = Job {
                    op: Op::Read,
                    extent: extent(page),
                    buffer: pool.take(),
                    fua: false,
                    stream: Stream(0),
                    priority: Priority::default(),
                    token: page,
                };
                // Refused while the end has not moved.
                let _ = client.queue(job);
                client.submit();
            }
            client.drain().unwrap();
            take(&mut client);
        });
    });
}

#[test]
fn requests_that_an_elevator_holds_back_go_in_time() {
    const READS: u32 = 2;
    let exploration = Exploration::new("requests_that_an_elevator_holds_back_go_in_time");
    // Each thread reads one page after another, and each read is delayed.
    exploration.within(HELD_FOR * READS).run(move || {
        let queue = queue(ElevatorSpec::new(HOLD));
        on_threads(2, move |_| {
            let mut client = queue.client(1, 1);
            for _ in 0..READS {
                read(&mut client, pick(PAGES));
                if pick(2) == 0 {
                    thread::yield_now();
                }
            }
        });
    });
}
