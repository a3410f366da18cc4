//! The thread of a queue: an event loop over requests of the driver and completions of I/O. Ends when the device stops,
//! or when the server leaves it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use iopath::Volume;
use iopath_os::ublk::{UblkDevice, UblkQueue};

use crate::error::UblkError;
use crate::info::DeviceInfo;
use crate::queue::Queue;
use crate::request::Disk;
use crate::state::SharedState;

/// The longest wait for an event: a check that nothing was missed, and for the end, costs little at this interval.
const CHECK: Duration = Duration::from_millis(500);

/// Starts the thread of a queue. Its requests are fetched when this returns.
///
/// # Errors
/// The system refuses a thread, a ring or an engine.
pub(crate) fn spawn(
    index: u16,
    info: &DeviceInfo,
    node: &UblkDevice,
    volume: &Volume,
    disk: Disk,
    state: &Arc<SharedState>,
) -> Result<JoinHandle<()>, UblkError> {
    let (started, start) = sync_channel(1);
    let (info, node, volume, state) = (*info, node.clone(), volume.clone(), Arc::clone(state));
    // Batch and ring stay on their thread, so they are made there.
    let run = move || {
        let made = make(index, &info, &node, &volume, disk, &state);
        // The thread must not keep the node open longer than its ring.
        drop((node, volume));
        match made {
            Ok((queue, ring)) => {
                let _ = started.send(Ok(()));
                serve(queue, ring, &state);
            }
            Err(error) => drop(started.send(Err(error))),
        }
    };
    let failed = |source| UblkError::Queue { device: info.device, source };
    let thread = std::thread::Builder::new().name(format!("ublk-{}-{index}", info.device)).spawn(run);
    let thread = thread.map_err(failed)?;
    let ended = || failed(std::io::Error::other("its thread panicked"));
    start.recv().map_err(|_| ended())??;
    Ok(thread)
}

fn make(
    index: u16,
    info: &DeviceInfo,
    node: &UblkDevice,
    volume: &Volume,
    disk: Disk,
    state: &Arc<SharedState>,
) -> Result<(Queue, UblkQueue), UblkError> {
    let (queue, completed) = Queue::new(index, info.depth, volume, disk, Arc::clone(state))?;
    let ring = UblkQueue::new(node, index, info.depth, info.buffer_bytes as usize);
    let mut ring = ring.map_err(|source| UblkError::Queue { device: info.device, source })?;
    ring.watch(completed);
    Ok((queue, ring))
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
