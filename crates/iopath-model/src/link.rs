//! A link between host and device: bandwidth in each direction, latency, and the overhead of frames. Several devices
//! may share it. Loss, congestion control and arbitration are not modelled: each direction sends one message after
//! another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iopath_core::{Duration, Instant, Op};

use crate::document::{Document, Section};
use crate::error::ModelError;
use crate::mechanism::{Nanos, SECOND};
use crate::parameter::{Parameter, Setting, Unit};
use crate::stage::{Passage, Stage};

/// The parameters of a link.
const PARAMETERS: &[Parameter] = &[
    Parameter::new(
        "bandwidth_mbit_per_s",
        Unit::MbitPerS,
        (0.1, 1e7),
        "bits a second in each direction, without line coding",
    ),
    Parameter::new("latency_us", Unit::Microseconds, (0.0, 1e7), "the time of a bit from end to end"),
    Parameter::new("frame_bytes", Unit::Bytes, (1.0, 1e6), "data in a full frame"),
    Parameter::new(
        "frame_overhead_bytes",
        Unit::Bytes,
        (0.0, 1e6),
        "headers, checksums and gap of each frame",
    ),
    Parameter::new(
        "message_bytes",
        Unit::Bytes,
        (0.0, 1e6),
        "the size of a command or response without its data",
    )
    .or(64.0),
];

/// The parameters of a link, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkModel {
    settings: Vec<Setting>,
    bit_time: f64,
    latency: Nanos,
    frame: u64,
    overhead: u64,
    message: u64,
}

impl LinkModel {
    /// Names, units and ranges of its parameters.
    pub const PARAMETERS: &'static [Parameter] = PARAMETERS;

    /// Links that come with the crate.
    pub const PRESETS: &'static [(&'static str, &'static str)] = &[
        ("fc-2g", include_str!("../presets/link/fc-2g.toml")),
        ("gbe", include_str!("../presets/link/gbe.toml")),
    ];

    /// The parameters of a file.
    ///
    /// # Errors
    /// [`ModelError`]: a name or a value is not valid. The message has the file, line, parameter, range and unit.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, ModelError> {
        Self::parse_with(file_name, text, &[])
    }

    /// [`LinkModel::parse`] with other values for some parameters.
    ///
    /// # Errors
    /// Returns the errors of [`LinkModel::parse`].
    pub fn parse_with(file_name: &str, text: &str, overrides: &[(&str, &str)]) -> Result<Self, ModelError> {
        let document = Document::parse(file_name, text, overrides)?;
        let mut link = Self::read(&document.root())?;
        link.settings = document.settings();
        document.check_overrides()?;
        Ok(link)
    }

    pub(crate) fn read(section: &Section<'_>) -> Result<Self, ModelError> {
        let values = section.read(PARAMETERS, &["about", "base"])?;
        Ok(Self {
            settings: Vec::new(),
            bit_time: SECOND as f64 / values.number("bandwidth_mbit_per_s"),
            latency: values.amount("latency_us"),
            frame: values.amount("frame_bytes"),
            overhead: values.amount("frame_overhead_bytes"),
            message: values.amount("message_bytes"),
        })
    }

    /// Every parameter with its value and source.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// The time that a message with `data` bytes of data occupies one direction.
    pub fn transfer(&self, data: u64) -> Duration {
        let bytes = data + self.message;
        let wire = bytes + bytes.div_ceil(self.frame).max(1) * self.overhead;
        Duration::from_nanos((wire as f64 * self.bit_time).ceil() as Nanos)
    }
}

/// The state of a link. A clone refers to the same link: devices that share a link wait for each other.
#[derive(Debug, Clone)]
pub struct Link {
    shared: Arc<Mutex<Wire>>,
}

#[derive(Debug)]
struct Wire {
    model: LinkModel,
    down_free: Instant,
    up_free: Instant,
    busy_up: Duration,
}

impl Link {
    /// The link of `model`, idle.
    pub fn new(model: &LinkModel) -> Self {
        let wire = Wire {
            model: model.clone(),
            down_free: Instant::ZERO,
            up_free: Instant::ZERO,
            busy_up: Duration::ZERO,
        };
        Self { shared: Arc::new(Mutex::new(wire)) }
    }

    /// The time for which messages from the device have occupied the link.
    pub fn busy_up(&self) -> Duration {
        self.wire().busy_up
    }

    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stage for Link {
    fn enter(&mut self, request: &Passage, now: Instant) -> Instant {
        let mut wire = self.wire();
        let time = wire.model.transfer(if request.op == Op::Write { request.bytes } else { 0 });
        wire.down_free = wire.down_free.max(now) + time;
        wire.down_free + Duration::from_nanos(wire.model.latency)
    }

    fn leave(&mut self, request: &Passage, now: Instant) -> Instant {
        let mut wire = self.wire();
        let time = wire.model.transfer(if request.op == Op::Read { request.bytes } else { 0 });
        wire.up_free = wire.up_free.max(now) + time;
        wire.busy_up += time;
        wire.up_free + Duration::from_nanos(wire.model.latency)
    }
}
