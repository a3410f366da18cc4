//! The requests of one connection, and the events of its session that concern them. It sends and receives nothing.

use std::collections::VecDeque;

use iopath_core::IoError;
use slab::Slab;

use super::job::{Job, deliver};
use super::mailbox::Mailbox;
use super::session::{RemoteEvent, RemoteSession};

/// Reads of at most this length are received through a buffer: a copy costs less than a system call.
const SHORT_BYTES: u64 = 32 << 10;

/// The requests of one connection, by key.
#[derive(Debug, Default)]
pub(super) struct Entries {
    slab: Slab<Entry>,
    short_reads: usize,
    long_reads: usize,
    /// Completed jobs that were not delivered.
    completed: VecDeque<Job>,
    of_one_device: VecDeque<Job>,
    /// Events that concern the connection.
    events: VecDeque<RemoteEvent>,
}

#[derive(Debug)]
struct Entry {
    job: Job,
    /// Its data is being sent: the memory must stay, even after a reply.
    is_sending: bool,
    /// The reply that arrived meanwhile.
    ended: Option<Result<(), IoError>>,
}

impl Entries {
    pub(super) fn insert(&mut self, job: Job) -> u32 {
        self.count(&job, 1);
        let key = self.slab.insert(Entry { job, is_sending: false, ended: None });
        u32::try_from(key).expect("the depth of devices is limited")
    }

    pub(super) fn remove(&mut self, key: u32) -> Job {
        let job = self.slab.remove(key as usize).job;
        self.count(&job, -1);
        job
    }

    fn count(&mut self, job: &Job, change: isize) {
        if job.reads() {
            let is_short = job.request.length <= SHORT_BYTES;
            let counter = if is_short { &mut self.short_reads } else { &mut self.long_reads };
            *counter = counter.wrapping_add_signed(change);
        }
    }

    pub(super) fn job(&self, key: u32) -> &Job {
        &self.slab[key as usize].job
    }

    pub(super) fn job_mut(&mut self, key: u32) -> &mut Job {
        &mut self.slab[key as usize].job
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Whether reads are in flight, all of them long.
    pub(super) fn has_only_long_reads(&self) -> bool {
        self.long_reads > 0 && self.short_reads == 0
    }

    /// The data of this write is sent from now on. Returns its bytes.
    pub(super) fn begin_sending(&mut self, key: u32) -> u64 {
        let entry = &mut self.slab[key as usize];
        entry.is_sending = true;
        entry.job.request.length
    }

    /// The data of this write has been sent.
    pub(super) fn end_sending(&mut self, key: u32) {
        let entry = &mut self.slab[key as usize];
        entry.is_sending = false;
        if let Some(result) = entry.ended {
            self.complete(key, result);
        }
    }

    /// The stream is closed: no data is being sent.
    pub(super) fn end_all_sending(&mut self) {
        for (_, entry) in &mut self.slab {
            entry.is_sending = false;
        }
        while let Some((key, result)) = self.slab.iter().find_map(|(key, entry)| Some((key, entry.ended?))) {
            self.complete(key as u32, result);
        }
    }

    fn complete(&mut self, key: u32, result: Result<(), IoError>) {
        let mut job = self.remove(key);
        job.end(result);
        self.completed.push_back(job);
    }

    /// Executes the events that concern requests, and keeps the others for [`Entries::poll_event`].
    pub(super) fn execute_events(&mut self, session: &mut dyn RemoteSession) {
        while let Some(event) = session.poll_event() {
            match event {
                RemoteEvent::Zeroes { key, start, length } => {
                    let job = self.job_mut(key);
                    assert!(start <= job.request.length && length <= job.request.length - start);
                    job.zero(start, start + length);
                }
                RemoteEvent::Completed { key, result } => {
                    let entry = &mut self.slab[key as usize];
                    if entry.is_sending {
                        entry.ended = Some(result);
                    } else {
                        self.complete(key, result);
                    }
                }
                other => self.events.push_back(other),
            }
        }
    }

    /// The next event that concerns the connection.
    pub(super) fn poll_event(&mut self) -> Option<RemoteEvent> {
        self.events.pop_front()
    }

    /// Passes completed jobs to their devices. The first of them states the system calls.
    pub(super) fn deliver(&mut self, mailbox: &Mailbox, syscalls: &mut u32) {
        let Some(first) = self.completed.front_mut() else { return };
        first.syscalls += std::mem::take(syscalls);
        mailbox.sub_outstanding(self.completed.len() as u32);
        deliver(&mut self.completed, &mut self.of_one_device);
    }

    /// Fails a request that is not one of these.
    pub(super) fn fail(&mut self, mut job: Job, error: IoError) {
        job.end(Err(error));
        self.completed.push_back(job);
    }

    /// Fails all requests.
    pub(super) fn fail_all(&mut self, error: IoError) {
        for (_, entry) in std::mem::take(&mut self.slab) {
            self.fail(entry.job, error);
        }
        (self.short_reads, self.long_reads) = (0, 0);
    }
}
