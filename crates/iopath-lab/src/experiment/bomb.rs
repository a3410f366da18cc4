//! `bomb`: the segment limit of writes while reads wait. The setup is in `mixed.rs`.

use super::merge;
use super::mixed::{self, Limits, Mixed};
use super::{Direction, Experiment, Parameter, Report, Row, Settings};
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
    parameters: &[
        Parameter::count(LIMIT, "segments", 4, (1, 65_535), "published: 4, 64, 128"),
        Parameter::count("read_latency", "requests", 8192, (0, 1 << 30), "published as good"),
        Parameter::count("write_latency", "requests", 131_072, (0, 1 << 30), "published as good"),
        Parameter::count(
            "max_read_pending",
            "requests",
            0,
            (0, 1 << 24),
            "Linux 2.3.99: the limit applies to any pending read",
        ),
        Parameter::count("writers", "jobs", 1, (1, 64), "assumed: one sequential stream of writes"),
        Parameter::count(
            "write_depth",
            "buffers",
            1024,
            (1, 4096),
            "assumed: dirty buffers that write-back submits",
        ),
        Parameter::count("readers", "jobs", 1, (0, 64), "assumed: one interactive reader of random blocks"),
        mixed::BLOCK,
        mixed::REQUESTS,
        Parameter::count("device_depth", "requests", 1, (1, 64), "assumed: a driver without tagged commands"),
        mixed::SECTORS,
        mixed::SECONDS,
        mixed::SEED,
    ],
    run,
    on_target: None,
};

fn run(settings: &Settings) -> Result<Report, LabError> {
    let with = |segments| {
        let limit = |name| settings.count(name);
        let limits = [limit("read_latency"), limit("write_latency"), segments, limit("max_read_pending")];
        mixed::run(settings, Limits(limits))
    };
    if settings.is_set(LIMIT) {
        let segments = settings.count(LIMIT);
        let mixed = with(segments)?;
        let rows = rows(segments, &mixed);
        return Ok(Report { rows, evidence: evidence(&mixed)?, ..Report::default() });
    }
    let mut report = Report::default();
    let mut rates = Vec::new();
    for segments in VALUES {
        let mixed = with(segments)?;
        report.rows.extend(rows(segments, &mixed));
        if segments == VALUES[0] {
            report.evidence = evidence(&mixed)?;
        }
        rates.push((segments, mixed.mb_per_s()));
    }
    let (_, least) = rates[0];
    for (segments, rate) in rates.iter().filter(|(segments, _)| *segments >= 64) {
        let text = format!("4 segments transfer at least {:.0}% less than {segments}", HEAVY * 100.0);
        report.directions.push(Direction::new(text, least < rate * (1.0 - HEAVY)));
    }
    let (small, large) = in_setup_of_merge(settings)?;
    for (segments, rate) in [(4, small), (64, large)] {
        let what = format!("throughput in the setup of merge, {LIMIT} {segments}");
        report.rows.push(Row::unpublished(what, "MB/s", rate));
    }
    let text = format!("the same in the setup of merge: at least {:.0}% less", HEAVY * 100.0);
    report.directions.push(Direction::new(text, small < large * (1.0 - HEAVY)));
    report.notes.push(NOTE.to_owned());
    Ok(report)
}

/// MB/s with 4 and with 64 segments, and with tagged commands as in `merge`.
fn in_setup_of_merge(settings: &Settings) -> Result<(f64, f64), LabError> {
    let same = ["seconds", "seed"].map(|name| format!("{name}={}", settings.count(name)));
    let shared = Settings::new(merge::ROW.parameters, &same)?;
    let with = |segments| {
        let limit = |name| settings.count(name);
        let limits = [limit("read_latency"), limit("write_latency"), segments, limit("max_read_pending")];
        mixed::run(&shared, Limits(limits)).map(|mixed| mixed.mb_per_s())
    };
    Ok((with(4)?, with(64)?))
}

const NOTE: &str = "The source names neither workload nor figures. The setup is a hypothesis: one sequential stream of writes, \
                    and one reader of random blocks, on a disk that executes one request at a time and has no write cache. \
                    Then each request waits for the next turn of the disk. With tagged commands (device_depth 2 or more) \
                    the disk of the model writes adjacent requests in one turn, and the loss does not occur. So the setup was \
                    chosen for the effect, and it is not that of `merge`, although both effects have the same source.";

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
        // The third direction is the setup of `merge`, in which the disk has tagged commands.
        assert_eq!(report.verdict(), Some(Verdict::Partly), "{report:#?}");
        assert_eq!(report.directions.iter().map(|one| one.holds).collect::<Vec<_>>(), [true, true, false]);
        assert!(report.evidence[0].contains("latency bound"), "{:?}", report.evidence);
    }
}
