//! An elevator that checks the starvation bound of another one: rule 9. It changes no order.
//!
//! A request counts the dispatches from its insertion on, as soon as the time of its bound has passed since its
//! arrival. When it is dispatched itself, the count must be within the bound. The bound depends on the largest number
//! of requests queued since the elevator was empty, and on its settings. A change of settings or weights starts all
//! counts anew; what the elevator has begun under earlier settings, such as a batch, may end under them.

use std::sync::LazyLock;

use iopath_core::elevator::{
    ELEVATORS, Elevator, ElevatorKind, ElevatorSpec, Neighbours, Outline, Settings, StarvationBound,
};
use iopath_core::{Extent, Instant, NoMerge, Op, Priority, RequestTable, Side, Stream, Tag};

/// The elevator of this name and settings, checked.
///
/// A queue calls `none` in another way than the others, so `none` is only checked on request.
pub(crate) fn spec(text: &str, checks_none: bool) -> ElevatorSpec {
    let name = text.split(':').next().unwrap_or_default();
    let kinds = if checks_none || name != ELEVATORS[0].name { &CHECKED[..] } else { ELEVATORS };
    ElevatorSpec::parse_among(text, kinds).expect("the elevator is in the table")
}

type Build = fn(usize) -> Box<dyn Elevator>;

/// One for each row of [`ELEVATORS`], and for rows to come.
const BUILDS: [Build; 12] = [
    build::<0>,
    build::<1>,
    build::<2>,
    build::<3>,
    build::<4>,
    build::<5>,
    build::<6>,
    build::<7>,
    build::<8>,
    build::<9>,
    build::<10>,
    build::<11>,
];

static CHECKED: LazyLock<Vec<ElevatorKind>> = LazyLock::new(|| {
    assert!(ELEVATORS.len() <= BUILDS.len(), "more elevators than checks: add some to BUILDS");
    ELEVATORS.iter().zip(BUILDS).map(|(kind, build)| ElevatorKind { build, ..*kind }).collect()
});

fn build<const ROW: usize>(requests_max: usize) -> Box<dyn Elevator> {
    Box::new(Checked::new((ELEVATORS[ROW].build)(requests_max), requests_max))
}

#[derive(Debug)]
struct Checked {
    inner: Box<dyn Elevator>,
    requests_max: usize,
    /// The times of the dispatches since the elevator was empty.
    dispatched: Vec<Instant>,
    /// The queued requests, by the slots of their tags.
    queued: Vec<Option<Arrival>>,
    /// The largest number of queued requests since the elevator was empty.
    queued_max: usize,
    has_dispatched: bool,
    /// The largest bound under earlier settings.
    earlier: StarvationBound,
}

#[derive(Debug, Clone, Copy)]
struct Arrival {
    tag: Tag,
    arrived: Instant,
    /// The number of dispatches before it counts.
    before: usize,
}

impl Checked {
    fn new(inner: Box<dyn Elevator>, requests_max: usize) -> Self {
        Self {
            inner,
            requests_max,
            dispatched: Vec::new(),
            queued: Vec::new(),
            queued_max: 0,
            has_dispatched: false,
            earlier: StarvationBound::dispatches(0),
        }
    }

    fn forget(&mut self, tag: Tag) -> Arrival {
        let arrival = self.queued.get_mut(tag.index()).and_then(Option::take);
        let arrival = arrival.filter(|arrival| arrival.tag == tag);
        let arrival = arrival.unwrap_or_else(|| panic!("rule 8: {tag:?} leaves the elevator twice"));
        if self.inner.is_empty() {
            self.dispatched.clear();
            self.queued_max = 0;
        }
        arrival
    }

    /// The settings or weights are about to change.
    fn change(&mut self) {
        if !self.has_dispatched && self.inner.is_empty() {
            return;
        }
        for of in [Op::Read, Op::Write] {
            for priority in Priority::ALL {
                let bound = self.inner.starvation_bound(of, priority, self.requests_max);
                self.earlier.after = self.earlier.after.max(bound.after);
                self.earlier.dispatches = self.earlier.dispatches.max(bound.dispatches);
            }
        }
        let before = self.dispatched.len();
        self.queued.iter_mut().flatten().for_each(|arrival| arrival.before = before);
    }
}

impl Elevator for Checked {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn insert(&mut self, tag: Tag, requests: &RequestTable, now: Instant) {
        let arrival = Arrival { tag, arrived: requests[tag].arrived(), before: self.dispatched.len() };
        self.queued.resize(self.queued.len().max(tag.index() + 1), None);
        let other = self.queued[tag.index()].replace(arrival);
        assert!(other.is_none(), "rule 8: {tag:?} is inserted twice");
        self.inner.insert(tag, requests, now);
        self.queued_max = self.queued_max.max(self.inner.len());
    }

    fn dispatch(&mut self, requests: &RequestTable, now: Instant) -> Option<Tag> {
        let tag = self.inner.dispatch(requests, now)?;
        self.dispatched.push(now);
        self.has_dispatched = true;
        let request = &requests[tag];
        let of = request.op();
        let priority = request.priority();
        let queued_max = self.queued_max;
        let Arrival { arrived, before, .. } = self.queued[tag.index()].expect("it was inserted");
        let bound = self.inner.starvation_bound(of, priority, queued_max);
        let counts_from = arrived + bound.after.max(self.earlier.after);
        let counted = &self.dispatched[before..];
        let waited = counted.len() - counted.partition_point(|time| *time <= counts_from);
        let most = bound.dispatches.saturating_add(self.earlier.dispatches);
        assert!(
            waited as u64 <= most,
            "rule 9: {}: {of} of {} waits for {waited} dispatches, not {most}, of up to {queued_max} requests queued, {:?} \
             after its arrival",
            ElevatorText(self),
            request.extent(),
            now - arrived,
        );
        self.forget(tag);
        Some(tag)
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn starvation_bound(&self, of: Op, priority: Priority, queued_max: usize) -> StarvationBound {
        self.inner.starvation_bound(of, priority, queued_max)
    }

    fn prefetch(&mut self, arrivals: &[Outline]) {
        self.inner.prefetch(arrivals);
    }

    fn neighbours(&mut self, arrival: &Outline, requests: &RequestTable) -> Neighbours {
        self.inner.neighbours(arrival, requests)
    }

    fn allows_merge(
        &self,
        tag: Tag,
        side: Side,
        joined: &Outline,
        requests: &RequestTable,
    ) -> Result<(), NoMerge> {
        self.inner.allows_merge(tag, side, joined, requests)
    }

    fn merged(&mut self, tag: Tag, before: Extent, requests: &RequestTable, now: Instant) {
        self.inner.merged(tag, before, requests, now);
    }

    fn absorb(&mut self, tag: Tag, into: Tag, requests: &RequestTable) {
        self.inner.absorb(tag, into, requests);
        self.forget(tag);
    }

    fn take_any(&mut self, requests: &RequestTable) -> Option<Tag> {
        let tag = self.inner.take_any(requests)?;
        self.forget(tag);
        Some(tag)
    }

    fn completed(&mut self, tag: Tag, requests: &RequestTable, now: Instant) {
        self.inner.completed(tag, requests, now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.inner.poll_timeout()
    }

    fn settings(&self) -> &Settings {
        self.inner.settings()
    }

    fn settings_mut(&mut self) -> Option<&mut Settings> {
        self.change();
        self.inner.settings_mut()
    }

    fn set_weight(&mut self, stream: Stream, weight: u32) {
        self.change();
        self.inner.set_weight(stream, weight);
    }
}

/// The name and the settings of an elevator, as an [`ElevatorSpec`] prints them.
struct ElevatorText<'a>(&'a Checked);

impl std::fmt::Display for ElevatorText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name())?;
        let changed =
            self.0.settings().iter().filter(|(tunable, value)| *value != tunable.default).enumerate();
        for (index, (tunable, value)) in changed {
            write!(f, "{}{}={value}", if index == 0 { ':' } else { ',' }, tunable.name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_core::elevator::Harness;
    use iopath_core::{Duration, Sector};

    fn read(start: u64) -> Outline {
        let extent = Extent::new(Sector(start), 1).unwrap();
        Outline { op: Op::Read, extent, stream: Stream(0), priority: Priority::BestEffort, segments: 1 }
    }

    /// Serves the lowest sector first, although it promises the order of arrival.
    #[derive(Debug, Default)]
    struct Starving(Vec<(u64, Tag)>);

    impl Elevator for Starving {
        fn name(&self) -> &'static str {
            "starving"
        }
        fn insert(&mut self, tag: Tag, requests: &RequestTable, _: Instant) {
            self.0.push((requests[tag].extent().start().0, tag));
            self.0.sort_by_key(|(start, _)| std::cmp::Reverse(*start));
        }
        fn dispatch(&mut self, _: &RequestTable, _: Instant) -> Option<Tag> {
            self.0.pop().map(|(_, tag)| tag)
        }
        fn len(&self) -> usize {
            self.0.len()
        }
        fn starvation_bound(&self, _: Op, _: Priority, queued_max: usize) -> StarvationBound {
            StarvationBound { after: Duration::from_millis(1), dispatches: queued_max as u64 }
        }
        fn absorb(&mut self, tag: Tag, _: Tag, _: &RequestTable) {
            self.0.retain(|(_, queued)| *queued != tag);
        }
        fn take_any(&mut self, requests: &RequestTable) -> Option<Tag> {
            self.dispatch(requests, Instant::ZERO)
        }
    }

    fn run(passes: u64, millis: u64) {
        let kind = ElevatorKind {
            name: "starving",
            about: "",
            build: |requests_max| Box::new(Checked::new(Box::<Starving>::default(), requests_max)),
        };
        let mut harness = Harness::new(&ElevatorSpec::new(kind), 4);
        harness.insert(&read(1000), Instant::ZERO);
        for start in 0..passes {
            harness.insert(&read(start), Instant::ZERO);
            assert_eq!(harness.dispatch(Instant::from_nanos(millis * 1_000_000)).unwrap().1, read(start));
        }
        assert_eq!(harness.dispatch(Instant::from_nanos(millis * 1_000_000)).unwrap().1, read(1000));
    }

    #[test]
    fn a_request_that_waits_within_the_bound_is_no_failure() {
        run(1, 2);
        run(50, 1);
    }

    #[test]
    #[should_panic(expected = "rule 9: starving: read of 1000 + 1 waits for 3 dispatches, not 2")]
    fn a_request_that_waits_longer_than_its_bound_is_found() {
        run(2, 2);
    }

    #[test]
    fn every_elevator_is_checked() {
        for kind in ELEVATORS {
            assert!(!spec(kind.name, true).is_of_kind(&ElevatorSpec::new(*kind)));
        }
        assert!(spec("none", false).is_of_kind(&ElevatorSpec::default()));
    }
}
