//! A connection of two ends: a channel of bytes in each direction, with a capacity, a delay, and pieces of any size.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;

use super::clock::{Clock, Nanos};
use super::random::Random;
use crate::serve::transport::Transport;

/// The properties of a channel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    /// Bytes that are sent and not received.
    pub(super) capacity: usize,
    /// Longest piece that arrives at once, in bytes.
    pub(super) piece_max: u64,
    /// Longest time of a piece.
    pub(super) delay_max: Nanos,
}

/// One direction.
#[derive(Debug)]
struct Pipe {
    link: Link,
    random: Random,
    bytes: VecDeque<u8>,
    /// Bytes that have arrived.
    arrived: usize,
    /// Pieces on the way: their times, in order, and bytes.
    pieces: VecDeque<(Nanos, usize)>,
    /// The sender has closed it: the end follows the bytes.
    is_ended: bool,
    /// The receiver has closed it: bytes are lost.
    is_broken: bool,
}

impl Pipe {
    fn new(link: Link, random: Random) -> Self {
        Self {
            link,
            random,
            bytes: VecDeque::new(),
            arrived: 0,
            pieces: VecDeque::new(),
            is_ended: false,
            is_broken: false,
        }
    }

    fn room(&self) -> usize {
        self.link.capacity.saturating_sub(self.bytes.len())
    }

    fn send(&mut self, bytes: &[u8], now: Nanos, is_fast: bool) -> usize {
        // The capacity of a slow channel is that of a few pieces.
        let capacity: usize = if is_fast { 1 << 20 } else { 0 };
        let count = bytes.len().min(self.room().max(capacity.saturating_sub(self.bytes.len())));
        self.bytes.extend(&bytes[..count]);
        let mut left = count;
        while left > 0 {
            let piece = if is_fast { left } else { self.random.magnitude(1, self.link.piece_max) as usize };
            let piece = piece.min(left);
            let sent = self.pieces.back().map_or(now, |(at, _)| now.max(*at));
            let delay = self.random.below(self.link.delay_max + 1);
            self.pieces.push_back((sent + delay, piece));
            left -= piece;
        }
        count
    }

    /// Notes what has arrived.
    fn advance(&mut self, now: Nanos) {
        while self.pieces.front().is_some_and(|(at, _)| *at <= now) {
            self.arrived += self.pieces.pop_front().map_or(0, |(_, count)| count);
        }
    }

    fn lose(&mut self) {
        self.bytes.clear();
        self.pieces.clear();
        self.arrived = 0;
    }

    fn receive(&mut self, buffer: &mut [u8], now: Nanos) -> Option<usize> {
        self.advance(now);
        if self.arrived == 0 {
            return (self.is_ended && self.bytes.is_empty()).then_some(0);
        }
        let count = self.arrived.min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(self.bytes.drain(..count)) {
            *to = from;
        }
        self.arrived -= count;
        Some(count)
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct End {
    clock: Clock,
    number: u32,
    incoming: Rc<RefCell<Pipe>>,
    outgoing: Rc<RefCell<Pipe>>,
}

/// A new connection: the ends of the client and of the server.
pub(super) fn connect(clock: &Clock, number: u32, link: Link, random: &mut Random) -> (End, End) {
    let [up, down] = [0, 1].map(|_| Rc::new(RefCell::new(Pipe::new(link, random.fork()))));
    let end = |incoming: &Rc<RefCell<Pipe>>, outgoing: &Rc<RefCell<Pipe>>| End {
        clock: clock.clone(),
        number,
        incoming: Rc::clone(incoming),
        outgoing: Rc::clone(outgoing),
    };
    (end(&down, &up), end(&up, &down))
}

impl End {
    /// Whether a receive would find bytes or the end.
    pub(super) fn is_readable(&self) -> bool {
        let mut pipe = self.incoming.borrow_mut();
        pipe.advance(self.clock.now());
        pipe.arrived > 0 || (pipe.is_ended && pipe.bytes.is_empty())
    }

    /// Whether a send would be accepted or fail.
    pub(super) fn is_writable(&self) -> bool {
        let pipe = self.outgoing.borrow();
        pipe.room() > 0 || pipe.is_broken
    }

    /// Whether the peer has closed both directions.
    pub(super) fn is_hung_up(&self) -> bool {
        self.incoming.borrow().is_ended && self.outgoing.borrow().is_broken
    }

    /// The next time at which bytes arrive.
    pub(super) fn next_arrival(&self) -> Option<Nanos> {
        let now = self.clock.now();
        self.incoming.borrow().pieces.iter().map(|(at, _)| *at).find(|at| *at > now)
    }

    /// Closes the connection so that bytes on the way to the peer are lost.
    pub(super) fn reset(self) {
        self.outgoing.borrow_mut().lose();
    }

    pub(super) fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut pipe = self.outgoing.borrow_mut();
        if pipe.is_broken {
            return Err(ErrorKind::BrokenPipe.into());
        }
        Ok(pipe.send(bytes, self.clock.now(), self.clock.is_fast.get()))
    }

    pub(super) fn receive_bytes(&mut self, buffer: &mut [u8]) -> Option<usize> {
        self.incoming.borrow_mut().receive(buffer, self.clock.now())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.outgoing.borrow_mut().is_ended = true;
        let mut incoming = self.incoming.borrow_mut();
        incoming.is_broken = true;
        incoming.lose();
    }
}

impl Transport for End {
    type Tls = ();

    fn number(&self) -> u32 {
        self.number
    }

    fn prepare(&self) -> io::Result<()> {
        Ok(())
    }

    fn start_tls(&mut self, (): &()) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        Ok(self.receive_bytes(buffer))
    }

    fn is_plain(&self) -> bool {
        true
    }

    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        let mut total = 0;
        for part in parts {
            let count = self.send_bytes(part)?;
            total += count;
            if count < part.len() {
                break;
            }
        }
        Ok((total > 0).then_some(total))
    }

    fn flush(&mut self) -> io::Result<usize> {
        Ok(0)
    }

    fn has_output(&self) -> bool {
        false
    }

    fn close(&mut self) {}
}
