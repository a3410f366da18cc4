//! Statements about measured workloads: the findings of a survey as they are, or the fastest and the cheapest run of
//! each group. Two runs are ranked only if their difference is significant. Does not draw.

use std::fmt::Write;

use crate::numbers::digits;
use crate::result::{Confidence, Report, RunResult, ServedBy, Spread};
use crate::stats::contrast::Contrast;

use super::facts::Tone;
use super::parts::Statement;
use super::series::{Group, Run, has_target};

/// The error rate of one comparison.
const ALPHA: f64 = 0.05;

/// A run with at least this share of the highest rate is as good.
const SAME: f64 = 0.95;

/// Warnings of more runs are counted, not listed.
const WARNINGS_MAX: usize = 8;

/// The statements about a result alone: the findings of a survey, and reasons to doubt.
pub(super) fn of_report(report: &Report) -> Vec<Statement> {
    let finding = |finding: &crate::result::Finding| {
        let tone = match finding.confidence {
            _ if finding.is_doubt() || finding.id == "dip" => Tone::Warn,
            Some(Confidence::Low) => Tone::Doubt,
            _ => Tone::Plain,
        };
        let mut evidence = finding.evidence.clone();
        if !finding.doubts.is_empty() {
            let _ = write!(evidence, ". Doubts: {}", finding.doubts.join("; "));
        }
        let tag = finding.id.replace('-', " ");
        let tag = match finding.confidence.filter(|_| !finding.is_doubt()) {
            Some(confidence) => format!("{tag} · {} confidence", confidence.name()),
            None => tag,
        };
        Statement::new(tone, &tag, finding.text.clone(), evidence)
    };
    report.findings.iter().map(finding).chain(doubts(report)).collect()
}

/// The fastest and the cheapest run of each group, of one or of several results.
pub(super) fn of_groups(groups: &[Group]) -> Vec<Statement> {
    groups.iter().filter_map(fastest).chain(groups.iter().filter_map(cheapest)).collect()
}

/// A run that storage served, or that cannot show it.
fn is_ranked(run: &RunResult) -> bool {
    run.served_by != Some(ServedBy::Memory)
}

fn rates(run: &RunResult, is_random: bool) -> Vec<f64> {
    run.repeats.iter().map(|repeat| if is_random { repeat.iops } else { repeat.bytes_per_second }).collect()
}

fn rate(run: &RunResult, is_random: bool) -> String {
    let Spread { mean, ci95, .. } = if is_random { run.iops } else { run.bytes_per_second };
    let (scale, unit) = if is_random { (1.0, "IOPS") } else { (1e6, "MB/s") };
    let spread =
        ci95.map_or_else(String::new, |[low, high]| format!(" ± {}", digits((high - low) / 2.0 / scale)));
    format!("{}{spread} {unit}", digits(mean / scale))
}

fn cost(run: &RunResult, is_random: bool) -> Option<(f64, String)> {
    let cpu = run.cpu?;
    let (value, unit) = if is_random {
        (cpu.microseconds_per_io, "CPU µs per I/O")
    } else {
        (cpu.seconds_per_gib, "CPU s per GiB")
    };
    Some((value, format!("{} {unit}", digits(value))))
}

/// Whether `run` is significantly slower than the best one, and by more than a trifle.
fn is_slower(run: &RunResult, best: &RunResult, is_random: bool) -> bool {
    let ratio = run.bytes_per_second.mean / best.bytes_per_second.mean;
    let ratio = if is_random { run.iops.mean / best.iops.mean } else { ratio };
    if ratio >= SAME {
        return false;
    }
    let contrast = Contrast::independent(&rates(best, is_random), &rates(run, is_random));
    // Without repetitions there is no interval: the ratio decides.
    contrast.and_then(|contrast| contrast.interval(ALPHA)).is_none_or(|[_, high]| high < 0.0)
}

fn fastest(group: &Group) -> Option<Statement> {
    let is_random = group.counts_transfers();
    let mean = |run: &Run| if is_random { run.result.iops.mean } else { run.result.bytes_per_second.mean };
    let ranked: Vec<&Run> = group.runs.iter().filter(|run| is_ranked(run.result)).collect();
    let best = ranked.iter().max_by(|a, b| mean(a).total_cmp(&mean(b)))?;
    let price = cost(best.result, is_random).map_or_else(String::new, |(_, text)| format!(", {text}"));
    if ranked.len() < 2 {
        let latency = best.result.latency_ns;
        let time = crate::numbers::time;
        let text = format!("{}: {}{price}", group.title, rate(best.result, is_random));
        let evidence = format!(
            "{}; latency p50 {}, p99 {}, p99.9 {}; {} repetitions",
            best.label,
            time(latency.p50),
            time(latency.p99),
            time(latency.p999),
            best.result.repeats.len()
        );
        return Some(Statement::new(Tone::Plain, "measured", text, evidence));
    }
    let worst = ranked.iter().min_by(|a, b| mean(a).total_cmp(&mean(b)))?;
    let others = ranked.iter().filter(|run| run.label != best.label);
    let (slower, same): (Vec<&Run>, Vec<&Run>) =
        others.copied().partition(|run| is_slower(run.result, best.result, is_random));
    let text =
        format!("{}: {} is the fastest, {}{price}", group.title, best.label, rate(best.result, is_random));
    let text = if slower.is_empty() {
        format!(
            "{}: no significant difference between {} combinations, about {}{price}",
            group.title,
            ranked.len(),
            rate(best.result, is_random)
        )
    } else {
        text
    };
    let mut evidence = format!("slowest: {}, {}", worst.label, rate(worst.result, is_random));
    if !slower.is_empty() {
        let names: Vec<&str> = same.iter().map(|run| run.label.as_str()).take(3).collect();
        let more = if same.len() > 3 { ", …" } else { "" };
        let others = match same.len() {
            0 => "; every other combination is significantly slower".to_owned(),
            count => format!(
                "; within 5% or not significantly slower: {count} of {} others ({}{more})",
                ranked.len() - 1,
                names.join("; ")
            ),
        };
        evidence += &others;
    }
    if ranked.iter().any(|run| run.result.repeats.len() < 2) {
        evidence += "; single repetitions have no interval";
    }
    Some(Statement::new(Tone::Good, "fastest", text, evidence))
}

fn cheapest(group: &Group) -> Option<Statement> {
    let is_random = group.counts_transfers();
    let ranked = group.runs.iter().filter(|run| is_ranked(run.result));
    let costs: Vec<(&Run, f64, String)> = ranked
        .filter_map(|run| {
            cost(run.result, is_random)
                .filter(|(value, _)| *value > 0.0)
                .map(|(value, text)| (run, value, text))
        })
        .collect();
    let (least, low, text) = costs.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let (most, high, most_text) = costs.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (costs.len() > 1 && high / low > 1.15).then(|| {
        let text = format!(
            "{}: {} has the lowest CPU cost, {text}, at {}",
            group.title,
            least.label,
            rate(least.result, is_random)
        );
        let evidence = format!("highest: {}, {most_text}, {} times as much", most.label, digits(high / low));
        Statement::new(Tone::Plain, "CPU cost", text, evidence)
    })
}

/// Reasons to doubt the figures.
fn doubts(report: &Report) -> Vec<Statement> {
    let mut list = Vec::new();
    let measured: Vec<&RunResult> = report.runs.iter().filter(|run| has_target(run)).collect();
    let from_memory = measured.iter().filter(|run| run.served_by == Some(ServedBy::Memory)).count();
    if from_memory > 0 && !report.findings.iter().any(|finding| finding.id == "cache") {
        let text = format!("Memory, not storage, served {from_memory} of {} runs", measured.len());
        list.push(Statement::new(
            Tone::Warn,
            "cache",
            text,
            "A cache, a hole or compression supplied bytes. Such runs are not ranked.",
        ));
    }
    // The findings of a survey include the warnings of its runs.
    let runs = report.runs.iter().filter(|_| report.findings.is_empty());
    let mut warnings: Vec<(&str, u32)> = Vec::new();
    for warning in runs.flat_map(|run| &run.warnings) {
        match warnings.iter_mut().find(|(known, _)| shape(known) == shape(warning)) {
            Some((_, count)) => *count += 1,
            None => warnings.push((warning, 1)),
        }
    }
    let more = warnings.len().saturating_sub(WARNINGS_MAX);
    for (warning, count) in warnings.iter().take(WARNINGS_MAX) {
        let runs = if *count > 1 { format!("this or another figure in {count} runs") } else { String::new() };
        list.push(Statement::new(Tone::Warn, "warning", *warning, runs));
    }
    if more > 0 {
        list.push(Statement::new(
            Tone::Warn,
            "warning",
            format!("{more} further warnings: see the JSON"),
            "",
        ));
    }
    list
}

/// The words of a warning: warnings that differ in their figures only are one statement.
fn shape(warning: &str) -> String {
    warning.chars().filter(|letter| !letter.is_ascii_digit() && *letter != '.').collect()
}

#[cfg(test)]
mod tests {
    use super::super::series::groups;
    use super::*;
    use crate::Rw;
    use crate::fixtures::run;
    use crate::result::Finding;

    fn found(runs: Vec<RunResult>) -> Vec<Statement> {
        let report = Report::new(None, None, runs);
        let named: Vec<(&str, &RunResult)> = report.runs.iter().map(|run| ("", run)).collect();
        of_groups(&groups(&named)).into_iter().chain(of_report(&report)).collect()
    }

    #[test]
    fn the_fastest_run_is_named_with_the_runs_that_are_as_good() {
        let list = found(vec![
            run("kernel-direct", Rw::Read, 4096, 1, &[100.0, 101.0, 99.0], 0.5),
            run("iopath-direct", Rw::Read, 4096, 1, &[200.0, 201.0, 199.0], 0.2),
            run("kernel-uring", Rw::Read, 4096, 1, &[199.0, 200.0, 198.0], 0.3),
        ]);
        assert!(list[0].text.contains("iopath-direct is the fastest, 200"), "{list:#?}");
        assert!(list[0].evidence.contains("slowest: kernel-direct"), "{list:#?}");
        assert!(list[0].evidence.contains("1 of 2 others (kernel-uring)"), "{list:#?}");
        assert!(list[1].text.contains("iopath-direct has the lowest CPU cost"), "{list:#?}");
    }

    #[test]
    fn noise_has_no_winner() {
        let list = found(vec![
            run("kernel-direct", Rw::Read, 4096, 1, &[100.0, 150.0, 50.0], 0.5),
            run("iopath-direct", Rw::Read, 4096, 1, &[110.0, 160.0, 60.0], 0.5),
        ]);
        assert!(list[0].text.contains("no significant difference"), "{list:#?}");
    }

    #[test]
    fn a_run_from_memory_is_never_the_fastest() {
        let mut cached = run("kernel-buffered", Rw::Read, 4096, 1, &[9000.0, 9100.0], 0.1);
        cached.served_by = Some(ServedBy::Memory);
        cached.warnings = vec!["the page cache served it".to_owned()];
        let list = found(vec![cached, run("kernel-direct", Rw::Read, 4096, 1, &[100.0, 101.0], 0.5)]);
        assert!(list.iter().all(|statement| !statement.text.contains("9050")), "{list:#?}");
        assert!(
            list.iter().any(|statement| statement.text.starts_with("Memory, not storage, served 1 of 2")),
            "{list:#?}"
        );
        assert!(list.iter().any(|statement| statement.text == "the page cache served it"), "{list:#?}");
    }

    #[test]
    fn warnings_that_differ_in_figures_are_one_statement() {
        let mut runs = [10, 20, 30].map(|_| run("kernel-direct", Rw::Read, 4096, 1, &[100.0, 101.0], 0.5));
        for (cv, run) in ["11.5%", "12%", "40%"].iter().zip(&mut runs) {
            run.warnings = vec![format!("CV of the repetitions is {cv}: use more repetitions")];
        }
        let list = found(runs.into());
        let warnings: Vec<_> = list.iter().filter(|statement| statement.tag == "warning").collect();
        assert_eq!(warnings.len(), 1, "{list:#?}");
        assert_eq!(warnings[0].evidence, "this or another figure in 3 runs");
    }

    #[test]
    fn random_transfers_of_several_sizes_are_ranked_by_their_bytes() {
        // 4 KiB has more transfers per second, 64 KiB more bytes.
        let list = found(vec![
            run("kernel-uring", Rw::RandRead, 4096, 8, &[100.0, 101.0, 99.0], 0.5),
            run("kernel-uring", Rw::RandRead, 65536, 8, &[900.0, 901.0, 899.0], 0.2),
        ]);
        assert!(list[0].text.contains("64 KiB is the fastest, 900"), "{list:#?}");
    }

    #[test]
    fn a_finding_of_low_confidence_differs_from_one_of_high_confidence() {
        let of = |confidence| {
            let finding = Finding {
                id: "random-read".to_owned(),
                text: "use x".to_owned(),
                evidence: "figures".to_owned(),
                confidence: Some(confidence),
                doubts: vec!["measured once".to_owned()],
            };
            let report = Report { findings: vec![finding], ..Report::new(None, None, Vec::new()) };
            of_report(&report).remove(0)
        };
        let [high, low] = [of(Confidence::High), of(Confidence::Low)];
        assert_eq!((high.tone, low.tone), (Tone::Plain, Tone::Doubt));
        assert_eq!(low.tag, "random read · low confidence");
        assert_eq!(low.evidence, "figures. Doubts: measured once");
    }
}
