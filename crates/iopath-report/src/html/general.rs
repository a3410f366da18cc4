//! Documents without charts of their own on a page: settings and trials, fitted models, maps of files. Shows their
//! tables, The statements are in each kind's own words; nothing is computed here.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::facts::Tone;
use super::parts::{Bar, Statement, bars};
use crate::fit::FitReport;
use crate::format::{Document, Medium, page};
use crate::map::FileMap;
use crate::numbers::{counted, percent, signed_percent};
use crate::replay::ReplayReport;
use crate::tune::{TrialReport, TrialVerdict, TuneReport};
use crate::whatif::{InputReport, WhatIfReport};

/// The tables of a document, with their paragraphs.
pub(super) fn section(document: &dyn Document) -> Markup {
    page::sections(&document.sections(Medium::Page))
}

/// The changes of a command, or the settings that differ from those before iopath.
pub(super) fn of_settings(report: &TuneReport) -> Vec<Statement> {
    let TuneReport { description, changed, settings, kept, .. } = report;
    let mut list: Vec<Statement> = changed
        .iter()
        .map(|change| {
            let evidence = match (change.requested, kept) {
                (false, _) => "changed by the kernel together with another setting",
                (true, true) => "kept until the next boot",
                (true, false) => "until iopath tune --restore",
            };
            let text = format!("{}: {} → {}", change.name, change.from, change.to);
            Statement::new(Tone::Plain, "setting", text, evidence)
        })
        .collect();
    if list.is_empty() {
        let pending = settings.iter().filter(|setting| setting.before.is_some()).count();
        let evidence = match pending {
            0 => "none is changed by iopath".to_owned(),
            1 => "1 is changed by iopath until iopath tune --restore".to_owned(),
            many => format!("{many} are changed by iopath until iopath tune --restore"),
        };
        list.push(Statement::new(
            Tone::Plain,
            "settings",
            format!("{description} has {} settings", settings.len()),
            evidence,
        ));
    }
    list
}

/// The verdict of a trial.
pub(super) fn of_trial(trial: &TrialReport) -> Vec<Statement> {
    let (tone, text) = match trial.verdict {
        TrialVerdict::Better => (Tone::Good, "is better than the present settings, and is set"),
        TrialVerdict::Same => (Tone::Plain, "is not better than the present settings"),
        TrialVerdict::Worse => (Tone::Bad, "is worse than the present settings"),
        TrialVerdict::Inconclusive => (Tone::Warn, "is inconclusive against the present settings"),
    };
    let winner = trial.winner.as_deref().unwrap_or("no candidate");
    let outcome = trial.outcome();
    let evidence = outcome.lines().next().unwrap_or_default().to_owned();
    let mut list =
        vec![Statement::new(tone, "trial", format!("{}: {winner} {text}", trial.device), evidence)];
    list.extend(trial.notes.iter().map(|note| Statement::new(Tone::Warn, "note", note.clone(), "")));
    list
}

/// The candidates against the present settings, and the table of the trial. Bars are ratios: means of different rounds
/// are not comparable.
pub(super) fn trial_section(trial: &TrialReport) -> Markup {
    let bar = |candidate: &crate::tune::CandidateFacts| {
        let value = candidate.of_present?;
        let [mut text, removed] = candidate.in_its_rounds();
        if !removed.is_empty() {
            text = format!("{text}, removed in {removed}");
        }
        let is_winner = trial.winner.as_ref() == Some(&candidate.settings);
        Some(Bar {
            name: candidate.settings.clone(),
            value,
            ends: None,
            text,
            colour: usize::from(is_winner),
        })
    };
    let list: Vec<Bar> = trial.candidates.iter().filter_map(bar).collect();
    html! {
        (bars("Candidates", "Ratio to the present settings in the rounds that measured a candidate.", &list))
        (section(trial))
    }
}

/// The error of a fitted model.
pub(super) fn of_fit(fit: &FitReport) -> Vec<Statement> {
    let text = format!(
        "The model of kind {} deviates by {} (median) from {} figures that the fit did not use",
        fit.kind,
        percent(fit.error.median),
        fit.held_back.len()
    );
    let mut evidence = format!(
        "90% of them within {}, largest deviation {}",
        percent(fit.error.p90),
        percent(fit.error.max)
    );
    if let Some(floor) = fit.noise_floor {
        let _ = write!(evidence, "; the error of a perfect model is about {}", percent(floor));
    }
    let mut list = vec![Statement::new(Tone::Plain, "fit", text, evidence)];
    list.extend(
        fit.warnings.iter().map(|warning| Statement::new(Tone::Warn, "warning", warning.clone(), "")),
    );
    list
}

/// The deviations of the figures held back, and the tables of the fit.
pub(super) fn fit_section(fit: &FitReport) -> Markup {
    let bar = |(colour, part, figure): (usize, &str, &crate::fit::FittedFigure)| Bar {
        name: format!("{} ({part})", figure.workload),
        value: figure.deviation.abs() * 100.0,
        ends: None,
        text: signed_percent(figure.deviation),
        colour,
    };
    let held_back = fit.held_back.iter().map(|figure| (0, "held back", figure));
    let training = fit.training.iter().map(|figure| (1, "training", figure));
    let list: Vec<Bar> = held_back.chain(training).map(bar).collect();
    html! {
        p class="note" { "Fitted to " (fit.source) }
        (bars("Deviation of the model", "The length is the size of the deviation; the number has its sign.", &list))
        (section(fit))
    }
}

/// The extents of a file, and the requests of its direct reads.
pub(super) fn of_map(map: &FileMap) -> Vec<Statement> {
    let written = map.written();
    let text = format!("{} lies in {written} {}", map.path, if written == 1 { "extent" } else { "extents" });
    let evidence: Vec<String> = map
        .requests
        .iter()
        .map(|requests| {
            let size = crate::size::format_size(requests.block_bytes);
            format!("{} reads of {size} become {} requests", requests.reads, requests.requests)
        })
        .collect();
    let mut list = vec![Statement::new(Tone::Plain, "map", text, evidence.join("; "))];
    list.extend(
        map.warnings.iter().map(|warning| Statement::new(Tone::Warn, "warning", warning.clone(), "")),
    );
    list
}

/// Whether the replay kept the times, and its failures.
pub(super) fn of_replay(report: &ReplayReport) -> Vec<Statement> {
    let mut list = Vec::new();
    for device in &report.devices {
        let on = device.name();
        if let Some(late) = &device.lateness_ns {
            let (tone, text) = if late.kept_up {
                (Tone::Plain, format!("The replay of {on} kept the times"))
            } else {
                (Tone::Warn, format!("The replay of {on} could not keep up with the times"))
            };
            list.push(Statement::new(tone, "replay", text, late.text()));
        }
        if device.failed > 0 {
            let text = format!("{} of the replay of {on} failed", counted(device.failed, "I/O"));
            let first = device.errors.first().map_or_else(String::new, |error| error.first.clone());
            list.push(Statement::new(Tone::Bad, "failures", text, first));
        }
    }
    list.extend(
        report.warnings.iter().map(|warning| Statement::new(Tone::Warn, "warning", warning.clone(), "")),
    );
    list
}

/// The verdict of each input.
pub(super) fn of_whatif(report: &WhatIfReport) -> Vec<Statement> {
    let of_input = |input: &InputReport| {
        let verdict = input.verdict.as_ref().map_or("no verdict", |verdict| verdict.text.as_str());
        let text = format!("{}: {verdict}", input.name);
        let mut list = vec![Statement::new(Tone::Plain, "what if", text, "")];
        list.extend(input.notes.iter().map(|note| Statement::new(Tone::Warn, "note", note.clone(), "")));
        list
    };
    report.inputs.iter().flat_map(of_input).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const BAD: &str = "<script>alert(1)</script>";

    #[test]
    fn a_trial_has_its_verdict_first_and_its_candidates_as_bars() {
        let trial: TrialReport = serde_json::from_value(json!({
            "schema": "iopath.tune-trial/1", "device": "vda", "unit": "IOPS", "winner": BAD, "verdict": "better",
            "difference": 0.2, "ci95": [0.1, 0.3], "pairs": 7, "set": true, "notes": [BAD],
            "candidates": [
                {"settings": "present", "mean": 100.0, "repetitions": 3, "removed": null},
                {"settings": "x", "mean": 130.0, "repetitions": 3, "removed": 1, "of_present": 1.1, "kept_from": 1.2},
                {"settings": BAD, "mean": 120.0, "repetitions": 3, "removed": null, "of_present": 1.2},
            ],
        }))
        .unwrap();
        let list = of_trial(&trial);
        assert!(list[0].text.contains("is better than the present settings, and is set"), "{list:?}");
        assert!(list[0].evidence.contains("+20.0%, interval +10.0% to +30.0%"), "{list:?}");
        let html = trial_section(&trial).into_string();
        assert!(
            html.contains("110%, removed in round 1, which kept 120% and more")
                && html.contains("width:100.00%"),
            "{html}"
        );
        assert!(!html.contains("<script>"), "{html}");
    }

    #[test]
    fn changed_settings_are_statements() {
        let settings = json!([{"name": "scheduler", "value": "none", "unit": "", "range": "", "about": BAD}]);
        let changed = json!([{"name": "scheduler", "from": "bfq", "to": "none", "requested": true}]);
        let report = |changed| -> TuneReport {
            let json = json!({"schema": "iopath.tune/1", "device": "vda", "description": "vda", "settings": settings, "changed": changed});
            serde_json::from_value(json).unwrap()
        };
        assert_eq!(of_settings(&report(changed))[0].text, "scheduler: bfq → none");
        assert_eq!(of_settings(&report(json!([])))[0].evidence, "none is changed by iopath");
        assert!(!section(&report(json!([]))).into_string().contains("<script>"));
    }
}
