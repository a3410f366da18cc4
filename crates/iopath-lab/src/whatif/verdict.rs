//! The verdict of an input: the best alternative, if it is better than all others by more than the intervals and the
//! error of the model. Does not compute the differences.

use iopath_report::numbers::{percent, signed_percent};
use iopath_report::whatif::{Better, METRICS};
use iopath_report::whatif::{CellReport, InputReport, Verdict};

/// An alternative with its difference from the reference, larger is better.
#[derive(Debug, Clone, Copy)]
struct Rated<'a> {
    cell: &'a CellReport,
    fraction: f64,
    low: f64,
    high: f64,
}

/// The verdict; none without a second alternative.
pub(super) fn verdict(input: &InputReport, by: &str) -> Option<Verdict> {
    let index = METRICS.iter().position(|metric| metric.name == by)?;
    let cells = &input.cells;
    let reference = cells.iter().find(|cell| cell.reference)?;
    if cells.len() < 2 {
        return None;
    }
    let error = ErrorOfModel::of(input, reference, index);
    let none = |winner, best, text| Verdict { by: by.to_owned(), error: error.largest(), winner, best, text };
    let rate = |cell| rated(cell, index, METRICS[index].better);
    let Some(mut all) = cells.iter().map(rate).collect::<Option<Vec<Rated<'_>>>>() else {
        let text = format!("no verdict by {by}: the trace has too few requests for intervals");
        return Some(none(None, Vec::new(), text));
    };
    all.sort_by(|a, b| b.fraction.total_cmp(&a.fraction).then(a.cell.number.cmp(&b.cell.number)));
    let best = all[0];
    let limit = error.largest().unwrap_or(0.0);
    let ties: Vec<Rated<'_>> = all.iter().copied().filter(|other| is_tied(&best, other, limit)).collect();
    let names: Vec<String> = ties.iter().map(|one| one.cell.name.clone()).collect();
    let beyond =
        if limit > 0.0 { "beyond the error of the model and the intervals" } else { "beyond the intervals" };
    let has_reference = ties.iter().any(|one| one.cell.reference);
    let text = match (ties.len(), has_reference) {
        (1, true) => format!("best by {by}: {}, the reference", reference.name),
        (1, false) => {
            format!(
                "best by {by}: {}, {} against {}",
                names[0],
                change_text(best.cell, index),
                reference.name
            )
        }
        (count, true) if count == cells.len() => format!("no difference by {by} {beyond}"),
        (_, true) => {
            format!("best by {by}, without a difference between them {beyond}: {}", names.join("; "))
        }
        (_, false) => format!(
            "best by {by}, better than the reference {}, without a difference between them {beyond}: {}",
            reference.name,
            names.join("; ")
        ),
    };
    let winner = (ties.len() == 1).then(|| names[0].clone());
    Some(none(winner, names, format!("{text}. {}", error.text())))
}

/// The error of the models of an input.
#[derive(Debug, Clone, Copy)]
struct ErrorOfModel {
    /// The largest stated error.
    stated: Option<f64>,
    /// The deviation of the replay with the recorded settings from the recorded run.
    replayed: Option<f64>,
}

impl ErrorOfModel {
    fn of(input: &InputReport, reference: &CellReport, metric: usize) -> Self {
        let stated = input.cells.iter().filter_map(|cell| cell.model_error.median).reduce(f64::max);
        // A model without a stated error may be another device on purpose.
        let is_recorded = input.log && reference.model_error.median.is_some();
        let changes = reference.against_recorded.filter(|_| is_recorded);
        let replayed = changes.and_then(|changes| Some(changes.all()[metric]?.fraction.abs()));
        Self { stated, replayed }
    }

    fn largest(self) -> Option<f64> {
        [self.stated, self.replayed].into_iter().flatten().reduce(f64::max)
    }

    fn text(self) -> String {
        let of_replay = "the deviation of the replay with the recorded settings from the recorded run";
        match (self.stated, self.replayed) {
            (None, _) => "The error of the model is unknown.".to_owned(),
            (Some(stated), None) => format!("The error of the model is {}.", percent(stated)),
            (Some(stated), Some(replayed)) if stated >= replayed => {
                format!(
                    "The error of the model is {}; the replay deviates by {}.",
                    percent(stated),
                    percent(replayed)
                )
            }
            (Some(stated), Some(replayed)) => {
                format!(
                    "The error of the model is {}: {of_replay}; stated: {}.",
                    percent(replayed),
                    percent(stated)
                )
            }
        }
    }
}

fn rated(cell: &CellReport, metric: usize, better: Better) -> Option<Rated<'_>> {
    if cell.reference {
        return Some(Rated { cell, fraction: 0.0, low: 0.0, high: 0.0 });
    }
    let change = cell.against_reference?.all()[metric]?;
    let [low, high] = change.interval?;
    Some(if better == Better::Less {
        // A latency of a half is a rate of two.
        let inverse = |fraction: f64| 1.0 / (1.0 + fraction).max(f64::MIN_POSITIVE) - 1.0;
        Rated { cell, fraction: inverse(change.fraction), low: inverse(high), high: inverse(low) }
    } else {
        Rated { cell, fraction: change.fraction, low, high }
    })
}

/// Whether an alternative does not differ from the best beyond the intervals and the error of the model.
fn is_tied(best: &Rated<'_>, other: &Rated<'_>, error: f64) -> bool {
    if best.cell.number == other.cell.number {
        return true;
    }
    let ratio = (1.0 + best.fraction) / (1.0 + other.fraction).max(f64::MIN_POSITIVE) - 1.0;
    best.low <= other.high || ratio <= error
}

fn change_text(cell: &CellReport, metric: usize) -> String {
    let change = cell.against_reference.and_then(|changes| changes.all()[metric]);
    change.map_or_else(String::new, |change| {
        let interval = change.interval;
        let interval =
            interval.map(|[low, high]| format!(" [{}, {}]", signed_percent(low), signed_percent(high)));
        signed_percent(change.fraction) + &interval.unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_report::whatif::ModelError;
    use iopath_report::whatif::{Change, Changes, Figures};

    fn cell(number: u64, mean: Option<(f64, f64, f64)>, error: Option<f64>) -> CellReport {
        let change = mean.map(|(fraction, low, high)| Change { fraction, interval: Some([low, high]) });
        CellReport {
            number,
            name: ["none", "deadline", "fair", "ascend"][number as usize].to_owned(),
            reference: number == 0,
            target: "model:m".to_owned(),
            model_error: ModelError { median: error, source: String::new() },
            elevator: String::new(),
            max_sectors_bytes: None,
            depth: None,
            merge: true,
            priority: String::new(),
            readahead: None,
            cache_bytes: None,
            figures: Figures::default(),
            against_reference: (number > 0).then(|| Changes { mean: change, ..Changes::default() }),
            against_recorded: None,
        }
    }

    fn input(cells: &[CellReport]) -> InputReport {
        InputReport {
            number: 0,
            name: "t".to_owned(),
            log: true,
            requests: 1000,
            devices: 1,
            streams: 1,
            accesses: false,
            seconds: 1.0,
            windows: 32,
            recorded: None,
            cells: cells.to_vec(),
            verdict: None,
            notes: Vec::new(),
        }
    }

    fn of(cells: &[CellReport]) -> Verdict {
        verdict(&input(cells), "mean").unwrap()
    }

    #[test]
    fn an_alternative_wins_if_intervals_and_error_allow() {
        let cells = |error| {
            [
                cell(0, None, error),
                cell(1, Some((-0.2, -0.22, -0.18)), error),
                cell(2, Some((-0.05, -0.06, -0.04)), error),
            ]
        };
        let sure = of(&cells(Some(0.05)));
        assert_eq!(sure.winner.as_deref(), Some("deadline"));
        assert!(sure.text.contains("-20.0% [-22.0%, -18.0%] against none. The error of the model is 5.0%."));
        assert!(of(&cells(None)).text.ends_with("The error of the model is unknown."));
        let unsure = of(&cells(Some(0.3)));
        assert_eq!((unsure.winner.as_deref(), unsure.best.len()), (None, 3));
        assert!(
            unsure.text.starts_with("no difference by mean beyond the error of the model and the intervals"),
            "{unsure:?}"
        );
    }

    #[test]
    fn a_replay_that_deviates_from_the_recorded_run_is_an_error_of_the_model() {
        let mut cells = [cell(0, None, Some(0.01)), cell(1, Some((-0.1, -0.11, -0.09)), Some(0.01))];
        assert_eq!(of(&cells).winner.as_deref(), Some("deadline"));
        let deviation = Change { fraction: -0.25, interval: None };
        cells[0].against_recorded = Some(Changes { mean: Some(deviation), ..Changes::default() });
        let verdict = of(&cells);
        assert_eq!((verdict.winner, verdict.error), (None, Some(0.25)));
        assert!(verdict.text.contains("is 25.0%: the deviation of the replay"), "{}", verdict.text);
        // The settings of a CSV file are unknown, so its replay may differ.
        let csv = InputReport { log: false, ..input(&cells) };
        assert_eq!(super::verdict(&csv, "mean").unwrap().winner.as_deref(), Some("deadline"));
    }

    #[test]
    fn overlapping_intervals_are_a_tie() {
        let tied = of(&[
            cell(0, None, None),
            cell(1, Some((-0.2, -0.3, -0.1)), None),
            cell(2, Some((-0.15, -0.25, -0.05)), None),
        ]);
        assert_eq!(
            (tied.winner.as_deref(), tied.best),
            (None, vec!["deadline".to_owned(), "fair".to_owned()])
        );
        assert!(
            tied.text.starts_with("best by mean, better than the reference none, without a difference"),
            "{}",
            tied.text
        );
    }

    #[test]
    fn the_reference_may_be_the_best() {
        let verdict = of(&[cell(0, None, Some(0.0)), cell(1, Some((0.2, 0.1, 0.3)), Some(0.0))]);
        assert_eq!(verdict.winner.as_deref(), Some("none"));
        assert_eq!(verdict.text, "best by mean: none, the reference. The error of the model is 0.0%.");
    }

    #[test]
    fn without_intervals_there_is_no_verdict() {
        let mut cells = [cell(0, None, None), cell(1, Some((0.2, 0.1, 0.3)), None)];
        cells[1].against_reference.as_mut().unwrap().mean.as_mut().unwrap().interval = None;
        assert!(of(&cells).text.contains("too few requests"));
        assert!(verdict(&input(&cells[..1]), "mean").is_none(), "one alternative has no verdict");
    }
}
