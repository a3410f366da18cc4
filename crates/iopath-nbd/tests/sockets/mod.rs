//! A client over a unix socket, with one request at a time.

#![allow(dead_code, reason = "each test file uses a part")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use iopath_nbd::{
    BlockExtent, ClientEvent, ClientHandshake, ClientOperation, ClientOptions, ClientProgress,
    ClientRequests, Errno, Expected, Negotiated,
};

/// Appends bytes of the socket. False: the peer closed it.
fn receive(stream: &mut UnixStream, input: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 1 << 13];
    let count = stream.read(&mut buffer).unwrap_or(0);
    input.extend(&buffer[..count]);
    count > 0
}

/// A client with one request at a time.
pub(crate) struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    requests: ClientRequests,
    pub(crate) negotiated: Negotiated,
    /// The states of the last block status request.
    pub(crate) extents: Vec<BlockExtent>,
}

impl Client {
    pub(crate) fn connect(socket: &Path, options: ClientOptions) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        let mut handshake = ClientHandshake::new(options);
        let mut input = Vec::new();
        loop {
            let progress = handshake.handle_input(&mut input).unwrap();
            stream.write_all(&handshake.take_output()).unwrap();
            match progress {
                ClientProgress::Transmission(negotiated) => {
                    let requests = ClientRequests::new(negotiated, 256);
                    return Self { stream, input, requests, negotiated, extents: Vec::new() };
                }
                ClientProgress::NeedInput => {
                    assert!(receive(&mut stream, &mut input), "the server closed the socket");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Sends a request and does not wait. False: the socket is full.
    pub(crate) fn send_only(&mut self, operation: ClientOperation) -> bool {
        let Ok(head) = self.requests.submit(operation, 0) else { return false };
        self.stream.set_nonblocking(true).unwrap();
        let sent = self.stream.write_all(&head).is_ok();
        self.stream.set_nonblocking(false).unwrap();
        sent
    }

    /// Executes a request; `memory` is the data of a write or receives that of a read.
    pub(crate) fn execute(&mut self, operation: ClientOperation, memory: &mut [u8]) -> Result<(), Errno> {
        self.stream.write_all(&self.requests.submit(operation, 0).unwrap()).unwrap();
        if matches!(operation, ClientOperation::Write { .. }) {
            self.stream.write_all(memory).unwrap();
        }
        loop {
            let used = match self.requests.expected() {
                Expected::Control => self.requests.handle_input(&self.input).unwrap(),
                Expected::Data { start, length, .. } => {
                    let count = self.input.len().min(length as usize);
                    memory[start as usize..start as usize + count].copy_from_slice(&self.input[..count]);
                    self.requests.handle_data(count as u32).unwrap();
                    count
                }
            };
            self.input.drain(..used);
            while let Some(event) = self.requests.poll_event() {
                match event {
                    ClientEvent::Zeroes { start, length, .. } => {
                        memory[start as usize..(start + length) as usize].fill(0);
                    }
                    ClientEvent::Extents { extents, .. } => self.extents = extents,
                    ClientEvent::Completed { result, .. } => return result,
                }
            }
            if used == 0 {
                assert!(receive(&mut self.stream, &mut self.input), "the server closed the socket");
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.stream.write_all(&self.requests.disconnect());
    }
}
