//! `cargo xtask sanitize`: runs Miri, `ThreadSanitizer` and `AddressSanitizer` on the tests that they support, with a
//! nightly toolchain. Not a step of `cargo xtask test`, because it takes minutes and builds the standard library.
//! Prints a line for a missing tool and skips it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::workspace;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Run only this tool
    #[arg(long, value_enum)]
    only: Option<Tool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Tool {
    /// Finds undefined behaviour and data races; does not support `io_uring`, files and C code
    Miri,
    /// Finds data races between threads; does not observe the kernel's side of `io_uring`
    Thread,
    /// Finds use after free and buffer overflows
    Address,
}

/// A run of cargo under a tool.
#[derive(Debug)]
struct Job {
    tool: Tool,
    /// Arguments after `cargo miri test` or `cargo test`.
    arguments: &'static [&'static str],
    /// Environment of the tests.
    variables: &'static [(&'static str, &'static str)],
}

/// A short torture test of a volume shared by threads: the sanitizers are about ten times slower.
const TORTURE: &[(&str, &str)] = &[
    ("IOPATH_TORTURE_SEED", "1"),
    ("IOPATH_TORTURE_OPS", "60000"),
    ("IOPATH_TORTURE_THREADS", "3"),
    ("IOPATH_TORTURE_TARGET", "memory"),
];

/// Few cases for property tests: Miri interprets the code.
const FEW_CASES: &[(&str, &str)] = &[("PROPTEST_CASES", "4")];

const JOBS: &[Job] = &[
    // The core has only its tables that threads share here: it has no `unsafe`, and Miri takes minutes for each model.
    Job {
        tool: Tool::Miri,
        arguments: &["-p", "iopath-core", "--lib", "cache::table::"],
        variables: FEW_CASES,
    },
    Job {
        tool: Tool::Miri,
        arguments: &["-p", "iopath-core", "--test", "all", "cache::pages_that_threads"],
        variables: FEW_CASES,
    },
    Job { tool: Tool::Miri, arguments: &["-p", "iopath-log", "--lib", "ring::"], variables: FEW_CASES },
    Job {
        tool: Tool::Miri,
        // Code with `unsafe` and without system calls that Miri lacks. The skipped test copies megabytes.
        arguments: &[
            "-p",
            "iopath-os",
            "--lib",
            "--",
            "aligned::",
            "buffered::",
            "kernel::slots::",
            "memory::",
            "pool::",
            "device::null::",
            "--skip",
            "bytes_past_the_caches",
        ],
        variables: FEW_CASES,
    },
    Job {
        tool: Tool::Miri,
        arguments: &["-p", "iopath-os", "--test", "all", "memory_disk::"],
        variables: FEW_CASES,
    },
    Job { tool: Tool::Miri, arguments: &["-p", "iopath", "--test", "all", "tiny_cache::"], variables: &[] },
    Job { tool: Tool::Thread, arguments: &["-p", "iopath-os", "--tests"], variables: FEW_CASES },
    Job { tool: Tool::Thread, arguments: &["-p", "iopath", "--tests"], variables: TORTURE },
    Job { tool: Tool::Address, arguments: &["-p", "iopath-os", "--tests"], variables: FEW_CASES },
    Job { tool: Tool::Address, arguments: &["-p", "iopath", "--tests"], variables: TORTURE },
];

/// Runs the jobs of the installed tools. Returns false if a job failed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let Some(host) = nightly_host() else {
        println!("skipped: no nightly toolchain; install it with `rustup toolchain install nightly`");
        return Ok(true);
    };
    let mut lines = Vec::new();
    let mut is_ok = true;
    for tool in [Tool::Miri, Tool::Thread, Tool::Address] {
        if options.only.is_some_and(|only| only != tool) {
            continue;
        }
        if let Err(error) = prepare(tool) {
            lines.push(format!("skipped: {tool:?}: {error:#}"));
            continue;
        }
        for job in JOBS.iter().filter(|job| job.tool == tool) {
            let title = format!("{tool:?}: {}", job.arguments.join(" "));
            println!("\n=== {title}");
            let started = Instant::now();
            let (succeeded, passed) = run_shown(&mut job.command(&host))?;
            // A job without tests fails: a name in its filter has changed.
            let verdict = if succeeded && passed > 0 { "ok    " } else { "FAILED" };
            is_ok &= succeeded && passed > 0;
            lines.push(format!(
                "{verdict} {:6.0} s  {passed:>4} tests  {title}",
                started.elapsed().as_secs_f64()
            ));
        }
    }
    println!("\n{}", lines.join("\n"));
    Ok(is_ok)
}

/// Runs the command and prints its output. Returns whether it succeeded, and the number of passed tests.
fn run_shown(command: &mut Command) -> Result<(bool, u64)> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run rustup")?;
    let mut passed = 0;
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let line = line.context("the output is not text")?;
        passed += passed_tests(&line);
        println!("{line}");
    }
    Ok((child.wait()?.success(), passed))
}

/// The number of passed tests in a line such as `test result: ok. 3 passed; …`.
fn passed_tests(line: &str) -> u64 {
    let count = |line: &str| line.split_once(". ")?.1.split_once(" passed")?.0.parse().ok();
    line.strip_prefix("test result: ").and_then(count).unwrap_or(0)
}

impl Job {
    fn command(&self, host: &str) -> Command {
        let mut command = nightly("cargo");
        command.envs(self.variables.iter().copied()).stdin(Stdio::null());
        let (sanitizer, variable, settings) = match self.tool {
            Tool::Miri => {
                command.args(["miri", "test"]).args(self.arguments);
                // Isolation would hide the clock and the environment variables with seeds. Segments that join two
                // borrows need exposed addresses.
                command.env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance");
                return command;
            }
            Tool::Thread => ("thread", "TSAN_OPTIONS", "halt_on_error=1:second_deadlock_stack=1"),
            // Tests of hangs leak memory on purpose, because a hanging thread may still use it.
            Tool::Address => ("address", "ASAN_OPTIONS", "detect_leaks=0:detect_stack_use_after_return=1"),
        };
        command
            // With `build-std`, ThreadSanitizer observes the locks of the standard library.
            .args(["test", "-Zbuild-std", "--profile", "checked", "--no-fail-fast", "--target", host])
            .arg("--target-dir")
            .arg(workspace::target_dir().join("sanitize").join(sanitizer))
            .args(self.arguments)
            // The sanitizers intercept calls of the C library. Without that, memory that one thread unmaps and another
            // maps again would be reported as a race.
            .env("RUSTFLAGS", format!("-Zsanitizer={sanitizer} --cfg=rustix_use_libc"))
            .env(variable, settings);
        command
    }
}

/// Installs the components that the tool needs.
fn prepare(tool: Tool) -> Result<()> {
    let source = || Some(nightly_sysroot()?.join("lib/rustlib/src/rust/library/std/Cargo.toml"));
    let has_source = || source().is_some_and(|path| path.exists());
    let has_miri = || succeeds(nightly("cargo").args(["miri", "--version"]));
    if !has_source() {
        add_component("rust-src");
        ensure!(has_source(), "`rustup component add rust-src --toolchain nightly` is needed and failed");
    }
    if tool == Tool::Miri && !has_miri() {
        add_component("miri");
        ensure!(has_miri(), "`rustup component add miri --toolchain nightly` is needed and failed");
    }
    Ok(())
}

/// Tries to install a component. The caller checks the result.
fn add_component(name: &str) {
    println!("installing {name} for the nightly toolchain");
    let _ = succeeds(Command::new("rustup").args(["component", "add", name, "--toolchain", "nightly"]));
}

fn succeeds(command: &mut Command) -> bool {
    let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    silent.status().is_ok_and(|status| status.success())
}

/// A program of the nightly toolchain, in the root of the workspace.
fn nightly(program: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", program]).current_dir(workspace::root());
    // Cargo has set these variables for the toolchain of xtask.
    command.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTDOC");
    command
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The host triple of the nightly compiler.
fn nightly_host() -> Option<String> {
    host_of(&output(nightly("rustc").arg("-vV"))?)
}

fn host_of(version: &str) -> Option<String> {
    version.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
}

fn nightly_sysroot() -> Option<PathBuf> {
    Some(output(nightly("rustc").args(["--print", "sysroot"]))?.trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_read_from_the_version() {
        let version =
            "rustc 1.90.0-nightly (abc 2025-01-01)\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\n";
        assert_eq!(host_of(version).as_deref(), Some("x86_64-unknown-linux-gnu"));
        assert_eq!(host_of("rustc 1.90.0"), None);
    }

    #[test]
    fn passed_tests_are_counted() {
        assert_eq!(passed_tests("test result: ok. 12 passed; 0 failed; 0 ignored"), 12);
        assert_eq!(passed_tests("test result: FAILED. 3 passed; 1 failed"), 3);
        assert_eq!(passed_tests("test a ... ok"), 0);
        let (succeeded, passed) =
            run_shown(Command::new("echo").arg("test result: ok. 2 passed; 0 failed")).expect("echo");
        assert_eq!((succeeded, passed), (true, 2));
    }

    #[test]
    fn a_sanitizer_rebuilds_the_standard_library_and_miri_does_not() {
        let has = |tool: Tool, argument: &str| {
            let job = JOBS.iter().find(|job| job.tool == tool).expect("each tool has a job");
            job.command("x").get_args().any(|each| each == argument)
        };
        assert!(has(Tool::Thread, "-Zbuild-std") && has(Tool::Address, "-Zbuild-std"));
        assert!(has(Tool::Miri, "miri") && !has(Tool::Miri, "-Zbuild-std"));
    }
}
