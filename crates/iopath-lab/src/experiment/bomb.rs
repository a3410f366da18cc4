//! `bomb`: the segment limit of writes while reads wait. The setup is in `mixed.rs`.

use super::mixed::{self, Limits, Mixed};
use super::{Direction, Experiment, Report, Row, Settings};
use crate::error::LabError;

/// The name of the limit, and the values to compare.
const LIMIT: &str = "max_bomb_segments";
const VALUES: [u64; 5] = [4, 16, 32, 64, 128];

/// The loss that counts as heavy, as a share. The source has no figure.
const HEAVY: f64 = 0.2;

pub(super) static ROW: Experiment = Experiment {
    id: "bomb",
    title: "the segment limit of writes while reads wait",
    published: "max_bomb_segments 4 loses heavily against 64 to 128 (Linux 2.3.99 and 2.4 elevator, 2000).",
    parameters: &mixed::parameters([
        (8192, "published as good"),
        (131_072, "published as good"),
        (4, "published: 4, 64, 128"),
        (0, "Linux 2.3.99: the limit applies to any pending read"),
    ]),
    run,
    on_target: None,
};

fn run(settings: &Settings) -> Result<Report, LabError> {
    let limits = |segments| {
        let Limits([read, write, _, reads]) = Limits::of(settings);
        Limits([read, write, segments, reads])
    };
    if settings.is_set(LIMIT) {
        let segments = settings.count(LIMIT);
        let mixed = mixed::run(settings, limits(segments))?;
        let rows = rows(segments, &mixed);
        return Ok(Report { rows, evidence: evidence(&mixed)?, ..Report::default() });
    }
    let mut report = Report::default();
    let mut rates = Vec::new();
    for segments in VALUES {
        let mixed = mixed::run(settings, limits(segments))?;
        report.rows.extend(rows(segments, &mixed));
        if segments == VALUES[0] {
            report.evidence = evidence(&mixed)?;
        }
        rates.push((segments, mixed.mb_per_s()));
    }
    let (_, least) = rates[0];
    for (segments, rate) in rates.iter().filter(|(segments, _)| *segments >= 64) {
        let text = format!("4 segments transfer at least {:.0}% less than {segments}", HEAVY * 100.0);
        report.directions.push(Direction::new(text, loses_heavily(least, *rate)));
    }
    let untagged = |segments| mixed::run_at(settings, limits(segments), 1).map(|mixed| mixed.mb_per_s());
    let (small, large) = (untagged(4)?, untagged(64)?);
    for (segments, rate) in [(4, small), (64, large)] {
        let what = format!("throughput without tagged commands, {LIMIT} {segments}");
        report.rows.push(Row::unpublished(what, "MB/s", rate));
    }
    let text =
        format!("without tagged commands, 4 segments transfer at least {:.0}% less than 64", HEAVY * 100.0);
    report.directions.push(Direction::new(text, loses_heavily(small, large)));
    report.notes.push(NOTE.to_owned());
    Ok(report)
}

fn loses_heavily(small: f64, large: f64) -> bool {
    small < large * (1.0 - HEAVY)
}

const NOTE: &str = "The source names neither workload nor figures. The setup is that of `merge`, which has the same \
                    source. In this setup, the modelled disk writes adjacent queued requests in one revolution, so small \
                    requests cost little and the loss does not occur. Without tagged commands, each request waits for the \
                    next revolution, and the loss is large.";

fn rows(segments: u64, mixed: &Mixed) -> Vec<Row> {
    let what = |figure: &str| format!("{figure}, {LIMIT} {segments}");
    vec![
        Row::unpublished(what("throughput"), "MB/s", mixed.mb_per_s()),
        Row::unpublished(what("mean request"), "KiB", mixed.request_kib()),
        Row::unpublished(what("mean wait of reads"), "ms", mixed.read_mean_ms()),
    ]
}

fn evidence(mixed: &Mixed) -> Result<Vec<String>, LabError> {
    mixed.refusals(&["latency bound"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Verdict;

    #[test]
    fn small_writes_lose_because_the_elevator_refuses_merges() {
        let report = run(&Settings::new(ROW.parameters, &["seconds=5".to_owned()]).unwrap()).unwrap();
        // The first two directions are with tagged commands, the third is without.
        assert_eq!(report.verdict(), Some(Verdict::Partly), "{report:#?}");
        assert_eq!(report.directions.iter().map(|one| one.holds).collect::<Vec<_>>(), [false, false, true]);
        assert!(report.evidence[0].contains("latency bound"), "{:?}", report.evidence);
    }
}
