//! A server and a client over unix sockets, for tests with the programs of others. One thread for each connection.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use iopath_nbd::{
    BlockExtent, BlockState, ClientEvent, ClientHandshake, ClientOperation, ClientOptions, ClientProgress,
    ClientRequests, Errno, Expected, Export, Negotiated, Operation, ReplyWriter, ServerHandshake,
    ServerProgress, ServerRequests, ServerTls,
};

/// Unit of allocation that the server reports.
const BLOCK: usize = 4096;

/// Serves a disk in memory on a socket, until the process ends.
pub(crate) fn serve(socket: &Path, export: Export, disk: Arc<Mutex<Vec<u8>>>) {
    let listener = UnixListener::bind(socket).unwrap();
    let exports: Arc<[Export]> = Arc::new([export]);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (exports, disk) = (exports.clone(), disk.clone());
            std::thread::spawn(move || serve_one(stream.unwrap(), &exports, &disk));
        }
    });
}

fn serve_one(mut stream: UnixStream, exports: &Arc<[Export]>, disk: &Mutex<Vec<u8>>) {
    let mut handshake = ServerHandshake::new(exports.clone(), ServerTls::Off);
    let mut input = Vec::new();
    let session = loop {
        let progress = handshake.handle_input(&mut input);
        stream.write_all(&handshake.take_output()).unwrap();
        match progress.expect("real clients follow the protocol") {
            ServerProgress::Transmission(session) => break session,
            ServerProgress::NeedInput if !receive(&mut stream, &mut input) => return,
            ServerProgress::NeedInput | ServerProgress::SendOutput => {}
            ServerProgress::Disconnect | ServerProgress::StartTls => return,
        }
    };
    let requests = ServerRequests::new(session, &exports[session.export]);
    let writer = ReplyWriter::new(requests.format());
    loop {
        let decoded = requests.decode(&input).expect("real clients follow the protocol");
        let complete = decoded.filter(|(_, head, payload)| input.len() >= head + *payload as usize);
        let Some((request, head, payload)) = complete else {
            if receive(&mut stream, &mut input) {
                continue;
            }
            return;
        };
        let payload: Vec<u8> = input.drain(..head + payload as usize).skip(head).collect();
        let reply = match requests.check(&request) {
            Ok(Operation::Disconnect) => return,
            Ok(operation) => execute(writer, request.cookie, operation, &payload, &mut disk.lock().unwrap()),
            Err((error, reason)) => writer.error(request.cookie, request.offset, error, reason),
        };
        if stream.write_all(&reply).is_err() {
            return;
        }
    }
}

fn execute(
    writer: ReplyWriter,
    cookie: u64,
    operation: Operation,
    payload: &[u8],
    disk: &mut [u8],
) -> Vec<u8> {
    let range = |offset: u64, length: u64| offset as usize..(offset + length) as usize;
    match operation {
        Operation::Read { offset, length, .. } => {
            let mut reply = writer.read(cookie, offset, length).to_vec();
            reply.extend(&disk[range(offset, length.into())]);
            return reply;
        }
        Operation::Write { offset, length, .. } => {
            disk[range(offset, length.into())].copy_from_slice(payload);
        }
        Operation::Trim { offset, length, .. } | Operation::WriteZeroes { offset, length, .. } => {
            disk[range(offset, length)].fill(0);
        }
        Operation::BlockStatus { offset, length, only_one } => {
            let extents = extents(&disk[range(offset, length)], only_one);
            return writer.block_status(cookie, offset, &extents);
        }
        Operation::Flush | Operation::Cache { .. } | Operation::Disconnect => {}
    }
    writer.done(cookie, 0).to_vec()
}

/// Blocks of zeroes count as holes.
fn extents(bytes: &[u8], only_one: bool) -> Vec<BlockExtent> {
    let mut extents: Vec<BlockExtent> = Vec::new();
    for block in bytes.chunks(BLOCK) {
        let is_hole = block.iter().all(|byte| *byte == 0);
        let state = if is_hole { BlockState::HOLE | BlockState::ZERO } else { BlockState::empty() };
        match extents.last_mut() {
            Some(last) if last.state == state => last.length += block.len() as u64,
            Some(_) if only_one => break,
            _ => extents.push(BlockExtent { length: block.len() as u64, state }),
        }
    }
    extents
}

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
                    let requests = ClientRequests::new(negotiated, 1);
                    return Self { stream, input, requests, negotiated, extents: Vec::new() };
                }
                ClientProgress::NeedInput => {
                    assert!(receive(&mut stream, &mut input), "the server closed the socket");
                }
                other => panic!("{other:?}"),
            }
        }
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
