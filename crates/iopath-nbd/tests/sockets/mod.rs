//! A client over a unix socket, plain or with TLS, with one request at a time.

#![allow(dead_code, reason = "each test file uses a part")]

use std::io::{IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use iopath_nbd::{
    BlockExtent, ClientEvent, ClientHandshake, ClientOperation, ClientOptions, ClientProgress,
    ClientRequests, ClientTls, Errno, Expected, Negotiated, TlsClient, TlsSession,
};

/// A unix socket, plain or with TLS.
pub(crate) struct Transport {
    socket: UnixStream,
    tls: Option<TlsSession>,
}

impl Transport {
    fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let Some(tls) = &mut self.tls else { return self.socket.write_all(bytes) };
        let mut rest = bytes;
        while !rest.is_empty() {
            let sent = tls.send(&mut self.socket, &[IoSlice::new(rest)])?;
            rest = &rest[sent.expect("the socket blocks")..];
        }
        Ok(())
    }

    /// Appends bytes of the socket. False: the peer closed it.
    fn receive(&mut self, input: &mut Vec<u8>) -> bool {
        let mut buffer = [0; 1 << 13];
        let count = match &mut self.tls {
            None => self.socket.read(&mut buffer),
            Some(tls) => tls.receive(&mut self.socket, &mut buffer).map(Option::unwrap_or_default),
        };
        let count = count.unwrap_or(0);
        input.extend(&buffer[..count]);
        count > 0
    }
}

/// A client with one request at a time.
pub(crate) struct Client {
    stream: Transport,
    input: Vec<u8>,
    requests: ClientRequests,
    pub(crate) negotiated: Negotiated,
    /// The states of the last block status request.
    pub(crate) extents: Vec<BlockExtent>,
}

impl Client {
    pub(crate) fn connect(socket: &Path, options: ClientOptions) -> Self {
        Self::try_connect(socket, options).expect("the server accepts the client")
    }

    /// As [`Client::connect`]; `None` if there is no server, or it closed the socket.
    pub(crate) fn try_connect(socket: &Path, options: ClientOptions) -> Option<Self> {
        Self::negotiate(socket, options, None)
    }

    /// A client with TLS, for a certificate of `localhost`. `None`: the server closed the connection.
    pub(crate) fn connect_tls(socket: &Path, options: ClientOptions, tls: &TlsClient) -> Option<Self> {
        Self::negotiate(socket, ClientOptions { tls: ClientTls::Required, ..options }, Some(tls))
    }

    fn negotiate(socket: &Path, options: ClientOptions, tls: Option<&TlsClient>) -> Option<Self> {
        let mut stream = Transport { socket: UnixStream::connect(socket).ok()?, tls: None };
        let mut handshake = ClientHandshake::new(options);
        let mut input = Vec::new();
        loop {
            let progress = handshake.handle_input(&mut input).unwrap();
            stream.send(&handshake.take_output()).ok()?;
            match progress {
                ClientProgress::Transmission(negotiated) => {
                    let requests = ClientRequests::new(negotiated, 256);
                    return Some(Self { stream, input, requests, negotiated, extents: Vec::new() });
                }
                ClientProgress::NeedInput => {
                    if !stream.receive(&mut input) {
                        return None;
                    }
                }
                ClientProgress::StartTls => {
                    stream.tls = Some(tls.expect("the options ask for TLS").connect("localhost").unwrap());
                    handshake.tls_started();
                }
                ClientProgress::Listed(_) => panic!("the options ask for an export"),
            }
        }
    }

    /// Sends a request and does not wait. False: the socket is full.
    pub(crate) fn send_only(&mut self, operation: ClientOperation) -> bool {
        let Ok(head) = self.requests.submit(operation, 0) else { return false };
        self.stream.socket.set_nonblocking(true).unwrap();
        let sent = self.stream.send(&head).is_ok();
        self.stream.socket.set_nonblocking(false).unwrap();
        sent
    }

    /// Executes a request; `memory` is the data of a write or receives that of a read.
    pub(crate) fn execute(&mut self, operation: ClientOperation, memory: &mut [u8]) -> Result<(), Errno> {
        self.try_execute(operation, memory).expect("the server closed the socket")
    }

    /// As [`Client::execute`]; `None` if the server closed the socket.
    pub(crate) fn try_execute(
        &mut self,
        operation: ClientOperation,
        memory: &mut [u8],
    ) -> Option<Result<(), Errno>> {
        self.stream.send(&self.requests.submit(operation, 0).unwrap()).ok()?;
        if matches!(operation, ClientOperation::Write { .. }) {
            self.stream.send(memory).ok()?;
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
                    ClientEvent::Completed { result, .. } => return Some(result),
                }
            }
            if used == 0 && !self.stream.receive(&mut self.input) {
                return None;
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.stream.send(&self.requests.disconnect());
    }
}
