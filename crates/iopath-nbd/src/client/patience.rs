//! The limits of attempts and times of a connection, the delays between attempts, and the progress that a server must
//! make.

use iopath::remote::Instant;
use std::time::Duration;

/// The delay before the second attempt; the first is at once. It doubles from attempt to attempt.
const DELAY_MIN: Duration = Duration::from_millis(50);
pub(super) const DELAY_MAX: Duration = Duration::from_secs(1);

/// A server that moves fewer bytes of data than this, and completes no request, is silent.
const HEARD_BYTES: u64 = 64 << 10;

/// Limits of attempts and times of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Connecting and negotiating take at most this long.
    pub connect: Duration,
    /// With requests in flight, a server counts as lost that for this long completes none, and neither sends nor
    /// receives 64 KiB of data. So does one that for ten times as long does not answer a request, and answers later
    /// ones.
    pub silence: Duration,
    /// Attempts to connect anew after a loss, until a request completes. Zero: a loss is final.
    pub reconnect_attempts: u32,
    /// Attempts begin at most this long after a loss.
    pub reconnect: Duration,
}

impl Default for Patience {
    /// 10 s to connect, 60 s of silence, 100 attempts within 30 s.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            silence: Duration::from_secs(60),
            reconnect_attempts: 100,
            reconnect: Duration::from_secs(30),
        }
    }
}

/// The last progress of a server. Single bytes are none: with one now and then, a request would never end.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) at: Instant,
    /// Data since then.
    bytes: u64,
}

impl Heard {
    pub(super) const fn now(at: Instant) -> Self {
        Self { at, bytes: 0 }
    }

    /// The server has sent or received data.
    pub(super) fn handle_data(&mut self, bytes: u64, now: Instant) {
        self.bytes += bytes;
        if self.bytes >= HEARD_BYTES {
            *self = Self::now(now);
        }
    }
}

/// The delay before an attempt to connect, after this many attempts or short connections without success.
pub(super) fn delay_of(failures: u32) -> Duration {
    match failures {
        0 => Duration::ZERO,
        failures => DELAY_MIN.saturating_mul(1 << (failures - 1).min(10)).min(DELAY_MAX),
    }
}
