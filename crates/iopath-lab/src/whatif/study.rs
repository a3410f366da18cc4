//! Runs the cells of a study on several threads: each thread takes the next cell from the list. The results do not
//! depend on the number of threads: each replay has its own model and seed, and results are stored by the number of the
//! cell.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use iopath_model::Model;
use iopath_report::shard::Shard;
use iopath_report::whatif::Metric;
use iopath_report::whatif::{CellReport, InputReport, ModelError, SCHEMA, Study, WhatIfReport};

use super::error::WhatIfError;
use super::parts::with_verdicts;
use super::plan::{FITTED, Planned, plan, study_id};
use super::replay::{Failure, Run, Timing};
use super::resample::{changes, mean};
use super::tally::{Digest, Tally};
use super::trace::{Input, Needs};
use super::{WhatIf, csv, log};
use crate::fit::{DEFAULT_TIME, FitOptions, fit, stated_error};
use iopath_bench::error::BenchError;
use iopath_bench::model::{ModelTarget, model_file};
use iopath_bench::progress::{Progress, Silent, Stage};

/// Runs a study, or the share of one.
///
/// # Errors
/// [`WhatIfError`]: an input or a model cannot be used, or a replay failed.
pub(super) fn run(options: &WhatIf, progress: &mut dyn Progress) -> Result<WhatIfReport, WhatIfError> {
    let planned = plan(&options.inputs, &options.axes)?;
    let cells = planned.iter().map(|one| one.alternatives.len() as u64).sum();
    let by =
        options.by.map_or(if options.closed { "throughput" } else { "mean" }, |metric: &Metric| metric.name);
    let (closed, speed, seeds) = (options.closed, options.speed, options.seeds.max(1));
    let mut study = Study { id: String::new(), cells, closed, speed, seeds, by: by.to_owned() };
    study.id = study_id(&planned, &study);
    let shared = Shared {
        timing: Timing { speed, is_closed: closed },
        seeds,
        wraps: options.wrap,
        inputs: planned.iter().map(|_| Mutex::default()).collect(),
        planned,
        stop: AtomicBool::new(false),
    };
    let list = shared.cells(options.shard);
    let results = shared.run(&list, options.threads, progress)?;
    let report = report(study, options.shard, results);
    Ok(if options.shard.is_some() { report } else { with_verdicts(report) })
}

/// A cell: an input, and an alternative of it.
type Cell = (usize, usize);

/// The state that the threads share.
struct Shared {
    planned: Vec<Planned>,
    timing: Timing,
    seeds: u32,
    wraps: bool,
    inputs: Vec<Mutex<Slot>>,
    stop: AtomicBool,
}

/// An input in memory while cells need it.
#[derive(Default)]
struct Slot {
    loaded: Option<Arc<Loaded>>,
    /// Cells that are done.
    done: usize,
}

/// An input with its models.
struct Loaded {
    input: Input,
    recorded: Option<Digest>,
    models: Vec<LoadedModel>,
    reference: Mutex<Option<Arc<Vec<Digest>>>>,
}

struct LoadedModel {
    model: Model,
    error: ModelError,
    /// The sectors to which higher sectors wrap around.
    wrap: Option<u64>,
}

/// The result of a cell, with the facts of its input.
struct Done {
    cell: CellReport,
    facts: InputReport,
}

impl Shared {
    /// The cells of a share.
    fn cells(&self, shard: Option<Shard>) -> Vec<Cell> {
        let of_input = |(input, one): (usize, &Planned)| {
            let first = one.first_cell;
            (0..one.alternatives.len()).filter_map(move |index| {
                shard.is_none_or(|shard| shard.has(first + index as u64)).then_some((input, index))
            })
        };
        self.planned.iter().enumerate().flat_map(of_input).collect::<Vec<_>>()
    }

    /// Runs the cells of the list.
    fn run(
        &self,
        list: &[Cell],
        threads: Option<usize>,
        progress: &mut dyn Progress,
    ) -> Result<Vec<Done>, WhatIfError> {
        let available = || thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.unwrap_or_else(available).clamp(1, list.len().max(1));
        let (next, (sender, receiver)) = (AtomicUsize::new(0), channel());
        let mut results: Vec<Option<Result<Done, WhatIfError>>> = list.iter().map(|_| None).collect();
        thread::scope(|scope| {
            for _ in 0..threads {
                let (sender, next): (Sender<_>, _) = (sender.clone(), &next);
                scope.spawn(move || {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(cell) = list.get(index).filter(|_| !self.stop.load(Ordering::Relaxed))
                        else {
                            return;
                        };
                        let done = self.cell(*cell, list);
                        if done.is_err() {
                            self.stop.store(true, Ordering::Relaxed);
                        }
                        if sender.send((index, done)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            for (number, (index, done)) in (1..).zip(receiver) {
                if let Ok(Done { cell, facts }) = &done {
                    let name = format!("{}: {}", facts.name, cell.name);
                    progress.stage(&Stage::Cell { name, number, count: list.len() as u32 });
                }
                results[index] = Some(done);
            }
        });
        // The first failure in the order of the cells; a replay that was stopped is none.
        let mut done = Vec::with_capacity(list.len());
        let mut stopped = None;
        for result in results.into_iter().flatten() {
            match result {
                Ok(one) => done.push(one),
                Err(WhatIfError::Bench(BenchError::Interrupted)) => {
                    stopped = Some(BenchError::Interrupted.into());
                }
                Err(error) => return Err(error),
            }
        }
        stopped.map_or(Ok(done), Err)
    }

    /// Runs one cell.
    fn cell(&self, (input, index): Cell, list: &[Cell]) -> Result<Done, WhatIfError> {
        let loaded = self.loaded(input)?;
        let planned = &self.planned[input];
        let is_reference = index == planned.reference;
        let digests = if is_reference {
            self.reference(input, &loaded)?
        } else {
            Arc::new(self.digests(input, index, &loaded)?)
        };
        let against_reference =
            if is_reference { None } else { Some(changes(&digests, &self.reference(input, &loaded)?)) };
        let against_recorded =
            loaded.recorded.as_ref().map(|recorded| changes(&digests, std::slice::from_ref(recorded)));
        let alternative = &planned.alternatives[index];
        let cell = CellReport {
            number: planned.first_cell + index as u64,
            name: planned.names[index].clone(),
            reference: is_reference,
            target: planned.target_name(alternative.target),
            model_error: loaded.models[alternative.target].error.clone(),
            elevator: alternative.elevator.to_string(),
            max_sectors_bytes: alternative.max_request_bytes,
            depth: alternative.depth,
            merge: alternative.is_merged,
            priority: alternative.priorities.to_string(),
            readahead: alternative.readahead(),
            cache_bytes: alternative.cache.cache_bytes,
            figures: mean(&digests),
            against_reference,
            against_recorded,
        };
        let facts = facts(input, planned.is_log, &loaded);
        drop(loaded);
        self.release(input, list);
        Ok(Done { cell, facts })
    }

    /// The input and its models. The first thread that needs them reads them.
    fn loaded(&self, input: usize) -> Result<Arc<Loaded>, WhatIfError> {
        let mut slot = self.inputs[input].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = &slot.loaded {
            return Ok(Arc::clone(loaded));
        }
        let loaded = Arc::new(load(&self.planned[input], self.timing, self.wraps)?);
        slot.loaded = Some(Arc::clone(&loaded));
        Ok(loaded)
    }

    /// Releases the memory of an input after its last cell.
    fn release(&self, input: usize, list: &[Cell]) {
        let mut slot = self.inputs[input].lock().unwrap_or_else(PoisonError::into_inner);
        slot.done += 1;
        if slot.done == list.iter().filter(|(of, _)| *of == input).count() {
            slot.loaded = None;
        }
    }

    /// The replays of the reference. The first thread that needs them runs them.
    fn reference(&self, input: usize, loaded: &Loaded) -> Result<Arc<Vec<Digest>>, WhatIfError> {
        let mut reference = loaded.reference.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(digests) = &*reference {
            return Ok(Arc::clone(digests));
        }
        let digests = Arc::new(self.digests(input, self.planned[input].reference, loaded)?);
        *reference = Some(Arc::clone(&digests));
        Ok(digests)
    }

    /// The replays of an alternative, one for each seed. A model without random choices is replayed twice at most.
    fn digests(&self, input: usize, index: usize, loaded: &Loaded) -> Result<Vec<Digest>, WhatIfError> {
        let planned = &self.planned[input];
        let alternative = &planned.alternatives[index];
        let LoadedModel { model, wrap, .. } = &loaded.models[alternative.target];
        let mut tallies: Vec<Tally> = Vec::new();
        for seed in 1..=self.seeds {
            let run = Run {
                input: &loaded.input,
                model,
                alternative,
                timing: self.timing,
                seed: seed.into(),
                wrap: *wrap,
            };
            let tally = run.tally(&self.stop).map_err(|failure| {
                failed(failure, &planned.path, Path::new(&planned.target_name(alternative.target)))
            })?;
            if tallies.first() == Some(&tally) {
                break;
            }
            tallies.push(tally);
        }
        Ok(tallies.iter().map(Tally::digest).collect())
    }
}

/// The report of the results, which are in the order of the cells.
fn report(study: Study, shard: Option<Shard>, results: Vec<Done>) -> WhatIfReport {
    let mut inputs: BTreeMap<u64, InputReport> = BTreeMap::new();
    for Done { cell, facts } in results {
        inputs.entry(facts.number).or_insert(facts).cells.push(cell);
    }
    WhatIfReport {
        schema: SCHEMA.to_owned(),
        origin: None,
        shard,
        study,
        inputs: inputs.into_values().collect(),
    }
}

/// The facts of an input, without cells.
fn facts(number: usize, is_log: bool, loaded: &Loaded) -> InputReport {
    let Loaded { input, recorded, .. } = loaded;
    InputReport {
        number: number as u64,
        name: input.name.display().to_string(),
        log: is_log,
        requests: input.len() as u64,
        devices: input.devices.len() as u64,
        streams: input.streams.len() as u64,
        accesses: input.has_accesses,
        seconds: input.span_ns() as f64 / 1e9,
        windows: input.windows as u64,
        recorded: recorded.as_ref().map(Digest::all),
        cells: Vec::new(),
        verdict: None,
        notes: input.notes.clone(),
    }
}

/// Reads an input and its models, and checks that they suit each other.
fn load(planned: &Planned, timing: Timing, wraps: bool) -> Result<Loaded, WhatIfError> {
    let input = if planned.is_log {
        log::read(&planned.path, planned.has_accesses)?
    } else {
        csv::read(&planned.path)?
    };
    if timing.is_closed && !input.has_completions() {
        return Err(WhatIfError::NoCompletions { path: planned.path.clone() });
    }
    // The cache reads and writes whole pages.
    let needs = if input.has_accesses { Needs { bits: 0, ..input.needs() } } else { input.needs() };
    let model = |target: usize| {
        let (model, error) = match &planned.targets[target] {
            Some(path) => of_target(path, planned)?,
            None => fitted(&planned.path)?,
        };
        let wrap = wrap(&planned.path, &planned.target_name(target), &model, needs, wraps)?;
        Ok(LoadedModel { model, error, wrap })
    };
    let models = (0..planned.targets.len()).map(model).collect::<Result<_, WhatIfError>>()?;
    let recorded = input.recorded.as_ref().map(Tally::digest);
    Ok(Loaded { input, recorded, models, reference: Mutex::default() })
}

/// The model that a target names, and its error.
fn of_target(path: &Path, planned: &Planned) -> Result<(Model, ModelError), WhatIfError> {
    let target =
        ModelTarget::find(path)?.ok_or_else(|| WhatIfError::NotAModel { target: path.to_owned() })?;
    let stated = model_file(path).and_then(|file| std::fs::read_to_string(file).ok());
    let error = if planned.recorded_on.as_deref() == Some(path) {
        ModelError { median: Some(0.0), source: "the trace was recorded on this model".to_owned() }
    } else if let Some(median) = stated.as_deref().and_then(stated_error) {
        ModelError { median: Some(median), source: "stated by its fit, on figures held back".to_owned() }
    } else {
        ModelError { median: None, source: "unknown: no fit states it".to_owned() }
    };
    Ok((target.model().clone(), error))
}

/// A model of the recorded device, and its error.
fn fitted(log: &Path) -> Result<(Model, ModelError), WhatIfError> {
    let options = FitOptions { source: log.to_owned(), time: DEFAULT_TIME, overwrite: false };
    let fit = fit(&options, &mut Silent)?;
    let model = Model::parse(FITTED, &fit.file)?;
    let source = "stated by the fit to the log, on windows held back".to_owned();
    Ok((model, ModelError { median: stated_error(&fit.file), source }))
}

/// Checks that a model can execute all requests. Returns the sectors to which higher sectors wrap around.
fn wrap(
    path: &Path,
    name: &str,
    model: &Model,
    needs: Needs,
    wraps: bool,
) -> Result<Option<u64>, WhatIfError> {
    let (path, limits) = (path.to_owned(), model.limits());
    let (capacity, block) = (model.capacity(), limits.block_sectors());
    let name = || name.to_owned();
    if needs.bits & (block - 1) != 0 {
        let block_bytes = limits.logical_block_bytes;
        return Err(WhatIfError::Unaligned { path, model: name(), block_bytes });
    }
    if needs.end <= capacity {
        return Ok(None);
    }
    if !wraps {
        return Err(WhatIfError::Beyond { path, end: needs.end, model: name(), capacity });
    }
    // All starts below this sector leave room for the largest request.
    let starts = capacity.saturating_sub(needs.sectors_max) / block * block;
    if starts == 0 {
        return Err(WhatIfError::LargerThanModel {
            path,
            sectors: needs.sectors_max,
            model: name(),
            capacity,
        });
    }
    Ok(Some(starts))
}

fn failed(failure: Failure, path: &Path, target: &Path) -> WhatIfError {
    let path = path.to_owned();
    match failure {
        Failure::Stopped => BenchError::Interrupted.into(),
        Failure::Loop(source) => BenchError::Simulation { target: target.to_owned(), source }.into(),
        Failure::Io { request, error } => {
            WhatIfError::Failed { path, sector: request.sector, sectors: request.sectors.into(), error }
        }
        Failure::Refused(problem) => WhatIfError::Refused { path, problem },
    }
}
