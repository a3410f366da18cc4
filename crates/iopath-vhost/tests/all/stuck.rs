//! Requests that do not complete, and descriptors that block: neither holds the server.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use iopath::Op;
use iopath::testing::{Fault, Faults};
use iopath_vhost::VhostOptions;
use vhost::VhostBackend;

use crate::support::front_end::{FrontEnd, READ, Slot, USUAL, WRITE, vring_descriptor};
use crate::support::guest::{Guest, HANG};
use crate::support::server::{Scratch, direct, pattern};

/// Whether a server answers a front end at this socket.
fn answers(socket: &Path) -> bool {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    // GET_FEATURES, version 1, no payload.
    let asked = stream.write_all(&[1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    asked.is_ok() && stream.read_exact(&mut [0; 20]).is_ok()
}

#[test]
fn a_request_that_never_completes_holds_no_front_end() {
    let faults = Faults::new(1);
    let scratch = Scratch::changed(&direct().faults(&faults), |options| VhostOptions {
        queues: 2,
        stop_limit: Duration::from_millis(300),
        ..options
    });
    let guest = Guest::new(4 << 20);
    let FrontEnd { frontend, mut drivers } = FrontEnd::new(&scratch.socket(), &guest, 2, 16, USUAL);
    faults.add(Fault::stuck());
    let slot = Slot::of(0);
    drivers[0].add(&slot.parts(&guest, READ, 0, &[(slot.data(), 4096)])).unwrap();
    drivers[0].show();
    drivers[0].wait_taken();
    let (done, stopped) = channel();
    std::thread::spawn(move || done.send(frontend.get_vring_base(0).is_ok()));
    assert!(!stopped.recv_timeout(HANG).unwrap(), "the queue has not stopped");
    let message = scratch.message();
    assert!(message.contains("queue 0: requests in flight did not complete within 300ms"), "{message}");
    // The front end may use the memory again as it likes, so none is served.
    assert!(!answers(&scratch.socket()));
    faults.stop();
    let began = Instant::now();
    while !answers(&scratch.socket()) {
        assert!(began.elapsed() < HANG, "the request has completed, and no front end is served");
    }
    assert_eq!(drivers[0].pop_used(), None, "a completion for a front end that has gone");
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 2, 16, USUAL);
    assert_eq!(front_end.execute(READ, 0, &[(slot.data(), 4096)]), 0);
}

#[test]
fn a_request_that_never_completes_holds_no_server() {
    let faults = Faults::new(1);
    let stop_limit = Duration::from_millis(300);
    let mut scratch =
        Scratch::changed(&direct().faults(&faults), |options| VhostOptions { stop_limit, ..options });
    let guest = Guest::new(4 << 20);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL);
    faults.add(Fault::stuck());
    let slot = Slot::of(0);
    front_end.drivers[0].add(&slot.parts(&guest, READ, 0, &[(slot.data(), 4096)])).unwrap();
    front_end.drivers[0].show();
    front_end.drivers[0].wait_taken();
    let error = scratch.server.take().unwrap().stop().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    faults.stop();
}

#[test]
fn a_broken_device_holds_no_range_of_a_completed_write() {
    let faults = Faults::new(1);
    let scratch = Scratch::with(2, &direct().faults(&faults), true);
    let guest = Guest::new(4 << 20);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 2, 16, USUAL);
    // A write of a whole block is in flight on the guest's memory.
    faults.add(Fault::stuck().on(Op::Write).times(1));
    let (whole, part) = (Slot::of(1), Slot::of(0));
    guest.write(whole.data(), &[9; 4096]);
    let driver = &mut front_end.drivers[1];
    driver.add(&whole.parts(&guest, WRITE, 0, &[(whole.data(), 4096)])).unwrap();
    driver.show();
    until("the block is not written", || faults.injected() > 0);
    // The other queue waits for it, to copy a write of a part of the block.
    guest.write(part.data() + 1, &[7; 512]);
    let driver = &mut front_end.drivers[0];
    driver.add(&part.parts(&guest, WRITE, 1, &[(part.data() + 1, 512)])).unwrap();
    driver.show();
    until("the part is not copied", || scratch.server().totals().copied == 1);
    let driver = &mut front_end.drivers[1];
    driver.offer(0xffff);
    driver.show();
    assert!(scratch.message().contains("descriptor 65535"));
    faults.release();
    assert_eq!(
        front_end.frontend.get_vring_base(0).unwrap(),
        1,
        "the queue waits for a write that has completed"
    );
    assert!(scratch.server().take_messages().is_empty());
    let mut block = vec![0; 4096];
    scratch.volume.read_exact_at(&mut block, 0).unwrap();
    assert!(block[512..1024].iter().all(|&byte| byte == 7), "the write that was taken");
    block.drain(512..1024);
    assert!(block.iter().all(|&byte| byte == 9));
}

#[test]
fn a_file_that_grows_is_followed_without_a_wait_for_its_last_block() {
    let faults = Faults::new(1);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = folder.path().join("disk");
    std::fs::write(&disk, pattern(0, 10_240)).unwrap();
    let scratch = Scratch::of(folder, &disk, &direct().faults(&faults), |options| options);
    let guest = Guest::new(4 << 20);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL);
    faults.add(Fault::stuck().on(Op::Write).times(1));
    let slot = Slot::of(0);
    guest.write(slot.data(), &[9; 512]);
    let driver = &mut front_end.drivers[0];
    driver.add(&slot.parts(&guest, WRITE, 19, &[(slot.data(), 512)])).unwrap();
    driver.show();
    until("the block is not written", || faults.injected() > 0);
    std::fs::File::options().write(true).open(&disk).unwrap().set_len(20_480).unwrap();
    let (mut server, (sent, done)) = (scratch.server, channel());
    let _server = std::thread::spawn(move || {
        let size = server.as_ref().unwrap().update_size();
        sent.send((server.take(), size)).unwrap();
    });
    let (server, size) = done.recv_timeout(HANG).expect("the size waits for the write");
    assert_eq!(size.unwrap(), None);
    faults.release();
    driver.wait_used();
    assert_eq!(slot.status(&guest), 0);
    assert_eq!(server.unwrap().update_size().unwrap(), Some(20_480));
}

/// Waits for a condition.
fn until(failure: &str, mut is_met: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_met() {
        assert!(began.elapsed() < HANG, "{failure}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_full_counter_of_a_descriptor_that_blocks_holds_no_queue() {
    let scratch = Scratch::new(1, &direct());
    let guest = Guest::new(4 << 20);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL);
    let driver = &mut front_end.drivers[0];
    assert!(driver.is_notified(HANG), "the notification of the start");
    driver.fill_call();
    for number in 0..4u64 {
        let slot = Slot::of(number);
        driver.set_event(driver.last_used);
        driver.add(&slot.parts(&guest, READ, 8 * number, &[(slot.data(), 4096)])).unwrap();
        driver.show();
        let began = Instant::now();
        while driver.pop_used().is_none() {
            assert!(began.elapsed() < HANG, "the notification of request {number} blocks the queue");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(front_end.frontend.get_vring_base(0).unwrap(), 4);
}

#[test]
fn only_eventfds_are_descriptors_for_notifications() {
    const SET_VRING_KICK: u32 = 12;
    const SET_VRING_CALL: u32 = 13;
    let scratch = Scratch::new(1, &direct());
    let (_reader, pipe) = std::io::pipe().unwrap();
    let (socket, _other) = UnixStream::pair().unwrap();
    let file = std::fs::File::open(scratch.file()).unwrap();
    for request in [SET_VRING_KICK, SET_VRING_CALL] {
        for descriptor in [pipe.as_fd(), socket.as_fd(), file.as_fd()] {
            assert_ne!(vring_descriptor(&scratch.socket(), request, descriptor), 0, "{request}");
            let message = scratch.message();
            assert!(message.contains("is refused: it is no eventfd"), "{message}");
        }
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let accepted = vring_descriptor(&scratch.socket(), SET_VRING_CALL, event.as_fd());
        assert_eq!(accepted, 0);
    }
}
