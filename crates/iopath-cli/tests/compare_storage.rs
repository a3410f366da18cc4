//! A/A and A/B comparisons on real storage, with the disturbances of this machine: the same command on both sides, and
//! a side B that is 5% slower by construction. They take minutes, so they run on request only.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{iopath, json_of, scratch_directory};
use serde_json::Value;

/// Comparisons. `IOPATH_AA` sets another number.
const COMPARISONS: u32 = 60;

/// Executions of each side of a comparison.
const EXECUTIONS: usize = 5;

/// Whether a comparison of alternating executions of one command finds a difference.
fn is_alarm(folder: &Path, target: &Path, comparison: u32) -> bool {
    let mut sides = [Vec::new(), Vec::new()];
    for execution in 0..EXECUTIONS {
        let first = (comparison as usize + execution) % 2;
        for side in [first, 1 - first] {
            let file = folder.join(format!("{side}-{execution}"));
            let args =
                ["run", "--path", "kernel-direct", "--rw", "randread", "--runtime", "100ms", "--repeat", "2"];
            let run = iopath(&args).arg("--target").arg(target).arg("--json").arg(&file).output().unwrap();
            assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
            sides[side].push(file.to_str().unwrap().to_owned());
        }
    }
    let [a, b] = sides.map(|files| files.join(","));
    let output = iopath(&["compare", &a, &b, "--json", "-"]).output().unwrap();
    assert!(
        [Some(0), Some(3)].contains(&output.status.code()),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let verdict = json["runs"][0]["metrics"][0]["verdict"].as_str().unwrap().to_owned();
    eprintln!("{comparison}: {verdict}, {}", json["runs"][0]["metrics"][0]["ci95"]);
    verdict == "faster" || verdict == "slower"
}

#[test]
#[ignore = "takes minutes; run it with: cargo test -p iopath-cli --test all compare_storage:: -- --ignored --nocapture"]
fn alternating_executions_of_one_command_are_rarely_different() {
    let Some(folder) = scratch_directory() else { return };
    let target = folder.path().join("target");
    std::fs::write(&target, vec![7; 64 << 20]).unwrap();
    let count = std::env::var("IOPATH_AA").map_or(COMPARISONS, |count| count.parse().unwrap());
    let alarms = (0..count).filter(|comparison| is_alarm(folder.path(), &target, *comparison)).count();
    let limit = 0.05 * f64::from(count);
    let limit = limit + 3.0 * (0.95 * limit).sqrt();
    eprintln!("{alarms} false alarms in {count} comparisons");
    assert!(alarms as f64 <= limit, "{alarms} of {count}");
}

/// The share of the transfers of A that B completes in the same time.
const SLOWER: f64 = 0.95;

/// The pause after each transfer on both sides, in nanoseconds.
const PAUSE_NS: u64 = 1_000_000;

/// A/B comparisons. `IOPATH_AB` sets another number.
const AB_COMPARISONS: u32 = 20;

/// No comparison begins after this time.
const AB_TIME: Duration = Duration::from_secs(400);

/// The largest proposal that the test follows, in further executions of each side.
const PROPOSAL_MAX: u64 = 60;

/// A folder with a target, and the executions of both sides so far.
struct Sides<'a> {
    folder: &'a Path,
    target: &'a Path,
    /// The pauses of A and of B.
    pauses_ns: [u64; 2],
    files: [Vec<String>; 2],
    /// Transfers per second of each execution.
    rates: [Vec<f64>; 2],
}

impl Sides<'_> {
    /// One execution of a side: random reads of 1 MiB, with its pause after each.
    fn execute(&mut self, side: usize) {
        let file = self.folder.join(format!("ab-{side}-{}", self.files[side].len()));
        let pause = format!("{}ns", self.pauses_ns[side]);
        let args = ["run", "--path", "kernel-direct", "--rw", "randread", "--bs", "1m", "--runtime", "200ms"];
        let mut run = iopath(&args);
        run.args(["--repeat", "1", "--thinktime", &pause, "--target"])
            .arg(self.target)
            .arg("--json")
            .arg(&file);
        let output = run.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        self.rates[side].push(json["runs"][0]["iops"]["mean"].as_f64().unwrap());
        self.files[side].push(file.to_str().unwrap().to_owned());
    }

    /// Pairs of executions, in an order that alternates.
    fn pairs(&mut self, count: u64) {
        for pair in 0..count {
            let first = (pair % 2) as usize;
            self.execute(first);
            self.execute(1 - first);
        }
    }

    /// The primary metric of the comparison of all executions.
    fn compare(&self) -> Value {
        let [a, b] = [0, 1].map(|side| self.files[side].join(","));
        let args = ["compare", &a, &b, "--vary", "thinktime", "--threshold", "5%", "--json", "-"];
        let output = iopath(&args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!([Some(0), Some(3)].contains(&output.status.code()), "{stderr}");
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        json["runs"][0]["metrics"][0].clone()
    }
}

/// The outcome of a comparison: whether it finds the change, or none if its proposal is too large for this test. Adds
/// the logarithms of the ratios of all pairs.
///
/// A transfer of A takes the time of the storage and the pause. The pause of B is longer by the part of this mean time,
/// as measured directly before, that makes B complete 95% of the transfers. The delays of the timer are the same on
/// both sides, and the storage has its own noise on each.
fn is_found(folder: &Path, target: &Path, ratios: &mut Vec<f64>) -> Option<bool> {
    let none = || [Vec::new(), Vec::new()];
    let mut sides =
        Sides { folder, target, pauses_ns: [PAUSE_NS; 2], files: none(), rates: [Vec::new(), Vec::new()] };
    (0..3).for_each(|_| sides.execute(0));
    let transfer_ns = 1e9 * sides.rates[0].iter().map(|rate| rate.recip()).sum::<f64>() / 3.0;
    let more_ns = transfer_ns * (1.0 / SLOWER - 1.0);
    sides.pauses_ns[1] = PAUSE_NS + more_ns as u64;
    (sides.files, sides.rates) = (none(), [Vec::new(), Vec::new()]);
    sides.pairs(EXECUTIONS as u64);
    let mut metric = sides.compare();
    let proposed = metric["more_repetitions"].as_u64().unwrap_or(0);
    let is_followed = proposed <= PROPOSAL_MAX;
    if proposed > 0 && is_followed {
        sides.pairs(proposed);
        metric = sides.compare();
    }
    let pairs = sides.rates[0].iter().zip(&sides.rates[1]);
    ratios.extend(pairs.map(|(a, b)| (b / a).ln()));
    eprintln!("{} after {proposed} further repetitions, {}", metric["verdict"], metric["ci95"]);
    is_followed.then(|| metric["verdict"] == "slower")
}

#[test]
#[ignore = "takes minutes; run it with: cargo test -p iopath-cli --test all compare_storage:: -- --ignored --nocapture"]
fn a_side_that_is_5_percent_slower_is_found_at_the_proposed_repetitions() {
    let Some(folder) = scratch_directory() else { return };
    let target = folder.path().join("target");
    std::fs::write(&target, vec![7; 256 << 20]).unwrap();
    let count = std::env::var("IOPATH_AB").map_or(AB_COMPARISONS, |count| count.parse().unwrap());
    let (started, mut ratios, mut outcomes) = (Instant::now(), Vec::new(), Vec::new());
    while outcomes.len() < count as usize && started.elapsed() < AB_TIME {
        outcomes.push(is_found(folder.path(), &target, &mut ratios));
    }
    let followed: Vec<bool> = outcomes.iter().flatten().copied().collect();
    let found = followed.iter().filter(|found| **found).count();
    // The check of the construction: the mean ratio of all pairs is 0.95.
    let number = ratios.len() as f64;
    let mean = ratios.iter().sum::<f64>() / number;
    let variance = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>() / (number - 1.0);
    let error = (variance / number).sqrt();
    eprintln!(
        "found {found} of {} followed comparisons ({} in all); {} pairs, ratio {:.4}, standard error {:.4}",
        followed.len(),
        outcomes.len(),
        ratios.len(),
        mean.exp(),
        error
    );
    assert!((mean - SLOWER.ln()).abs() <= 3.0 * error + 0.005, "the construction: {:.4}", mean.exp());
    let all = followed.len() as f64;
    let limit = 0.9 * all - 3.0 * (0.09 * all).sqrt();
    assert!(found as f64 >= limit, "{found} of {all}");
}

#[test]
fn a_comparison_of_one_file_with_itself_finds_no_difference() {
    let Some(folder) = scratch_directory() else { return };
    let result = folder.path().join("result");
    let args = ["run", "--path", "kernel-direct", "--size", "1m", "--repeat", "3", "--target"];
    let run = iopath(&args).arg(folder.path()).arg("--json").arg(&result).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let result = result.to_str().unwrap();
    let json = json_of(&iopath(&["compare", result, result, "--json", "-"]).output().unwrap());
    for metric in json["runs"][0]["metrics"].as_array().unwrap() {
        let verdict = metric["verdict"].as_str().unwrap();
        assert!(["same", "inconclusive"].contains(&verdict), "{metric}");
    }
}
