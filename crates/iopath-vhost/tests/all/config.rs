//! What a front end is told, and the life of a server.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

use iopath_vhost::VhostServer;
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserConfigFlags;

use crate::support::front_end::{BLK_FLUSH, FrontEnd, READ, Slot, USUAL, WRITE, connect, region, start};
use crate::support::guest::{Driver, Guest, HANG, is_readable};
use crate::support::server::{DISK, Scratch, buffered, direct, options, pattern};

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[test]
fn the_configuration_states_the_disk() {
    let scratch = Scratch::new(3, &direct());
    let guest = Guest::new(4 << 20);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL);
    let config = front_end.config(0, 60);
    let field = |at: usize, bytes: usize| number(&config[at..at + bytes]);
    let block = u64::from(scratch.volume.facts().block_bytes.max(512));
    assert_eq!(field(0, 8), DISK / 512, "capacity");
    assert_eq!(field(12, 4), 126, "parts of a request");
    assert_eq!(field(20, 4), block);
    assert_eq!(1 << field(24, 1), 4096u64.max(block) / block, "blocks in a physical block");
    assert_eq!(field(34, 2), 3, "queues");
    assert!(field(36, 4) > 0 && field(40, 4) > 0 && field(44, 4) == block / 512, "discard");
    assert!(field(48, 4) > 0 && field(52, 4) > 0, "zeroes");
    assert_eq!(front_end.config(0, 120)[..60], config[..], "a longer space has the same start");
    assert_eq!(front_end.frontend.get_queue_num().unwrap(), 3);
}

#[test]
fn no_mode_of_the_disk_is_lost_with_the_connection() {
    const CONFIG_WCE: u64 = 1 << 11;
    for (open, flush) in [(direct(), BLK_FLUSH), (buffered(), 0)] {
        let scratch = Scratch::new(1, &open);
        let mut frontend = connect(&scratch.socket(), USUAL);
        // The guest must not change what the next process does not know.
        let offered = frontend.get_features().unwrap();
        assert_eq!(offered & (CONFIG_WCE | BLK_FLUSH), flush, "a write cache only without a page cache");
        assert!(frontend.set_config(32, VhostUserConfigFlags::WRITABLE, &[0]).is_err());
        assert!(frontend.set_features(CONFIG_WCE).is_err());
        assert!(scratch.message().contains("features that this disk does not have: 0x800"));
    }
}

#[test]
fn the_disk_follows_the_growth_of_its_file() {
    let scratch = Scratch::new(1, &direct());
    let guest = Guest::new(4 << 20);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL);
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    front_end.frontend.set_backend_request_fd(&theirs).unwrap();
    drop(theirs);
    let data = Slot::of(0).data();
    assert_eq!(front_end.execute(READ, DISK / 512, &[(data, 512)]), 1, "past the end");
    assert_eq!(scratch.server().update_size().unwrap(), None);
    let length = || scratch.file().metadata().unwrap().len();
    File::options().write(true).open(scratch.file()).unwrap().set_len(2 * DISK + 100).unwrap();
    assert_eq!(scratch.server().update_size().unwrap(), Some(2 * DISK));
    assert_eq!(length(), 2 * DISK + 100);
    let mut message = [0; 12];
    assert!(is_readable(ours.as_fd(), HANG));
    ours.read_exact(&mut message).unwrap();
    assert_eq!(message, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], "the configuration has changed");
    assert_eq!(number(&front_end.config(0, 8)), 2 * DISK / 512);
    assert_eq!(front_end.execute(READ, DISK / 512, &[(data, 512)]), 0);
    assert_eq!(guest.read(data, 512), [0; 512]);
    assert!(scratch.server().take_messages().is_empty());
    // A front end that does not read its channel.
    drop(ours);
    File::options().write(true).open(scratch.file()).unwrap().set_len(3 * DISK).unwrap();
    assert_eq!(scratch.server().update_size().unwrap(), Some(3 * DISK));
    assert!(scratch.message().contains("the front end takes no messages"));
    File::options().write(true).open(scratch.file()).unwrap().set_len(DISK).unwrap();
    assert_eq!(scratch.server().update_size().unwrap(), None, "a shorter file");
    assert_eq!(front_end.execute(READ, 2 * DISK / 512, &[(data, 4096)]), 1, "past the end of the file");
    assert_eq!(length(), DISK);
    assert_eq!(front_end.execute(WRITE, 2 * DISK / 512, &[(data, 4096)]), 0);
    assert_eq!(length(), 2 * DISK + 4096, "a write there extends the file");
}

#[test]
fn a_queue_stops_at_an_index_and_goes_on_from_it() {
    let scratch = Scratch::new(1, &direct());
    let guest = Guest::new(4 << 20);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL);
    let data = Slot::of(0).data();
    for _ in 0..20 {
        assert_eq!(front_end.execute(READ, 0, &[(data, 4096)]), 0);
    }
    assert_eq!(front_end.frontend.get_vring_base(0).unwrap(), 20);
    let FrontEnd { frontend, drivers } = &mut front_end;
    start(frontend, &drivers[0], 20).unwrap();
    assert_eq!(front_end.execute(READ, 8, &[(data, 4096)]), 0);
    assert!(guest.read(data, 4096) == pattern(4096, 4096));
    front_end.frontend.set_vring_enable(0, false).unwrap();
    assert_eq!(front_end.frontend.get_vring_base(0).unwrap(), 21);
}

#[test]
fn memory_is_added_and_removed_while_a_queue_runs() {
    let scratch = Scratch::new(1, &direct());
    let guest = Guest::new(4 << 20);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL);
    let more = Guest::new(1 << 20);
    let mut added = region(&more);
    (added.guest_phys_addr, added.userspace_addr) = (4 << 20, 0x7e00_0000_0000);
    assert_eq!(front_end.frontend.get_max_mem_slots().unwrap(), 64);
    front_end.frontend.add_mem_region(&added).unwrap();
    // A part across the border of both regions.
    assert_eq!(front_end.execute(READ, 0, &[((4 << 20) - 4096, 8192)]), 0);
    assert!(guest.read((4 << 20) - 4096, 4096) == pattern(0, 4096));
    assert!(more.read(0, 4096) == pattern(4096, 4096));
    front_end.frontend.remove_mem_region(&added).unwrap();
    assert!(front_end.frontend.remove_mem_region(&added).is_err());
    assert_eq!(front_end.execute(READ, 0, &[(Slot::of(0).data(), 4096)]), 0);
}

#[test]
fn a_queue_whose_memory_is_replaced_goes_on() {
    let scratch = Scratch::new(1, &direct());
    let guest = Guest::new(4 << 20);
    let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL);
    let data = Slot::of(0).data();
    assert_eq!(front_end.execute(READ, 0, &[(data, 4096)]), 0);
    // The region of the rings.
    front_end.frontend.remove_mem_region(&region(&guest)).unwrap();
    assert!(scratch.message().contains("queue 0 cannot start"));
    front_end.frontend.add_mem_region(&region(&guest)).unwrap();
    assert_eq!(front_end.execute(READ, 8, &[(data, 4096)]), 0);
    assert!(guest.read(data, 4096) == pattern(4096, 4096));
    assert!(scratch.server().take_messages().is_empty());
}

#[test]
fn a_device_has_as_many_queues_as_messages_can_name() {
    let volume = Scratch::new(1, &direct()).volume;
    let folder = tempfile::tempdir().unwrap();
    for queues in [0, 257] {
        let listener = UnixListener::bind(folder.path().join(queues.to_string())).unwrap();
        let error = VhostServer::start(listener, options(&volume, queues)).unwrap_err();
        assert!(error.to_string().contains("a device has 1 to 256"), "{error}");
    }
}

#[test]
fn a_server_stops_in_any_state_of_its_front_end() {
    // A front end that says nothing, one in the middle of a message, and one with a running queue.
    let guest = Guest::new(4 << 20);
    for kind in 0..3 {
        let mut scratch = Scratch::new(2, &direct());
        let silent = (kind < 2).then(|| UnixStream::connect(scratch.socket()).unwrap());
        if kind == 1 {
            std::io::Write::write_all(&mut silent.as_ref().unwrap(), &[1, 0]).unwrap();
        }
        let front_end = (kind == 2).then(|| FrontEnd::new(&scratch.socket(), &guest, 2, 16, USUAL));
        let totals = scratch.server.take().unwrap().stop().unwrap();
        assert_eq!(totals.connections, 0, "{kind}");
        drop((silent, front_end));
    }
}

#[test]
fn the_next_front_end_is_served_after_the_last() {
    let scratch = Scratch::new(1, &direct());
    let guest = Guest::new(4 << 20);
    for number in 1..=5 {
        let mut front_end = FrontEnd::new(&scratch.socket(), &guest, 1, 16, USUAL);
        assert_eq!(front_end.execute(READ, 0, &[(Slot::of(0).data(), 4096)]), 0);
        assert_eq!(scratch.server().totals().accepted, number);
    }
}

#[test]
fn a_queue_without_memory_is_refused() {
    let scratch = Scratch::new(1, &direct());
    let guest = Guest::new(4 << 20);
    let mut frontend = connect(&scratch.socket(), USUAL);
    let driver = Driver::new(&guest, 0, 16, true);
    assert!(start(&mut frontend, &driver, 0).is_err());
    assert!(scratch.message().contains("are not in the memory of the guest"));
}
