//! Extreme numbers on the command line: the program does its work, or refuses them in one line.

use crate::support::iopath;

/// Runs the program, which must succeed or fail with one line, without a panic.
fn ends(args: &[&str]) {
    let run = iopath(args).output().unwrap();
    let stderr = String::from_utf8(run.stderr).unwrap();
    let code = run.status.code();
    assert!(matches!(code, Some(0..=2)), "{args:?} ends with {code:?}: {stderr}");
    assert!(!stderr.contains("panicked"), "{args:?}: {stderr}");
    assert!(
        code == Some(0) || stderr.lines().last().is_some_and(|line| line.starts_with("iopath: ")),
        "{stderr}"
    );
}

#[test]
fn sizes_counts_and_times_of_any_value_are_accepted_or_refused() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let target = folder.path().join("target");
    std::fs::write(&target, vec![1; 1 << 20]).unwrap();
    let (target, log) = (target.to_str().unwrap(), folder.path().join("log"));
    let numbers = ["0", "4294967296", "18446744073709551615"];
    let options =
        ["--bs", "--size", "--iodepth", "--numjobs", "--latency-every", "--cache", "--page", "--readahead"];
    for number in numbers {
        for path in ["null", "iopath-buffered"] {
            for option in options {
                let base = ["run", "--path", path, "--target", target, "--repeat", "1", "--runtime", "10ms"];
                ends(&[&base[..], &[option, number]].concat());
            }
        }
        let warm = ["run", "--path", "iopath-buffered", "--target", target, "--repeat", "1", "--warm"];
        ends(&[&warm[..], &["--runtime", "10ms", "--size", number]].concat());
        let logged =
            ["run", "--path", "null", "--size", "64k", "--repeat", "1", "--log", log.to_str().unwrap()];
        ends(&[&logged[..], &["--log-limit", number]].concat());
        ends(&[&logged[..], &["--runtime", "10ms", "--seed", number]].concat());
        for option in ["--from", "--to", "--stream", "--sectors"] {
            let value = match option {
                "--sectors" => format!("{number}+{number}"),
                "--stream" => number.to_owned(),
                _ => format!("{number}s"),
            };
            ends(&["log", log.to_str().unwrap(), option, &value]);
            ends(&["log", "dump", log.to_str().unwrap(), option, &value]);
        }
        ends(&["map", target, "--bs", number]);
        if number.len() > 10 {
            let scratch = folder.path().to_str().unwrap();
            ends(&["run", "--path", "iopath-direct", "--target", scratch, "--repeat", "1", "--size", number]);
        }
    }
    for time in ["0", "1e-300", "NaN", "-1", "inf", "1e19", "18446744073709551615", "99999999999999y"] {
        ends(&["run", "--path", "null", "--size", "64k", "--repeat", "1", "--runtime", time, "--bs", "1z"]);
        ends(&["survey", "/dev/null", "--time", time]);
    }
}
