//! Guests and front ends that break the rules: the device stops with one message, and serves the next front end.

use std::io::Write;
use std::os::unix::net::UnixStream;

use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;

use crate::support::front_end::{FrontEnd, GET_ID, READ, Slot, USUAL, WRITE as WRITE_OUT, region, start};
use crate::support::guest::{Driver, Guest, INDIRECT, NEXT, WRITE};
use crate::support::server::{Scratch, direct, pattern};

/// A mistake, and a part of the message about it.
type Mistake = (&'static str, fn(&mut Driver), &'static str);

const TABLE: u64 = 0x30_0000;

fn header(driver: &Driver) -> u64 {
    Slot::of(0).parts(&driver.guest, READ, 0, &[])[0].0
}

const MISTAKES: [Mistake; 17] = [
    (
        "a loop",
        |driver| {
            driver.describe(driver.table(), 0, (header(driver), 16), NEXT, 1);
            driver.describe(driver.table(), 1, (header(driver), 16), NEXT, 0);
            driver.offer(0);
        },
        "has a loop",
    ),
    (
        "a loop of one",
        |driver| {
            driver.describe(driver.table(), 0, (header(driver), 16), NEXT, 0);
            driver.offer(0);
        },
        "has a loop",
    ),
    (
        "a loop in an indirect table",
        |driver| {
            driver.describe(TABLE, 0, (header(driver), 16), NEXT, 0);
            driver.describe(driver.table(), 0, (TABLE, 16), INDIRECT, 0);
            driver.offer(0);
        },
        "has a loop",
    ),
    (
        "a number past the table",
        |driver| {
            driver.describe(driver.table(), 0, (header(driver), 16), NEXT, 16);
            driver.offer(0);
        },
        "descriptor 16 of a table of 16",
    ),
    ("a first number past the table", |driver| driver.offer(0xffff), "descriptor 65535 of a table of 16"),
    (
        "a number past an indirect table",
        |driver| {
            driver.describe(TABLE, 0, (header(driver), 16), NEXT, 7);
            driver.describe(driver.table(), 0, (TABLE, 32), INDIRECT, 0);
            driver.offer(0);
        },
        "descriptor 7 of a table of 2",
    ),
    (
        "an address outside",
        |driver| {
            driver.describe(driver.table(), 0, (1 << 40, 16), 0, 0);
            driver.offer(0);
        },
        "are not in the memory",
    ),
    (
        "a length past the end",
        |driver| {
            driver.describe(driver.table(), 0, (header(driver), u32::MAX), 0, 0);
            driver.offer(0);
        },
        "are not in the memory",
    ),
    (
        "an address that overflows",
        |driver| {
            driver.describe(driver.table(), 0, (u64::MAX - 7, 16), WRITE, 0);
            driver.offer(0);
        },
        "are not in the memory",
    ),
    (
        "an indirect table outside",
        |driver| {
            driver.describe(driver.table(), 0, (1 << 40, 32), INDIRECT, 0);
            driver.offer(0);
        },
        "are not in the memory",
    ),
    (
        "an indirect table of half a descriptor",
        |driver| {
            driver.describe(driver.table(), 0, (TABLE, 24), INDIRECT, 0);
            driver.offer(0);
        },
        "no multiple of 16",
    ),
    (
        "an indirect table in another",
        |driver| {
            driver.describe(TABLE, 0, (TABLE, 16), INDIRECT, 0);
            driver.describe(driver.table(), 0, (TABLE, 16), INDIRECT, 0);
            driver.offer(0);
        },
        "contains another one",
    ),
    (
        "a readable part after a writable one",
        |driver| {
            driver.describe(driver.table(), 0, (header(driver), 16), NEXT | WRITE, 1);
            driver.describe(driver.table(), 1, (header(driver), 16), 0, 0);
            driver.offer(0);
        },
        "readable part after a writable",
    ),
    (
        "no status",
        |driver| {
            driver.describe(driver.table(), 0, (header(driver), 16), 0, 0);
            driver.offer(0);
        },
        "has no status",
    ),
    (
        "half a header",
        |driver| {
            driver.describe(driver.table(), 0, (header(driver), 15), NEXT, 1);
            driver.describe(driver.table(), 1, (header(driver) + 16, 1), WRITE, 0);
            driver.offer(0);
        },
        "has no header",
    ),
    ("a jump of the index", |driver| driver.next_available = 300, "went from index 0 to 300"),
    (
        "more than 4 GiB",
        |driver| {
            // The same bytes in each of 1,024 parts.
            for index in 0..1100 {
                driver.describe(TABLE, index, (0, 15 << 20), NEXT | WRITE, index + 1);
            }
            driver.describe(driver.table(), 0, (TABLE, 16 * 1100), INDIRECT, 0);
            driver.offer(0);
        },
        "more than 2^32 bytes",
    ),
];

#[test]
fn each_mistake_stops_the_device_with_one_message() {
    let scratch = Scratch::new(2, &direct());
    for (name, make, expected) in MISTAKES {
        let guest = Guest::new(16 << 20);
        let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 2, 16, USUAL);
        assert_eq!(front_end.execute(READ, 0, &[(Slot::of(1).data(), 4096)]), 0, "before {name}");
        // From a new queue, so that the indices are those of the message.
        let driver = &mut front_end.drivers[1];
        make(driver);
        driver.show();
        let message = scratch.message();
        assert!(message.starts_with("the device has stopped: queue 1: "), "{name}: {message}");
        assert!(message.contains(expected), "{name}: {message}");
        assert_eq!(front_end.drivers[1].pop_used(), None, "{name}");
        // The other queue stops as well.
        let driver = &mut front_end.drivers[0];
        let slot = Slot::of(2);
        driver.add(&slot.parts(&guest, READ, 0, &[(slot.data(), 4096)])).unwrap();
        driver.show();
        assert_eq!(slot.status(&guest), 0xff, "{name}");
        drop(front_end);
        let more = scratch.server().take_messages();
        assert!(more.is_empty(), "{name}: {more:?}");
    }
}

#[test]
fn a_descriptor_in_flight_cannot_be_used_again() {
    let faults = iopath::testing::Faults::new(1);
    let scratch = Scratch::new(1, &direct().faults(&faults));
    faults.add(iopath::testing::Fault::stuck());
    let guest = Guest::new(4 << 20);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL);
    let slot = Slot::of(0);
    let driver = &mut front_end.drivers[0];
    let head = driver.add(&slot.parts(&guest, READ, 0, &[(slot.data(), 4096)])).unwrap();
    driver.offer(head);
    driver.show();
    assert!(scratch.message().contains("before its request has completed"));
    faults.clear();
    faults.release();
}

#[test]
fn a_descriptor_cannot_be_used_again_before_its_completion_is_published() {
    // The request completes at once, so a driver that never waits would keep the thread of the queue forever.
    let scratch = Scratch::new(1, &direct());
    let guest = Guest::new(4 << 20);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL);
    let slot = Slot::of(0);
    let driver = &mut front_end.drivers[0];
    let head = driver.add(&slot.parts(&guest, GET_ID, 0, &[(slot.data(), 20)])).unwrap();
    driver.offer(head);
    driver.show();
    assert!(scratch.message().contains("before its request has completed"));
}

#[test]
fn truncated_memory_stops_the_device_and_not_the_server() {
    let scratch = Scratch::new(1, &direct());
    let guest = Guest::new(16 << 20);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL);
    let driver = &mut front_end.drivers[0];
    // Header, data and status lie in the part that is lost. The rings stay.
    let slot = Slot(8 << 20);
    driver.add(&slot.parts(&guest, READ, 0, &[(slot.data(), 4096)])).unwrap();
    guest.file.set_len(4 << 20).unwrap();
    driver.show();
    assert!(scratch.message().contains("has truncated the memory"));
    drop(front_end);
    let guest = Guest::new(4 << 20);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL);
    assert_eq!(front_end.execute(READ, 0, &[(Slot::of(0).data(), 4096)]), 0);
}

#[test]
fn lost_memory_is_never_written_to_the_disk() {
    let scratch = Scratch::new(1, &direct());
    // More often than the buffers of a queue: each of them returns.
    for round in 0..70 {
        let guest = Guest::new(8 << 20);
        let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL);
        let driver = &mut front_end.drivers[0];
        // The data is lost, and the rest of the request is not. It is copied, since its address is odd.
        let slot = Slot::of(0);
        guest.write(5 << 20, &vec![9; 2 << 20]);
        driver.add(&slot.parts(&guest, WRITE_OUT, 0, &[((5 << 20) + 1, 1 << 20)])).unwrap();
        guest.file.set_len(4 << 20).unwrap();
        driver.show();
        let message = scratch.message();
        assert!(message.contains("has truncated the memory"), "round {round}: {message}");
        assert_eq!((driver.pop_used(), slot.status(&guest)), (None, 0xff), "round {round}");
    }
    let guest = Guest::new(8 << 20);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL);
    let data = (5 << 20) + 1;
    assert_eq!(front_end.execute(READ, 0, &[(data, 1 << 20)]), 0);
    assert!(guest.read(data, 1 << 20) == pattern(0, 1 << 20));
}

#[test]
fn a_change_of_the_memory_revives_no_device() {
    let scratch = Scratch::new(2, &direct());
    let guest = Guest::new(4 << 20);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 2, 16, USUAL);
    front_end.drivers[1].offer(0xffff);
    front_end.drivers[1].show();
    assert!(scratch.message().contains("descriptor 65535"));
    let more = Guest::new(1 << 20);
    let mut added = region(&more);
    (added.guest_phys_addr, added.userspace_addr) = (4 << 20, 0x7e00_0000_0000);
    front_end.frontend.add_mem_region(&added).unwrap();
    let slot = Slot::of(0);
    let driver = &mut front_end.drivers[0];
    driver.add(&slot.parts(&guest, READ, 0, &[(slot.data(), 4096)])).unwrap();
    driver.show();
    // Time in which a revived queue would take the request.
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!((driver.pop_used(), slot.status(&guest)), (None, 0xff));
    // The front end stops both queues, as for a reset.
    for number in 0..2 {
        assert_eq!(front_end.frontend.get_vring_base(number).unwrap(), 0);
    }
    assert_eq!(scratch.server().take_messages(), [""; 0]);
    start(&mut front_end.frontend, &front_end.drivers[0], 0).unwrap();
    assert_eq!(front_end.drivers[0].wait_used().1, 4097);
}

#[test]
fn a_message_that_is_none_ends_the_connection_only() {
    let scratch = Scratch::new(1, &direct());
    let mut bytes = vec![0xff; 4096];
    for garbage in 0..4u8 {
        let mut stream = UnixStream::connect(scratch.socket()).unwrap();
        bytes[0] = garbage;
        stream.write_all(&bytes[..12 + 100 * usize::from(garbage)]).unwrap();
        assert!(scratch.message().contains("closed the connection"));
    }
    let guest = Guest::new(4 << 20);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL);
    assert_eq!(front_end.execute(READ, 0, &[(Slot::of(0).data(), 4096)]), 0);
}
