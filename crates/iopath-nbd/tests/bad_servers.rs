//! Clients of servers that are silent, slow, or violate the protocol: every wait ends, with an error that names the
//! reason.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use iopath::remote::Remote;
use iopath::stripe::Member;
use iopath::{Options, Volume};
use iopath_nbd::{ConnectError, ConnectOptions, connect};

/// A test that takes longer hangs.
const HANG: Duration = Duration::from_secs(120);

const MIB: u64 = 1 << 20;

/// The result of `call`. Panics if it hangs.
fn within_limit<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, result) = mpsc::channel();
    thread::spawn(move || sender.send(call()));
    result.recv_timeout(HANG).expect("the call ends")
}

/// A server on a port of its own.
struct Server {
    port: u16,
    connections: Arc<AtomicU32>,
}

impl Server {
    /// Each connection gets a thread that executes `serve`.
    fn start(serve: impl Fn(TcpStream) -> std::io::Result<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (serve, connections) = (Arc::new(serve), Arc::new(AtomicU32::new(0)));
        let count = Arc::clone(&connections);
        thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                let serve = Arc::clone(&serve);
                // An error is the end of the client.
                thread::spawn(move || serve(stream.unwrap()));
            }
        });
        Self { port, connections }
    }

    fn connections(&self) -> u32 {
        self.connections.load(Ordering::SeqCst)
    }

    /// Opens the export with these parameters of the URI.
    fn open(&self, scheme: &str, parameters: &str) -> Result<Remote, ConnectError> {
        let uri = format!("{scheme}://127.0.0.1:{}/x?{parameters}", self.port);
        within_limit(move || {
            let (uri, options) = ConnectOptions::parse(&uri).unwrap();
            connect(&uri, &options)
        })
    }

    fn refusal(&self, scheme: &str, parameters: &str) -> String {
        let refused = self.open(scheme, parameters).unwrap_err().to_string();
        assert!(
            refused.contains(&format!("127.0.0.1:{}", self.port)),
            "the message names the server: {refused}"
        );
        refused
    }
}

/// Waits for the end of the client.
fn stay_silent(mut stream: TcpStream) -> std::io::Result<()> {
    stream.read_to_end(&mut Vec::new()).map(drop)
}

const GREETING: [u8; 18] = *b"NBDMAGICIHAVEOPT\0\x03";

/// Sends the greeting and accepts the options up to `GO`, with an export of `size` bytes.
fn negotiate(stream: &mut TcpStream, size: u64) -> std::io::Result<()> {
    stream.write_all(&GREETING)?;
    stream.read_exact(&mut [0; 4])?;
    loop {
        let mut head = [0; 16];
        stream.read_exact(&mut head)?;
        let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        let (option, length) = (number(8), number(12));
        stream.read_exact(&mut vec![0; length as usize])?;
        let mut reply = |kind: u32, data: &[u8]| {
            let magic = 0x0003_e889_0455_65a9_u64.to_be_bytes();
            let length = (data.len() as u32).to_be_bytes();
            stream
                .write_all(&[&magic[..], &option.to_be_bytes(), &kind.to_be_bytes(), &length, data].concat())
        };
        if option != 7 {
            reply(0x8000_0001, &[])?;
            continue;
        }
        // HAS_FLAGS and SEND_FLUSH.
        let export = [&[0, 0][..], &size.to_be_bytes(), &[0, 5]].concat();
        reply(3, &export)?;
        return reply(1, &[]);
    }
}

/// The cookie and the bytes of the next read.
fn next_read(stream: &mut TcpStream) -> std::io::Result<([u8; 8], usize)> {
    let mut head = [0; 28];
    stream.read_exact(&mut head)?;
    let length = u32::from_be_bytes(head[24..28].try_into().unwrap());
    Ok((head[8..16].try_into().unwrap(), length as usize))
}

fn reply_to(cookie: [u8; 8], length: usize) -> Vec<u8> {
    [&0x6744_6698_u32.to_be_bytes()[..], &[0; 4], &cookie, &vec![0; length]].concat()
}

/// Reads a block of the export.
fn read_block(volume: &Volume) -> iopath::Result<usize> {
    let volume = volume.clone();
    within_limit(move || volume.read_at(&mut [0; 4096], 0))
}

#[test]
fn a_server_that_accepts_and_stays_silent_is_an_error_after_the_time_to_connect() {
    let refused = Server::start(stay_silent).refusal("nbd", "connect-time=1");
    assert!(refused.contains("did not answer within 1s"), "{refused}");
}

#[test]
fn a_greeting_of_single_bytes_does_not_extend_the_time_to_connect() {
    let server = Server::start(|mut stream| {
        for byte in GREETING {
            thread::sleep(Duration::from_millis(300));
            stream.write_all(&[byte])?;
        }
        Ok(())
    });
    let refused = server.refusal("nbd", "connect-time=1");
    assert!(refused.contains("did not answer within 1s"), "{refused}");
}

#[test]
fn a_silent_handshake_of_tls_is_an_error_after_the_time_to_connect() {
    let server = Server::start(|mut stream| {
        stream.write_all(&GREETING)?;
        stream.read_exact(&mut [0; 4 + 16])?;
        let consent = [&0x0003_e889_0455_65a9_u64.to_be_bytes()[..], &[0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0]];
        stream.write_all(&consent.concat())?;
        stay_silent(stream)
    });
    let refused = server.refusal("nbds", "connect-time=1&tls-verify-peer=0");
    assert!(refused.contains("did not answer within 1s"), "{refused}");
}

#[test]
fn a_request_to_a_server_that_fell_silent_fails_after_the_documented_times() {
    let server = Server::start(|mut stream| {
        negotiate(&mut stream, MIB)?;
        stay_silent(stream)
    });
    let export = server.open("nbd", "silence-time=1&reconnect-attempts=1").unwrap();
    let volume = Volume::remote(&export, &Options::new()).unwrap();
    let failed = read_block(&volume).unwrap_err().to_string();
    assert!(failed.contains("was silent for 1s"), "{failed}");
    assert_eq!(export.losses().lost, u64::from(server.connections()));
}

#[test]
fn bytes_now_and_then_are_silence() {
    let server = Server::start(|mut stream| {
        negotiate(&mut stream, MIB)?;
        let (cookie, length) = next_read(&mut stream)?;
        for byte in reply_to(cookie, length) {
            thread::sleep(Duration::from_millis(100));
            stream.write_all(&[byte])?;
        }
        Ok(())
    });
    let export = server.open("nbd", "silence-time=1&reconnect-attempts=1").unwrap();
    let volume = Volume::remote(&export, &Options::new()).unwrap();
    let failed = read_block(&volume).unwrap_err().to_string();
    assert!(failed.contains("was silent for 1s"), "{failed}");
}

#[test]
fn requests_in_flight_fail_at_once_when_the_export_is_given_up() {
    let (sender, arrived) = mpsc::channel();
    let server = Server::start(move |mut stream| {
        negotiate(&mut stream, MIB)?;
        next_read(&mut stream)?;
        let _ = sender.send(());
        stay_silent(stream)
    });
    // The times are longer than the test.
    let export = server.open("nbd", "silence-time=100000&reconnect-time=100000").unwrap();
    let volume = Volume::remote(&export, &Options::new()).unwrap();
    let reading = thread::spawn({
        let volume = volume.clone();
        move || read_block(&volume)
    });
    arrived.recv_timeout(HANG).unwrap();
    export.give_up();
    assert!(reading.join().unwrap().is_err());
    assert!(read_block(&volume).is_err(), "later requests fail, too");
    assert_eq!((server.connections(), export.losses().lost), (1, 0), "its own end is no loss");
}

#[test]
fn a_server_that_violates_the_protocol_again_and_again_is_given_up() {
    // The second copy of a reply is one to a request that is not in flight.
    let server = Server::start(|mut stream| {
        negotiate(&mut stream, MIB)?;
        loop {
            let (cookie, length) = next_read(&mut stream)?;
            stream.write_all(&reply_to(cookie, length).repeat(2))?;
        }
    });
    let export = server.open("nbd", "connections=1").unwrap();
    let volume = Volume::remote(&export, &Options::new()).unwrap();
    let failed =
        (0..100).find_map(|_| read_block(&volume).err()).expect("the server is given up").to_string();
    assert!(failed.contains("not in flight"), "the reason: {failed}");
    assert!(server.connections() <= 6, "{} connections", server.connections());
    assert_eq!(export.losses().lost, u64::from(server.connections()));
}

#[test]
fn a_size_beyond_that_of_a_file_is_refused_and_the_largest_one_is_not() {
    for size in [1 << 63, u64::MAX - 511, u64::MAX] {
        let server = Server::start(move |mut stream| negotiate(&mut stream, size));
        let refused = server.refusal("nbd", "");
        assert!(refused.contains(&size.to_string()) && refused.contains("2^63-1"), "{refused}");
    }
    let largest = i64::MAX as u64;
    let server = Server::start(move |mut stream| {
        negotiate(&mut stream, largest)?;
        loop {
            let (cookie, length) = next_read(&mut stream)?;
            stream.write_all(&reply_to(cookie, length))?;
        }
    });
    let export = server.open("nbd", "").unwrap();
    for options in [Options::new(), Options::new().mode(iopath::IoMode::Buffered)] {
        let volume = Volume::remote(&export, &options).unwrap();
        assert_eq!(volume.size_bytes(), largest);
        let last = largest / 4096 * 4096;
        let read = within_limit(move || volume.read_at(&mut [1; 4096], last)).unwrap();
        assert_eq!(read as u64, largest - last);
    }
    // The sum of a stripe has a limit, too.
    let other = Server::start(move |mut stream| negotiate(&mut stream, largest)).open("nbd", "").unwrap();
    let members = [Member::Remote(&export), Member::Remote(&other)];
    let refused = Volume::open_stripe_of(&members, 65536, &Options::new()).unwrap_err().to_string();
    assert!(refused.contains("the maximum is 2^63-1"), "{refused}");
}
