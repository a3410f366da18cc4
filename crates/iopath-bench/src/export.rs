//! Targets on servers: the export of an NBD URI, or a stripe of several. Opens connections; paths make volumes of them.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use iopath::remote::{Losses, Remote, WeakRemote};
use iopath::stripe::Member;
use iopath::{OpenError, Options, Volume};
use iopath_nbd::{ConnectError, ConnectOptions, NbdUri, connect};
use iopath_os::target::Target as TargetInfo;

use crate::error::BenchError;
use crate::signals::{Interruption, to_end_waits};
use crate::stripe_name::StripeName;

/// Open exports of servers. A clone uses the same connections.
#[derive(Debug, Clone)]
pub struct RemoteTarget {
    name: PathBuf,
    exports: Vec<Remote>,
    /// Of a stripe, in bytes.
    chunk_bytes: Option<u64>,
}

/// The interval of the checks for an interruption while a server is awaited.
const TICK: Duration = Duration::from_millis(50);

/// The exports that this process has opened.
static OPENED: Mutex<Vec<WeakRemote>> = Mutex::new(Vec::new());

/// Closes the connections of all open exports: their requests fail, also if the servers are silent.
pub(crate) fn give_up_all() {
    let opened: Vec<_> = OPENED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    opened.iter().filter_map(WeakRemote::upgrade).for_each(|export| export.give_up());
}

/// Connects to an export. After an interruption, its requests do not wait for the server.
///
/// # Errors
/// [`BenchError`]: the URI is wrong, the server refuses, or a signal came first.
fn open(text: &str) -> Result<Remote, BenchError> {
    let (uri, options) = ConnectOptions::parse(text)?;
    let export = until_interrupted(text, move || connect(&uri, &options))?;
    to_end_waits(give_up_all);
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    opened.retain(|export| export.upgrade().is_some());
    opened.push(export.downgrade());
    // The end of waits may have come before this export.
    if Interruption::is_requested() { Err(BenchError::Interrupted) } else { Ok(export) }
}

/// The result of a call that may wait for a server. A thread executes it; after an interruption, nothing waits for that
/// thread.
fn until_interrupted(
    server: &str,
    call: impl FnOnce() -> Result<Remote, ConnectError> + Send + 'static,
) -> Result<Remote, BenchError> {
    let (sender, result) = sync_channel(1);
    let wait = move || {
        // Fails only after an interruption.
        let _ = sender.send(call());
    };
    let spawned = thread::Builder::new().name("iopath-connect".to_owned()).spawn(wait);
    let thread = spawned.map_err(BenchError::io("start a thread to connect to", server.as_ref()))?;
    loop {
        match result.recv_timeout(TICK) {
            Ok(result) => return Ok(result?),
            Err(RecvTimeoutError::Timeout) if Interruption::is_requested() => {
                return Err(BenchError::Interrupted);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                resume_unwind(thread.join().expect_err("a thread without a result has panicked"));
            }
        }
    }
}

/// Whether a target is an export of a server, or a stripe of them.
pub fn is_remote(target: &Path) -> bool {
    let is_stripe_of_uris = || StripeName::parts(target).is_some_and(|parts| parts.contains("://"));
    target.to_str().is_some_and(NbdUri::is_one) || is_stripe_of_uris()
}

impl RemoteTarget {
    /// Connects to the exports of a target; none if the target is a file, directory, device or model.
    ///
    /// # Errors
    /// [`BenchError`]: a URI is wrong, or a server refuses.
    pub fn find(target: &Path) -> Result<Option<Self>, BenchError> {
        let Some(name) = target.to_str().filter(|_| is_remote(target)) else { return Ok(None) };
        let stripe = StripeName::find(target)?;
        let chunk_bytes = stripe.as_ref().map(|stripe| stripe.chunk_bytes);
        let uris: Vec<_> = match &stripe {
            Some(stripe) => stripe.members.iter().map(|member| member.to_string_lossy()).collect(),
            None => vec![name.into()],
        };
        let exports = uris.iter().map(|uri| open(uri)).collect::<Result<_, _>>()?;
        Ok(Some(Self { name: target.to_owned(), exports, chunk_bytes }))
    }

    /// A volume on the exports.
    pub fn volume(&self, options: &Options) -> Result<Volume, OpenError> {
        match (self.chunk_bytes, self.exports.as_slice()) {
            (None, [export]) => Volume::remote(export, options),
            (chunk_bytes, exports) => {
                let members: Vec<_> = exports.iter().map(Member::Remote).collect();
                Volume::open_stripe_of(&members, chunk_bytes.unwrap_or_default(), options)
            }
        }
    }

    /// The name as given, and the size.
    pub(crate) fn info(&self) -> Result<TargetInfo, BenchError> {
        let size_bytes = self.volume(&Options::new())?.size_bytes();
        Ok(TargetInfo::of_remote(&self.name.to_string_lossy(), size_bytes))
    }

    /// The alignment of offsets and lengths, in bytes.
    pub(crate) fn align_bytes(&self) -> u32 {
        let of_each = self.exports.iter().map(|export| export.facts().limits.logical_block_bytes);
        of_each.max().unwrap_or(1)
    }

    /// The reason of the last failure of a connection.
    pub(crate) fn failure(&self) -> Option<String> {
        self.exports.iter().find_map(Remote::failure)
    }

    /// The connections that were lost and made anew so far.
    pub(crate) fn losses(&self) -> Losses {
        self.exports.iter().map(Remote::losses).fold(Losses::default(), |mut sum, one| {
            sum.lost += one.lost;
            sum.reconnected += one.reconnected;
            sum
        })
    }

    /// Whether a server refuses writes.
    pub(crate) fn is_read_only(&self) -> bool {
        self.exports.iter().any(|export| export.facts().is_read_only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_uris_and_stripes_of_uris_are_remote() {
        for name in ["nbd://host/x", "nbds://host", "nbd+unix:///x?socket=/s", "stripe:128k:nbd://a,nbd://b"]
        {
            assert!(is_remote(Path::new(name)), "{name}");
        }
        for name in ["/dev/sda", "nbd", "stripe:128k:/dev/a,/dev/b", "model:nbd", "http://host/"] {
            assert!(!is_remote(Path::new(name)), "{name}");
        }
    }
}
