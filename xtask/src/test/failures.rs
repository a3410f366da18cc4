//! Finds the output of failed tests in the log of `cargo test`.

/// The maximum number of lines for all failed tests.
const LINES_MAX: usize = 300;

/// The minimum number of lines for each test. If no lines are left for a test, the output only counts it.
const LINES_MIN: usize = 15;

/// The number of lines before the panic message of a test with a long output.
const LINES_BEFORE_PANIC: usize = 5;

/// The name of a failed test, or of a test program that died, and its output.
#[derive(Debug, PartialEq, Eq)]
struct Failure<'a> {
    title: String,
    output: Vec<&'a str>,
}

/// The output of each failed test, with its test program. None if no test failed, for example after an error of the
/// compiler.
pub(super) fn of_log(log: &str) -> Option<String> {
    let failures: Vec<Failure<'_>> = programs(log).iter().flat_map(Program::failures).collect();
    if failures.is_empty() {
        return None;
    }
    let lines_max = (LINES_MAX / failures.len()).max(LINES_MIN);
    let shown_max = LINES_MAX / lines_max;
    let mut shown: Vec<String> =
        failures.iter().take(shown_max).map(|failure| failure.show(lines_max)).collect();
    if failures.len() > shown_max {
        shown.push(format!("{} more tests failed\n", failures.len() - shown_max));
    }
    Some(shown.concat())
}

/// The part of a log that belongs to one test program, or to the doc tests of a crate.
#[derive(Debug)]
struct Program<'a> {
    /// `tests/NAME.rs (path)` or `Doc-tests CRATE`.
    name: &'a str,
    lines: Vec<&'a str>,
}

fn programs(log: &str) -> Vec<Program<'_>> {
    let mut programs: Vec<Program<'_>> = Vec::new();
    for line in log.lines() {
        // Cargo aligns these words to the right, so no test prints them by accident.
        let header = line.strip_prefix("     Running ").or_else(|| {
            let is_header = line.starts_with("   Doc-tests ");
            is_header.then(|| line.trim_start())
        });
        match (header, programs.last_mut()) {
            (Some(name), _) => programs.push(Program { name, lines: Vec::new() }),
            (None, Some(program)) => program.lines.push(line),
            (None, None) => {}
        }
    }
    programs
}

impl<'a> Program<'a> {
    fn failures(&self) -> Vec<Failure<'a>> {
        let mut failures: Vec<Failure<'a>> = Vec::new();
        let after = self.lines.iter().skip_while(|line| **line != "failures:").skip(1);
        for &line in after.take_while(|line| **line != "failures:" && !line.starts_with("test result: ")) {
            let test = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----"));
            match (test, failures.last_mut()) {
                (Some(test), _) => {
                    let title = format!("{test}, in {}", self.name);
                    failures.push(Failure { title, output: Vec::new() });
                }
                (None, Some(failure)) => failure.output.push(line),
                (None, None) => {}
            }
        }
        if failures.is_empty()
            && self.lines.iter().any(|line| line.starts_with("error: ") && line.contains("test failed"))
        {
            // A signal or an exit ended it before it could report.
            failures.push(Failure { title: self.name.to_owned(), output: self.lines.clone() });
        }
        failures
    }
}

impl Failure<'_> {
    fn show(&self, lines_max: usize) -> String {
        let blank = |line: &&&str| line.trim().is_empty();
        let end = self.output.len() - self.output.iter().rev().take_while(blank).count();
        let output = &self.output[..end];
        let panic = output.iter().position(|line| line.contains("panicked at"));
        let start = match panic {
            _ if output.len() <= lines_max => 0,
            Some(panic) => panic.saturating_sub(LINES_BEFORE_PANIC),
            // The program died: the end of its output shows the cause.
            None => output.len() - lines_max,
        };
        let shown = &output[start..output.len().min(start + lines_max)];
        let cut = if shown.len() < output.len() {
            format!("({} of {} lines)\n", shown.len(), output.len())
        } else {
            String::new()
        };
        format!("---- {} ----\n{cut}{}\n\n", self.title, shown.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run with `--no-fail-fast -- --show-output`.
    const LOG: &str = include_str!("../../samples/cargo-test-failed.log");

    #[test]
    fn each_failed_test_shows_its_message_and_its_program() {
        let text = of_log(LOG).expect("tests failed");
        let titles: Vec<_> = text.lines().filter(|line| line.starts_with("---- ")).collect();
        assert_eq!(
            titles,
            [
                "---- a_cut_file_is_shorter, in tests/resize.rs (target/debug/deps/resize-e51585b3ced98fbe) ----",
                "---- reads_are_short, in tests/resize.rs (target/debug/deps/resize-e51585b3ced98fbe) ----",
                "---- tests/served.rs (target/debug/deps/served-3a39ac4f289b8dfa) ----",
                "---- src/lib.rs - (line 1), in Doc-tests demo ----",
            ]
        );
        for message in [
            "panicked at tests/resize.rs:2:121:\ncalled `Result::unwrap()` on an `Err` value: \"the end has moved\"",
            "Error: \"late\"",
            "signal: 6, SIGABRT",
            "  left: 1\n right: 2",
        ] {
            assert!(text.contains(message), "{message}: {text}");
        }
        assert!(!text.contains("skipped") && !text.contains("good"), "passed tests: {text}");
    }

    #[test]
    fn a_log_without_a_failed_test_has_none() {
        assert_eq!(of_log("error[E0308]: mismatched types\nerror: could not compile `x`\n"), None);
        assert_eq!(of_log("     Running tests/a.rs (x)\ntest result: ok. 1 passed; 0 failed\n"), None);
    }

    #[test]
    fn a_long_output_is_cut_around_the_panic_message() {
        let noise = "noise\n".repeat(1000);
        let log = format!(
            "     Running tests/a.rs (x)\nfailures:\n\n---- t stdout ----\n{noise}thread 't' panicked at a.rs:1:1:\nthe reason\n\
             {noise}\nfailures:\n    t\n"
        );
        let text = of_log(&log).expect("a test failed");
        assert!(text.contains("the reason") && text.lines().count() <= LINES_MAX + 3, "{text}");
        assert!(text.contains("(300 of 2002 lines)"), "{text}");
    }

    #[test]
    fn many_failures_share_the_lines() {
        let output = "noise\n".repeat(20);
        let tests: Vec<_> = (0..50).map(|test| format!("---- t{test} stdout ----\n{output}")).collect();
        let log = format!("     Running tests/a.rs (x)\nfailures:\n\n{}", tests.concat());
        let text = of_log(&log).expect("tests failed");
        assert!(text.ends_with("30 more tests failed\n"), "{text}");
        assert_eq!(text.lines().filter(|line| *line == "noise").count(), LINES_MAX);
    }
}
