//! A remote device for the conformance tests: a protocol of fixed messages, and a server for one file.
//!
//! A request is 25 bytes: operation, FUA (1 byte each), three zeroes, key (4), offset (8), length (8); data of a write
//! follows. A reply is the key and an error number (4 bytes each); the data of a successful read follows.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use iopath_core::{Instant, Limits, Op};
use iopath_os::{
    Incoming, Outgoing, RealDevice, Remote, RemoteAddress, RemoteEvent, RemoteFacts, RemoteProtocol,
    RemoteRequest, RemoteSession,
};

const HEAD: usize = 25;

/// A device with two connections to a server of `file`.
pub(crate) fn open(file: Arc<File>, limits: &Limits, depth: u32) -> Box<dyn RealDevice> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    std::thread::spawn(move || {
        for stream in listener.incoming().take(2) {
            let file = Arc::clone(&file);
            std::thread::spawn(move || serve(stream.expect("a connection"), &file));
        }
    });
    let mut facts = RemoteFacts::new(limits.capacity * 512, limits.clone());
    facts.permits_connections = true;
    let remote = Remote::open(Arc::new(Plain(facts)), RemoteAddress::Unix(path), 2).expect("two connections");
    assert_eq!(remote.connections(), 2);
    Box::new(remote.device(&remote.facts().limits, depth))
}

fn serve(mut stream: UnixStream, file: &File) {
    let mut head = [0; HEAD];
    while stream.read_exact(&mut head).is_ok() {
        let number = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        let (offset, length) = (number(9), number(17));
        let mut data = vec![0; if head[0] < 2 { length as usize } else { 0 }];
        let result = match head[0] {
            0 => file.read_exact_at(&mut data, offset),
            1 => stream.read_exact(&mut data).and_then(|()| file.write_all_at(&data, offset)),
            2 => file.sync_data(),
            _ => file.write_all_at(&vec![0; length as usize], offset),
        };
        let errno = result.err().map_or(0, |error| error.raw_os_error().unwrap_or(5));
        let mut reply = head[5..9].to_vec();
        reply.extend(errno.to_be_bytes());
        if head[0] == 0 && errno == 0 {
            reply.extend(data);
        }
        if stream.write_all(&reply).is_err() {
            return;
        }
    }
}

#[derive(Debug)]
struct Plain(RemoteFacts);

impl RemoteProtocol for Plain {
    fn session(&self, _number: usize) -> Box<dyn RemoteSession> {
        Box::new(Session { facts: Some(self.0.clone()), ..Session::default() })
    }

    fn route_flush(&self) -> Option<usize> {
        None
    }

    fn name(&self) -> &'static str {
        "plain://"
    }
}

#[derive(Debug, Default)]
struct Session {
    facts: Option<RemoteFacts>,
    requests: Vec<Option<RemoteRequest>>,
    unsent: VecDeque<u32>,
    /// Data that follows: key, position, bytes left.
    data: Option<(u32, u64, u32)>,
    events: VecDeque<RemoteEvent>,
}

impl Session {
    fn end(&mut self, key: u32) {
        self.requests[key as usize] = None;
        self.events.push_back(RemoteEvent::Completed { key, result: Ok(()) });
    }
}

impl RemoteSession for Session {
    fn handle_open(&mut self, _now: Instant) {
        self.events.push_back(RemoteEvent::Connect);
    }

    fn handle_request(&mut self, key: u32, request: RemoteRequest, _now: Instant) {
        let length = self.requests.len().max(key as usize + 1);
        self.requests.resize(length, None);
        self.requests[key as usize] = Some(request);
        self.unsent.push_back(key);
    }

    fn handle_connected(&mut self, _now: Instant) {
        self.events.push_back(RemoteEvent::Ready(self.facts.take().map(Box::new)));
    }

    fn handle_lost(&mut self, _reason: &str, _now: Instant) {
        assert!(self.requests.iter().all(Option::is_none), "the server of the test does not end");
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_outgoing(&mut self, bytes: &mut Vec<u8>, _now: Instant) -> Option<Outgoing> {
        let key = self.unsent.pop_front()?;
        let request = self.requests[key as usize].expect("it is unfinished");
        let op = match request.op {
            Op::Read => 0,
            Op::Write => 1,
            Op::Flush => 2,
            Op::Discard | Op::WriteZeroes => 3,
        };
        bytes.extend([op, u8::from(request.fua), 0, 0, 0]);
        bytes.extend(key.to_be_bytes());
        bytes.extend(request.offset.to_be_bytes());
        bytes.extend(request.length.to_be_bytes());
        Some(if op == 1 { Outgoing::Data(key) } else { Outgoing::Control })
    }

    fn handle_sent(&mut self, _bytes: u64, _now: Instant) {}

    fn incoming(&self) -> Incoming {
        self.data.map_or(Incoming::Control, |(key, start, length)| Incoming::Data { key, start, length })
    }

    fn handle_input(&mut self, input: &[u8], _now: Instant) -> Result<usize, String> {
        let Some(reply) = input.first_chunk::<8>() else { return Ok(0) };
        let number = |at: usize| u32::from_be_bytes(reply[at..at + 4].try_into().expect("4 bytes"));
        let (key, errno) = (number(0), number(4));
        assert_eq!(errno, 0, "the file of the test has no errors");
        let request = self.requests[key as usize].expect("it is unfinished");
        if request.op == Op::Read {
            self.data = Some((key, 0, request.length as u32));
        } else {
            self.end(key);
        }
        Ok(8)
    }

    fn handle_data(&mut self, count: u32, _now: Instant) -> Result<(), String> {
        let (key, start, length) = self.data.take().expect("data is expected");
        if count == length {
            self.end(key);
        } else {
            self.data = Some((key, start + u64::from(count), length - count));
        }
        Ok(())
    }

    fn poll_event(&mut self) -> Option<RemoteEvent> {
        self.events.pop_front()
    }

    fn disconnect(&mut self, _bytes: &mut Vec<u8>) {}

    fn failure(&self) -> Option<&str> {
        None
    }
}
