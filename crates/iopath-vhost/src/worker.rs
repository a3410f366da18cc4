//! The thread of a queue: an event loop over notifications of the driver, completions of I/O, and commands of the
//! thread that speaks with the front end. The work on requests: `running.rs`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use iopath::Volume;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use crate::bounce::Bounce;
use crate::fault::Fault;
use crate::inflight::Inflight;
use crate::io::QueueIo;
use crate::memory::GuestMemory;
use crate::ring::{Ring, RingPlaces};
use crate::running::{Negotiated, Running};
use crate::state::Disk;

/// The events of the loop.
const WAKE: u64 = 0;
const KICK: u64 = 1;
const IO: u64 = 2;

/// Rounds of requests and completions before the loop looks for commands: a busy driver must not keep a queue from its
/// end.
const ROUNDS: u32 = 16;

/// The longest wait for an event: a check that nothing was missed costs little at this interval.
const CHECK: Duration = Duration::from_secs(1);

/// The longest wait while a request waits for room: no event announces that another queue unlocks its range.
const WAITING_CHECK: Duration = Duration::from_millis(1);

/// The longest wait for the thread of a queue at its start. It opens a ring, and a connection to a server.
const START_LIMIT: Duration = Duration::from_secs(60);

/// What a queue needs to start.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) places: RingPlaces,
    pub(crate) memory: Arc<GuestMemory>,
    /// The index of the first request.
    pub(crate) next: u16,
    pub(crate) negotiated: Negotiated,
    /// The driver notifies of requests.
    pub(crate) kick: File,
    /// The device notifies of completed requests.
    pub(crate) call: Option<File>,
    pub(crate) inflight: Option<Inflight>,
}

/// A command for a queue.
#[derive(Debug)]
enum Command {
    Start(Box<Start>, SyncSender<Result<(), String>>),
    /// Completes the requests in flight. Replies with the index of the next request.
    Stop(SyncSender<Option<u16>>),
    SetCall(Option<File>),
    Quit,
}

/// The side of the thread that speaks with the front end.
#[derive(Debug)]
pub(crate) struct Queue {
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    /// The reply to the command to stop, until it has come.
    stopping: Option<Receiver<Option<u16>>>,
}

/// A queue whose requests in flight did not complete in time.
#[derive(Debug)]
pub(crate) struct Late;

impl Queue {
    /// Starts the thread of a queue, without a ring.
    ///
    /// # Errors
    /// The system refuses a thread, a descriptor or an engine. `TimedOut`: the volume did not open an engine in time.
    pub(crate) fn spawn(index: u16, volume: Volume, disk: Disk) -> io::Result<Self> {
        let (commands, receiver) = channel();
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (started, start) = sync_channel(1);
        let watched = Arc::clone(&wake);
        // A batch stays on its thread, so the worker is made there.
        let run = move || match Worker::new(index, &volume, disk, watched, receiver) {
            Ok(worker) => {
                let _ = started.send(Ok(()));
                worker.run();
            }
            Err(error) => drop(started.send(Err(error))),
        };
        let thread = std::thread::Builder::new().name(format!("vhost-{index}")).spawn(run)?;
        // If it is too late, its drop ends the thread.
        let queue = Self { commands, wake, thread: Some(thread), stopping: None };
        match start.recv_timeout(START_LIMIT) {
            Ok(started) => started.map(|()| queue),
            Err(RecvTimeoutError::Timeout) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the thread of a queue did not start in time"))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(io::Error::other("the thread of a queue panicked at its start"))
            }
        }
    }

    /// Starts the ring.
    ///
    /// # Errors
    /// The reason why it is not valid, or that the thread did not answer until then. In that case the ring is stopping.
    pub(crate) fn start(&mut self, start: Start, until: Instant) -> Result<(), String> {
        self.end_stop(until).map_err(|Late| "its requests in flight have not completed".to_owned())?;
        let (reply, result) = sync_channel(1);
        self.send(Command::Start(Box::new(start), reply));
        result.recv_timeout(left(until)).unwrap_or_else(|error| match error {
            RecvTimeoutError::Timeout => {
                self.begin_stop();
                Err("the thread of the queue waits for the volume".to_owned())
            }
            RecvTimeoutError::Disconnected => Err("the thread of the queue has ended".to_owned()),
        })
    }

    /// Begins to stop the ring: its requests in flight complete, and it takes no others.
    pub(crate) fn begin_stop(&mut self) {
        if self.stopping.is_none() {
            let (reply, index) = sync_channel(1);
            self.send(Command::Stop(reply));
            self.stopping = Some(index);
        }
    }

    /// Waits for the end of the stop that has begun, if one has. Returns the index of the next request, if the ring was
    /// started.
    ///
    /// # Errors
    /// Requests are still in flight at this time. The stop goes on.
    pub(crate) fn end_stop(&mut self, until: Instant) -> Result<Option<u16>, Late> {
        let Some(index) = &self.stopping else { return Ok(None) };
        let index = match index.recv_timeout(left(until)) {
            Err(RecvTimeoutError::Timeout) => return Err(Late),
            Err(RecvTimeoutError::Disconnected) => None,
            Ok(index) => index,
        };
        self.stopping = None;
        Ok(index)
    }

    /// Whether a stop has begun whose end nobody has seen.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    /// Sets the descriptor for notifications of the driver.
    pub(crate) fn set_call(&self, call: Option<File>) {
        self.send(Command::SetCall(call));
    }

    /// Ends the thread after the requests in flight.
    pub(crate) fn quit(&mut self) -> Option<JoinHandle<()>> {
        self.send(Command::Quit);
        self.thread.take()
    }

    /// A thread that has ended does not need the command.
    fn send(&self, command: Command) {
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Queue {
    /// Ends the thread. Does not wait: [`Queue::quit`] returns the thread to wait for.
    fn drop(&mut self) {
        self.send(Command::Quit);
    }
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// The state of the thread.
#[derive(Debug)]
struct Worker {
    index: u16,
    disk: Disk,
    io: QueueIo,
    bounce: Bounce,
    epoll: OwnedFd,
    wake: Arc<OwnedFd>,
    commands: Receiver<Command>,
    /// Descriptors of batches, which must stay open as long as the loop watches them.
    descriptors: Vec<OwnedFd>,
    running: Option<Running>,
}

impl Worker {
    fn new(
        index: u16,
        volume: &Volume,
        disk: Disk,
        wake: Arc<OwnedFd>,
        commands: Receiver<Command>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &*wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        let io = QueueIo::new(volume, index, disk.log.clone())?;
        let mut worker = Self {
            index,
            disk,
            io,
            bounce: Bounce::default(),
            epoll,
            wake,
            commands,
            descriptors: Vec::new(),
            running: None,
        };
        worker.watch_new_descriptors()?;
        Ok(worker)
    }

    fn run(mut self) {
        let mut events = Vec::with_capacity(8);
        loop {
            let has_work = match self.pass() {
                Ok(has_work) => has_work,
                Err(fault) => {
                    self.fail(fault);
                    false
                }
            };
            let timeout = if has_work { Duration::ZERO } else { self.timeout() };
            if let Err(error) = self.wait(&mut events, timeout) {
                self.disk.state.note(format!("the thread of queue {} ended: {error}", self.index));
                return;
            }
            let mut has_command = false;
            for event in events.drain(..) {
                has_command |= self.handle(event);
            }
            if has_command && !self.obey() {
                return;
            }
        }
    }

    /// Takes requests and completes others. Returns whether to look again without a wait.
    fn pass(&mut self) -> Result<bool, Fault> {
        if self.disk.state.is_broken() {
            self.drop_completed();
            return Ok(false);
        }
        let Self { running, io, bounce, disk, .. } = self;
        let Some(running) = running else { return Ok(false) };
        running.ring.disable_notification()?;
        let mut rounds = 0;
        loop {
            let has_taken = running.take(io, bounce, disk)?;
            let has_reaped = running.reap(io, bounce, disk)?;
            running.publish()?;
            if !has_taken && !has_reaped {
                break;
            }
            rounds += 1;
            if rounds == ROUNDS {
                break;
            }
        }
        self.watch_new_descriptors().map_err(|_| Fault::Truncated)?;
        let Some(running) = &mut self.running else { return Ok(false) };
        if rounds == ROUNDS {
            return Ok(true);
        }
        // A request that waits for room goes on after a completion, at times of another queue.
        if running.is_waiting() {
            return Ok(false);
        }
        running.ring.enable_notification()
    }

    /// Completions of a ring that is not served: their buffers return, and their ranges are unlocked.
    fn drop_completed(&mut self) {
        while let Some(done) = self.io.poll() {
            if let Some(running) = &mut self.running {
                running.drop_done(done.token);
            }
            done.buffer.into_iter().for_each(|buffer| self.bounce.put(buffer));
        }
    }

    fn fail(&mut self, fault: Fault) {
        // I/O that was begun before the mistake was found: its end is awaited.
        self.io.submit();
        self.disk.state.stop_for(self.index, &fault);
    }

    fn timeout(&self) -> Duration {
        let is_waiting =
            self.running.as_ref().is_some_and(Running::is_waiting) && !self.disk.state.is_broken();
        let check = if is_waiting { WAITING_CHECK } else { CHECK };
        self.io.next_timeout().map_or(check, |timeout| timeout.min(check))
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>, timeout: Duration) -> io::Result<()> {
        let limit = Timespec::try_from(timeout).map_err(io::Error::other)?;
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&limit)) {
            Ok(0) if !timeout.is_zero() => {
                // Not all that a batch waits for makes its descriptor readable.
                self.io.handle_notification();
                Ok(())
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Handles an event. Returns whether there are commands.
    fn handle(&mut self, event: epoll::Event) -> bool {
        match event.data.u64() {
            WAKE => {
                let mut counter = [0; 8];
                let _ = rustix::io::read(&*self.wake, &mut counter);
                return true;
            }
            IO => self.io.handle_notification(),
            // The driver: the next pass looks at the ring.
            _ => {}
        }
        false
    }

    /// Executes the commands. Returns false at the end of the thread.
    fn obey(&mut self) -> bool {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Start(start, reply)) => {
                    let result = self.start(*start);
                    let _ = reply.send(result);
                }
                Ok(Command::Stop(reply)) => {
                    let index = self.stop();
                    let _ = reply.send(index);
                }
                Ok(Command::SetCall(call)) => {
                    if let Some(running) = &mut self.running {
                        running.call = call;
                        // A completion before this may have had no descriptor.
                        running.notify();
                    }
                }
                Ok(Command::Quit) | Err(TryRecvError::Disconnected) => {
                    self.stop();
                    return false;
                }
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn start(&mut self, start: Start) -> Result<(), String> {
        self.stop();
        let Start { places, memory, next, negotiated, kick, call, inflight } = start;
        let ring = Ring::new(places, &memory, next, negotiated.has_event_index);
        let descriptors = (kick, call);
        let running = ring
            .and_then(|ring| Running::new(self.index, ring, memory, negotiated, descriptors, inflight))
            .map_err(|fault| fault.to_string())?;
        // Edges: a kick is one event, and the counter need not be read.
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&self.epoll, &running.kick, EventData::new_u64(KICK), flags)
            .map_err(|error| format!("the descriptor for notifications: {error}"))?;
        // The driver may have missed a notification of the last process.
        running.notify();
        self.running = Some(running);
        Ok(())
    }

    /// Completes the requests in flight and forgets the ring. Returns the index of its next request.
    fn stop(&mut self) -> Option<u16> {
        self.running.as_ref()?;
        let mut events = Vec::with_capacity(8);
        while let Err(fault) = self.drain_step(&mut events) {
            self.fail(fault);
        }
        let running = self.running.take()?;
        let _ = epoll::delete(&self.epoll, &running.kick);
        Some(running.ring.next_available())
    }

    /// Completes requests until none is in flight. Takes none, except those that were taken already.
    fn drain_step(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), Fault> {
        loop {
            let is_idle = if self.disk.state.is_broken() {
                self.drop_completed();
                self.io.is_idle()
            } else {
                let Self { running, io, bounce, disk, .. } = self;
                let Some(running) = running else { return Ok(()) };
                running.continue_taken(io, bounce, disk)?;
                running.reap(io, bounce, disk)?;
                running.publish()?;
                running.is_idle()
            };
            if is_idle {
                return Ok(());
            }
            let _ = self.watch_new_descriptors();
            let timeout = self.timeout();
            if self.wait(events, timeout).is_err() {
                return Ok(());
            }
            // `obey` executes commands that arrive now after this one.
            for event in events.drain(..) {
                self.handle(event);
            }
        }
    }

    fn watch_new_descriptors(&mut self) -> io::Result<()> {
        for descriptor in self.io.take_descriptors() {
            epoll::add(&self.epoll, descriptor.as_fd(), EventData::new_u64(IO), EventFlags::IN)?;
            self.descriptors.push(descriptor);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::disk;
    use iopath::Options;
    use iopath::testing::{MemoryConfig, MemoryDisk};

    #[test]
    fn the_thread_of_a_dropped_queue_ends() {
        let memory = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).unwrap();
        let volume = Volume::memory(&memory, &Options::new()).unwrap();
        let mut queue = Queue::spawn(0, volume.clone(), disk(&volume)).unwrap();
        let thread = queue.thread.take().unwrap();
        drop(queue);
        let began = Instant::now();
        while !thread.is_finished() {
            assert!(began.elapsed() < Duration::from_secs(60), "the thread goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
