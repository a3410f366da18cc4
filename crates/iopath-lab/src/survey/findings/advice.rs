//! Recommends path, block size and depth, and states the CPU cost that direct I/O saves.

use iopath_report::Rw;
use iopath_report::numbers::{digits, time};
use iopath_report::result::RunResult;

use super::Found;
use crate::survey::compare::{Choice, CpuOf, Outcome, Ratio, iops, rate, rates};
use crate::survey::figures::{Figures, is_direct, mb, name};

/// Findings do not state a smaller difference in CPU cost.
const CPU_RATIO_MIN: f64 = 1.10;

/// Findings do not state a smaller difference in throughput.
const RATE_RATIO_MIN: f64 = 1.05;

pub(super) fn sequential_read<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    sequential(figures, Rw::Read, "Sequential reads")
}

pub(super) fn sequential_write<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    sequential(figures, Rw::Write, "Sequential writes, flush included")
}

fn sequential<'a>(figures: &Figures<'a>, rw: Rw, what: &str) -> Option<Found<'a>> {
    let runs = figures.of(rw);
    let cpu = figures.cpu();
    let choice = Choice::of(&runs, cpu)?;
    let chosen = choice.chosen;
    let cost =
        if cpu.is_known() { format!(" at {} CPU s/GiB", digits(cpu.cost(chosen))) } else { String::new() };
    let figure = format!("{}: {}{cost}", name(chosen), mb(rate(chosen)));
    let are_all_good = runs.len() > 1 && choice.good.len() == runs.len();
    let is_inconclusive = are_all_good && has_inconclusive(&choice);
    let text = if are_all_good {
        let relation = if is_inconclusive {
            "the comparison of paths and block sizes is inconclusive"
        } else {
            "paths and block sizes are not significantly different"
        };
        let reason = if cpu.is_known() { "Lowest CPU cost" } else { "Fewest bytes in flight" };
        format!("{what}: {relation}. {reason}: {figure}.")
    } else {
        format!("{what}: use {figure}.")
    } + once(chosen);
    let side = |run| format!("{}, {}", name(run), mb(rate(run)));
    let reason = if cpu.is_known() {
        "a CPU cost near the lowest (within 15% or 0.01 s/GiB), and then the fewest bytes in flight"
    } else {
        "the fewest bytes in flight"
    };
    let evidence = format!(
        "fastest: {}; slowest: {}; as good as the fastest (within 5%, or within 25% and not significantly slower): {} \
         of {} combinations. Recommended among them: {reason}",
        side(choice.fastest),
        side(choice.slowest),
        choice.good.len(),
        runs.len(),
    );
    Some(Found::measured(text, evidence, vec![chosen, choice.fastest]).inconclusive(is_inconclusive))
}

/// Whether a comparison with the fastest measurement is inconclusive.
fn has_inconclusive(choice: &Choice) -> bool {
    let others = choice.good.iter().filter(|run| !std::ptr::eq(**run, choice.fastest));
    let ratios = others.filter_map(|run| Ratio::of(&rates(run), &rates(choice.fastest)));
    ratios.into_iter().any(|ratio| ratio.outcome() == Outcome::Inconclusive)
}

pub(super) fn random_read<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    depth_advice(figures, Rw::RandRead, "Random reads of 4 KiB")
}

/// Recommends path and depth of a random pattern.
pub(super) fn depth_advice<'a>(figures: &Figures<'a>, rw: Rw, what: &str) -> Option<Found<'a>> {
    let runs = figures.of(rw);
    let cpu = figures.cpu();
    let choice = Choice::of(&runs, cpu)?;
    let singles: Vec<&RunResult> = runs.iter().copied().filter(|run| run.io_depth == 1).collect();
    let single = Choice::of(&singles, cpu)?.fastest;
    let figure = |run: &RunResult| {
        let cost = format!(", {} µs of CPU per I/O", digits(cpu.per_io_us(run)));
        let cost = if cpu.is_known() { cost } else { String::new() };
        format!("{} IOPS, p50 {}{cost}", digits(iops(run)), time(run.latency_ns.p50))
    };
    let chosen = choice.shallowest(cpu);
    let deeper = runs.iter().filter(|run| run.io_depth > 1);
    let deepest = deeper.max_by(|a, b| rate(a).total_cmp(&rate(b))).filter(|_| chosen.io_depth == 1);
    let outcome = Ratio::of(&rates(chosen), &rates(single)).filter(|_| chosen.io_depth > 1);
    let is_inconclusive = outcome.is_some_and(|gain| gain.outcome() == Outcome::Inconclusive);
    let gain = outcome.map_or_else(String::new, |gain| match gain.outcome() {
        Outcome::Higher => format!(" That is {} times the throughput of depth 1.", digits(gain.mean)),
        Outcome::Lower | Outcome::NotDifferent => {
            " That is not significantly different from depth 1.".to_owned()
        }
        Outcome::Inconclusive | Outcome::Single => " The comparison with depth 1 is inconclusive.".to_owned(),
    });
    let gain = deepest.map_or(gain, |deep| {
        format!(
            " Depth {} is not significantly faster, and has a p50 of {}.",
            deep.io_depth,
            time(deep.latency_ns.p50)
        )
    });
    let text = format!(
        "{what}: use {} at depth {}: {}.{gain}{}",
        chosen.path,
        chosen.io_depth,
        figure(chosen),
        once(chosen)
    );
    let evidence = format!(
        "fastest: {} at depth {}, {} IOPS; fastest at depth 1: {}, {}",
        choice.fastest.path,
        choice.fastest.io_depth,
        digits(iops(choice.fastest)),
        single.path,
        figure(single)
    );
    Some(Found::measured(text, evidence, vec![chosen, choice.fastest, single]).inconclusive(is_inconclusive))
}

pub(super) fn direct_read<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    direct_or_buffered(
        figures,
        Rw::Read,
        "reads",
        " This holds for cold data that is read once; repeated reads are faster from a page cache.",
    )
}

pub(super) fn direct_write<'a>(figures: &Figures<'a>) -> Option<Found<'a>> {
    direct_or_buffered(figures, Rw::Write, "writes", "")
}

/// Compares the recommended run through the page cache with the recommended direct run.
fn direct_or_buffered<'a>(figures: &Figures<'a>, rw: Rw, what: &str, scope: &str) -> Option<Found<'a>> {
    let cpu = figures.cpu();
    let (direct, buffered): (Vec<_>, Vec<_>) = figures.of(rw).into_iter().partition(|run| is_direct(run));
    let direct = Choice::of(&direct, cpu)?.chosen;
    let buffered = Choice::of(&buffered, cpu)?.chosen;
    let rate_ratio = Ratio::of(&rates(direct), &rates(buffered))?;
    let throughput = throughput(&rate_ratio);
    let ratio = Ratio::of(&cpu.per_gib(buffered), &cpu.per_gib(direct))?;
    let costs = [cpu.cost(direct), cpu.cost(buffered)];
    let [direct_cost, buffered_cost] = costs.map(digits);
    let more = (costs[1] / costs[0]).max(costs[0] / costs[1]);
    let saved = format!("{:.0}% less", (1.0 - 1.0 / more) * 100.0);
    let text = match ratio.outcome() {
        Outcome::Higher if more >= CPU_RATIO_MIN && costs[1] > costs[0] => format!(
            "Direct {what} cost less CPU: {direct_cost} s/GiB against {buffered_cost} buffered, {saved}."
        ),
        Outcome::Lower if more >= CPU_RATIO_MIN && costs[0] > costs[1] => format!(
            "Buffered {what} cost less CPU: {buffered_cost} s/GiB against {direct_cost} direct, {saved}."
        ),
        Outcome::Inconclusive => format!(
            "Direct or buffered {what}: the comparison of CPU costs is inconclusive ({direct_cost} s/GiB direct, \
             {buffered_cost} buffered)."
        ),
        Outcome::Single => format!(
            "Direct or buffered {what}: CPU costs of {direct_cost} s/GiB direct and {buffered_cost} buffered."
        ),
        Outcome::Higher | Outcome::Lower | Outcome::NotDifferent => format!(
            "Direct or buffered {what}: CPU costs are not significantly different ({direct_cost} s/GiB direct, \
             {buffered_cost} buffered)."
        ),
    };
    let interval = match ratio.ci95 {
        Some([low, high]) => {
            format!(
                "; buffered costs {} to {} times the CPU of direct (95% interval)",
                digits(low),
                digits(high)
            )
        }
        None => String::new(),
    };
    let side = |run| format!("{}: {}", name(run), mb(rate(run)));
    let evidence = format!("{}; {}{interval}; {}", side(direct), side(buffered), scope_of(cpu));
    let text = format!("{text} {throughput}{}{scope}", once(direct));
    let is_inconclusive = [ratio.outcome(), rate_ratio.outcome()].contains(&Outcome::Inconclusive);
    Some(Found::measured(text, evidence, vec![direct, buffered]).inconclusive(is_inconclusive))
}

/// A sentence about a run that was measured only once.
pub(super) fn once(run: &RunResult) -> &'static str {
    if run.repeats.len() > 1 {
        return "";
    }
    " It was measured once, so its CV is not known; use a longer --time."
}

fn scope_of(cpu: CpuOf) -> &'static str {
    match cpu {
        CpuOf::Unknown => "CPU time is not known",
        CpuOf::Machine => "CPU time of the whole machine, less its idle load",
        CpuOf::Process => {
            "CPU time of this process only, because other programs used the machine: write-back and interrupts are \
             not included"
        }
    }
}

/// A sentence about the throughput of direct I/O against buffered I/O.
fn throughput(direct: &Ratio) -> String {
    let times = digits(direct.mean);
    let is_small = direct.mean.max(1.0 / direct.mean) < RATE_RATIO_MIN;
    match direct.outcome() {
        Outcome::Higher | Outcome::Lower if !is_small => {
            format!("Direct I/O has {times} times the throughput.")
        }
        Outcome::Single => format!("Direct I/O has {times} times the throughput, measured once."),
        Outcome::Inconclusive => "The comparison of throughputs is inconclusive.".to_owned(),
        Outcome::Higher | Outcome::Lower | Outcome::NotDifferent => {
            "Throughputs are not significantly different.".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::figures::Facts;
    use iopath_report::fixtures::run;
    use iopath_report::result::ServedBy;

    fn facts() -> Facts {
        Facts { cores: 2, busy_cpus: Some(0.0), ..Facts::default() }
    }

    fn text(runs: &[RunResult], find: for<'a> fn(&Figures<'a>) -> Option<Found<'a>>) -> Option<String> {
        find(&Figures { runs, facts: &facts() }).map(|found| found.text)
    }

    const STEADY: [f64; 4] = [100.0, 101.0, 99.0, 100.0];

    fn steady(times: f64) -> [f64; 4] {
        STEADY.map(|mbs| mbs * times)
    }

    #[test]
    fn the_lowest_cost_among_the_fast_is_recommended() {
        let runs = [
            run("kernel-buffered", Rw::Read, 1 << 20, 1, &steady(10.0), 0.3),
            run("kernel-uring", Rw::Read, 256 << 10, 8, &steady(9.9), 0.05),
            run("kernel-direct", Rw::Read, 4 << 10, 1, &steady(1.0), 0.2),
        ];
        let text = text(&runs, sequential_read).unwrap();
        assert_eq!(
            text,
            "Sequential reads: use kernel-uring with blocks of 256 KiB at depth 8: 990 MB/s at 0.050 CPU s/GiB."
        );
    }

    #[test]
    fn noise_is_no_recommendation() {
        let runs = [
            run("kernel-buffered", Rw::Write, 1 << 20, 1, &[100.0, 140.0, 90.0, 105.0], 0.3),
            run("kernel-direct", Rw::Write, 1 << 20, 1, &[110.0, 100.0, 120.0, 95.0], 0.3),
        ];
        let text = text(&runs, sequential_write).unwrap();
        assert!(text.contains("the comparison of paths and block sizes is inconclusive"), "{text}");
        assert_eq!(sequential_read(&Figures { runs: &runs, facts: &facts() }), None);
    }

    #[test]
    fn a_single_measurement_is_marked() {
        let runs = [
            run("kernel-buffered", Rw::Read, 1 << 20, 1, &[400.0], 0.3),
            run("kernel-direct", Rw::Read, 1 << 20, 1, &[800.0], 0.1),
        ];
        for find in [sequential_read, direct_read] {
            let text = text(&runs, find).unwrap();
            assert!(text.contains("measured once") && !text.contains("significant"), "{text}");
        }
    }

    #[test]
    fn depth_is_recommended_where_it_gains() {
        let deep = run("kernel-uring", Rw::RandRead, 4096, 32, &steady(8.0), 1.0);
        let single = run("kernel-direct", Rw::RandRead, 4096, 1, &steady(1.0), 1.0);
        let text_of = |runs: &[RunResult]| text(runs, random_read).unwrap();
        let both = text_of(&[single.clone(), deep]);
        assert!(
            both.contains("use kernel-uring at depth 32")
                && both.contains("8.00 times the throughput of depth 1"),
            "{both}"
        );
        let no_gain = run("kernel-uring", Rw::RandRead, 4096, 32, &steady(1.01), 1.0);
        let text = text_of(&[single.clone(), no_gain]);
        assert!(text.contains("use kernel-direct at depth 1"), "{text}");
        // Cheaper by its CPU time, as fast, and three hundred times as late.
        let mut cheap = run("kernel-uring", Rw::RandRead, 4096, 32, &steady(1.0), 0.5);
        cheap.latency_ns.p50 = 983_000;
        let text = text_of(&[single, cheap]);
        assert!(text.contains("use kernel-direct at depth 1"), "{text}");
        assert!(text.ends_with("Depth 32 is not significantly faster, and has a p50 of 983 µs."), "{text}");
        assert_eq!(random_read(&Figures { runs: &[], facts: &facts() }), None);
    }

    #[test]
    fn the_saving_of_direct_io_is_stated_in_percent() {
        let direct = run("kernel-direct", Rw::Read, 1 << 20, 1, &steady(9.0), 0.05);
        let buffered = run("kernel-buffered", Rw::Read, 1 << 20, 1, &steady(9.0), 0.25);
        let said = text(&[direct.clone(), buffered], direct_read).unwrap();
        assert!(
            said.starts_with(
                "Direct reads cost less CPU: 0.050 s/GiB against 0.250 buffered, 80% less. Throughputs are not \
                 significantly different."
            ),
            "{said}"
        );
        assert_eq!(text(&[direct], direct_read), None, "there is nothing to compare with");
    }

    #[test]
    fn a_wide_interval_of_costs_is_inconclusive() {
        let mut direct = run("kernel-direct", Rw::Write, 1 << 20, 1, &steady(9.0), 0.20);
        let buffered = run("kernel-buffered", Rw::Write, 1 << 20, 1, &steady(4.5), 0.25);
        for (repeat, factor) in direct.repeats.iter_mut().zip([0.5, 1.9, 0.7, 1.2]) {
            let cpu = repeat.cpu.as_mut().unwrap();
            cpu.user_seconds *= factor;
            cpu.system_seconds *= factor;
        }
        let text = text(&[direct, buffered], direct_write).unwrap();
        assert!(text.contains("the comparison of CPU costs is inconclusive (0.2"), "{text}");
        assert!(text.contains("Direct I/O has 2.00 times the throughput."), "{text}");
    }

    #[test]
    fn buffered_io_may_cost_less() {
        let direct = run("kernel-direct", Rw::Write, 4096, 1, &steady(1.0), 2.0);
        let buffered = run("kernel-buffered", Rw::Write, 4096, 1, &steady(5.0), 0.4);
        let text = text(&[direct, buffered], direct_write).unwrap();
        assert!(
            text.starts_with("Buffered writes cost less CPU: 0.400 s/GiB against 2.00 direct, 80% less. Direct I/O has 0.200 times"),
            "{text}"
        );
    }

    #[test]
    fn a_run_that_memory_served_is_not_recommended() {
        let stored = run("kernel-direct", Rw::Read, 1 << 20, 1, &steady(9.0), 0.05);
        let cached = RunResult {
            served_by: Some(ServedBy::Memory),
            ..run("kernel-buffered", Rw::Read, 1 << 20, 1, &steady(147.0), 0.05)
        };
        let said = text(&[stored, cached.clone()], sequential_read).unwrap();
        assert!(said.starts_with("Sequential reads: use kernel-direct"), "{said}");
        assert_eq!(text(&[cached], sequential_read), None);
    }
}
