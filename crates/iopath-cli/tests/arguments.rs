//! Random arguments: the program does its work or refuses them in one line, without a panic and without waiting. All
//! files are in a scratch directory, and no command changes settings of devices.
//!
//! `IOPATH_FUZZ_SECONDS=600 cargo test -p iopath-cli --test all arguments::` runs for that time from a new seed; the
//! default is a few executions from seed 1. A failure prints the seed and the arguments.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use crate::support::{iopath, with_default_signals};

/// Executions without `IOPATH_FUZZ_SECONDS`.
const EXECUTIONS: u32 = 60;

/// An execution takes less, also on a loaded machine.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Commands with arguments that keep an execution short. Commands that change settings, serve or take long are refused
/// by other arguments, or are not part of it.
const COMMANDS: &[(&[&str], &[&str])] = &[
    (&["run"], &["--runtime", "10ms", "--repeat", "1", "--size", "64k"]),
    (&["run", "jobs.fio"], &["--runtime", "10ms", "--size", "64k"]),
    (&["sweep"], &["--runtime", "10ms", "--repeat", "1", "--size", "64k"]),
    (&["compare"], &[]),
    (&["report"], &[]),
    (&["log"], &[]),
    (&["log", "dump"], &[]),
    (&["map"], &[]),
    (&["elevators"], &[]),
    (&["experiment", "freelist"], &["--set", "total_mib=1"]),
    (&["completions"], &[]),
    (&["man"], &[]),
    (&["help"], &[]),
];

/// Options whose values could make an execution long, or name a place outside of the scratch directory.
const LEFT_OUT: &[&str] =
    &["--runtime", "--repeat", "--size", "--live", "--set", "--help", "--host", "--io-size"];

const VALUES: &[&str] = &[
    "0",
    "1",
    "2",
    "16",
    "64k",
    "4k,8k",
    "4k..64k",
    "1m",
    "-1",
    "18446744073709551616",
    "1e9",
    "NaN",
    "50%",
    "10ms",
    "1s",
    "null",
    "kernel-buffered",
    "iopath-direct,iopath-buffered",
    "randread",
    "read,write",
    "rewrite",
    "deadline",
    "none",
    "target",
    "folder",
    "jobs.fio",
    "missing",
    "result.json",
    "log",
    "new.json",
    "-",
    "",
    " ",
    "=",
    ":",
    "a=b",
    "@",
    "é\u{202e}",
    "model:hdd-20tb",
    "model:",
    "model:missing",
    "stripe:64k:target,target",
    "stripe:0:",
    "nbd://",
    "zipf:1.2",
    "poisson",
    "json",
    "csv",
    "markdown",
    "fio-json",
    "perftest",
    "iops:10%",
    "lat:5%",
    "4k/50:64k/50",
    "bash",
    "database",
];

/// A generator of splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) % end as u64) as usize
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// The long options of a command, from its help.
fn options(command: &[&str]) -> Vec<String> {
    let names: Vec<&str> = command.iter().copied().filter(|word| !word.contains('.')).collect();
    let output = iopath(&names).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let is_name = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '-';
    let mut options: Vec<String> = help
        .split_whitespace()
        .filter(|word| word.starts_with("--"))
        .map(|word| word.chars().take_while(|char| is_name(*char)).collect::<String>())
        .filter(|option| option.len() > 2 && !LEFT_OUT.contains(&option.as_str()))
        .collect();
    options.sort();
    options.dedup();
    options
}

fn arguments(random: &mut Random, command: &[&str], fixed: &[&str], options: &[String]) -> Vec<String> {
    let mut arguments: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    for _ in 0..random.below(7) {
        match random.below(8) {
            0 => arguments.push(random.of(VALUES).to_owned()),
            1 | 2 if !options.is_empty() => arguments.push(options[random.below(options.len())].clone()),
            _ if !options.is_empty() => {
                arguments.push(options[random.below(options.len())].clone());
                arguments.push(random.of(VALUES).to_owned());
            }
            _ => {}
        }
    }
    if random.below(10) > 0 {
        arguments.extend(fixed.iter().map(|word| (*word).to_owned()));
    } else if !fixed.is_empty() {
        // Without them, the arguments have to be refused.
        arguments.push("--no-such-option".to_owned());
    }
    arguments
}

/// Executes the program, and fails if the end is not one of a program.
fn execute(directory: &Path, arguments: &[String], context: &str) {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command: Command = with_default_signals(&iopath(&words));
    let errors = tempfile::NamedTempFile::new().unwrap();
    command.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.stderr(errors.reopen().unwrap()).spawn().unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > TIME_MAX {
            child.kill().unwrap();
            panic!("{context}: no end within {TIME_MAX:?}: {arguments:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let stderr = fs::read_to_string(errors.path()).unwrap();
    let code = status.code();
    assert!(matches!(code, Some(0..=4)), "{context}: {arguments:?} ends with {status}: {stderr}");
    assert!(!stderr.contains("panicked"), "{context}: {arguments:?}: {stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    let is_help = stderr.starts_with("Usage") || stderr.contains("\nUsage: ");
    let is_comparison = matches!(code, Some(3 | 4));
    assert!(
        code == Some(0) || is_comparison || is_help || last.starts_with("iopath: "),
        "{context}: {arguments:?}: no line of the program: {stderr}"
    );
    let is_plain = |char: char| !char.is_control() && char != '\u{202e}';
    assert!(stderr.lines().all(|line| line.chars().all(is_plain)), "{context}: {arguments:?}: {stderr:?}");
}

#[test]
fn any_arguments_are_executed_or_refused() {
    let seconds = std::env::var("IOPATH_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let seed = match (std::env::var("IOPATH_FUZZ_SEED").ok(), seconds) {
        (Some(text), _) => text.parse().unwrap(),
        (None, Some(_)) => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs(),
        (None, None) => 1,
    };
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = |name: &str| directory.path().join(name);
    fs::create_dir(file("folder")).unwrap();
    fs::write(
        file("jobs.fio"),
        "[one]\nioengine=null\n[two]\nstonewall\nrw=randread\nbs=8k\nfilename=target\n",
    )
    .unwrap();
    let refresh = || {
        fs::write(file("target"), vec![7; 1 << 20]).unwrap();
        let mut first = iopath(&["run", "--path", "null", "--size", "64k", "--repeat", "2", "--force"]);
        let made =
            first.arg("--json").arg(file("result.json")).arg("--log").arg(file("log")).output().unwrap();
        assert!(made.status.success(), "{made:?}");
    };
    refresh();
    let known: Vec<Vec<String>> = COMMANDS.iter().map(|(command, _)| options(command)).collect();
    assert!(known[0].len() > 20, "{:?}", known[0]);
    let (mut random, begun, mut count) = (Random(seed), Instant::now(), 0);
    loop {
        let number = random.below(COMMANDS.len());
        let (command, fixed) = COMMANDS[number];
        let arguments = arguments(&mut random, command, fixed, &known[number]);
        execute(directory.path(), &arguments, &format!("seed {seed}, execution {count}"));
        count += 1;
        let is_over = match seconds {
            Some(seconds) => begun.elapsed() > Duration::from_secs(seconds),
            None => count >= EXECUTIONS,
        };
        if is_over {
            break;
        }
        // An execution may have replaced the files.
        if count % 200 == 0 {
            refresh();
        }
    }
    eprintln!("{count} executions from seed {seed}");
}
