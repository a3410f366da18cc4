//! Writes results as one HTML page that works offline: findings, charts, tables, comparison, request logs, conditions
//! and commands. Measures nothing, and decides no verdict: `survey`, `compare` and `experiment` do.
//!
//! `html/input.rs` reads the files. `html/series.rs` and `html/runs.rs` choose the charts, `html/svg.rs` draws them.
//! The page is complete without scripts; with them, uPlot replaces the pictures.

mod chart;
mod compared;
mod experiments;
mod facts;
mod general;
mod input;
mod log_page;
mod number;
mod page;
mod parts;
mod run_findings;
mod run_table;
mod runs;
mod script;
mod series;
mod svg;
mod sweeps;
mod verified;

use std::path::PathBuf;

use maud::{Markup, html};

use crate::compare::Comparison;
use crate::format::{Document, Medium, page as fragments};
use crate::result::{Origin, Report, RunResult};
pub use input::PageError;
use input::{Content, Source};
pub use page::PAGE_START;
use page::Section;
use parts::{Palette, Statement};

/// More comparisons are left out: a page compares each result with the first one.
const COMPARED_MAX: usize = 8;

/// The files of a page, and its title.
#[derive(Debug, Clone)]
pub struct PageOptions {
    /// Results and request logs, in the order of the page.
    pub files: Vec<PathBuf>,
    /// The title; none for one that names the files.
    pub title: Option<String>,
    /// The largest difference between two results that counts as the same, as a fraction.
    pub threshold: f64,
    /// Conditions in which compared results may differ; `all` permits every difference.
    pub vary: Vec<String>,
    /// Compares two files of results.
    pub compare: CompareFiles,
}

/// Compares two files of results, by the threshold and the permitted differences of the page. The error is a message in
/// one line.
pub type CompareFiles = fn(page: &PageOptions, files: [String; 2]) -> Result<Comparison, String>;

impl PageOptions {
    /// The page of these files: differences up to 3% count as the same, and conditions must not differ.
    pub fn new(files: Vec<PathBuf>, compare: CompareFiles) -> Self {
        Self { files, title: None, threshold: 0.03, vary: Vec::new(), compare }
    }
}

/// The page of results and request logs. The same files yield the same page.
///
/// # Errors
/// [`PageError`]: a file cannot be read, or is neither a result nor a log.
pub fn page(options: &PageOptions) -> Result<String, PageError> {
    let sources: Vec<Source> =
        options.files.iter().map(|file| input::read(file)).collect::<Result<_, _>>()?;
    let mut palette = Palette::default();
    let mut findings = Vec::new();
    // Damaged data is more important than any figure.
    for (source, report) in results(&sources) {
        let name = if sources.len() > 1 { short_name(&source.name) } else { String::new() };
        findings.extend(verified::statements(&name, report));
    }
    let mut sections = Vec::new();
    let compared = compare_results(&sources, options);
    for (_, comparison) in &compared {
        findings.extend(comparison.iter().flat_map(compared::statements));
    }
    let names: Vec<(String, &Report)> =
        results(&sources).map(|(source, report)| (short_name(&source.name), report)).collect();
    let runs: Vec<(&str, &RunResult)> = names
        .iter()
        .flat_map(|(name, report)| report.runs.iter().map(move |run| (name.as_str(), run)))
        .collect();
    let pooled = series::groups(&runs);
    // The findings of surveys are better than a ranking.
    if names.iter().all(|(_, report)| report.findings.is_empty()) {
        findings.extend(run_findings::of_groups(&pooled));
    }
    let overlaid = if names.len() > 1 { runs::charts(&pooled, &mut palette) } else { Markup::default() };
    let several = sources.len() > 1;
    for (number, source) in sources.iter().enumerate() {
        let has_charts = names.len() < 2;
        let (statements, body) = content(source, number, has_charts, &mut palette);
        findings.extend(statements.into_iter().map(|statement| of_source(statement, source, several)));
        sections.push(Section { title: short_name(&source.name), subtitle: subtitle(source), body });
    }
    let mut ordered = comparison_sections(&compared, &overlaid);
    ordered.append(&mut sections);
    ordered.push(conditions(&sources));
    ordered.push(commands(&sources));
    let title = options.title.clone().unwrap_or_else(|| title(&sources));
    Ok(page::document(&title, &machine(&sources), &findings, &ordered))
}

/// The statement with the name of its file, on a page of several.
fn of_source(statement: Statement, source: &Source, several: bool) -> Statement {
    if !several {
        return statement;
    }
    Statement { tag: format!("{} · {}", short_name(&source.name), statement.tag), ..statement }
}

/// The statements and the body of a file. Charts of several results are those of the comparison.
fn content(
    source: &Source,
    number: usize,
    has_charts: bool,
    palette: &mut Palette,
) -> (Vec<Statement>, Markup) {
    match &source.content {
        Content::Results(report) => {
            let runs: Vec<(&str, &RunResult)> = report.runs.iter().map(|run| ("", run)).collect();
            let groups = series::groups(&runs);
            let only = report.runs.first().filter(|_| report.runs.len() == 1);
            let body = html! {
                @if let Some(run) = only { (runs::tiles(run)) }
                @if has_charts { (runs::charts(&groups, palette)) }
                h3 { "All figures" }
                (fragments::sections(&report.sections(Medium::Page)))
                (verified::section(report))
            };
            (run_findings::of_report(report), body)
        }
        Content::Comparison(of) => (compared::statements(&of.document), compared::section(&of.document)),
        Content::Experiments(list) => (experiments::statements(list), experiments::section(list)),
        Content::Sweep(sweep) => (sweeps::statements(sweep), sweeps::section(sweep, palette)),
        Content::Settings(of) => (general::of_settings(&of.document), general::section(&of.document)),
        Content::Trial(of) => (general::of_trial(&of.document), general::trial_section(&of.document)),
        Content::Fit(of) => (general::of_fit(&of.document), general::fit_section(&of.document)),
        Content::Map(of) => (general::of_map(&of.document), general::section(&of.document)),
        Content::Replay(of) => (general::of_replay(&of.document), general::section(&of.document)),
        Content::WhatIf(report) => (general::of_whatif(report), general::section(&**report)),
        Content::Log(log) => (log_page::statements(log), log_page::section(log, number)),
    }
}

/// The results among the sources.
fn results(sources: &[Source]) -> impl Iterator<Item = (&Source, &Report)> {
    sources.iter().filter_map(|source| match &source.content {
        Content::Results(report) => Some((source, &**report)),
        _ => None,
    })
}

/// Each result compared with the first one, or the reason against it.
type Comparisons = Vec<(String, Result<Comparison, String>)>;

fn compare_results(sources: &[Source], page: &PageOptions) -> Comparisons {
    let mut all = results(sources).map(|(source, _)| source);
    let Some(first) = all.next() else { return Vec::new() };
    let compare = |other: &Source| {
        let side = |source: &Source| source.path.to_string_lossy().into_owned();
        let compared = (page.compare)(page, [side(first), side(other)]);
        (format!("{} → {}", short_name(&first.name), short_name(&other.name)), compared)
    };
    all.take(COMPARED_MAX).map(compare).collect()
}

fn comparison_sections(compared: &Comparisons, overlaid: &Markup) -> Vec<Section> {
    if compared.is_empty() {
        return Vec::new();
    }
    let refused: Vec<(&str, &str)> = compared
        .iter()
        .filter_map(|(names, comparison)| Some((names.as_str(), comparison.as_ref().err()?.as_str())))
        .collect();
    let body = html! {
        @for (names, comparison) in compared {
            @if let Ok(comparison) = comparison {
                h3 { (names) }
                (compared::section(comparison))
            }
        }
        (overlaid)
        @if !refused.is_empty() {
            details {
                summary { "Not compared with statistics: " (refused.len()) }
                @for (names, reason) in &refused { p class="note" { (names) ": " (reason) } }
            }
        }
    };
    let subtitle =
        "Each result against the first one, with 95% intervals, by the statistics of iopath compare."
            .to_owned();
    vec![Section { title: "Comparison".to_owned(), subtitle, body }]
}

fn conditions(sources: &[Source]) -> Section {
    let others: Vec<_> = sources
        .iter()
        .filter_map(|source| {
            let (host, target) = match &source.content {
                Content::Sweep(sweep) => (sweep.host.as_ref(), sweep.target.as_ref()),
                Content::Fit(of) => (of.document.host.as_ref(), of.document.target.as_ref()),
                Content::Map(of) => (of.document.host.as_ref(), None),
                Content::Replay(of) => {
                    (Some(&of.document.host), of.document.devices.first().map(|device| &device.target))
                }
                _ => (None, None),
            };
            (host.is_some() || target.is_some()).then_some((source, host, target))
        })
        .collect();
    let body = html! {
        @for (source, report) in results(sources) {
            @if sources.len() > 1 { h3 { (short_name(&source.name)) } }
            (run_table::conditions(report))
        }
        @for (source, host, target) in &others {
            @if sources.len() > 1 { h3 { (short_name(&source.name)) } }
            (run_table::machine_and_target(*host, *target))
        }
        @if others.is_empty() && results(sources).next().is_none() { p class="note" { "The files name no machine." } }
    };
    Section { title: "Machine and settings".to_owned(), subtitle: String::new(), body }
}

fn commands(sources: &[Source]) -> Section {
    let files: Vec<String> = sources.iter().map(|source| run_table::quoted(&source.name)).collect();
    let body = html! {
        @for (source, report) in results(sources) {
            @if sources.len() > 1 { h3 { (short_name(&source.name)) } }
            (run_table::commands(report))
        }
        @for source in sources {
            @match &source.content {
                Content::Sweep(sweep) => {
                    h3 { (short_name(&source.name)) }
                    (run_table::command_line("iopath", &sweep.arguments))
                },
                Content::Comparison(of) => { (origin(source, of.origin.as_ref())) },
                Content::Experiments(list) => { (origin(source, list.origin.as_ref())) },
                Content::Settings(of) => { (origin(source, of.origin.as_ref())) },
                Content::Trial(of) => { (origin(source, of.origin.as_ref())) },
                Content::Fit(of) => { (origin(source, of.origin.as_ref())) },
                Content::Replay(of) => { (origin(source, of.origin.as_ref())) },
                Content::Map(of) => { (origin(source, of.origin.as_ref())) },
                Content::WhatIf(report) => { (origin(source, report.origin.as_ref())) },
                Content::Results(_) | Content::Log(_) => {},
            }
        }
        h3 { "This page" }
        (parts::command(&format!("iopath report {} -o report.html", files.join(" "))))
    };
    Section { title: "Commands".to_owned(), subtitle: String::new(), body }
}

/// The command line of a document that states it.
fn origin(source: &Source, origin: Option<&Origin>) -> Markup {
    html! {
        @if let Some(origin) = origin {
            h3 { (short_name(&source.name)) }
            (run_table::command_line("", &origin.command))
        }
    }
}

/// The name of a file without its folders.
fn short_name(name: &str) -> String {
    name.rsplit('/').next().filter(|short| !short.is_empty()).unwrap_or(name).to_owned()
}

fn title(sources: &[Source]) -> String {
    let [source] = sources else { return format!("{} results of iopath", sources.len()) };
    match &source.content {
        Content::Results(report) => match &report.target {
            Some(target) if target.scratch => "I/O of a scratch file".to_owned(),
            Some(target) => format!("I/O of {}", target.path),
            None => "Results of iopath".to_owned(),
        },
        Content::Comparison(_) => "Comparison".to_owned(),
        Content::Experiments(_) => "Published effects, re-enacted".to_owned(),
        Content::Sweep(_) => "Sweep".to_owned(),
        Content::Settings(of) => format!("Settings of {}", of.document.device),
        Content::Trial(of) => format!("Settings of {}: trial", of.document.device),
        Content::Fit(of) => format!("Model of kind {}", of.document.kind),
        Content::Map(of) => format!("Extents of {}", short_name(&of.document.path)),
        Content::Replay(of) => format!("Replay of {}", short_name(&of.document.trace)),
        Content::WhatIf(_) => "What if: recorded requests under other settings".to_owned(),
        Content::Log(log) if log.summary.log.target.is_empty() => "Request log".to_owned(),
        Content::Log(log) => format!("Requests to {}", log.summary.log.target),
    }
}

/// The machine and the storage, in one line.
fn machine(sources: &[Source]) -> String {
    let Some((_, report)) = results(sources).next() else { return String::new() };
    let mut parts = Vec::new();
    if let Some(target) = &report.target {
        let filesystem = target.filesystem.as_ref().map_or_else(String::new, |name| format!(" on {name}"));
        parts.push(format!("{} of {}{filesystem}", target.kind, crate::size::format_size(target.size_bytes)));
        if let Some(disk) = &target.disk {
            let model = disk.model.as_ref().map_or_else(String::new, |model| format!(" ({})", model.trim()));
            parts.push(format!("disk {}{model}", disk.name));
        }
    }
    if let Some(host) = &report.host {
        parts.push(format!("{}, {} CPUs", host.cpu, host.cores));
        parts.push(format!("Linux {}", host.kernel));
    }
    parts.join(" · ")
}

fn subtitle(source: &Source) -> String {
    match &source.content {
        Content::Results(report) => {
            let kind = if !report.findings.is_empty() {
                "survey"
            } else if report.runs.iter().any(|run| run.job.is_some()) {
                "job file"
            } else {
                "measurement"
            };
            let runs = report.runs.len();
            format!("{}: {kind} of {runs} {}", source.name, if runs == 1 { "workload" } else { "workloads" })
        }
        Content::Comparison(_) => format!("{}: comparison", source.name),
        Content::Experiments(_) => format!("{}: experiments", source.name),
        Content::Sweep(sweep) => format!("{}: sweep of {} cells", source.name, sweep.cells.len()),
        Content::Settings(_) => format!("{}: settings of a device", source.name),
        Content::Trial(_) => format!("{}: trial of settings", source.name),
        Content::Fit(_) => format!("{}: fit of a model", source.name),
        Content::Map(_) => format!("{}: map of a file", source.name),
        Content::Replay(_) => format!("{}: replay of a trace", source.name),
        Content::WhatIf(_) => format!("{}: replays of recorded requests", source.name),
        Content::Log(_) => format!("{}: request log", source.name),
    }
}
