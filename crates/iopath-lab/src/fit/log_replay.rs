//! A request log as evidence. The figures are the times of requests at the device, in classes of operation, size and
//! depth. A model predicts them by a replay: each request follows the same completion as in the log.

use std::collections::HashMap;
use std::path::Path;

use iopath_core::log::Event;
use iopath_core::{BlockDevice, Extent, Instant, Io, LengthOnly, Op, Sector, Tag};
use iopath_log::{MainDevice, main_device};
use iopath_model::ModelDevice;
use iopath_report::size::format_size;

use super::error::FitError;
use super::estimates::{Estimates, Latency, Writes};
use super::evidence::{Case, Evidence, MECHANICAL_NS, MECHANICAL_RATIO, Part, median, quantile};
use iopath_bench::model::ModelTarget;

/// The maximum number of requests that are read. The rest of a longer log is not used.
const REQUESTS_MAX: usize = 1 << 20;

/// The minimum number of requests of a log.
const REQUESTS_MIN: usize = 1000;

/// The sizes and the number of windows. A window is a group of consecutive requests; windows of the training and
/// windows held back alternate.
const WINDOW_MIN: usize = 100;
const WINDOW_MAX: usize = 1000;
const WINDOWS_MAX: usize = 24;

/// The minimum number of requests of a class in each part.
const CLASS_MIN: usize = 30;

/// The minimum of the parameter for the largest request, even if all requests of the log are smaller.
const REQUEST_BYTES_MIN: u64 = 128 << 10;

/// A completed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    is_write: bool,
    start: u64,
    sectors: u64,
    dispatched_ns: u64,
    completed_ns: u64,
}

/// The operation, and the largest size and depth of a class of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Class {
    is_write: bool,
    bytes: u64,
    depth: u32,
}

/// A request in its window.
#[derive(Debug, Clone, Copy)]
struct Step {
    request: Request,
    class: Class,
    /// The number of requests that had completed before the dispatch, and the time since the last of these completions.
    /// Without a completion: the time since the first dispatch.
    after: u32,
    think_ns: u64,
}

impl Step {
    fn d2c_ns(&self) -> f64 {
        (self.request.completed_ns - self.request.dispatched_ns) as f64
    }
}

/// What a log has of its main device.
#[derive(Debug)]
struct Recorded {
    requests: Vec<Request>,
    /// The times of flushes at the device, in nanoseconds.
    flushes: Vec<f64>,
    warnings: Vec<String>,
}

/// A request log, cut into windows.
#[derive(Debug)]
pub(crate) struct LogReplay {
    /// The requests in the order of dispatch. Windows of the training and windows held back alternate.
    steps: Vec<Step>,
    per_window: usize,
    /// The classes of the cases of each part, in the same order.
    classes: Vec<Class>,
    cases: Vec<Case>,
    capacity_bytes: u64,
    request_max_bytes: u64,
    /// The median time of a flush at the device; 0 without flushes.
    flush_ns: f64,
    pub(crate) warnings: Vec<String>,
}

impl LogReplay {
    /// Reads a log.
    ///
    /// # Errors
    /// [`FitError`]: the log cannot be read, is too short, or has requests of one kind only.
    pub(crate) fn read(log: &Path) -> Result<Self, FitError> {
        let Recorded { mut requests, flushes, mut warnings } = recorded(log)?;
        let has = requests.len();
        if has < REQUESTS_MIN {
            let needed = REQUESTS_MIN as u64;
            return Err(FitError::ShortLog { log: log.to_owned(), requests: has as u64, needed });
        }
        for (rare, other, is_write) in [("reads", "writes", false), ("writes", "reads", true)] {
            if requests.iter().filter(|request| request.is_write == is_write).count() < CLASS_MIN * 2 {
                warnings.push(format!(
                    "the log has few {rare}: the model executes them as {other}, and is not valid for them"
                ));
            }
        }
        requests.sort_by_key(|request| request.dispatched_ns);
        let mut replay = Self::of(&requests);
        if !flushes.is_empty() {
            replay.flush_ns = median(&flushes);
        }
        replay.warnings.extend(warnings);
        if replay.classes.len() == 1 {
            return Err(FitError::OneKind { log: log.to_owned() });
        }
        if replay.cases.iter().filter(|case| case.part == Part::Training).count() < 2 {
            let needed = 2 * REQUESTS_MIN as u64;
            return Err(FitError::ShortLog { log: log.to_owned(), requests: has as u64, needed });
        }
        Ok(replay)
    }

    /// Requests in the order of dispatch.
    fn of(requests: &[Request]) -> Self {
        let used = &requests[..requests.len().min(WINDOWS_MAX * WINDOW_MAX)];
        let steps = linked(&classified(used));
        let per_window = (steps.len() / 16).clamp(WINDOW_MIN, WINDOW_MAX);
        let of_part = |part, class: Class| {
            let steps =
                steps.iter().enumerate().filter(move |(index, _)| part_of(*index, per_window) == part);
            steps
                .filter(move |(_, step)| step.class == class)
                .map(|(_, step)| step.d2c_ns())
                .collect::<Vec<_>>()
        };
        let mut classes: Vec<Class> = steps.iter().map(|step| step.class).collect();
        classes.sort_unstable();
        classes.dedup();
        let is_frequent = |class: &Class| {
            [Part::Training, Part::HeldBack].iter().all(|part| of_part(*part, *class).len() >= CLASS_MIN)
        };
        classes.retain(is_frequent);
        let case = |part, class: &Class| {
            let times = of_part(part, *class);
            Case {
                name: class.name(),
                rw: if class.is_write { "write" } else { "read" },
                block_bytes: class.bytes,
                depth: class.depth,
                part,
                measured: median(&times),
                noise: None,
            }
        };
        let cases = [Part::Training, Part::HeldBack]
            .into_iter()
            .flat_map(|part| classes.iter().map(move |class| (part, *class)))
            .map(|(part, class)| case(part, &class))
            .collect();
        let end = used.iter().map(|request| request.start + request.sectors).max().unwrap_or(0);
        let largest = used.iter().map(|request| request.sectors * 512).max().unwrap_or(0);
        let mut warnings = Vec::new();
        if used.len() < requests.len() {
            warnings.push(format!("only the first {} requests of the log are used", used.len()));
        }
        let distinct = |of: fn(&Class) -> u64| {
            let mut values: Vec<u64> = classes.iter().map(of).collect();
            values.sort_unstable();
            values.dedup();
            values.len()
        };
        for (what, values) in
            [("size", distinct(|class| class.bytes)), ("depth", distinct(|class| class.depth.into()))]
        {
            if values == 1 {
                warnings.push(format!(
                    "the requests of the log have about the same {what}: the model is not valid for others"
                ));
            }
        }
        Self {
            steps,
            per_window,
            classes,
            cases,
            capacity_bytes: (end * 512).next_multiple_of(1 << 20),
            request_max_bytes: largest.max(REQUEST_BYTES_MIN),
            flush_ns: 0.0,
            warnings,
        }
    }

    /// First estimates, from the windows of the training.
    pub(crate) fn estimates(&self) -> Option<Estimates> {
        let smallest = |is_write| self.classes.iter().filter(|class| class.is_write == is_write).min();
        let windows = || self.steps.chunks(self.per_window).step_by(2);
        let times = |class: &Class| -> Vec<f64> {
            let class = *class;
            windows().flatten().filter(|step| step.class == class).map(Step::d2c_ns).collect()
        };
        // An operation that is rare has no class.
        let writes = smallest(true).map(times);
        let reads = smallest(false).map(times).or_else(|| writes.clone())?;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let rate = |of: &dyn Fn(&Step) -> f64| {
            let rates = windows().filter(|window| window.len() >= WINDOW_MIN).map(|window| {
                let begin = window.iter().map(|step| step.request.dispatched_ns).min().unwrap_or(0);
                let end = window.iter().map(|step| step.request.completed_ns).max().unwrap_or(1);
                window.iter().map(of).sum::<f64>() * 1e9 / (end - begin).max(1) as f64
            });
            rates.fold(1.0, f64::max)
        };
        let (iops, bytes_per_s) = (rate(&|_| 1.0), rate(&|step| step.request.sectors as f64 * 512.0));
        Some(Estimates {
            capacity_bytes: self.capacity_bytes,
            request_max_bytes: self.request_max_bytes,
            read: Latency {
                min: quantile(&reads, 0.0),
                p50: median(&reads),
                p99: quantile(&reads, 0.99),
                mean: mean(&reads),
            },
            iops,
            bytes_per_s,
            write: writes.map(|writes| Writes {
                latency_ns: mean(&writes),
                iops,
                bytes_per_s,
                random_bytes_per_s: bytes_per_s,
                flush_ns: self.flush_ns,
            }),
        })
    }

    /// Whether the log shows mechanical latency: with one read at a time, far reads take much longer than near reads,
    /// and longer than [`MECHANICAL_NS`].
    pub(crate) fn is_mechanical(&self) -> bool {
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for pair in self.steps.windows(2) {
            let [before, step] = pair else { continue };
            if step.class.depth > 1 || step.class.is_write {
                continue;
            }
            let distance = step.request.start.abs_diff(before.request.start + before.request.sectors) * 512;
            let times = if distance < self.capacity_bytes / 1000 { &mut near } else { &mut far };
            times.push(step.d2c_ns());
        }
        far.len() >= CLASS_MIN && median(&far) > MECHANICAL_NS && {
            near.len() < CLASS_MIN || median(&far) > MECHANICAL_RATIO * median(&near)
        }
    }
}

impl Class {
    fn name(&self) -> String {
        let op = if self.is_write { "write" } else { "read" };
        format!("{op} up to {} depth up to {}", format_size(self.bytes), self.depth)
    }
}

impl Evidence for LogReplay {
    fn cases(&self) -> &[Case] {
        &self.cases
    }

    fn predict(&self, model: &ModelTarget, part: Part) -> Result<Vec<f64>, FitError> {
        let mut times = vec![Vec::new(); self.classes.len()];
        // The whole log is replayed, so buffers and queues have the state that earlier requests leave.
        for (index, (step, d2c_ns)) in self.steps.iter().zip(replay(model, &self.steps)).enumerate() {
            if part_of(index, self.per_window) != part {
                continue;
            }
            if let Ok(class) = self.classes.binary_search(&step.class) {
                times[class].push(d2c_ns);
            }
        }
        Ok(times.iter().map(|times| median(times)).collect())
    }
}

/// The part to which a request belongs.
fn part_of(index: usize, per_window: usize) -> Part {
    if (index / per_window).is_multiple_of(2) { Part::Training } else { Part::HeldBack }
}

/// The completed reads and writes of a log, and warnings about missing records.
fn recorded(log: &Path) -> Result<Recorded, FitError> {
    let mut dispatched: HashMap<(u16, u32), (Op, Request)> = HashMap::new();
    let (mut requests, mut flushes) = (Vec::new(), Vec::new());
    let device = main_device(iopath_trace::open(log)?)?;
    let end = iopath_trace::open(log)?.for_each_block(|block| {
        if device.as_ref().is_some_and(|device| device.queue != block.queue()) {
            return;
        }
        for entry in block.entries() {
            let (record, at) = (entry.record, (entry.queue, entry.record.tag()));
            match record.event() {
                Some(Event::Dispatch) => {
                    let Some(op @ (Op::Read | Op::Write | Op::Flush)) = record.op() else { continue };
                    let request = Request {
                        is_write: op == Op::Write,
                        start: record.sector(),
                        sectors: record.sectors(),
                        dispatched_ns: entry.time.as_nanos(),
                        completed_ns: 0,
                    };
                    dispatched.insert(at, (op, request));
                }
                Some(Event::Requeue) => {
                    dispatched.remove(&at);
                }
                Some(Event::Complete) if record.is_request() => {
                    let Some((op, request)) = dispatched.remove(&at) else { continue };
                    let completed_ns = entry.time.as_nanos().max(request.dispatched_ns);
                    if record.other() != 0 {
                        continue;
                    }
                    if op == Op::Flush {
                        if flushes.len() < REQUESTS_MAX {
                            flushes.push((completed_ns - request.dispatched_ns) as f64);
                        }
                    } else if request.sectors > 0 && requests.len() < REQUESTS_MAX {
                        requests.push(Request { completed_ns, ..request });
                    }
                }
                Some(Event::Missed) => dispatched.retain(|(queue, _), _| *queue != entry.queue),
                _ => {}
            }
        }
    })?;
    let mut warnings = end.notes;
    if let Some(MainDevice { name, others, .. }) = device.filter(|device| device.others > 0) {
        warnings.push(format!("the log has requests of {} devices: the model is of {name}", others + 1));
    }
    if let Some(damage) = end.damage {
        warnings.push(format!("the log is damaged: {damage}; only the part before the damage is used"));
    }
    if end.totals.missed > 0 {
        warnings.push(format!(
            "{} records are missing in the log: the true depth of other requests may be higher",
            end.totals.missed
        ));
    }
    Ok(Recorded { requests, flushes, warnings })
}

/// Each request with its class. The depth counts the requests in flight at the dispatch, this one included.
fn classified(requests: &[Request]) -> Vec<Step> {
    let mut ends: Vec<u64> = requests.iter().map(|request| request.completed_ns).collect();
    ends.sort_unstable();
    let depth = |(index, request): (usize, &Request)| {
        let completed = ends.partition_point(|end| *end <= request.dispatched_ns);
        (index + 1).saturating_sub(completed).max(1) as u32
    };
    let class = |request: &Request, depth: u32| Class {
        is_write: request.is_write,
        bytes: (request.sectors.saturating_mul(512))
            .max(4096)
            .checked_next_power_of_two()
            .unwrap_or(u64::MAX),
        depth: depth.next_power_of_two(),
    };
    let depths = requests.iter().enumerate().map(depth);
    requests
        .iter()
        .zip(depths)
        .map(|(request, depth)| Step {
            request: *request,
            class: class(request, depth),
            after: 0,
            think_ns: 0,
        })
        .collect()
}

/// The steps, each with the completion that it follows.
fn linked(steps: &[Step]) -> Vec<Step> {
    let begin = steps.first().map_or(0, |step| step.request.dispatched_ns);
    let mut ends: Vec<u64> = steps.iter().map(|step| step.request.completed_ns).collect();
    ends.sort_unstable();
    let link = |step: &Step| {
        let at = step.request.dispatched_ns;
        let after = ends.partition_point(|end| *end <= at);
        let since = after.checked_sub(1).map_or(begin, |last| ends[last]);
        Step { after: after as u32, think_ns: at - since, ..*step }
    };
    steps.iter().map(link).collect()
}

/// The times that the requests spend at the model, in nanoseconds.
fn replay(model: &ModelTarget, steps: &[Step]) -> Vec<f64> {
    let mut device = ModelDevice::<LengthOnly>::new(model.model(), 1);
    let capacity = model.model().capacity();
    let mut free: Vec<u32> = (0..model.model().limits().depth_max).rev().collect();
    let mut at_device = vec![(0_usize, 0_u64); free.len()];
    let mut times = vec![0.0; steps.len()];
    let (mut next, mut now, mut done) = (0, 0_u64, Vec::with_capacity(steps.len()));
    loop {
        let mut due = None;
        while let Some(step) = steps.get(next).filter(|step| step.after as usize <= done.len()) {
            let since = (step.after as usize).checked_sub(1).map_or(0, |last| done[last]);
            let at: u64 = since + step.think_ns;
            if at > now || free.is_empty() {
                due = (at > now).then_some(at);
                break;
            }
            let (op, sectors) =
                (if step.request.is_write { Op::Write } else { Op::Read }, step.request.sectors);
            let start = step.request.start.min(capacity.saturating_sub(sectors));
            let (Some(extent), Some(slot)) = (Extent::new(Sector(start), sectors), free.pop()) else { break };
            let memory = [LengthOnly::new(sectors * 512)];
            let io = Io::new(Tag::from_bits(slot), op, extent, &memory);
            if device.submit(&io, Instant::from_nanos(now)).is_err() {
                free.push(slot);
                break;
            }
            at_device[slot as usize] = (next, now);
            next += 1;
        }
        device.commit(Instant::from_nanos(now));
        let completes = device.poll_timeout().map(Instant::as_nanos);
        let Some(at) = [due, completes].into_iter().flatten().min() else { return times };
        now = now.max(at);
        while let Some(completion) = device.poll_completion(Instant::from_nanos(now)) {
            let slot = completion.tag.to_bits();
            let (index, dispatched) = at_device[slot as usize];
            times[index] = (now - dispatched) as f64;
            done.push(now);
            free.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(number: u64, dispatched_ns: u64, completed_ns: u64) -> Request {
        Request {
            is_write: number.is_multiple_of(3),
            start: number * 64,
            sectors: 8,
            dispatched_ns,
            completed_ns,
        }
    }

    #[test]
    fn depth_counts_the_requests_in_flight_at_the_dispatch() {
        let requests = [request(1, 0, 100), request(2, 10, 50), request(4, 50, 60), request(5, 200, 300)];
        let depths: Vec<_> = classified(&requests).iter().map(|step| step.class.depth).collect();
        assert_eq!(depths, [1, 2, 2, 1]);
    }

    #[test]
    fn a_request_follows_the_same_completion_as_in_the_log() {
        let requests = [request(1, 1000, 1100), request(2, 1010, 1050), request(4, 1055, 1060)];
        let links: Vec<_> =
            linked(&classified(&requests)).iter().map(|step| (step.after, step.think_ns)).collect();
        assert_eq!(links, [(0, 0), (0, 10), (1, 5)]);
    }

    #[test]
    fn a_replay_on_the_same_model_has_the_same_times() {
        let model = ModelTarget::of("m", iopath_model::Model::preset("ssd-nvme").unwrap());
        let requests: Vec<Request> =
            (0..200).map(|number| request(number * 3 + 1, number * 500_000, number * 500_000 + 1)).collect();
        let times = replay(&model, &linked(&classified(&requests)));
        assert!(times.iter().all(|time| (80_000.0..90_000.0).contains(time)), "{times:?}");
    }
}
