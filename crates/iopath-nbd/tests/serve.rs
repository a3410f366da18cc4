//! The server with our client: errors of the device, many clients, silent and hostile clients, and its end.

use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use iopath::testing::{Fault, Faults, MemoryConfig, MemoryDisk};
use iopath::{IoError, IoMode, Op, Options, Unaligned, Volume};
use iopath_nbd::{ClientOperation, ClientOptions, Errno, Listen, ReplyFormat, ServeOptions, Served, Server};

use crate::sockets::{Client, Raw};

const SIZE: u64 = 8 << 20;

/// A server over a disk in memory.
struct Setup {
    folder: tempfile::TempDir,
    faults: Faults,
    server: Server,
}

impl Setup {
    fn new(mode: IoMode, options: &ServeOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let faults = Faults::new(1);
        let disk =
            MemoryDisk::new(&MemoryConfig { cache_bytes: 1 << 20, ..MemoryConfig::of_bytes(SIZE) }).unwrap();
        let open = Options::new().mode(mode).write(true).unaligned(Unaligned::Bounce).faults(&faults);
        let volume = Volume::memory(&disk, &open).unwrap();
        let export =
            Served { name: "disk".to_owned(), description: String::new(), volume, is_writable: true };
        let listen = Listen::Unix(folder.path().join("socket"));
        let server = Server::start(&listen, &[export], options).unwrap();
        Self { folder, faults, server }
    }

    fn direct() -> Self {
        Self::new(IoMode::Direct, &ServeOptions::default())
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn client(&self, format: ReplyFormat) -> Client {
        Client::connect(&self.socket(), ClientOptions { format, ..ClientOptions::export("disk") })
    }
}

const FORMATS: [ReplyFormat; 3] = [ReplyFormat::Simple, ReplyFormat::Structured, ReplyFormat::Extended];

#[test]
fn every_format_and_path_reads_what_it_wrote_at_odd_offsets_and_lengths() {
    for mode in [IoMode::Direct, IoMode::Buffered] {
        let setup = Setup::new(mode, &ServeOptions::default());
        for format in FORMATS {
            let mut client = setup.client(format);
            for (offset, length) in
                [(0, 1), (511, 2), (4096, 4096), (100, 300_001), (1 << 20, 5 << 20), (SIZE - 7, 7)]
            {
                let mut data: Vec<u8> = (0..length).map(|at| (at % 251) as u8 ^ offset as u8).collect();
                let length = u32::try_from(length).unwrap();
                client
                    .execute(ClientOperation::Write { offset, length, fua: length % 2 == 0 }, &mut data)
                    .unwrap();
                let mut read = vec![0; data.len()];
                client.execute(ClientOperation::Read { offset, length }, &mut read).unwrap();
                assert!(read == data, "{mode:?} {format:?}: other bytes at {offset} + {length}");
            }
        }
    }
}

/// All pieces of a window are then complete at once, and the rest of the read must follow.
#[test]
fn a_long_read_is_complete_if_all_but_its_first_piece_is_cached() {
    const PIECE: u32 = 128 << 10;
    const LENGTH: u32 = 2 << 20;
    let setup = Setup::new(IoMode::Buffered, &ServeOptions::default());
    let mut client = setup.client(ReplyFormat::Structured);
    let mut data = vec![0; LENGTH as usize];
    let rest = ClientOperation::Read { offset: PIECE.into(), length: LENGTH - PIECE };
    client.execute(rest, &mut data[PIECE as usize..]).unwrap();
    client.execute(ClientOperation::Read { offset: 0, length: LENGTH }, &mut data).unwrap();
}

/// A simple reply has one head, and its data follows without a byte of another reply. The first piece of the long read
/// is cached, as is the short read, so both replies can begin while the rest of the long read is on its way.
#[test]
fn no_reply_comes_between_the_pieces_of_a_long_simple_reply() {
    const PIECE: usize = 128 << 10;
    const LENGTH: usize = 1 << 20;
    let setup = Setup::new(IoMode::Buffered, &ServeOptions::default());
    let mut raw = Raw::connect(&setup.socket());
    for start in (0..SIZE).step_by(LENGTH) {
        raw.send(0, 0, start, PIECE as u32);
        assert_eq!(raw.reply(), (0, 0));
        raw.receive(PIECE);
        raw.send(0, LENGTH as u64, start, LENGTH as u32);
        raw.send(0, 4096, start, 4096);
        raw.send(0, LENGTH as u64, start, LENGTH as u32);
        // An unknown command, which fails at once.
        raw.send(77, 0, 0, 1);
        for _ in 0..4 {
            let (error, length) = raw.reply();
            assert_eq!(error != 0, length == 0);
            assert!(raw.receive(length as usize).iter().all(|byte| *byte == 0), "the head of another reply");
        }
    }
}

/// The event loop executes these requests, so one of them must not take long.
#[test]
fn a_block_status_of_many_ranges_is_answered_in_parts() {
    const RANGES: u64 = 1000;
    const STEP: u64 = 128 << 10;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse");
    let file = std::fs::File::create_new(&path).unwrap();
    file.set_len(RANGES * STEP).unwrap();
    let data = vec![1; STEP as usize / 2];
    (0..RANGES).for_each(|number| file.write_all_at(&data, number * STEP).unwrap());
    let volume =
        Volume::open(&path, &Options::new().mode(IoMode::Direct).unaligned(Unaligned::Bounce)).unwrap();
    if volume.data_ranges(0, RANGES * STEP).unwrap().len() < RANGES as usize {
        println!("not checked: the filesystem records no holes");
        return;
    }
    let export = Served { name: "disk".to_owned(), description: String::new(), volume, is_writable: false };
    let socket = folder.path().join("socket");
    let _server = Server::start(&Listen::Unix(socket.clone()), &[export], &ServeOptions::default()).unwrap();
    let options = ClientOptions { format: ReplyFormat::Structured, ..ClientOptions::export("disk") };
    let mut client = Client::connect(&socket, options);
    let (mut offset, mut extents, mut replies) = (0, 0, 0);
    while offset < RANGES * STEP {
        let length = RANGES * STEP - offset;
        client.execute(ClientOperation::BlockStatus { offset, length }, &mut []).unwrap();
        for extent in &client.extents {
            assert_eq!(extent.length, STEP / 2);
            assert_eq!(extent.state.is_empty(), (offset / (STEP / 2)).is_multiple_of(2), "at {offset}");
            offset += extent.length;
        }
        extents += client.extents.len() as u64;
        replies += 1;
    }
    assert_eq!(extents, 2 * RANGES);
    assert!(replies >= 7, "{replies} replies");
}

#[test]
fn an_error_of_the_device_reaches_the_client_for_that_request_only() {
    let setup = Setup::direct();
    for format in FORMATS {
        let mut client = setup.client(format);
        let mut data = vec![5; 4096];
        for (op, error, expected) in [
            (Op::Write, IoError::NoSpace, Errno::NO_SPACE),
            (Op::Write, IoError::Media, Errno::IO),
            (Op::Read, IoError::Media, Errno::IO),
        ] {
            setup.faults.add(Fault::error(error).on(op).times(1));
            let operation = match op {
                Op::Write => ClientOperation::Write { offset: 8192, length: 4096, fua: false },
                _ => ClientOperation::Read { offset: 8192, length: 4096 },
            };
            assert_eq!(client.execute(operation, &mut data), Err(expected), "{format:?} {op:?}");
            client.execute(operation, &mut data).unwrap();
        }
        setup.faults.add(Fault::error(IoError::Media).on(Op::Flush).times(1));
        assert_eq!(client.execute(ClientOperation::Flush, &mut []), Err(Errno::IO));
    }
}

#[test]
fn a_long_write_that_fails_in_its_first_piece_gets_one_error_after_its_data() {
    let setup = Setup::direct();
    let mut client = setup.client(ReplyFormat::Structured);
    // The queue repeats the parts of a merged request that failed, so several faults are needed.
    setup.faults.add(Fault::error(IoError::NoSpace).on(Op::Write).times(30));
    let mut data = vec![1; 3 << 20];
    let write = ClientOperation::Write { offset: 0, length: 3 << 20, fua: false };
    assert_eq!(client.execute(write, &mut data), Err(Errno::NO_SPACE));
    let written = (0..30).any(|_| client.execute(write, &mut data).is_ok());
    assert!(written, "the faults have ended");
    client.execute(ClientOperation::Read { offset: 0, length: 3 << 20 }, &mut data).unwrap();
    assert!(data.iter().all(|byte| *byte == 1));
}

#[test]
fn sixty_four_clients_at_once_get_their_own_bytes() {
    let setup = Setup::direct();
    std::thread::scope(|scope| {
        for number in 0..64u64 {
            let setup = &setup;
            scope.spawn(move || {
                let mut client = setup.client(ReplyFormat::Structured);
                for round in 0..20 {
                    let offset = number * (SIZE / 64) + round * 4096;
                    let mut data = vec![(number + round) as u8; 4096];
                    client
                        .execute(ClientOperation::Write { offset, length: 4096, fua: false }, &mut data)
                        .unwrap();
                    let mut read = vec![0; 4096];
                    client.execute(ClientOperation::Read { offset, length: 4096 }, &mut read).unwrap();
                    assert!(read == data);
                }
            });
        }
    });
    let totals = setup.server.totals();
    assert_eq!(totals.accepted, 64);
}

#[test]
fn a_client_above_the_limit_is_closed_and_the_others_go_on() {
    let setup = Setup::new(IoMode::Direct, &ServeOptions { connections_max: 1, ..ServeOptions::default() });
    let mut client = setup.client(ReplyFormat::Simple);
    let mut refused = UnixStream::connect(setup.socket()).unwrap();
    assert_eq!(refused.read(&mut [0; 1]).unwrap_or(0), 0);
    client.execute(ClientOperation::Flush, &mut []).unwrap();
    drop(client);
    let limit = Instant::now() + Duration::from_secs(20);
    while setup.server.totals().connections > 0 {
        assert!(Instant::now() < limit, "the connection of a client that left is still counted");
        std::thread::sleep(Duration::from_millis(5));
    }
    setup.client(ReplyFormat::Simple).execute(ClientOperation::Flush, &mut []).unwrap();
}

/// Waits until the server has closed `stream`.
fn assert_closed(mut stream: UnixStream) {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(error) => panic!("the connection is open: {error}"),
        }
    }
}

#[test]
fn silent_and_hostile_clients_are_closed_while_others_are_served() {
    let patience = Duration::from_millis(300);
    let setup = Setup::new(IoMode::Direct, &ServeOptions { patience, ..ServeOptions::default() });
    let silent = UnixStream::connect(setup.socket()).unwrap();
    let mut within_option = UnixStream::connect(setup.socket()).unwrap();
    within_option.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\0\x20").unwrap();
    let mut garbage = UnixStream::connect(setup.socket()).unwrap();
    garbage.write_all(&[0xff; 4096]).unwrap();
    let idle = setup.client(ReplyFormat::Simple);
    let mut client = setup.client(ReplyFormat::Simple);
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        client.execute(ClientOperation::Read { offset: 0, length: 512 }, &mut [0; 512]).unwrap();
    }
    [silent, within_option, garbage].into_iter().for_each(assert_closed);
    // An idle client between two requests is not silent.
    let mut idle = idle;
    idle.execute(ClientOperation::Flush, &mut []).unwrap();
    assert!(setup.server.take_messages().iter().any(|message| message.contains("silent")));
}

#[test]
fn a_client_that_does_not_read_replies_does_not_stop_others() {
    // The server keeps the client that does not read for longer than the guard against hangs.
    let patience = Duration::from_secs(3600);
    let options = ServeOptions { patience, workers: 1, ..ServeOptions::default() };
    let setup = Setup::new(IoMode::Direct, &options);
    let mut deaf = setup.client(ReplyFormat::Simple);
    for _ in 0..200 {
        if !deaf.send_only(ClientOperation::Read { offset: 0, length: 1 << 20 }) {
            break;
        }
    }
    let mut client = setup.client(ReplyFormat::Simple);
    let started = Instant::now();
    for _ in 0..50 {
        client.execute(ClientOperation::Read { offset: 0, length: 4096 }, &mut [0; 4096]).unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(120), "others waited for {:?}", started.elapsed());
}

#[test]
fn the_end_of_the_server_completes_requests_and_flushes() {
    let setup = Setup::direct();
    let mut client = setup.client(ReplyFormat::Structured);
    client.execute(ClientOperation::Write { offset: 0, length: 4096, fua: false }, &mut [7; 4096]).unwrap();
    setup.faults.add(Fault::error(IoError::Media).on(Op::Flush).times(1));
    let socket = setup.socket();
    let error = setup.server.stop().unwrap_err();
    assert!(error.to_string().contains("flush") || error.raw_os_error() == Some(5), "{error}");
    assert!(!socket.exists(), "the socket remains");
}

/// A server that has a second to stop.
fn short_stop(mode: IoMode) -> Setup {
    let stop_limit = Duration::from_secs(1);
    Setup::new(mode, &ServeOptions { stop_limit, workers: 1, ..ServeOptions::default() })
}

#[test]
fn the_server_ends_while_a_client_sends_a_byte_now_and_then() {
    let setup = short_stop(IoMode::Direct);
    let mut raw = Raw::connect(&setup.socket());
    raw.send(1, 1, 0, 1 << 20);
    let client = std::thread::spawn(move || {
        while raw.0.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    while setup.server.totals().connections == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    setup.server.stop().expect("nothing of another client is lost");
    client.join().unwrap();
}

#[test]
fn the_server_ends_while_its_target_is_silent_and_says_what_it_gave_up() {
    let setup = short_stop(IoMode::Direct);
    setup.faults.add(Fault::stuck().on(Op::Read));
    let mut raw = Raw::connect(&setup.socket());
    raw.send(0, 1, 0, 4096);
    raw.send(0, 2, 4096, 4096);
    while setup.faults.injected() == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(setup.server.stop().expect("all writes were flushed").abandoned, 2);
    setup.faults.release();
}

#[test]
fn a_write_whose_data_arrives_while_others_use_the_whole_depth_waits_for_room() {
    let setup = Setup::new(IoMode::Direct, &ServeOptions { workers: 1, ..ServeOptions::default() });
    let mut writer = Raw::connect(&setup.socket());
    writer.send(1, 7, 0, 4096);
    writer.0.write_all(&[5; 1000]).unwrap();
    // The thread of the server has handled those bytes when it replies to a later client.
    let mut client = setup.client(ReplyFormat::Simple);
    client.execute(ClientOperation::Read { offset: 0, length: 4096 }, &mut [0; 4096]).unwrap();
    // Flushes need no buffer, and use up the depth.
    setup.faults.add(Fault::stuck().on(Op::Flush));
    let mut others: Vec<Raw> = (0..5).map(|_| Raw::connect(&setup.socket())).collect();
    for other in &mut others {
        (0..64).for_each(|number| other.send(3, number, 0, 0));
    }
    std::thread::sleep(Duration::from_millis(300));
    writer.0.write_all(&[5; 3096]).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    setup.faults.clear();
    setup.faults.release();
    assert_eq!(writer.reply(), (0, 7));
    writer.send(0, 8, 0, 4096);
    assert_eq!(writer.reply(), (0, 8));
    assert_eq!(writer.receive(4096), [5; 4096]);
    for other in &mut others {
        (0..64).for_each(|_| assert_eq!(other.reply().0, 0));
    }
}

#[test]
fn the_server_ends_with_an_error_if_a_flush_does_not_complete() {
    let setup = short_stop(IoMode::Buffered);
    let mut client = setup.client(ReplyFormat::Simple);
    client.execute(ClientOperation::Write { offset: 0, length: 4096, fua: false }, &mut [7; 4096]).unwrap();
    drop(client);
    setup.faults.add(Fault::stuck());
    let error = setup.server.stop().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    assert!(error.to_string().contains("export \"disk\" was not flushed"), "{error}");
    setup.faults.release();
}
