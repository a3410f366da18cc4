//! `bomb`: the segment limit of writes while reads wait. The setup is in `elevator_limits.rs`.

use iopath_report::experiment::{Direction, Report, Row, Settings};

use super::elevator_limits::{LIFTED, Limits, Mixed, OTHERS, parameters, run as run_mixed, run_on};
use super::error::ExperimentError;
use super::published::published;
use super::row::Experiment;

/// The name of the limit, and the values to compare.
const LIMIT: &str = "max_bomb_segments";
const VALUES: [u64; 5] = [4, 16, 32, 64, 128];

/// The deviation from the published 34 MB/s up to which a disk may be that of the source: the tolerance of a row.
const NEAR: f64 = 0.25;

/// The loss that counts as heavy, as a share. The source has no figure.
const HEAVY: f64 = 0.2;

pub(super) static ROW: Experiment = Experiment {
    id: "bomb",
    title: "the segment limit of writes while reads wait",
    published: "max_bomb_segments 4 loses heavily against 64 to 128 (Linux 2.3.99 and 2.4 elevator, 2000).",
    parameters: &parameters([
        (8192, "published as good"),
        (131_072, "published as good"),
        (4, "published: 4, 64, 128"),
        (0, "Linux 2.3.99: the limit applies to any pending read"),
    ]),
    run,
    on_target: None,
};

fn run(settings: &Settings) -> Result<Report, ExperimentError> {
    let limits = |segments| {
        let Limits([read, write, _, reads]) = Limits::of(settings);
        Limits([read, write, segments, reads])
    };
    if settings.is_set(LIMIT) {
        let segments = settings.count(LIMIT);
        let mixed = run_mixed(settings, limits(segments))?;
        let rows = rows(segments, &mixed);
        return Ok(Report { rows, evidence: evidence(&mixed)?, ..Report::default() });
    }
    let mut report = Report::default();
    let mut rates = Vec::new();
    for segments in VALUES {
        let mixed = run_mixed(settings, limits(segments))?;
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
    others(settings, &limits, &mut report)?;
    report.notes.push(NOTE.to_owned());
    Ok(report)
}

/// Compares 4 and 64 segments on the other disks. A disk is near the source if it transfers 34 MB/s with the limits
/// lifted, within 25%.
fn others(
    settings: &Settings,
    limits: &dyn Fn(u64) -> Limits,
    report: &mut Report,
) -> Result<(), ExperimentError> {
    let source = published("elevator").find(&[("limits", "lifted")]).map(|row| row.number("mb_per_s"));
    let (mut near, mut near_losing) = (0, 0);
    for other in &OTHERS {
        let rate = |limits| run_on(other, settings, limits).map(|mixed| mixed.mb_per_s());
        let (small, large, lifted) = (rate(limits(VALUES[0]))?, rate(limits(64))?, rate(LIFTED)?);
        for (what, rate) in
            [(format!("{LIMIT} 4"), small), (format!("{LIMIT} 64"), large), ("limits lifted".into(), lifted)]
        {
            report.rows.push(Row::unpublished(format!("{}: {what}", other.name), "MB/s", rate));
        }
        let loses = loses_heavily(small, large);
        let text = format!("{}: 4 segments transfer at least {:.0}% less than 64", other.name, HEAVY * 100.0);
        report.directions.push(Direction::new(text, loses));
        if source.is_some_and(|source| (lifted / source - 1.0).abs() <= NEAR) {
            near += 1;
            near_losing += u32::from(loses);
        }
    }
    let share = |part: u32, of: u32| f64::from(part) / f64::from(of.max(1)) * 100.0;
    let row = |what: &str, share| Row::unpublished(what, "%", share);
    report.rows.push(row(
        "other disks that transfer 34 MB/s with the limits lifted",
        share(near, OTHERS.len() as u32),
    ));
    report.rows.push(row("of these, disks on which 4 segments lose at least 20%", share(near_losing, near)));
    Ok(())
}

fn loses_heavily(small: f64, large: f64) -> bool {
    small < large * (1.0 - HEAVY)
}

const NOTE: &str = "The source names neither workload, disk nor figures. The setup is that of `merge`, which has the same \
                    source. In this setup, the modelled disk writes adjacent queued requests in one revolution, so small \
                    requests cost little and the loss does not occur. The other disks have the same workload. The loss \
                    occurs on those that wait for a revolution after each request: without a write cache and with one \
                    command at a time. These disks do not reach the published 34 MB/s. On an IDE disk with a write cache, \
                    the host needs less time for a command of 16 KiB than the medium for its data. With segments of 4 \
                    sectors (`--set bs_bytes=2048`), the loss occurs in the setup of `merge`, but `merge` then deviates \
                    by -76%.";

fn rows(segments: u64, mixed: &Mixed) -> Vec<Row> {
    let what = |figure: &str| format!("{figure}, {LIMIT} {segments}");
    vec![
        Row::unpublished(what("throughput"), "MB/s", mixed.mb_per_s()),
        Row::unpublished(what("mean request"), "KiB", mixed.request_kib()),
        Row::unpublished(what("mean wait of reads"), "ms", mixed.read_mean_ms()),
    ]
}

fn evidence(mixed: &Mixed) -> Result<Vec<String>, ExperimentError> {
    mixed.refusals(&["latency bound"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_report::experiment::Verdict;

    #[test]
    fn small_writes_lose_because_the_elevator_refuses_merges() {
        let report = run(&Settings::new(ROW.parameters, &["seconds=5".to_owned()]).unwrap()).unwrap();
        assert_eq!(report.verdict(), Some(Verdict::Partly), "{report:#?}");
        let holding = report.directions.iter().filter(|one| one.holds).map(|one| one.text.as_str());
        let expected = ["SCSI, one command, no write cache", "IDE, UDMA/66, no write cache"];
        assert!(holding.map(|text| text.split(':').next().unwrap()).eq(expected), "{:#?}", report.directions);
        assert!(report.evidence[0].contains("latency bound"), "{:?}", report.evidence);
        // No disk that reaches the published rate has the loss.
        let shares: Vec<f64> = report.rows.iter().rev().take(2).map(|row| row.ours).collect();
        assert!(shares[0] == 0.0 && (shares[1] - 500.0 / 7.0).abs() < 0.1, "{:#?}", report.rows);
    }

    #[test]
    fn segments_of_four_sectors_lose_but_contradict_the_figure_of_merge() {
        let set = ["bs_bytes=2048", "seconds=5"].map(str::to_owned);
        let settings = Settings::new(ROW.parameters, &set).unwrap();
        let rate = |limits| run_mixed(&settings, Limits(limits)).unwrap().mb_per_s();
        let [small, large] = [4, 64].map(|segments| rate([8192, 131_072, segments, 0]));
        let (ours, table) = (rate([128, 8192, 4, 0]), published("elevator"));
        let classic = table.find(&[("limits", "classic")]).unwrap().number("mb_per_s");
        let text = format!("{small}, {large}, {ours}: see docs/experiments.md");
        assert!(loses_heavily(small, large) && ours < classic * 0.75, "{text}");
    }
}
