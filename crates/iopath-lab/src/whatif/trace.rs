//! The recorded requests of one input in memory: 24 bytes each, and 8 for a completion. Readers (`csv.rs`, `log.rs`)
//! fill it; `replay.rs` submits it. It does not simulate.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use iopath_bench::host::memory_available_bytes;
use iopath_core::Op;

use super::error::WhatIfError;
use super::request::{Found, Request};
use super::tally::Tally;
use crate::recorded_times::{Completions, Link};

/// The maximum number of windows of an input: the blocks of the bootstrap.
pub(crate) const WINDOWS_MAX: usize = 32;

/// The minimum number of requests of a window.
const WINDOW_MIN: usize = 20;

/// Marks a completion that the input does not have.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// The requests of one recorded device, in the order of submission.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) requests: Vec<Request>,
    /// The recorded completion of each request, or [`UNKNOWN`]; empty if the input has none.
    pub(crate) done_ns: Vec<u64>,
    links: OnceLock<Vec<Link>>,
}

impl Trace {
    /// The completed reads and writes, in the order of completion, each with its time.
    pub(crate) fn completions(&self) -> impl Iterator<Item = (&Request, u64)> {
        let is_counted = |index: &usize| {
            self.requests[*index].op().has_memory()
                && self.done_ns.get(*index).is_some_and(|done_ns| *done_ns != UNKNOWN)
        };
        let mut order: Vec<usize> = (0..self.requests.len()).filter(is_counted).collect();
        order.sort_by_key(|index| self.done_ns[*index]);
        order.into_iter().map(|index| (&self.requests[index], self.done_ns[index]))
    }

    /// The dependency of each request.
    pub(crate) fn links(&self) -> &[Link] {
        self.links.get_or_init(|| links(&self.requests, &self.done_ns))
    }
}

/// The dependencies of requests in the order of submission.
fn links(requests: &[Request], done_ns: &[u64]) -> Vec<Link> {
    let mut streams: HashMap<u16, Completions> = HashMap::new();
    let link = |(request, done): (&Request, &u64)| {
        let done_ns = (*done != UNKNOWN).then_some(*done);
        streams.entry(request.stream).or_default().link(request.at_ns, done_ns)
    };
    requests.iter().zip(done_ns).map(link).collect()
}

/// A recorded input.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) name: PathBuf,
    /// One trace for each recorded device.
    pub(crate) devices: Vec<Trace>,
    /// The recorded number of each stream.
    pub(crate) streams: Vec<u32>,
    /// The number of windows.
    pub(crate) windows: usize,
    /// The recorded run, if the input has its completions.
    pub(crate) recorded: Option<Tally>,
    /// Whether the requests are accesses to a file above a page cache, not requests below it.
    pub(crate) has_accesses: bool,
    /// The number of queues of the recorded run.
    pub(crate) queues: usize,
    /// Facts about the input that limit the conclusions, in words.
    pub(crate) notes: Vec<String>,
}

/// What a model must accept to replay an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Needs {
    /// The end of the highest request.
    pub(crate) end: u64,
    /// The largest request.
    pub(crate) sectors_max: u64,
    /// All start sectors and lengths, combined by a bitwise or: their common alignment.
    pub(crate) bits: u64,
}

impl Input {
    /// The number of requests.
    pub(crate) fn len(&self) -> usize {
        self.devices.iter().map(|device| device.requests.len()).sum()
    }

    /// Whether the completion of a request is known.
    pub(crate) fn has_completions(&self) -> bool {
        self.devices.iter().any(|device| !device.done_ns.is_empty())
    }

    /// The time from the first to the last submission, in nanoseconds.
    pub(crate) fn span_ns(&self) -> u64 {
        let times =
            || self.devices.iter().flat_map(|device| [device.requests.first(), device.requests.last()]);
        let first = times().flatten().map(|request| request.at_ns).min().unwrap_or(0);
        times().flatten().map(|request| request.at_ns).max().unwrap_or(0) - first
    }

    pub(crate) fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        for request in self.devices.iter().flat_map(|device| &device.requests) {
            let sectors = u64::from(request.sectors);
            needs.end = needs.end.max(request.sector + sectors);
            needs.sectors_max = needs.sectors_max.max(sectors);
            needs.bits |= request.sector | sectors;
        }
        needs
    }
}

/// Files that are placed on one device begin at multiples of this number: 1 MiB.
const FILE_ALIGNMENT_SECTORS: u64 = 2048;

/// The available memory is compared with the need each time that this number of requests was added.
const MEMORY_CHECK: usize = 1 << 20;

/// Whether the memory suffices for as many further requests, and for a closed replay of all.
const fn has_memory(requests: usize, available_bytes: u64) -> bool {
    available_bytes >= (MEMORY_CHECK * BYTES_TO_READ + requests * BYTES_TO_REPLAY) as u64
}

/// Memory for a request while the input is read, with its completion and its dispatch, and with the growth of tables.
const BYTES_TO_READ: usize = 128;

/// Memory for a request in a replay, beside the request.
const BYTES_TO_REPLAY: usize = 36;

/// The maximum number of streams of an input.
const STREAMS_MAX: usize = 1 << 16;

/// Collects requests in any order.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    requests: Vec<Request>,
    done_ns: Vec<u64>,
    /// The recorded device of each request; empty while all are of device 0.
    devices: Vec<u32>,
    streams: Vec<u32>,
    known: HashMap<u32, u16>,
    /// Requests that no model executes.
    left_out: u64,
    /// The memory that was too short for the requests.
    available_bytes: Option<u64>,
}

impl Builder {
    /// Why the input cannot be read further, after [`Builder::push`] returned none.
    pub(crate) fn too_large(&self, path: &Path) -> WhatIfError {
        let path = path.to_owned();
        match self.available_bytes {
            Some(available_bytes) => {
                WhatIfError::Memory { path, requests: self.requests.len() as u64, available_bytes }
            }
            None => WhatIfError::TooLarge { path, streams_max: STREAMS_MAX },
        }
    }

    /// Adds a request, and returns its number. None if the input has too many streams or requests, or memory is short.
    pub(crate) fn push(&mut self, found: &Found) -> Option<usize> {
        let number = self.requests.len();
        if number.is_multiple_of(MEMORY_CHECK)
            && let Some(available) = memory_available_bytes().filter(|bytes| !has_memory(number, *bytes))
        {
            self.available_bytes = Some(available);
            return None;
        }
        let stream = if let Some(stream) = self.known.get(&found.stream) {
            *stream
        } else {
            let stream = u16::try_from(self.streams.len()).ok()?;
            self.streams.push(found.stream);
            self.known.insert(found.stream, stream);
            stream
        };
        if number >= u32::MAX as usize {
            return None;
        }
        if found.device != 0 && self.devices.is_empty() {
            self.devices = vec![0; number];
        }
        if found.device != 0 || !self.devices.is_empty() {
            self.devices.push(found.device);
        }
        self.requests.push(Request::new(found, stream));
        Some(number)
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether models execute requests of this kind. Others are counted, and no part of the trace.
    pub(crate) fn accepts(&mut self, op: Op) -> bool {
        let is_modelled = op.has_memory() || op == Op::Flush;
        self.left_out += u64::from(!is_modelled);
        is_modelled
    }

    /// A note about requests that no model executes.
    pub(crate) fn note(&self) -> Option<String> {
        (self.left_out > 0).then(|| {
            let plural = if self.left_out == 1 { " is" } else { "s are" };
            format!(
                "{} discard{plural} not replayed, writes of zeroes included: models have neither",
                self.left_out
            )
        })
    }

    /// Records the completion of a request.
    pub(crate) fn complete(&mut self, number: usize, done_ns: u64) {
        if self.done_ns.len() <= number {
            self.done_ns.resize(self.requests.len(), UNKNOWN);
        }
        self.done_ns[number] = done_ns.max(self.requests[number].at_ns);
    }

    /// Makes one device of the files that the devices are: one file after another, in the order of their first access,
    /// each up to its highest access. Returns the number of files.
    pub(crate) fn place_files(&mut self) -> usize {
        let mut order = Vec::new();
        let mut ends: HashMap<u32, u64> = HashMap::new();
        self.devices.resize(self.requests.len(), 0);
        for (request, file) in self.requests.iter().zip(&self.devices) {
            let end = ends.entry(*file).or_insert_with(|| {
                order.push(*file);
                0
            });
            *end = (*end).max(request.sector + u64::from(request.sectors));
        }
        let mut begin = 0;
        for file in &order {
            let end = ends.get_mut(file).expect("each file has an end");
            let next = begin + end.next_multiple_of(FILE_ALIGNMENT_SECTORS);
            *end = std::mem::replace(&mut begin, next);
        }
        for (request, file) in self.requests.iter_mut().zip(&self.devices) {
            if request.sectors > 0 {
                request.sector += ends[file];
            }
        }
        self.devices.clear();
        order.len()
    }

    /// The requests in the order of submission, with their windows, as one trace for each device.
    pub(crate) fn finish(mut self) -> Built {
        if !self.done_ns.is_empty() {
            self.done_ns.resize(self.requests.len(), UNKNOWN);
        }
        let count = self.requests.len();
        let windows = (count / WINDOW_MIN).clamp(1, WINDOWS_MAX);
        if !self.requests.is_sorted_by_key(|request| request.at_ns) {
            let mut order: Vec<u32> = (0..count as u32).collect();
            order.sort_by_key(|index| self.requests[*index as usize].at_ns);
            let at = |index: &u32| *index as usize;
            self.requests = order.iter().map(|index| self.requests[at(index)]).collect();
            if !self.done_ns.is_empty() {
                self.done_ns = order.iter().map(|index| self.done_ns[at(index)]).collect();
            }
            if !self.devices.is_empty() {
                self.devices = order.iter().map(|index| self.devices[at(index)]).collect();
            }
        }
        for (index, request) in self.requests.iter_mut().enumerate() {
            request.window = (index * windows / count.max(1)) as u8;
        }
        Built { windows, devices: self.by_device(), streams: std::mem::take(&mut self.streams) }
    }

    fn by_device(&mut self) -> Vec<Trace> {
        let (requests, done_ns) = (std::mem::take(&mut self.requests), std::mem::take(&mut self.done_ns));
        if self.devices.is_empty() {
            return vec![Trace { requests, done_ns, ..Trace::default() }];
        }
        let mut names = self.devices.clone();
        names.sort_unstable();
        names.dedup();
        let trace = |name: &u32| {
            let indices = || (0..requests.len()).filter(|index| self.devices[*index] == *name);
            Trace {
                requests: indices().map(|index| requests[index]).collect(),
                done_ns: indices().filter_map(|index| done_ns.get(index).copied()).collect(),
                ..Trace::default()
            }
        };
        names.iter().map(trace).collect()
    }
}

/// The result of a [`Builder`].
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) windows: usize,
    pub(crate) devices: Vec<Trace>,
    pub(crate) streams: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(at_ns: u64, stream: u32, device: u32) -> Found {
        Found { at_ns, op: Op::Read, is_fua: false, sector: at_ns, sectors: 8, stream, device }
    }

    #[test]
    fn requests_need_memory_while_they_are_read_and_replayed() {
        let gib = 1 << 30;
        assert!(has_memory(0, gib) && !has_memory(0, gib / 16));
        assert!(has_memory(100_000_000, 4 * gib) && !has_memory(100_000_000, 3 * gib));
        let builder = Builder { available_bytes: Some(gib), ..Builder::default() };
        let text = builder.too_large(Path::new("a.log")).to_string();
        assert!(text.contains("a.log has more requests than fit in memory"), "{text}");
    }

    #[test]
    fn requests_are_in_the_order_of_submission_and_keep_their_completions() {
        let mut builder = Builder::default();
        for at_ns in [30, 10, 20] {
            let number = builder.push(&found(at_ns, 7, 0)).unwrap();
            builder.complete(number, at_ns + 5);
        }
        let Built { devices, streams, windows } = builder.finish();
        let times: Vec<u64> = devices[0].requests.iter().map(|request| request.at_ns).collect();
        assert_eq!((times, devices[0].done_ns.clone()), (vec![10, 20, 30], vec![15, 25, 35]));
        assert_eq!((streams, windows), (vec![7], 1));
    }

    #[test]
    fn each_device_has_a_trace_of_its_own() {
        let mut builder = Builder::default();
        for (at_ns, device) in [(1, 0), (2, 5), (3, 0), (4, 2)] {
            builder.push(&found(at_ns, device, device)).unwrap();
        }
        let built = builder.finish();
        let devices: Vec<Vec<u64>> =
            built.devices.iter().map(|trace| trace.requests.iter().map(|one| one.at_ns).collect()).collect();
        assert_eq!(devices, [vec![1, 3], vec![4], vec![2]]);
    }

    #[test]
    fn files_are_placed_one_after_another() {
        let mut builder = Builder::default();
        for (at_ns, device) in [(9, 0), (1, 5), (3000, 0), (2, 5)] {
            builder.push(&found(at_ns, 0, device)).unwrap();
        }
        builder.push(&Found { op: Op::Flush, sector: 0, sectors: 0, ..found(1, 0, 5) }).unwrap();
        assert_eq!(builder.place_files(), 2);
        let sectors: Vec<u64> = builder.requests.iter().map(|request| request.sector).collect();
        assert_eq!(sectors, [9, 4097, 3000, 4098, 0], "the first file ends at 3008");
        assert_eq!(builder.finish().devices.len(), 1);
    }

    /// The dependencies of requests with these times, streams and completions.
    fn links_of(requests: &[(u64, u32, u64)]) -> Vec<(u64, u64)> {
        let mut builder = Builder::default();
        for (at_ns, stream, done_ns) in requests {
            let number = builder.push(&found(*at_ns, *stream, 0)).unwrap();
            builder.complete(number, *done_ns);
        }
        let built = builder.finish();
        built.devices[0].links().iter().map(|link| (link.after, link.think_ns)).collect()
    }

    #[test]
    fn a_request_follows_the_last_completion_of_its_stream() {
        // Stream 0: two in flight, then one after each completion. Stream 1 is independent.
        let links = links_of(&[(0, 0, 40), (0, 0, 10), (5, 1, 8), (12, 0, 50), (40, 0, 60)]);
        assert_eq!(links, [(0, 0), (0, 0), (0, 5), (1, 2), (2, 0)]);
    }

    #[test]
    fn simultaneous_completions_are_followed_by_one_request_each_and_a_batch_by_the_last() {
        // Three complete together; four follow, of which the last two follow the third completion.
        let links =
            links_of(&[(0, 0, 9), (0, 0, 9), (0, 0, 9), (9, 0, 20), (9, 0, 21), (9, 0, 22), (10, 0, 30)]);
        assert_eq!(links[3..], [(1, 0), (2, 0), (3, 0), (3, 1)]);
        // A batch that completes at different times: all of the next batch follow the last.
        let links = links_of(&[(0, 0, 9), (0, 0, 7), (10, 0, 20), (10, 0, 21)]);
        assert_eq!(links[2..], [(2, 1), (2, 1)]);
    }
}
