//! Serves a target as a disk of a virtual machine: opens it, starts the device, follows the size of its file, and stops
//! on a signal. The device itself: `iopath-vhost`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use iopath_log::LogWriter;
use iopath_nbd::{Listener, ServeTotals, SocketFile, raise_descriptor_limit};
use iopath_vhost::{VhostOptions, VhostServer, VhostTotals};

use super::volume::{model_of, volume_of};
use super::watch::{Watched, watch};
use super::{
    Listen, ServeEnd, ServeError, ServeRates, ServeRequest, listeners, log, service, stop_on_signals,
};

/// Longest time to complete the requests in flight and to flush at the end.
const STOP_LIMIT: Duration = Duration::from_secs(40);

/// A running device.
#[derive(Debug)]
pub struct VhostServing {
    server: VhostServer,
    log: Option<Arc<LogWriter>>,
    file: Option<SocketFile>,
    stop: Arc<AtomicBool>,
    /// The socket.
    pub socket: PathBuf,
}

/// Opens the target and starts its device, with this number of queues. Uses the options of a request that concern a
/// target; `listen` is the socket.
///
/// # Errors
/// [`ServeError`]: the target or the log cannot be opened, or the socket is in use.
pub fn serve_vhost(request: &ServeRequest, queues: Option<u16>) -> Result<VhostServing, ServeError> {
    let [target] = &request.targets[..] else { return Err(ServeError::OneDisk(request.targets.len())) };
    let model = model_of(target)?;
    let volume = volume_of(target, model.as_ref(), &request.volume)?;
    let cpus = thread::available_parallelism().map_or(1, |count| count.get().min(8) as u16);
    // The requests of a modelled disk are ordered in one queue.
    let queues = queues.unwrap_or(if model.is_some() { 1 } else { cpus });
    let id = target.file_name().unwrap_or(target.as_os_str()).to_string_lossy().into_owned();
    let log = request.log.as_ref().map(|settings| log::create(settings, request)).transpose()?;
    // Before the socket is known to others, so that no signal is missed.
    let stop = stop_on_signals();
    // Each queue has some, and each region of the guest's memory.
    raise_descriptor_limit();
    let (sockets, _) = listeners(request)?;
    let (listener, file, socket) = sockets
        .into_iter()
        .find_map(|socket| match (socket.place(), socket) {
            (Some(Listen::Unix(path)), Listener::Unix(listener, file)) => Some((listener, file, path)),
            _ => None,
        })
        .ok_or(ServeError::TwoPlaces)?;
    let options = VhostOptions {
        volume,
        is_writable: request.volume.is_writable,
        queues,
        id,
        stop_limit: STOP_LIMIT,
        log: log.as_ref().map(log::sinks),
    };
    let server = VhostServer::start(listener, options).map_err(ServeError::Server)?;
    service::is_ready(&format!("serving {}", socket.display()));
    Ok(VhostServing { server, log, file, stop, socket })
}

impl VhostServing {
    /// Serves until SIGINT, SIGTERM or SIGHUP. Requests in flight complete, and the target is flushed. A second signal
    /// ends the process at once. `report` is called every second, with the messages of the device.
    ///
    /// # Errors
    /// [`ServeError::Server`]: requests that did not complete, or the flush. [`ServeError::Log`]: the log is not
    /// complete.
    pub fn run(self, report: impl FnMut(&ServeRates, &[String])) -> Result<ServeEnd, ServeError> {
        watch(&self, report);
        let stopped = self.server.stop();
        if let Some(file) = self.file {
            // A socket that stays is replaced by the next server.
            let _ = file.remove();
        }
        let log = log::finish(self.log)?;
        let totals = stopped.map_err(ServeError::Server)?;
        Ok(ServeEnd { totals: totals_of(&totals), log })
    }

    /// Tells the guest of a file that has grown. Returns a message.
    fn follow_size(&self) -> Option<String> {
        match self.server.update_size() {
            Ok(bytes) => bytes.map(|bytes| format!("the disk has {bytes} bytes now")),
            Err(error) => Some(format!("the file has grown, and the disk has not: {error}")),
        }
    }
}

impl Watched for VhostServing {
    fn is_to_end(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn totals(&self) -> ServeTotals {
        totals_of(&self.server.totals())
    }

    /// With the change of the size, which is looked for here.
    fn take_messages(&self) -> Vec<String> {
        let mut messages = self.server.take_messages();
        messages.extend(self.follow_size());
        messages
    }
}

/// The counters that all servers have.
fn totals_of(totals: &VhostTotals) -> ServeTotals {
    let VhostTotals { connections, accepted, requests, bytes, latencies, .. } = *totals;
    ServeTotals { connections, accepted, requests, bytes, abandoned: 0, latencies }
}
