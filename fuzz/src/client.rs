//! The NBD client against an arbitrary server: negotiation, then a fixed list of requests. A [`Peer`] answers: the
//! fuzzer's bytes, or a real server whose answers are recorded as seeds.

use std::collections::HashMap;

use iopath_nbd::{
    ClientEvent, ClientHandshake, ClientOperation, ClientOptions, ClientProgress, ClientRequests, ClientTls,
    Expected, Negotiated, ReplyFormat,
};

/// Requests in flight.
const DEPTH: u32 = 4;

/// Longest incomplete message that the client leaves in the input: `CONTROL_MAX` and a head.
const MESSAGE_MAX: usize = (1 << 20) + 64;

/// The other end of the connection.
pub trait Peer {
    /// Sends `bytes` and receives further bytes; `None` at the end.
    fn exchange(&mut self, bytes: &[u8]) -> Option<Vec<u8>>;
}

/// A request in flight, and the bytes of it that have arrived.
struct Pending {
    operation: ClientOperation,
    arrived: u64,
}

/// Runs a client. `config` selects its options.
///
/// # Panics
/// If the client breaks a promise.
pub fn drive_client(config: u8, peer: &mut impl Peer) {
    let format =
        [ReplyFormat::Simple, ReplyFormat::Structured, ReplyFormat::Extended][usize::from(config % 3)];
    let options = ClientOptions {
        export: "disk".to_owned(),
        is_list: config & 4 != 0,
        tls: if config & 8 == 0 { ClientTls::Off } else { ClientTls::Required },
        format,
        wants_allocation: config & 16 == 0,
    };
    let mut handshake = ClientHandshake::new(options);
    let mut input = Vec::new();
    let negotiated = loop {
        let Ok(progress) = handshake.handle_input(&mut input) else { return };
        let output = handshake.take_output();
        assert!(output.len() <= 64 << 10, "{} bytes of output in one step", output.len());
        match progress {
            ClientProgress::NeedInput => {
                assert!(input.len() <= MESSAGE_MAX, "{} bytes of a message remain", input.len());
                let Some(bytes) = peer.exchange(&output) else { return };
                input.extend(bytes);
            }
            ClientProgress::StartTls => handshake.tls_started(),
            ClientProgress::Transmission(negotiated) => {
                if !output.is_empty() {
                    let Some(bytes) = peer.exchange(&output) else { return };
                    input.extend(bytes);
                }
                break negotiated;
            }
            ClientProgress::Listed(_) => return,
        }
    };
    Session::new(negotiated).run(input, peer);
}

/// The operations, in turn.
fn operation(number: u64) -> ClientOperation {
    use ClientOperation as Op;
    let offset = number / 8 % 4 * 4096;
    match number % 8 {
        0 => Op::Read { offset, length: 4096 },
        1 => Op::BlockStatus { offset: 0, length: 65536 },
        2 => Op::Read { offset: 0, length: 16384 },
        3 => Op::Write { offset, length: 512, fua: number % 16 == 3 },
        4 => Op::Flush,
        5 => Op::Trim { offset, length: 4096, fua: false },
        6 => Op::WriteZeroes { offset, length: 4096, fua: false, no_hole: true },
        _ => Op::Read { offset: offset + 512, length: 512 },
    }
}

struct Session {
    client: ClientRequests,
    pending: HashMap<u64, Pending>,
    next: u64,
}

impl Session {
    fn new(negotiated: Negotiated) -> Self {
        Self { client: ClientRequests::new(negotiated, DEPTH), pending: HashMap::new(), next: 0 }
    }

    fn run(&mut self, mut input: Vec<u8>, peer: &mut impl Peer) {
        loop {
            let output = self.submit();
            if !self.handle(&mut input) {
                // A caller connects again and repeats exactly these.
                assert_eq!(self.client.in_flight().count(), self.pending.len());
                return;
            }
            if self.pending.is_empty() && output.is_empty() {
                return;
            }
            assert!(input.len() <= MESSAGE_MAX, "{} bytes of a message remain", input.len());
            let Some(bytes) = peer.exchange(&output) else { return };
            input.extend(bytes);
        }
    }

    /// Fills the queue. Returns the bytes to send.
    fn submit(&mut self) -> Vec<u8> {
        let mut output = Vec::new();
        while self.pending.len() < DEPTH as usize && self.next < 32 {
            let key = self.next;
            let operation = operation(self.next);
            self.next += 1;
            let Ok(head) = self.client.submit(operation, key) else { continue };
            output.extend(head);
            if let ClientOperation::Write { length, .. } = operation {
                output.resize(output.len() + length as usize, 1);
            }
            self.pending.insert(key, Pending { operation, arrived: 0 });
        }
        output
    }

    /// False: the server violated the protocol.
    fn handle(&mut self, input: &mut Vec<u8>) -> bool {
        let mut at = 0;
        loop {
            let used = match self.client.expected() {
                Expected::Control => match self.client.handle_input(&input[at..]) {
                    Ok(used) => used,
                    Err(_) => {
                        self.take_events();
                        return false;
                    }
                },
                Expected::Data { key, start, length } => {
                    let count = (length as usize).min(input.len() - at);
                    assert!(length > 0, "no data is expected");
                    self.note(key, start, length.into(), count as u64);
                    if count > 0 && self.client.handle_data(count as u32).is_err() {
                        self.take_events();
                        return false;
                    }
                    count
                }
            };
            at += used;
            self.take_events();
            if used == 0 {
                input.drain(..at);
                return true;
            }
        }
    }

    /// Notes `count` bytes for the memory of a read. `length` bytes from `start` on may follow.
    fn note(&mut self, key: u64, start: u64, length: u64, count: u64) {
        let pending = self.pending.get_mut(&key).expect("the request is in flight");
        let ClientOperation::Read { length: whole, .. } = pending.operation else {
            panic!("data for {:?}", pending.operation)
        };
        assert!(start + length <= u64::from(whole), "{start} + {length} exceed {whole}");
        pending.arrived += count;
        assert!(pending.arrived <= u64::from(whole), "more than {whole} bytes have arrived");
    }

    fn take_events(&mut self) {
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Zeroes { key, start, length } => self.note(key, start, length, length),
                ClientEvent::Extents { key, extents } => {
                    let operation = self.pending[&key].operation;
                    assert!(
                        matches!(operation, ClientOperation::BlockStatus { .. }),
                        "extents for {operation:?}"
                    );
                    assert!(!extents.is_empty() && extents.len() <= 1 << 17);
                }
                ClientEvent::Completed { key, result } => {
                    let pending = self.pending.remove(&key).expect("a request completes once");
                    if let (ClientOperation::Read { length, .. }, Ok(())) = (pending.operation, result) {
                        assert_eq!(
                            pending.arrived,
                            u64::from(length),
                            "a read completes with all of its bytes"
                        );
                    }
                }
            }
        }
    }
}
