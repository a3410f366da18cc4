//! Clients over a unix socket: one with our client and one request at a time, plain or with TLS, and one that sends
//! bytes.

use std::io::{IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

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

    /// Does the same as [`Client::connect`]; `None` if there is no server, or it closed the socket.
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

    /// Does the same as [`Client::execute`]; `None` if the server closed the socket.
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

/// A client with simple replies that sends and receives bytes of its own choice.
pub(crate) struct Raw(pub(crate) UnixStream);

impl Raw {
    /// Negotiates the default export with `EXPORT_NAME`. A receive that waits for a minute fails.
    pub(crate) fn connect(socket: &Path) -> Self {
        Self::try_connect(socket).expect("the server accepts the client")
    }

    /// Does the same as [`Raw::connect`].
    pub(crate) fn try_connect(socket: &Path) -> std::io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.read_exact(&mut [0; 18])?;
        stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0")?;
        stream.read_exact(&mut [0; 10])?;
        Ok(Self(stream))
    }

    /// Sends the head of a request.
    pub(crate) fn send(&mut self, command: u16, cookie: u64, offset: u64, length: u32) {
        let mut head = b"\x25\x60\x95\x13\0\0".to_vec();
        head.extend(command.to_be_bytes());
        head.extend(cookie.to_be_bytes());
        head.extend(offset.to_be_bytes());
        head.extend(length.to_be_bytes());
        self.0.write_all(&head).unwrap();
    }

    /// Receives the head of a reply: its error and cookie.
    pub(crate) fn reply(&mut self) -> (u32, u64) {
        let head = self.receive(16);
        assert_eq!(head[..4], [0x67, 0x44, 0x66, 0x98], "the start of a reply");
        let error = u32::from_be_bytes(head[4..8].try_into().unwrap());
        (error, u64::from_be_bytes(head[8..].try_into().unwrap()))
    }

    /// Receives bytes.
    pub(crate) fn receive(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }
}
