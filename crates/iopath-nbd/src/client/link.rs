//! One connection of a device as a state machine: connects, negotiates, keeps requests in flight, and after a loss
//! connects anew and sends unfinished requests again. It has no sockets and no memory of requests.
//!
//! ```text
//!  Down ── request ──▶ Connecting ──▶ Negotiating ──▶ Ready ── loss ──▶ Waiting ──▶ Connecting …
//!   ▲                       └──────────────┴── failure ──▶ Waiting, until the limits; then all requests fail ──▶ Down
//!   └── loss without requests
//! ```
//!
//! A connection that ends soon after it was made is not made anew at once, even if it completed requests: a server that
//! fails after each reply would cause thousands of connections in a second.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use iopath::remote::{
    Incoming, Instant, Outgoing, RemoteEncryption, RemoteEvent, RemoteRequest, RemoteSession,
};
use iopath::{IoError, Op};
use std::time::Duration;

use crate::client::coverage::{Coverage, Flush, Route};
use crate::client::encryption::Encryption;
use crate::client::limits::{facts_of, is_compatible};
use crate::client::patience::{DELAY_MAX, Heard, Patience, delay_of};
use crate::client::{
    ClientEvent, ClientHandshake, ClientOperation, ClientOptions, ClientProgress, ClientRequests, ClientTls,
    Expected, Negotiated,
};
use crate::errno::Errno;

/// Requests in flight on one connection; further ones wait in the link.
const IN_FLIGHT_MAX: u32 = 256;

/// A request that was in flight on this many lost connections fails: it may be the reason.
pub(crate) const SENDS_MAX: u32 = 5;

/// Silences after which a request counts as lost that later ones have overtaken. Their replies end each silence, so the
/// request would never count as lost without this limit.
pub(crate) const OVERTAKEN_MAX: u32 = 10;

/// A connection that was ready for less than this is short.
const SHORT: Duration = Duration::from_secs(1);

/// Short connections in a row that ended in a violation of the protocol. Then requests fail for [`DELAY_MAX`].
const VIOLATIONS_MAX: u32 = 5;

/// The state that the links of one device share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) server: String,
    pub(crate) export: String,
    pub(crate) request_bytes_max: u32,
    pub(crate) patience: Patience,
    /// `None`: without TLS.
    pub(crate) encryption: Option<Encryption>,
    pub(crate) coverage: Coverage,
    /// The export as the first connection negotiated it.
    pub(crate) negotiated: OnceLock<Negotiated>,
}

#[derive(Debug)]
enum State {
    Down,
    /// Connect again at this time.
    Waiting(Instant),
    Connecting(Instant),
    Negotiating {
        handshake: Box<ClientHandshake>,
        input: Vec<u8>,
        until: Instant,
    },
    Ready {
        requests: Box<ClientRequests>,
        since: Instant,
        heard: Heard,
        /// The last request with a reply, in the order of sending.
        answered: u64,
        /// The next search for requests that were overtaken.
        search: Instant,
    },
}

/// A request without a result.
#[derive(Debug)]
struct Unfinished {
    operation: ClientOperation,
    flush: Option<Flush>,
    /// The order of arrival.
    number: u64,
    sends: u32,
    /// While it is in flight: its place in the order of sending, and the time.
    sent: Option<(u64, Instant)>,
}

/// One connection of a device.
#[derive(Debug)]
pub(crate) struct Link {
    number: usize,
    common: Arc<Common>,
    state: State,
    unfinished: Vec<Option<Unfinished>>,
    unfinished_count: usize,
    arrivals: u64,
    sends: u64,
    /// Keys of requests that are not sent on this connection, oldest first.
    unsent: VecDeque<u32>,
    /// The first loss since the last reply, and the attempts since.
    lost: Option<Instant>,
    attempts: u32,
    /// Short connections in a row, and those that ended in a violation of the protocol.
    short: u32,
    violations: u32,
    /// No attempt to connect before this time.
    resting: Option<Instant>,
    /// The limits were reached; until the next success, a failed attempt is the last.
    has_given_up: bool,
    /// It has been established before.
    has_opened: bool,
    failure: Option<String>,
    events: VecDeque<RemoteEvent>,
    /// The encryption of this stream, until the caller takes it.
    encryption: Option<Box<dyn RemoteEncryption>>,
}

impl Link {
    pub(crate) fn new(number: usize, common: &Arc<Common>) -> Self {
        Self {
            number,
            common: Arc::clone(common),
            state: State::Down,
            unfinished: Vec::new(),
            unfinished_count: 0,
            arrivals: 0,
            sends: 0,
            unsent: VecDeque::new(),
            lost: None,
            attempts: 0,
            short: 0,
            violations: 0,
            resting: None,
            has_given_up: false,
            has_opened: false,
            failure: None,
            events: VecDeque::new(),
            encryption: None,
        }
    }

    fn connect(&mut self, now: Instant) {
        self.state = State::Connecting(now + self.common.patience.connect);
        self.events.push_back(RemoteEvent::Connect);
    }

    /// The stream is closed, or must be closed: connects anew, or fails all requests.
    fn lose(&mut self, reason: &str, now: Instant) {
        let was_ready = matches!(self.state, State::Ready { .. });
        self.end_connection(reason, now);
        self.collect_unsent();
        if !self.has_opened {
            return self.fail_all();
        }
        if was_ready {
            self.fail_repeated();
        }
        if self.unfinished_count == 0 {
            (self.lost, self.attempts) = (None, 0);
            return;
        }
        // A connection that ended before any reply counts as a failed attempt.
        self.attempts += u32::from(was_ready && self.lost.is_some());
        let Patience { reconnect_attempts, reconnect, .. } = self.common.patience;
        let since = *self.lost.get_or_insert(now);
        let at = self.resting.take().unwrap_or(now).max(now + delay_of(self.attempts));
        let is_late = at.saturating_since(since) > reconnect;
        if self.attempts >= reconnect_attempts || is_late || self.has_given_up {
            self.failure = Some(format!("{reason} ({} attempts to connect again)", self.attempts));
            self.has_given_up = true;
            return self.fail_all();
        }
        self.state = State::Waiting(at);
    }

    /// Ends the connection because of the server, without a further attempt.
    fn refuse(&mut self, reason: &str, now: Instant) {
        self.end_connection(reason, now);
        self.violations += 1;
        if self.violations >= VIOLATIONS_MAX {
            let count = self.violations;
            self.failure = Some(format!("{reason} ({count} short connections in a row ended like this)"));
            self.resting = Some(now + DELAY_MAX);
        }
        self.fail_all();
    }

    /// Notes the end of a connection. The next connection waits if connections are short.
    fn end_connection(&mut self, reason: &str, now: Instant) {
        if let State::Ready { since, .. } = self.state {
            if now.saturating_since(since) < SHORT {
                self.resting = Some(now + delay_of(self.short));
                self.short += 1;
            } else {
                (self.short, self.violations, self.resting) = (0, 0, None);
            }
        }
        self.state = State::Down;
        self.common.coverage.handle_lost(self.number);
        self.failure = Some(reason.to_owned());
    }

    /// All unfinished requests must be sent again, in the order of their arrival.
    fn collect_unsent(&mut self) {
        self.unsent.clear();
        self.unfinished.iter_mut().flatten().for_each(|request| request.sent = None);
        let keys = (0..self.unfinished.len()).filter(|key| self.unfinished[*key].is_some());
        self.unsent.extend(keys.map(|key| key as u32));
        let unfinished = &self.unfinished;
        let number = |key: &u32| unfinished[*key as usize].as_ref().map(|request| request.number);
        self.unsent.make_contiguous().sort_unstable_by_key(number);
    }

    fn fail_repeated(&mut self) {
        let repeated = |key: &u32| {
            self.unfinished[*key as usize].as_ref().is_some_and(|request| request.sends >= SENDS_MAX)
        };
        let keys: Vec<u32> = self.unsent.iter().copied().filter(repeated).collect();
        self.unsent.retain(|key| !keys.contains(key));
        for key in keys {
            self.complete(key, Err(IoError::Disconnected));
        }
    }

    fn fail_all(&mut self) {
        (self.lost, self.attempts) = (None, 0);
        self.unsent.clear();
        for key in 0..self.unfinished.len() as u32 {
            if self.unfinished[key as usize].is_some() {
                self.complete(key, Err(IoError::Disconnected));
            }
        }
    }

    fn take(&mut self, key: u32) -> Unfinished {
        self.unfinished_count -= 1;
        self.unfinished[key as usize].take().expect("the key names an unfinished request")
    }

    fn complete(&mut self, key: u32, result: Result<(), IoError>) {
        let request = self.take(key);
        if let Some(flush) = request.flush {
            match result {
                // A loss of writes is reported once.
                Ok(()) | Err(IoError::Disconnected) => self.common.coverage.end_flush(flush),
                // The server has made nothing durable: a later flush must cover the writes.
                Err(_) => self.common.coverage.cancel_flush(flush),
            }
        }
        self.events.push_back(RemoteEvent::Completed { key, result });
    }

    /// Closes the connection if later requests have overtaken one for too long. Sets the time of the next search.
    fn search_overtaken(&mut self, now: Instant) {
        let State::Ready { answered, search, .. } = &mut self.state else { return };
        let silence = self.common.patience.silence;
        let limit = silence * OVERTAKEN_MAX;
        let in_flight = self.unfinished.iter().flatten().filter_map(|request| request.sent);
        let is_lost = |(number, at): (u64, Instant)| number < *answered && at + limit <= now;
        if in_flight.clone().any(is_lost) {
            self.events.push_back(RemoteEvent::Close);
            self.lose(
                &format!("the server answered later requests for {limit:?}, and not an earlier one"),
                now,
            );
            return;
        }
        // Requests that only wait for their turn are old, too: at most one search in each silence.
        let oldest = in_flight.map(|(_, at)| at).min().unwrap_or(now);
        *search = (oldest + limit).max(now + silence);
    }

    /// The negotiation has ended.
    fn handle_negotiated(&mut self, negotiated: Negotiated, now: Instant) {
        let first = *self.common.negotiated.get_or_init(|| negotiated);
        if let Err(reason) = is_compatible(&first, &negotiated) {
            self.refuse(&reason, now);
            self.events.push_back(RemoteEvent::Close);
            return;
        }
        self.common.coverage.handle_established(self.number, !self.has_opened);
        let requests = Box::new(ClientRequests::new(negotiated, IN_FLIGHT_MAX));
        let heard = Heard::now(now);
        self.state = State::Ready { requests, since: now, heard, answered: 0, search: now };
        (self.failure, self.has_given_up) = (None, false);
        let facts = (!self.has_opened).then(|| Box::new(facts_of(&first, self.common.request_bytes_max)));
        self.has_opened = true;
        self.events.push_back(RemoteEvent::Ready(facts));
    }

    fn handle_handshake(&mut self, input: &[u8], now: Instant) -> Result<(), String> {
        let State::Negotiating { handshake, input: kept, .. } = &mut self.state else { return Ok(()) };
        kept.extend_from_slice(input);
        match handshake.handle_input(kept) {
            Ok(ClientProgress::NeedInput) => {}
            Ok(ClientProgress::Transmission(_)) if !kept.is_empty() => {
                return Err("the server sent bytes before the first request".to_owned());
            }
            Ok(ClientProgress::Transmission(negotiated)) => self.handle_negotiated(negotiated, now),
            Ok(ClientProgress::StartTls) => {
                let encryption =
                    self.common.encryption.as_ref().expect("only an encrypted client asks for TLS");
                self.encryption = Some(encryption.start().map_err(|error| error.to_string())?);
                // The options wait in the encryption until the handshake of TLS is complete.
                handshake.tls_started();
            }
            Ok(ClientProgress::Listed(_)) => {
                return Err("the server answered a question that was not asked".to_owned());
            }
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }

    /// Executes the events of the requests.
    fn handle_replies(&mut self, now: Instant) {
        loop {
            let State::Ready { requests, heard, .. } = &mut self.state else { return };
            match requests.poll_event() {
                Some(ClientEvent::Zeroes { key, start, length }) => {
                    self.events.push_back(RemoteEvent::Zeroes { key: key as u32, start, length });
                }
                Some(ClientEvent::Completed { key, result }) => {
                    *heard = Heard::now(now);
                    self.handle_reply(key as u32, result);
                }
                Some(ClientEvent::Extents { .. }) => {}
                None => return,
            }
        }
    }

    fn handle_reply(&mut self, key: u32, result: Result<(), Errno>) {
        (self.lost, self.attempts) = (None, 0);
        let request = self.unfinished[key as usize].as_ref();
        let sent = request.and_then(|request| request.sent);
        if let (State::Ready { answered, .. }, Some((number, _))) = (&mut self.state, sent) {
            *answered = number.max(*answered);
        }
        let is_unflushed = match request.map(|request| request.operation) {
            Some(
                ClientOperation::Write { fua, .. }
                | ClientOperation::Trim { fua, .. }
                | ClientOperation::WriteZeroes { fua, .. },
            ) => !fua,
            _ => false,
        };
        // A failed write may have changed some of its blocks, but a flush promises nothing for it.
        if is_unflushed && result.is_ok() {
            self.common.coverage.handle_written(self.number);
        }
        self.complete(key, result.map_err(io_error));
    }

    /// The head of the next request that can be sent.
    fn send_next(&mut self, bytes: &mut Vec<u8>, now: Instant) -> Option<Outgoing> {
        loop {
            let State::Ready { requests, heard, search, .. } = &mut self.state else { return None };
            let key = *self.unsent.front()?;
            let request = self.unfinished[key as usize].as_mut()?;
            let route =
                request.flush.map_or(Route::This, |flush| self.common.coverage.route(flush, self.number));
            match route {
                Route::This => {}
                Route::Other(to) => {
                    self.unsent.pop_front();
                    let request = self.take(key);
                    if let Some(flush) = request.flush {
                        self.common.coverage.cancel_flush(flush);
                    }
                    self.events.push_back(RemoteEvent::Redirect { key, to });
                    continue;
                }
                Route::Lost => {
                    self.unsent.pop_front();
                    self.failure = Some(
                        "the connection was lost after writes that were not flushed, and the server may have lost them"
                            .to_owned(),
                    );
                    self.complete(key, Err(IoError::Disconnected));
                    continue;
                }
            }
            let operation = request.operation;
            let is_idle = requests.in_flight_count() == 0;
            match requests.submit(operation, key.into()) {
                Ok(head) => {
                    request.sends += 1;
                    self.sends += 1;
                    request.sent = Some((self.sends, now));
                    self.unsent.pop_front();
                    if is_idle {
                        *heard = Heard::now(now);
                        *search = now + self.common.patience.silence * OVERTAKEN_MAX;
                    }
                    bytes.extend_from_slice(&head);
                    return Some(match operation {
                        ClientOperation::Write { .. } => Outgoing::Data(key),
                        _ => Outgoing::Control,
                    });
                }
                Err(crate::client::SubmitError::Full(_)) => return None,
                Err(error) => {
                    self.unsent.pop_front();
                    self.failure = Some(error.to_string());
                    self.complete(key, Err(IoError::Unsupported));
                }
            }
        }
    }
}

impl RemoteSession for Link {
    fn handle_open(&mut self, now: Instant) {
        self.connect(now);
    }

    fn handle_request(&mut self, key: u32, request: RemoteRequest, now: Instant) {
        let flush = (request.op == Op::Flush).then(|| self.common.coverage.begin_flush());
        self.arrivals += 1;
        let operation = operation_of(request);
        let entry = Unfinished { operation, flush, number: self.arrivals, sends: 0, sent: None };
        let index = key as usize;
        if self.unfinished.len() <= index {
            self.unfinished.resize_with(index + 1, || None);
        }
        self.unfinished[index] = Some(entry);
        self.unfinished_count += 1;
        self.unsent.push_back(key);
        if !matches!(self.state, State::Down) {
            return;
        }
        match self.resting.take().filter(|at| *at > now) {
            // The failure stays, so that it is the reason of this one.
            Some(at) if self.violations >= VIOLATIONS_MAX => {
                self.resting = Some(at);
                self.fail_all();
            }
            Some(at) => self.state = State::Waiting(at),
            None => self.connect(now),
        }
    }

    fn handle_connected(&mut self, _now: Instant) {
        let State::Connecting(until) = self.state else { return };
        let options = ClientOptions {
            format: crate::ReplyFormat::Structured,
            wants_allocation: false,
            tls: if self.common.encryption.is_some() { ClientTls::Required } else { ClientTls::Off },
            ..ClientOptions::export(self.common.export.clone())
        };
        self.encryption = None;
        let handshake = Box::new(ClientHandshake::new(options));
        self.state = State::Negotiating { handshake, input: Vec::new(), until };
    }

    fn handle_lost(&mut self, reason: &str, now: Instant) {
        if matches!(self.state, State::Connecting(_) | State::Negotiating { .. }) {
            self.attempts += u32::from(self.has_opened);
        }
        self.lose(reason, now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        let Patience { connect, silence, .. } = self.common.patience;
        match &self.state {
            State::Waiting(until) if *until <= now => self.connect(now),
            State::Connecting(until) | State::Negotiating { until, .. } if *until <= now => {
                self.events.push_back(RemoteEvent::Close);
                self.handle_lost(&format!("the server did not answer within {connect:?}"), now);
            }
            State::Ready { requests, heard, .. }
                if requests.in_flight_count() > 0 && heard.at + silence <= now =>
            {
                let count = requests.in_flight_count();
                self.events.push_back(RemoteEvent::Close);
                self.lose(
                    &format!("the server was silent for {silence:?} with {count} requests in flight"),
                    now,
                );
            }
            State::Ready { search, .. } if *search <= now => self.search_overtaken(now),
            _ => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.state {
            State::Down => None,
            State::Waiting(until) | State::Connecting(until) | State::Negotiating { until, .. } => {
                Some(*until)
            }
            State::Ready { requests, heard, search, .. } => {
                let silent = heard.at + self.common.patience.silence;
                (requests.in_flight_count() > 0).then(|| silent.min(*search))
            }
        }
    }

    fn poll_outgoing(&mut self, bytes: &mut Vec<u8>, now: Instant) -> Option<Outgoing> {
        match &mut self.state {
            State::Negotiating { handshake, .. } => {
                let output = handshake.take_output();
                bytes.extend_from_slice(&output);
                (!output.is_empty()).then_some(Outgoing::Control)
            }
            State::Ready { .. } => self.send_next(bytes, now),
            _ => None,
        }
    }

    fn handle_sent(&mut self, bytes: u64, now: Instant) {
        if let State::Ready { heard, .. } = &mut self.state {
            heard.handle_data(bytes, now);
        }
    }

    fn incoming(&self) -> Incoming {
        let State::Ready { requests, .. } = &self.state else { return Incoming::Control };
        match requests.expected() {
            Expected::Control => Incoming::Control,
            Expected::Data { key, start, length } => Incoming::Data { key: key as u32, start, length },
        }
    }

    fn handle_input(&mut self, input: &[u8], now: Instant) -> Result<usize, String> {
        let handled = match &mut self.state {
            State::Negotiating { .. } => self.handle_handshake(input, now).map(|()| input.len()),
            State::Ready { requests, .. } => requests.handle_input(input).map_err(|error| error.to_string()),
            _ => Ok(input.len()),
        };
        self.handle_replies(now);
        handled.inspect_err(|reason| self.refuse(reason, now))
    }

    fn handle_data(&mut self, count: u32, now: Instant) -> Result<(), String> {
        let State::Ready { requests, heard, .. } = &mut self.state else { return Ok(()) };
        heard.handle_data(count.into(), now);
        let handled = requests.handle_data(count).map_err(|error| error.to_string());
        self.handle_replies(now);
        handled.inspect_err(|reason| self.refuse(reason, now))
    }

    fn poll_encryption(&mut self) -> Option<Box<dyn RemoteEncryption>> {
        self.encryption.take()
    }

    fn poll_event(&mut self) -> Option<RemoteEvent> {
        self.events.pop_front()
    }

    fn disconnect(&mut self, bytes: &mut Vec<u8>) {
        if let State::Ready { requests, .. } = &self.state {
            bytes.extend_from_slice(&requests.disconnect());
        }
    }

    fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

fn operation_of(request: RemoteRequest) -> ClientOperation {
    let RemoteRequest { op, offset, length, fua } = request;
    // The limits of the device keep reads and writes below 4 GiB.
    let short = length as u32;
    match op {
        Op::Read => ClientOperation::Read { offset, length: short },
        Op::Write => ClientOperation::Write { offset, length: short, fua },
        Op::Flush => ClientOperation::Flush,
        Op::Discard => ClientOperation::Trim { offset, length, fua },
        Op::WriteZeroes => ClientOperation::WriteZeroes { offset, length, fua, no_hole: false },
    }
}

fn io_error(errno: Errno) -> IoError {
    match errno {
        Errno::IO => IoError::Media,
        Errno::PERMISSION => IoError::ReadOnly,
        Errno::NO_SPACE => IoError::NoSpace,
        Errno::NOT_SUPPORTED => IoError::Unsupported,
        other => IoError::Os(other.code().cast_signed()),
    }
}

#[cfg(test)]
mod tests;
