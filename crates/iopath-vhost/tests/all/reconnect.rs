//! A server that is killed: the next one executes the requests in flight, from the record that the front end kept.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use iopath::buffers::SharedMemory;
use iopath::source::Extent;
use iopath::testing::{Fault, Faults};
use iopath::{Op, Volume};
use iopath_vhost::VhostServer;

use crate::support::front_end::{FLUSH, FrontEnd, READ, Slot, WRITE};
use crate::support::guest::{Driver, Guest, HANG};
use crate::support::server::{DISK, buffered, direct, options, pattern};

const FOLDER: &str = "IOPATH_VHOST_TEST_FOLDER";
/// Requests of the test, 64 sectors apart.
const REQUESTS: u64 = 16;

const STUCK: &str = "IOPATH_VHOST_TEST_STUCK";
const BUFFERED: &str = "IOPATH_VHOST_TEST_BUFFERED";

/// The server, in a process of its own: this test in a child.
#[test]
fn serve_as_a_child() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let faults = Faults::new(1);
    if std::env::var_os(STUCK).is_some() {
        // The writes of the second half never complete.
        let half = Extent::from_bytes(REQUESTS / 2 * 32_768, 8 << 20).unwrap();
        faults.add(Fault::stuck().on(Op::Write).within(half));
    }
    let open = if std::env::var_os(BUFFERED).is_some() { buffered() } else { direct() };
    let volume = Volume::open(folder.join("disk"), &open.lock(false).faults(&faults)).unwrap();
    let socket = folder.join("socket");
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).unwrap();
    let _server = VhostServer::start(listener, options(&volume, 1)).unwrap();
    std::thread::sleep(10 * HANG);
}

/// A child that is killed at the end.
#[derive(Debug)]
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn start(folder: &Path, mode: Option<&str>) -> Killed {
    let _ = std::fs::remove_file(folder.join("socket"));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "reconnect::serve_as_a_child", "--nocapture"]).env(FOLDER, folder);
    command.envs(mode.map(|mode| (mode, "1")));
    let child = Killed(command.stdout(std::process::Stdio::null()).spawn().unwrap());
    let began = Instant::now();
    while std::os::unix::net::UnixStream::connect(folder.join("socket")).is_err() {
        assert!(began.elapsed() < HANG, "the server does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

/// Completed requests of a driver, as long as more than `left` are in flight.
fn complete(driver: &mut Driver, in_flight: &mut usize, left: usize) {
    while *in_flight > left {
        driver.wait_used();
        *in_flight -= 1;
    }
}

#[test]
fn a_killed_server_with_a_page_cache_loses_no_completed_write() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(folder.path().join("disk"), pattern(0, DISK as usize)).unwrap();
    let guest = Guest::new(8 << 20);
    let first = start(folder.path(), Some(BUFFERED));
    let drivers = vec![Driver::new(&guest, 0, 64, true)];
    let socket = folder.path().join("socket");
    let (mut front_end, record) = FrontEnd::with_record(&socket, &guest, drivers, None);
    let data = Slot::of(0).data();
    guest.write(data, &[7; 4096]);
    assert_eq!(front_end.execute(WRITE, 9, &[(data, 4096)]), 0);
    drop(first);
    let _second = start(folder.path(), Some(BUFFERED));
    let drivers = std::mem::take(&mut front_end.drivers);
    let (mut front_end, _record) = FrontEnd::with_record(&socket, &guest, drivers, Some(record));
    assert_eq!(front_end.execute(FLUSH, 0, &[]), 0);
    guest.write(data, &[0; 4096]);
    assert_eq!(front_end.execute(READ, 9, &[(data, 4096)]), 0);
    assert!(guest.read(data, 4096) == [7; 4096], "the flush succeeded, and the write is lost");
}

#[test]
fn a_killed_server_loses_no_request() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(folder.path().join("disk"), pattern(0, DISK as usize)).unwrap();
    let guest = Guest::new(8 << 20);
    let first = start(folder.path(), Some(STUCK));
    let drivers = vec![Driver::new(&guest, 0, 64, true)];
    let socket = folder.path().join("socket");
    let (mut front_end, record) = FrontEnd::with_record(&socket, &guest, drivers, None);
    let driver = &mut front_end.drivers[0];
    for number in 0..REQUESTS {
        let slot = Slot::of(number);
        guest.write(slot.data(), &[number as u8 + 1; 4096]);
        // Apart from each other, so that none is merged.
        driver.add(&slot.parts(&guest, WRITE, number * 64, &[(slot.data(), 4096)])).unwrap();
        driver.show();
    }
    let stuck = REQUESTS as usize / 2;
    let mut in_flight = REQUESTS as usize;
    complete(driver, &mut in_flight, stuck);
    let flags = SharedMemory::map(&record.1, 0, record.0.mmap_size).unwrap();
    let flagged = |flags: &SharedMemory| {
        let is_set = |head: u64| {
            let mut flag = [0];
            flags.read(16 + 16 * head, &mut flag).unwrap();
            flag[0] != 0
        };
        (0..64).filter(|&head| is_set(head)).count()
    };
    assert_eq!(flagged(&flags), stuck, "the record has the requests in flight");
    drop(first);
    let _second = start(folder.path(), None);
    let (mut front_end, record) =
        FrontEnd::with_record(&socket, &guest, std::mem::take(&mut front_end.drivers), Some(record));
    let driver = &mut front_end.drivers[0];
    complete(driver, &mut in_flight, 0);
    assert_eq!(flagged(&flags), 0);
    for number in 0..REQUESTS {
        assert_eq!(Slot::of(number).status(&guest), 0, "request {number}");
    }
    let file = std::fs::read(folder.path().join("disk")).unwrap();
    for number in 0..REQUESTS as usize {
        let at = number * 64 * 512;
        assert!(file[at..at + 4096].iter().all(|&byte| byte == number as u8 + 1), "request {number}");
    }
    // The queue goes on.
    let slot = Slot::of(0);
    for _ in 0..100 {
        driver.add(&slot.parts(&guest, READ, 8, &[(slot.data(), 4096)])).unwrap();
        driver.show();
        driver.wait_used();
    }
    assert!(guest.read(slot.data(), 4096) == pattern(4096, 4096));
    drop(record);
}
