//! The cost of the queue per bio: for each elevator, pattern and number of queued requests, with merges found and not
//! found. The cost is compared with the tree of the standard library on the same keys, and with a published figure.
//! Runs `crates/iopath-os/benches/figures.rs`.

use anyhow::{Result, bail};

use super::figures::Goal;
use super::lines::{self, Rounds};
use super::report::Figure;
use super::samples::Samples;

/// The name for `--only`.
pub(super) const NAME: &str = "elevators";

/// Lock, insertion, dispatch and completion of a request in Linux's mq-deadline, on a Core i7-2760QM at 2.4 GHz:
/// Documentation/block/bfq-iosched.rst of the kernel.
const MQ_DEADLINE_NS: f64 = 700.0;

/// Maximum ratio of the cost of a bio with the most requests queued to the cost with the fewest.
const FLAT: Goal = Goal::AtMost(2.0);

/// Nanoseconds per bio, by the name of the case.
type Times = Rounds;

/// Runs the bench half as often as a contest, because each run measures every case.
pub(super) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    figures(&lines::collect(NAME, rounds.div_ceil(2), || lines::run("iopath-os", "figures", &[]))?)
}

/// A figure for each case, and one for the flatness of each elevator and pattern.
fn figures(times: &Times) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (case, nanos) in times {
        let fields: Vec<&str> = case.split(", ").collect();
        match fields[..] {
            ["BTreeMap", ..] => {}
            [elevator, pattern, queued] => {
                let tree = lines::samples(times, &format!("BTreeMap, {pattern}, {queued}"))?;
                let name = format!("queue, {elevator}, {pattern}, {queued} queued");
                figures.push(rate(&name, nanos, "BTreeMap insert+pop", &tree));
                if elevator == "deadline" {
                    let goal = Goal::AtLeast(1.0);
                    let name = format!("{name}, the kernel's");
                    let published =
                        rate(&name, nanos, "mq-deadline, published", &Samples::constant(MQ_DEADLINE_NS));
                    figures.push(Figure { goal, ..published });
                }
                figures.extend(flatness(times, elevator, pattern, queued, nanos)?);
            }
            [merge, among] => {
                let tree = lines::samples(times, "BTreeMap, random, 1024")?;
                figures.push(rate(&format!("queue, {merge}, {among}"), nanos, "BTreeMap insert+pop", &tree));
            }
            _ => bail!("the output of the bench has an unknown case {case:?}"),
        }
    }
    Ok(figures)
}

/// Compares the case with the most requests queued with the case with the fewest.
fn flatness(
    times: &Times,
    elevator: &str,
    pattern: &str,
    queued: &str,
    nanos: &Samples,
) -> Result<Option<Figure>> {
    let prefix = format!("{elevator}, {pattern}, ");
    let sizes = times.keys().filter_map(|case| case.strip_prefix(&prefix)?.parse::<u64>().ok());
    let (least, most) = sizes.fold((u64::MAX, 0), |(least, most), size| (least.min(size), most.max(size)));
    if queued != most.to_string() || least == most {
        return Ok(None);
    }
    Ok(Some(Figure {
        name: format!("queue, {elevator}, {pattern}, {most} against {least} queued"),
        unit: "ns",
        peer: "itself",
        value: nanos.clone(),
        peer_value: lines::samples(times, &format!("{prefix}{least}"))?,
        goal: FLAT,
        others: None,
    }))
}

fn rate(name: &str, nanos: &Samples, peer: &'static str, peer_nanos: &Samples) -> Figure {
    let [value, peer_value] = [nanos, peer_nanos].map(|nanos| nanos.map(|nanos| 1e9 / nanos));
    Figure { name: name.to_owned(), unit: "bios/s", peer, value, peer_value, goal: Goal::Free, others: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "BTreeMap, random, 1024\t200.0\nBTreeMap, random, 32\t100.0\n\
        deadline, random, 1024\t350.0\ndeadline, random, 32\t140.0\nmerge hit, plug\t50.0\n";

    #[test]
    fn each_case_has_its_peers() {
        let figures = figures(&lines::once(LINES)).expect("its peers");
        let shown: Vec<_> = figures
            .iter()
            .map(|figure| {
                (
                    figure.name.as_str(),
                    figure.peer,
                    (figure.value.ratio_to(&figure.peer_value).median * 1e3).round(),
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("queue, deadline, random, 1024 queued", "BTreeMap insert+pop", 571.0),
                ("queue, deadline, random, 1024 queued, the kernel's", "mq-deadline, published", 2000.0),
                ("queue, deadline, random, 1024 against 32 queued", "itself", 2500.0),
                ("queue, deadline, random, 32 queued", "BTreeMap insert+pop", 714.0),
                ("queue, deadline, random, 32 queued, the kernel's", "mq-deadline, published", 5000.0),
                ("queue, merge hit, plug", "BTreeMap insert+pop", 4000.0),
            ]
        );
    }

    #[test]
    fn a_missing_case_is_named() {
        let error = figures(&lines::once("ascend, random, 32\t1.0")).expect_err("no peer");
        assert!(error.to_string().contains("BTreeMap, random, 32"), "{error}");
    }
}
