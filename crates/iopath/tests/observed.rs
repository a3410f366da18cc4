//! Events for `tracing` and values for `metrics`, with small receivers of this file. Other tests of the process send
//! theirs, too: only those of a file of the test count.

use crate::support::{options, scratch};
use iopath::testing::{Fault, Faults};
use iopath::{AlignedBuf, Context, IoError, IoMode, Op, Volume};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};

static EVENTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps each event as a line.
struct Lines;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("iopath")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        EVENTS.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn lines_of(path: &str) -> Vec<String> {
    EVENTS.lock().unwrap().iter().filter(|line| line.contains(path)).cloned().collect()
}

#[test]
fn open_close_and_failed_write_back_are_events() {
    let _ = tracing::subscriber::set_global_default(Lines);
    let Some((_directory, path)) = scratch(1 << 20) else { return };
    let name = path.canonicalize().unwrap().display().to_string();
    let faults = Faults::new(1);
    let options = options().write(true).mode(IoMode::Buffered).cache_bytes(1 << 20).faults(&faults);
    let volume = Volume::open(&path, &options).unwrap();
    faults.add(Fault::error(IoError::NoSpace).on(Op::Write));
    volume.write_at(&[1; 100], 5000).unwrap();
    volume.flush().unwrap_err();
    // The thread in the background may send it, after the flush.
    let start = Instant::now();
    while !lines_of(&name).iter().any(|line| line.starts_with("ERROR")) {
        assert!(start.elapsed() < Duration::from_secs(60), "no event: {:?}", lines_of(&name));
        std::thread::yield_now();
    }
    faults.clear();
    volume.close().unwrap();
    let lines = lines_of(&name);
    let has = |level: &str, texts: &[&str]| {
        let fits = |line: &&String| line.starts_with(level) && texts.iter().all(|text| line.contains(text));
        assert!(lines.iter().any(|line| fits(&line)), "{level} {texts:?}: {lines:?}");
    };
    has("DEBUG", &["volume opened", "size_bytes=1048576", "engine="]);
    has("ERROR", &["write-back failed", "offset=4096", "bytes=4096"]);
    assert!(lines.last().is_some_and(|line| line.contains("volume closed")), "{lines:?}");
}

/// Keeps the last value of each metric.
#[derive(Clone, Default)]
struct Values(Arc<Mutex<BTreeMap<String, f64>>>);

struct Value(Values, String);

impl Value {
    fn set_to(&self, value: f64) {
        self.0.0.lock().unwrap().insert(self.1.clone(), value);
    }
}

impl CounterFn for Value {
    fn increment(&self, _: u64) {}

    fn absolute(&self, value: u64) {
        self.set_to(value as f64);
    }
}

impl GaugeFn for Value {
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {}

    fn set(&self, value: f64) {
        self.set_to(value);
    }
}

impl Values {
    fn value(&self, key: &Key) -> Arc<Value> {
        let queue = key.labels().find(|label| label.key() == "queue").map_or("", |label| label.value());
        Arc::new(Value(self.clone(), format!("{}{queue}", key.name())))
    }

    fn get(&self, name: &str) -> Option<f64> {
        self.0.lock().unwrap().get(name).copied()
    }
}

impl Recorder for Values {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.value(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.value(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn the_counters_of_volumes_and_contexts_are_recorded_when_asked() {
    let Some((_directory, path)) = scratch(1 << 20) else { return };
    let values = Values::default();
    let context = Context::new(1 << 20);
    metrics::with_local_recorder(&values, || {
        let buffered = options().mode(IoMode::Buffered).context(&context);
        let volume = Volume::open(&path, &buffered).unwrap();
        volume.read_exact_at(&mut [0; 100], 5000).unwrap();
        volume.read_exact_at(&mut [0; 100], 5000).unwrap();
        assert!(values.0.lock().unwrap().is_empty(), "I/O records nothing");
        volume.record_metrics();
        context.record_metrics("of the test");
        let direct = Volume::open(&path, &options()).unwrap();
        direct.read_exact_at(&mut AlignedBuf::new(4096).unwrap(), 0).unwrap();
        direct.record_metrics();
    });
    assert_eq!(values.get("iopath_size_bytes"), Some(f64::from(1 << 20)));
    assert_eq!(values.get("iopath_cache_misses_total"), Some(1.0));
    assert_eq!(values.get("iopath_cache_dirty_pages"), Some(0.0));
    assert_eq!(values.get("iopath_queue_bios_totalthreads"), Some(1.0));
    assert!(values.get("iopath_queue_requests_totalcache").is_some());
    assert_eq!(values.get("iopath_context_volumes"), Some(1.0));
}
