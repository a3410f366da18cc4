//! Which path, block size and depth to use, and what going past the page cache saves.

use super::{Figures, is_direct, mb, name};
use crate::result::RunResult;
use crate::survey::compare::{Choice, CpuOf, Ratio, median, rate, rates};
use crate::table::{digits, time};
use crate::workload::Rw;

/// A difference in CPU price that is worth words.
const CPU_RATIO_MIN: f64 = 1.10;

/// A difference in throughput that is worth words, as a ratio either way.
const RATE_RATIO_MIN: f64 = 1.05;

pub(super) fn sequential_read(figures: &Figures) -> Option<(String, String)> {
    sequential(figures, Rw::Read, "Sequential reads")
}

pub(super) fn sequential_write(figures: &Figures) -> Option<(String, String)> {
    sequential(figures, Rw::Write, "Sequential writes, flush included")
}

fn sequential(figures: &Figures, rw: Rw, what: &str) -> Option<(String, String)> {
    let runs = figures.of(rw);
    let cpu = figures.cpu();
    let choice = Choice::of(&runs, cpu)?;
    let chosen = choice.chosen;
    let figure = format!("{}: {} at {} CPU s/GiB", name(chosen), mb(rate(chosen)), digits(cpu.price(chosen)));
    let text = if runs.len() > 1 && choice.good.len() == runs.len() {
        format!("{what}: path and block size make no difference beyond the spread. Cheapest is {figure}.")
    } else {
        format!("{what}: use {figure}.")
    } + once(chosen);
    let side = |run| format!("{}, {}", name(run), mb(rate(run)));
    let evidence = format!(
        "fastest: {}; {} of {} combinations differ from it no more than they spread, and of those the cheapest in CPU \
         with the least in flight is advised; slowest: {}",
        side(choice.fastest),
        choice.good.len(),
        runs.len(),
        side(choice.slowest),
    );
    Some((text, evidence))
}

pub(super) fn random_read(figures: &Figures) -> Option<(String, String)> {
    let runs = figures.of(Rw::RandRead);
    let cpu = figures.cpu();
    let choice = Choice::of(&runs, cpu)?;
    let singles: Vec<&RunResult> = runs.iter().copied().filter(|run| run.io_depth == 1).collect();
    let single = Choice::of(&singles, cpu)?.fastest;
    let figure = |run: &RunResult| {
        format!(
            "{} IOPS, half of them within {}, {} µs of CPU each",
            digits(iops(run)),
            time(run.latency_ns.p50),
            digits(cpu.per_io_us(run))
        )
    };
    let chosen = choice.chosen;
    let how = match chosen.io_depth {
        1 => "one at a time".to_owned(),
        depth => format!("{depth} in flight"),
    };
    let gain = Ratio::of(&rates(chosen), &rates(single)).filter(|gain| gain.is_above(1.0));
    let gain = match gain {
        Some(gain) if chosen.io_depth > 1 => format!(" That is {} times one at a time.", digits(gain.mean)),
        _ if chosen.io_depth > 1 => {
            " Whether that gains over one at a time is lost in the spread.".to_owned()
        }
        _ => String::new(),
    };
    let text = format!(
        "Random reads of 4 KiB: use {}, {how}: {}.{gain}{}",
        chosen.path,
        figure(chosen),
        once(chosen)
    );
    let evidence = format!(
        "fastest: {} at depth {}, {} IOPS; fastest one at a time: {}, {}",
        choice.fastest.path,
        choice.fastest.io_depth,
        digits(iops(choice.fastest)),
        single.path,
        figure(single)
    );
    Some((text, evidence))
}

fn iops(run: &RunResult) -> f64 {
    median(&run.repeats.iter().map(|repeat| repeat.iops).collect::<Vec<_>>())
}

pub(super) fn direct_read(figures: &Figures) -> Option<(String, String)> {
    direct_or_buffered(
        figures,
        Rw::Read,
        "reads",
        " That is for cold data read once: what is read again soon is faster in the page cache.",
    )
}

pub(super) fn direct_write(figures: &Figures) -> Option<(String, String)> {
    direct_or_buffered(figures, Rw::Write, "writes", "")
}

/// The best of the page cache against the best of what goes past it.
fn direct_or_buffered(figures: &Figures, rw: Rw, what: &str, but: &str) -> Option<(String, String)> {
    let cpu = figures.cpu();
    let (direct, buffered): (Vec<_>, Vec<_>) = figures.of(rw).into_iter().partition(|run| is_direct(run));
    let direct = Choice::of(&direct, cpu)?.chosen;
    let buffered = Choice::of(&buffered, cpu)?.chosen;
    let times = Ratio::of(&cpu.per_gib(buffered), &cpu.per_gib(direct));
    let speed = speed(&Ratio::of(&rates(direct), &rates(buffered))?);
    let (less, more) = (cpu.price(direct), cpu.price(buffered));
    let [low_price, high_price] = [less, more].map(digits);
    let text = if is_worth(times.as_ref(), more / less) {
        let factor = digits(more / less);
        format!(
            "Direct {what} save CPU: {low_price} s/GiB instead of {high_price}, {factor} times less, at {speed}."
        )
    } else if is_worth(Ratio::of(&cpu.per_gib(direct), &cpu.per_gib(buffered)).as_ref(), less / more) {
        format!("Buffered {what} save CPU: {high_price} s/GiB instead of {low_price}; direct has {speed}.")
    } else {
        format!(
            "Direct or buffered {what}: no difference in CPU beyond the spread ({low_price} and {high_price} s/GiB), \
             at {speed}."
        )
    };
    let interval = match times {
        Some(Ratio { ci95: Some([low, high]), .. }) => {
            format!("; buffered costs {} to {} times as much (95%)", digits(low), digits(high))
        }
        _ => String::new(),
    };
    let side = |run| format!("{}: {}", name(run), mb(rate(run)));
    let apart = digits((more - less).abs());
    let evidence = format!(
        "{}; {}; {apart} s of CPU for each GiB between them{interval}; {}",
        side(direct),
        side(buffered),
        whose(cpu)
    );
    Some((format!("{text}{}{but}", once(direct)), evidence))
}

/// Whether a price is higher beyond doubt and by enough to talk about.
fn is_worth(times: Option<&Ratio>, prices: f64) -> bool {
    times.is_some_and(|times| times.is_above(1.0)) && prices >= CPU_RATIO_MIN
}

/// What to say of a run without repeats, behind a sentence.
fn once(run: &RunResult) -> &'static str {
    if run.repeats.len() > 1 {
        return "";
    }
    " That was measured once: how far it spreads is not known; give more time with --time."
}

fn whose(cpu: CpuOf) -> &'static str {
    match cpu {
        CpuOf::Machine => "CPU of the whole machine, less what it used when idle",
        CpuOf::Process => {
            "CPU of this process only, as others used the machine: write-back and interrupts come on top"
        }
    }
}

/// How throughputs compare, in words that fit behind "at".
fn speed(faster: &Ratio) -> String {
    let times = digits(faster.mean);
    if faster.is_above(1.0) && faster.mean >= RATE_RATIO_MIN
        || faster.is_below(1.0) && faster.mean <= 1.0 / RATE_RATIO_MIN
    {
        format!("{times} times the throughput")
    } else if faster.ci95.is_none() {
        format!("{times} times the throughput, measured once")
    } else {
        "a throughput that differs no more than it spreads".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::findings::Facts;
    use crate::survey::made_up::run;

    fn facts() -> Facts {
        Facts { cores: 2, busy_cpus: Some(0.0), ..Facts::default() }
    }

    fn text(runs: &[RunResult], find: fn(&Figures) -> Option<(String, String)>) -> Option<String> {
        find(&Figures { runs, facts: &facts() }).map(|(text, _)| text)
    }

    const STEADY: [f64; 4] = [100.0, 101.0, 99.0, 100.0];

    fn steady(times: f64) -> [f64; 4] {
        STEADY.map(|mbs| mbs * times)
    }

    #[test]
    fn the_cheapest_of_the_fast_is_advised() {
        let runs = [
            run("kernel-buffered", Rw::Read, 1 << 20, 1, &steady(10.0), 0.3),
            run("kernel-uring", Rw::Read, 256 << 10, 8, &steady(9.9), 0.05),
            run("kernel-direct", Rw::Read, 4 << 10, 1, &steady(1.0), 0.2),
        ];
        let text = text(&runs, sequential_read).unwrap();
        assert_eq!(
            text,
            "Sequential reads: use kernel-uring with blocks of 256 KiB, 8 in flight: 990 MB/s at 0.050 CPU s/GiB."
        );
    }

    #[test]
    fn noise_is_not_advised_on() {
        let runs = [
            run("kernel-buffered", Rw::Write, 1 << 20, 1, &[100.0, 140.0, 90.0, 105.0], 0.3),
            run("kernel-direct", Rw::Write, 1 << 20, 1, &[110.0, 100.0, 120.0, 95.0], 0.3),
        ];
        let text = text(&runs, sequential_write).unwrap();
        assert!(text.contains("make no difference beyond the spread"), "{text}");
        assert_eq!(sequential_read(&Figures { runs: &runs, facts: &facts() }), None);
    }

    #[test]
    fn what_was_measured_once_is_said_to_be() {
        let runs = [
            run("kernel-buffered", Rw::Read, 1 << 20, 1, &[400.0], 0.3),
            run("kernel-direct", Rw::Read, 1 << 20, 1, &[800.0], 0.1),
        ];
        for find in [sequential_read, direct_read] {
            let text = text(&runs, find).unwrap();
            assert!(text.contains("measured once") && !text.contains("spreads."), "{text}");
        }
    }

    #[test]
    fn depth_is_advised_where_it_gains() {
        let deep = run("kernel-uring", Rw::RandRead, 4096, 32, &steady(8.0), 1.0);
        let single = run("kernel-direct", Rw::RandRead, 4096, 1, &steady(1.0), 1.0);
        let text_of = |runs: &[RunResult]| text(runs, random_read).unwrap();
        let both = text_of(&[single.clone(), deep]);
        assert!(both.contains("use kernel-uring, 32 in flight") && both.contains("8.00 times one"), "{both}");
        let no_gain = run("kernel-uring", Rw::RandRead, 4096, 32, &steady(1.01), 1.0);
        let text = text_of(&[single, no_gain]);
        assert!(text.contains("use kernel-direct, one at a time"), "{text}");
        assert_eq!(random_read(&Figures { runs: &[], facts: &facts() }), None);
    }

    #[test]
    fn what_direct_saves_is_said_with_its_ratio() {
        let direct = run("kernel-direct", Rw::Read, 1 << 20, 1, &steady(9.0), 0.05);
        let buffered = run("kernel-buffered", Rw::Read, 1 << 20, 1, &steady(9.0), 0.25);
        let said = text(&[direct.clone(), buffered], direct_read).unwrap();
        assert!(
            said.starts_with(
                "Direct reads save CPU: 0.050 s/GiB instead of 0.250, 5.00 times less, at a throughput that"
            ),
            "{said}"
        );
        assert_eq!(text(&[direct], direct_read), None, "there is nothing to compare with");
    }

    #[test]
    fn a_price_within_the_spread_is_no_difference() {
        let mut direct = run("kernel-direct", Rw::Write, 1 << 20, 1, &steady(9.0), 0.20);
        let buffered = run("kernel-buffered", Rw::Write, 1 << 20, 1, &steady(4.5), 0.25);
        for (repeat, factor) in direct.repeats.iter_mut().zip([0.5, 1.9, 0.7, 1.2]) {
            repeat.cpu.user_seconds *= factor;
            repeat.cpu.system_seconds *= factor;
        }
        let text = text(&[direct, buffered], direct_write).unwrap();
        assert!(text.contains("no difference in CPU beyond the spread"), "{text}");
        assert!(text.contains("2.00 times the throughput"), "{text}");
    }

    #[test]
    fn buffered_may_be_the_cheaper_one() {
        let direct = run("kernel-direct", Rw::Write, 4096, 1, &steady(1.0), 2.0);
        let buffered = run("kernel-buffered", Rw::Write, 4096, 1, &steady(5.0), 0.4);
        let text = text(&[direct, buffered], direct_write).unwrap();
        assert!(
            text.starts_with("Buffered writes save CPU: 0.400 s/GiB instead of 2.00; direct has 0.200 times"),
            "{text}"
        );
    }
}
