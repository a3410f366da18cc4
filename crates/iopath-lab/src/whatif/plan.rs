//! Plans a study before it reads a trace: the alternatives of each input, the reference among them, and the number of
//! each cell. Each process of a study plans the same cells.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use iopath_core::elevator::ElevatorSpec;
use iopath_log::LogInfo;
use iopath_report::whatif::Study;
use iopath_trace::{CSV, Content, content_of};

use super::alternative::{Alternative, Axes, names};
use super::csv;
use super::error::WhatIfError;
use iopath_bench::cache::{CacheSettings, parse_readahead};
use iopath_bench::model::is_model;

/// An input with its alternatives.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) path: PathBuf,
    pub(super) is_log: bool,
    /// Whether the accesses above a page cache are replayed, not the requests below it.
    pub(super) has_accesses: bool,
    /// The models; none is a model to be fitted to the log.
    pub(super) targets: Vec<Option<PathBuf>>,
    /// The model on which the log was recorded in virtual time.
    pub(super) recorded_on: Option<PathBuf>,
    pub(super) alternatives: Vec<Alternative>,
    pub(super) names: Vec<String>,
    /// The index of the alternative with which the others are compared.
    pub(super) reference: usize,
    /// The number of the first cell.
    pub(super) first_cell: u64,
}

/// A model that is fitted to the log itself, as the report names it.
pub(super) const FITTED: &str = "fitted to the log";

impl Planned {
    /// The name of a target.
    pub(super) fn target_name(&self, target: usize) -> String {
        match self.targets.get(target) {
            Some(Some(path)) => path.display().to_string(),
            _ => FITTED.to_owned(),
        }
    }
}

/// Plans the cells of all inputs.
///
/// # Errors
/// An input cannot be opened, or has no model.
pub(super) fn plan(inputs: &[PathBuf], axes: &Axes) -> Result<Vec<Planned>, WhatIfError> {
    let mut first_cell = 0;
    let mut planned = Vec::with_capacity(inputs.len());
    for path in inputs {
        let one = plan_one(path, axes, first_cell)?;
        first_cell += one.alternatives.len() as u64;
        planned.push(one);
    }
    Ok(planned)
}

fn plan_one(path: &Path, axes: &Axes, first_cell: u64) -> Result<Planned, WhatIfError> {
    // A device or a FIFO could have no end.
    let metadata =
        std::fs::metadata(path).map_err(|source| WhatIfError::Open { path: path.to_owned(), source })?;
    if !metadata.is_file() {
        return Err(WhatIfError::NoTrace { path: path.to_owned() });
    }
    // The reader of CSV replays accesses, too, and sorts all lines by time.
    let is_log = match content_of(path)? {
        Content::Log => true,
        Content::Trace(format) => format.name != CSV,
        Content::Other => false,
    };
    let header = if is_log { Some(iopath_trace::open(path)?.info().clone()) } else { None };
    let has_accesses = match &header {
        // A run on a kernel path has no requests in the log. A recording of the kernel has them.
        Some(header) => {
            let is_without_requests = header.elevator.is_empty() && !header.has_devices();
            header.has_accesses && (axes.has_cache() || is_without_requests)
        }
        None => csv::has_accesses(path)?,
    };
    if axes.has_cache() && !has_accesses {
        return Err(WhatIfError::NoAccesses { path: path.to_owned() });
    }
    let recorded_on = header
        .as_ref()
        .filter(|header| header.clock == "virtual")
        .map(|header| PathBuf::from(&header.target));
    let targets: Vec<Option<PathBuf>> = if !axes.targets.is_empty() {
        axes.targets.iter().cloned().map(Some).collect()
    } else if let Some(target) = recorded_on.clone().filter(|target| is_model(target)) {
        vec![Some(target)]
    } else if header.as_ref().is_some_and(|header| !header.elevator.is_empty()) {
        vec![None]
    } else {
        return Err(WhatIfError::NoTarget { path: path.to_owned() });
    };
    let (elevator, depth) = match &header {
        Some(header) => (header.elevator.parse().unwrap_or_default(), header.device_depth),
        None => (ElevatorSpec::default(), None),
    };
    let mut base = Alternative::first(elevator, depth);
    if let Some(header) = header.as_ref().filter(|_| has_accesses) {
        base.cache = recorded_cache(header);
    }
    let mut alternatives = axes.product(&base)?;
    let mut reference = 0;
    // The settings of a kernel path have no equivalent here, so the first combination is the reference.
    if header.is_some_and(|header| !header.elevator.is_empty()) {
        let words = |one: &Alternative| one.words(&one.target.to_string());
        let recorded = alternatives.iter().position(|one| words(one) == words(&base));
        reference = recorded.unwrap_or_else(|| {
            alternatives.insert(0, base);
            0
        });
    }
    let mut planned = Planned {
        path: path.to_owned(),
        is_log,
        has_accesses,
        targets,
        recorded_on,
        alternatives,
        names: Vec::new(),
        reference,
        first_cell,
    };
    let words: Vec<_> =
        planned.alternatives.iter().map(|one| one.words(&planned.target_name(one.target))).collect();
    planned.names = names(&words);
    Ok(planned)
}

/// The page cache of a recorded run.
fn recorded_cache(header: &LogInfo) -> CacheSettings {
    let default = CacheSettings::default();
    let readahead = header.readahead.as_deref().and_then(|text| parse_readahead(text).ok());
    CacheSettings {
        readahead: Some(readahead.unwrap_or_else(|| default.readahead())),
        cache_bytes: Some(header.cache_bytes.unwrap_or_else(|| default.cache_bytes())),
        ..default
    }
}

/// The id of a study: a checksum of the version, the options and the cells.
pub(super) fn study_id(planned: &[Planned], study: &Study) -> String {
    let mut text = format!("{}\n{study:?}\n", env!("CARGO_PKG_VERSION"));
    for one in planned {
        text += &one.path.display().to_string();
        for alternative in &one.alternatives {
            let words = alternative.words(&one.target_name(alternative.target));
            let _ = write!(text, "\n{words:?}");
        }
    }
    format!("{:08x}", crc32fast::hash(text.as_bytes()))
}
