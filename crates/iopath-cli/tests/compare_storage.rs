//! A/A comparisons on real storage: the same command on both sides, with the disturbances of this machine. Takes minutes, so
//! it runs on request only.

mod support;

use std::path::Path;

use support::{iopath, json_of, scratch_directory};

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
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let verdict = json["runs"][0]["metrics"][0]["verdict"].as_str().unwrap().to_owned();
    eprintln!("{comparison}: {verdict}, {}", json["runs"][0]["metrics"][0]["ci95"]);
    verdict == "faster" || verdict == "slower"
}

#[test]
#[ignore = "takes minutes; run it with: cargo test -p iopath-cli --test compare_storage -- --ignored --nocapture"]
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
