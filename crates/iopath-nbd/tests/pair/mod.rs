//! A client and a server that are joined by two byte buffers. The server executes requests on a disk in memory.

use std::sync::Arc;

use iopath_nbd::{
    BlockExtent, BlockState, ClientError, ClientEvent, ClientHandshake, ClientOperation, ClientOptions,
    ClientProgress, ClientRequests, Errno, Expected, Export, Negotiated, Operation, ReplyWriter,
    ServerHandshake, ServerProgress, ServerRequests, ServerTls, Session, SubmitError, TransmissionFlags,
};

/// An export that accepts every command.
pub(crate) fn writable_export() -> Export {
    use TransmissionFlags as Flags;
    Export {
        flags: Flags::SEND_FLUSH
            | Flags::SEND_FUA
            | Flags::SEND_TRIM
            | Flags::SEND_WRITE_ZEROES
            | Flags::SEND_CACHE
            | Flags::SEND_FAST_ZERO
            | Flags::CAN_MULTI_CONN,
        has_allocation: true,
        description: "a disk".to_owned(),
        ..Export::new("disk", 8192)
    }
}

pub(crate) struct Pair {
    pub(crate) server: ServerHandshake,
    pub(crate) client: ClientHandshake,
    /// Bytes that pass at once from one end to the other.
    part: usize,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    server_input: Vec<u8>,
    client_input: Vec<u8>,
    pub(crate) server_progress: Option<ServerProgress>,
    exports: Vec<Export>,
    transmission: Option<(ServerRequests, ClientRequests)>,
    negotiated: Option<Negotiated>,
    pub(crate) disk: Vec<u8>,
    /// The memory of the request in flight.
    pub(crate) memory: Vec<u8>,
    pub(crate) events: Vec<ClientEvent>,
    pub(crate) fail_next: Option<Errno>,
    pub(crate) in_chunks: bool,
    pub(crate) seed: u64,
}

/// A whole negotiation.
pub(crate) fn greet(
    exports: &[Export],
    tls: ServerTls,
    options: ClientOptions,
    part: usize,
) -> Result<(Session, Negotiated), ClientError> {
    let mut pair = Pair::new(exports, tls, options, part);
    let ClientProgress::Transmission(client) = pair.negotiate()? else {
        panic!("the negotiation has not ended")
    };
    let Some(ServerProgress::Transmission(server)) = pair.server_progress else {
        panic!("the server has not ended")
    };
    Ok((server, client))
}

impl Pair {
    pub(crate) fn new(exports: &[Export], tls: ServerTls, options: ClientOptions, part: usize) -> Self {
        Self {
            server: ServerHandshake::new(Arc::from(exports), tls),
            client: ClientHandshake::new(options),
            part,
            to_server: Vec::new(),
            to_client: Vec::new(),
            server_input: Vec::new(),
            client_input: Vec::new(),
            server_progress: None,
            exports: exports.to_vec(),
            transmission: None,
            negotiated: None,
            disk: vec![0; exports[0].size as usize],
            memory: Vec::new(),
            events: Vec::new(),
            fail_next: None,
            in_chunks: false,
            seed: 1,
        }
    }

    /// Runs the negotiation until the client needs its caller.
    pub(crate) fn negotiate(&mut self) -> Result<ClientProgress, ClientError> {
        for _ in 0..100_000 {
            self.to_client.extend(self.server.take_output());
            self.to_server.extend(self.client.take_output());
            pass(&mut self.to_client, &mut self.client_input, self.part);
            let progress = self.client.handle_input(&mut self.client_input)?;
            self.to_server.extend(self.client.take_output());
            let is_over = progress != ClientProgress::NeedInput;
            pass(&mut self.to_server, &mut self.server_input, if is_over { usize::MAX } else { self.part });
            let server_ended = matches!(
                self.server_progress,
                Some(ServerProgress::Transmission(_) | ServerProgress::Disconnect | ServerProgress::StartTls)
            );
            if !server_ended {
                self.server_progress =
                    Some(self.server.handle_input(&mut self.server_input).expect("the client is ours"));
            }
            if is_over {
                return Ok(progress);
            }
        }
        panic!("the negotiation does not end")
    }

    pub(crate) fn start_tls(&mut self) {
        self.server.tls_started();
        self.client.tls_started();
        self.server_progress = None;
    }

    /// Negotiates and enters the transmission phase.
    pub(crate) fn start(&mut self) {
        let ClientProgress::Transmission(negotiated) = self.negotiate().unwrap() else {
            panic!("not in transmission")
        };
        let Some(ServerProgress::Transmission(session)) = self.server_progress else {
            panic!("not in transmission")
        };
        let server = ServerRequests::new(session, &self.exports[session.export]);
        self.transmission = Some((server, ClientRequests::new(negotiated, 8)));
        self.negotiated = Some(negotiated);
    }

    /// Makes the client believe that the server offers every command on a larger export.
    pub(crate) fn skip_checks_of_client(&mut self) {
        let flags = (TransmissionFlags::all() - TransmissionFlags::READ_ONLY) | TransmissionFlags::HAS_FLAGS;
        let negotiated =
            Negotiated { flags, size: u64::MAX, allocation: Some(1), ..self.negotiated.unwrap() };
        let (server, _) = self.transmission.take().unwrap();
        self.transmission = Some((server, ClientRequests::new(negotiated, 8)));
    }

    pub(crate) fn submit(&mut self, operation: ClientOperation, data: &[u8]) -> Result<(), SubmitError> {
        let (_, client) = self.transmission.as_mut().unwrap();
        self.to_server.extend(client.submit(operation, 7)?);
        self.to_server.extend(data);
        self.memory = match operation {
            ClientOperation::Read { length, .. } => vec![0xee; length as usize],
            _ => Vec::new(),
        };
        self.events.clear();
        Ok(())
    }

    /// Executes one request and returns its result.
    pub(crate) fn execute(&mut self, operation: ClientOperation, data: &[u8]) -> Result<(), Errno> {
        self.submit(operation, data).unwrap();
        self.exchange();
        match self.events.last() {
            Some(ClientEvent::Completed { key: 7, result }) => *result,
            other => panic!("{operation:?} ended with {other:?}"),
        }
    }

    /// Passes bytes until both ends wait.
    pub(crate) fn exchange(&mut self) {
        loop {
            let is_idle = self.to_server.is_empty() && self.to_client.is_empty();
            pass(&mut self.to_server, &mut self.server_input, self.part);
            self.serve();
            pass(&mut self.to_client, &mut self.client_input, self.part);
            self.receive();
            if is_idle {
                assert!(self.server_input.is_empty() && self.client_input.is_empty(), "bytes remain");
                return;
            }
        }
    }

    fn serve(&mut self) {
        let server = self.transmission.as_ref().unwrap().0;
        while let Some((request, head, payload)) = server.decode(&self.server_input).unwrap() {
            let end = head + payload as usize;
            if self.server_input.len() < end {
                return;
            }
            let payload = self.server_input[head..end].to_vec();
            self.server_input.drain(..end);
            let writer = ReplyWriter::new(server.format());
            let checked = server.check(&request).map_err(|(error, reason)| (error, reason.to_owned()));
            let failed = self.fail_next.take().map_or(checked, |error| Err((error, "injected".to_owned())));
            match failed {
                Ok(operation) => self.apply(writer, request.cookie, operation, &payload),
                Err((error, reason)) => {
                    self.to_client.extend(writer.error(request.cookie, request.offset, error, &reason));
                }
            }
        }
    }

    fn apply(&mut self, writer: ReplyWriter, cookie: u64, operation: Operation, payload: &[u8]) {
        let range = |offset: u64, length: u64| offset as usize..(offset + length) as usize;
        match operation {
            Operation::Read { offset, length, .. } => {
                let data = self.disk[range(offset, length.into())].to_vec();
                if self.in_chunks && writer.hole_chunk(0, 0, 1).is_some() {
                    return self.reply_in_chunks(writer, cookie, offset, &data);
                }
                self.to_client.extend(writer.read(cookie, offset, length));
                self.to_client.extend(data);
                return;
            }
            Operation::Write { offset, length, .. } => {
                self.disk[range(offset, length.into())].copy_from_slice(payload);
            }
            Operation::WriteZeroes { offset, length, .. } | Operation::Trim { offset, length, .. } => {
                self.disk[range(offset, length)].fill(0);
            }
            Operation::BlockStatus { offset, length, .. } => {
                let hole = BlockExtent { length, state: BlockState::HOLE | BlockState::ZERO };
                self.to_client.extend(writer.block_status(cookie, offset, &[hole]));
                return;
            }
            Operation::Flush | Operation::Cache { .. } | Operation::Disconnect => {}
        }
        self.to_client.extend(writer.done(cookie, 0));
    }

    /// Replies with data and holes in an order drawn from the seed.
    fn reply_in_chunks(&mut self, writer: ReplyWriter, cookie: u64, offset: u64, data: &[u8]) {
        let mut chunks: Vec<_> = data.chunks(37).enumerate().collect();
        for last in (1..chunks.len()).rev() {
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            chunks.swap(last, (self.seed >> 33) as usize % (last + 1));
        }
        for (index, bytes) in chunks {
            let (at, length) = (offset + 37 * index as u64, bytes.len() as u32);
            if bytes.iter().all(|byte| *byte == 0) {
                self.to_client.extend(writer.hole_chunk(cookie, at, length).unwrap());
            } else {
                self.to_client.extend(writer.data_chunk(cookie, at, length).unwrap());
                self.to_client.extend(bytes);
            }
        }
        self.to_client.extend(writer.done(cookie, offset));
    }

    fn receive(&mut self) {
        let (_, client) = self.transmission.as_mut().unwrap();
        loop {
            match client.expected() {
                Expected::Control => {
                    let used = client.handle_input(&self.client_input).unwrap();
                    self.client_input.drain(..used);
                    if used == 0 {
                        break;
                    }
                }
                Expected::Data { key, start, length } => {
                    assert_eq!(key, 7);
                    let count = self.client_input.len().min(length as usize);
                    if count == 0 {
                        break;
                    }
                    self.memory[start as usize..start as usize + count]
                        .copy_from_slice(&self.client_input[..count]);
                    self.client_input.drain(..count);
                    client.handle_data(count as u32).unwrap();
                }
            }
        }
        while let Some(event) = client.poll_event() {
            if let ClientEvent::Zeroes { start, length, .. } = event {
                self.memory[start as usize..(start + length) as usize].fill(0);
            } else {
                self.events.push(event);
            }
        }
    }
}

fn pass(from: &mut Vec<u8>, to: &mut Vec<u8>, part: usize) {
    to.extend(from.drain(..from.len().min(part)));
}
