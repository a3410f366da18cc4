//! The cost of the request log per I/O and per record, and the speed of reading a log. Runs
//! `crates/iopath-log/benches/{cost,reading}.rs` and compares their figures.

use anyhow::Result;

use super::figures::Goal;
use super::lines::{self, Rounds};
use super::report::Figure;
use super::samples::Samples;

/// The name for `--only`.
pub(super) const NAME: &str = "log";

/// Maximum cost of a record for the queue that logs it.
const RECORD_NS: f64 = 15.0;

/// Minimum speed of a summary, in records per second.
const READ_PER_SECOND: f64 = 20e6;

/// The ratio of IOPS with a log to IOPS without.
const ON_OFF: Goal = Goal::AtLeast(0.99);

/// Runs the benches half as often as a contest, because each of them alternates internally.
pub(super) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let once = || {
        let mut lines = lines::run("iopath-log", "cost", &["--figures"])?;
        lines.extend(lines::run("iopath-log", "reading", &["--figures"])?);
        Ok(lines)
    };
    figures(&lines::collect(NAME, rounds.div_ceil(2), once)?)
}

fn figures(rounds: &Rounds) -> Result<Vec<Figure>> {
    let figure = |name: &str, unit, peer, value, peer_value, goal| {
        let name = format!("log, {name}");
        Figure { name, unit, peer, value, peer_value, goal, others: None }
    };
    let on_off = |load: &str| {
        let of = |log| {
            let nanos = lines::samples(rounds, &format!("{load}, {log}"))?;
            Ok::<_, anyhow::Error>(nanos.map(|nanos| 1e9 / nanos))
        };
        Ok::<_, anyhow::Error>(figure(load, "I/O/s", "without log", of("with log")?, of("without")?, ON_OFF))
    };
    let record = lines::samples(rounds, "ns a record")?;
    let read = lines::samples(rounds, "records read a second")?;
    Ok(vec![
        on_off("device of 1 M I/O/s")?,
        on_off("processor at 1 M I/O/s")?,
        figure("a record", "ns", "the limit", record, Samples::constant(RECORD_NS), Goal::AtMost(1.0)),
        figure(
            "reading",
            "records/s",
            "the limit",
            read,
            Samples::constant(READ_PER_SECOND),
            Goal::AtLeast(1.0),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::*;

    const LINES: &str = "device of 1 M I/O/s, without\t1000.0\ndevice of 1 M I/O/s, with log\t1005.0\n\
        processor at 1 M I/O/s, without\t1000.0\nprocessor at 1 M I/O/s, with log\t1020.0\n\
        ns a record\t3.0\nrecords read a second\t40000000\n";

    #[test]
    fn each_figure_has_its_goal() {
        let figures = figures(&lines::once(LINES)).expect("all of them");
        let shown: Vec<_> = figures.iter().map(|figure| (figure.name.as_str(), figure.verdict())).collect();
        assert_eq!(
            shown,
            [
                ("log, device of 1 M I/O/s", Verdict::Reached),
                ("log, processor at 1 M I/O/s", Verdict::Missed),
                ("log, a record", Verdict::Reached),
                ("log, reading", Verdict::Reached),
            ]
        );
    }

    #[test]
    fn a_missing_figure_is_named() {
        let error = figures(&lines::once("ns a record\t1.0")).expect_err("no speed");
        assert!(error.to_string().contains("records read a second"), "{error}");
    }
}
