//! The NBD server against an arbitrary client: negotiation, then requests that are executed on a disk in memory.

use std::sync::Arc;

use iopath_nbd::{
    BlockExtent, BlockState, Export, Operation, ReplyFormat, ReplyWriter, ServerHandshake, ServerProgress,
    ServerRequests, ServerTls, Session, TransmissionFlags,
};

/// Bytes of the export.
const SIZE: u64 = 64 << 10;

/// Longest output of one step of the negotiation. `OUTPUT_MAX` of the negotiation plus the replies to one option.
const OUTPUT_MAX: usize = 256 << 10;

/// Longest part of a message that the negotiation leaves in the input.
const MESSAGE_MAX: usize = (32 << 10) + 16;

/// Passes `data` to a server: its first byte selects the mode of TLS and the length of the parts in which the rest
/// arrives.
///
/// # Panics
/// If the server breaks a promise.
pub fn drive_server(data: &[u8]) {
    let Some((&config, bytes)) = data.split_first() else { return };
    let tls = [ServerTls::Off, ServerTls::Offered, ServerTls::Required][usize::from(config % 3)];
    let part = [usize::MAX, 1, 13, 100][usize::from(config >> 2 & 3)];
    let exports: Arc<[Export]> = Arc::new([export("disk", false), export("read-only", true)]);
    let mut handshake = ServerHandshake::new(Arc::clone(&exports), tls);
    let mut input = Vec::new();
    let mut parts = bytes.chunks(part.min(bytes.len().max(1)));
    let session = loop {
        match negotiate(&mut handshake, &mut input) {
            Some(Some(session)) => break session,
            Some(None) => return,
            None => {}
        }
        let Some(part) = parts.next() else { return };
        assert!(input.len() <= MESSAGE_MAX, "{} bytes of a message remain", input.len());
        input.extend(part);
    };
    let mut requests = Requests::new(session, &exports);
    loop {
        if requests.serve(&mut input).is_none() {
            return;
        }
        let Some(part) = parts.next() else { return };
        input.extend(part);
    }
}

fn export(name: &str, is_read_only: bool) -> Export {
    use TransmissionFlags as Flags;
    let flags = if is_read_only {
        Flags::READ_ONLY | Flags::SEND_FLUSH | Flags::SEND_DF
    } else {
        Flags::SEND_FLUSH
            | Flags::SEND_FUA
            | Flags::SEND_TRIM
            | Flags::SEND_WRITE_ZEROES
            | Flags::SEND_CACHE
            | Flags::SEND_FAST_ZERO
            | Flags::CAN_MULTI_CONN
    };
    Export { flags, has_allocation: true, description: "a disk".to_owned(), ..Export::new(name, SIZE) }
}

/// `Some(None)`: the connection has ended. `None`: the server waits for input.
fn negotiate(handshake: &mut ServerHandshake, input: &mut Vec<u8>) -> Option<Option<Session>> {
    let steps_max = 16 + input.len();
    for _ in 0..steps_max {
        let progress = handshake.handle_input(input);
        let output = handshake.take_output().len();
        assert!(output <= OUTPUT_MAX, "{output} bytes of output in one step");
        match progress {
            Ok(ServerProgress::NeedInput) => return None,
            Ok(ServerProgress::SendOutput) => {}
            Ok(ServerProgress::StartTls) => handshake.tls_started(),
            Ok(ServerProgress::Transmission(session)) => return Some(Some(session)),
            Ok(ServerProgress::Disconnect) | Err(_) => return Some(None),
        }
    }
    panic!("the negotiation makes no progress on {} bytes", input.len())
}

struct Requests {
    server: ServerRequests,
    writer: ReplyWriter,
    is_read_only: bool,
    disk: Vec<u8>,
}

impl Requests {
    fn new(session: Session, exports: &[Export]) -> Self {
        let export = &exports[session.export];
        Self {
            server: ServerRequests::new(session, export),
            writer: ReplyWriter::new(session.format),
            is_read_only: export.flags.contains(TransmissionFlags::READ_ONLY),
            disk: vec![0; SIZE as usize],
        }
    }

    /// Executes the whole requests of the input. `None`: the connection has ended.
    fn serve(&mut self, input: &mut Vec<u8>) -> Option<()> {
        loop {
            let Some((request, head, payload)) = self.server.decode(input).ok()? else {
                assert!(input.len() < 32, "a head of {} bytes is not decoded", input.len());
                return Some(());
            };
            assert!(head <= 32 && payload <= 64 << 20, "{head} and {payload} bytes");
            let end = head + payload as usize;
            if input.len() < end {
                return Some(());
            }
            let data = input[head..end].to_vec();
            input.drain(..end);
            match self.server.check(&request) {
                Ok(Operation::Disconnect) => return None,
                Ok(operation) => self.execute(request.cookie, operation, &data),
                Err((error, reason)) => {
                    let reply = self.writer.error(request.cookie, request.offset, error, reason);
                    assert!(reply.len() <= 512);
                }
            }
        }
    }

    fn execute(&mut self, cookie: u64, operation: Operation, data: &[u8]) {
        let range = |offset: u64, length: u64| {
            assert!(length > 0 && offset.checked_add(length).is_some_and(|end| end <= SIZE), "{operation:?}");
            offset as usize..(offset + length) as usize
        };
        let is_structured = self.server.format() != ReplyFormat::Simple;
        match operation {
            Operation::Read { offset, length, .. } => {
                let _ = &self.disk[range(offset, length.into())];
                let _ = self.writer.read(cookie, offset, length);
                assert_eq!(self.writer.data_chunk(cookie, offset, length).is_some(), is_structured);
                assert_eq!(self.writer.hole_chunk(cookie, offset, length).is_some(), is_structured);
            }
            Operation::Write { offset, length, .. } => {
                assert!(!self.is_read_only, "{operation:?} on a read-only export");
                assert_eq!(data.len(), length as usize);
                self.disk[range(offset, length.into())].copy_from_slice(data);
            }
            Operation::Trim { offset, length, .. } | Operation::WriteZeroes { offset, length, .. } => {
                assert!(!self.is_read_only, "{operation:?} on a read-only export");
                self.disk[range(offset, length)].fill(0);
            }
            Operation::Cache { offset, length } => assert!(!range(offset, length).is_empty()),
            Operation::BlockStatus { offset, length, .. } => {
                assert!(!range(offset, length).is_empty() && is_structured);
                let extent = BlockExtent { length, state: BlockState::HOLE };
                let reply = self.writer.block_status(cookie, offset, &[extent]);
                assert!(reply.len() <= 128);
            }
            Operation::Flush | Operation::Disconnect => {}
        }
        let _ = self.writer.done(cookie, 0);
    }
}
