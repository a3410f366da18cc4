//! The thread of a queue: an event loop over requests of the driver and completions of I/O. Ends when the device stops,
//! or when the server leaves it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use iopath::Volume;
use iopath_os::ublk::{UblkDevice, UblkQueue, UblkQueueParts};

use crate::error::UblkError;
use crate::info::DeviceInfo;
use crate::queue::Queue;
use crate::request::Disk;
use crate::state::SharedState;

/// The longest wait for an event: a check that nothing was missed, and for the end, costs little at this interval.
const CHECK: Duration = Duration::from_millis(500);

/// A queue on the way to its first request. Its thread takes each step when it is told to, so that no queue takes one
/// while another may still fail in the step before. The thread ends if this is dropped before the last step.
#[derive(Debug)]
pub(crate) struct Start {
    node: SyncSender<UblkDevice>,
    fetch: SyncSender<()>,
    taken: Receiver<Result<(), UblkError>>,
    device: u32,
}

/// Starts the thread of a queue, which first makes the batch, the buffers and the ring.
///
/// # Errors
/// The system refuses a thread.
pub(crate) fn spawn(
    index: u16,
    info: &DeviceInfo,
    volume: &Volume,
    disk: Disk,
    state: &Arc<SharedState>,
) -> Result<(Start, JoinHandle<()>), UblkError> {
    let (info, volume, state, device) = (*info, volume.clone(), Arc::clone(state), info.device);
    let (node, nodes) = sync_channel(1);
    let (fetch, fetches) = sync_channel(1);
    let (took, taken) = sync_channel(1);
    let steps = Steps { nodes, fetches, took };
    let run = move || {
        run(index, &info, &volume, disk, &state, &steps);
    };
    let thread = std::thread::Builder::new().name(format!("ublk-{device}-{index}")).spawn(run);
    let thread = thread.map_err(|source| UblkError::Queue { device, source })?;
    Ok((Start { node, fetch, taken, device }, thread))
}

impl Start {
    /// Waits until the queue is made.
    ///
    /// # Errors
    /// The system refuses memory, a ring or an engine.
    pub(crate) fn wait(&self) -> Result<(), UblkError> {
        let ended = || std::io::Error::other("its thread panicked");
        self.taken.recv().map_err(|_| UblkError::Queue { device: self.device, source: ended() })?
    }

    /// Joins the queue to its device.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn open(&self, node: &UblkDevice) -> Result<(), UblkError> {
        let _ = self.node.send(node.clone());
        self.wait()
    }

    /// Fetches the first requests.
    ///
    /// # Errors
    /// The error of the driver.
    pub(crate) fn fetch(&self) -> Result<(), UblkError> {
        let _ = self.fetch.send(());
        self.wait()
    }
}

/// The thread's side of a [`Start`].
struct Steps {
    nodes: Receiver<UblkDevice>,
    fetches: Receiver<()>,
    took: SyncSender<Result<(), UblkError>>,
}

impl Steps {
    /// Reports a step, and returns what it has made.
    fn report<T>(&self, made: Result<T, UblkError>) -> Option<T> {
        let (made, result) = match made {
            Ok(made) => (Some(made), Ok(())),
            Err(error) => (None, Err(error)),
        };
        let _ = self.took.send(result);
        made
    }
}

/// The life of the thread; `None` if a step failed, or was not asked for.
fn run(
    index: u16,
    info: &DeviceInfo,
    volume: &Volume,
    disk: Disk,
    state: &Arc<SharedState>,
    steps: &Steps,
) -> Option<()> {
    let failed = |source| UblkError::Queue { device: info.device, source };
    // Batch and ring stay on their thread, so they are made here.
    let make = || {
        let (queue, completed) = Queue::new(index, info.depth, volume, disk, Arc::clone(state))?;
        let parts = UblkQueueParts::new(info.depth, info.buffer_bytes as usize).map_err(failed)?;
        Ok((queue, completed, parts))
    };
    let (queue, completed, parts) = steps.report(make())?;
    // The thread must not keep the node open longer than its ring.
    let opened = UblkQueue::open(parts, &steps.nodes.recv().ok()?, index);
    let mut ring = steps.report(opened.map_err(failed))?;
    steps.fetches.recv().ok()?;
    steps.report(ring.fetch().map_err(failed))?;
    ring.watch(completed);
    serve(queue, ring, state);
    Some(())
}

fn serve(mut queue: Queue, mut ring: UblkQueue, state: &SharedState) {
    loop {
        while queue.step(&mut ring) {}
        if queue.has_ended() || state.leaves.load(Ordering::Acquire) {
            return;
        }
        let limit = queue.next_timeout().map_or(CHECK, |timeout| timeout.min(CHECK));
        match ring.enter(limit) {
            Ok(true) => {}
            Ok(false) => queue.handle_timeout(),
            Err(error) => {
                state.note(format!("the thread of a queue ended: {error}"));
                return;
            }
        }
    }
}
