//! Refuses timed assertions in tests: on a machine with other load, a short limit fails without a defect. A limit of a
//! test is only a guard against hangs, and long.

use super::Finding;
use super::tree::{File, Token, Tree};

/// The shortest limit that an assertion may compare a duration with, in seconds.
const GUARD_MIN_S: u64 = 60;

const WAY_OUT: &str = "check order, counts and outcomes; a guard against hangs has 60 s or more; timings are rows of xtask bench";

/// `assert!(begun.elapsed() < limit)` with a limit shorter than a guard against hangs.
pub(super) fn hang_guards(tree: &Tree) -> Vec<Finding> {
    let sources = tree.rust_files().filter(|file| file.path.starts_with("crates/"));
    sources
        .flat_map(|file| {
            let limits = (0..file.tokens.len()).filter_map(|at| limit_of_assertion(&file.tokens, at));
            let short = limits.filter(|limit| seconds(file, limit).is_some_and(|limit| limit < GUARD_MIN_S));
            short.map(|limit| a_finding(file, limit[0].line)).collect::<Vec<_>>()
        })
        .collect()
}

fn a_finding(file: &File, line: usize) -> Finding {
    Finding { path: file.path.clone(), line, message: "a timed assertion".to_owned(), way_out: WAY_OUT }
}

/// The tokens after `assert!(NAME.elapsed() <`, if they begin at `at`.
fn limit_of_assertion(tokens: &[Token], at: usize) -> Option<&[Token]> {
    const BEFORE: [&str; 3] = ["assert", "!", "("];
    const AFTER: [&str; 5] = [".", "elapsed", "(", ")", "<"];
    let is = |tokens: &[Token], words: &[&str]| {
        tokens.iter().map(|token| token.text.as_str()).eq(words.iter().copied())
    };
    let found = is(tokens.get(at..at + 3)?, &BEFORE) && is(tokens.get(at + 4..at + 9)?, &AFTER);
    found.then(|| &tokens[at + 9..]).filter(|limit| !limit.is_empty())
}

/// The seconds of `Duration::from_secs(N)`, or of a constant of the file with such a value. Anything shorter than a
/// second is 0.
fn seconds(file: &File, limit: &[Token]) -> Option<u64> {
    let name = limit[0].text.as_str();
    if name == "Duration" {
        return of_duration(limit);
    }
    let value = file.tokens.windows(6).position(|tokens| {
        let words = tokens.iter().map(|token| token.text.as_str());
        words.eq(["const", name, ":", "Duration", "=", "Duration"])
    })?;
    of_duration(&file.tokens[value + 5..])
}

/// The seconds of `Duration::unit(N)`.
fn of_duration(tokens: &[Token]) -> Option<u64> {
    let (unit, number) = (tokens.get(3)?, tokens.get(5)?);
    match unit.text.as_str() {
        "from_secs" => number.text.parse().ok(),
        "from_millis" => number.text.replace('_', "").parse::<u64>().ok().map(|millis| millis / 1000),
        _ => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let file = File::new("crates/iopath/tests/a.rs".to_owned(), text.to_owned()).expect("tokens");
        hang_guards(&Tree { files: vec![file], packages: Vec::new() }).iter().map(|it| it.line).collect()
    }

    #[test]
    fn short_limits_are_found_and_guards_are_not() {
        assert_eq!(lines("fn f() {\n    assert!(begun.elapsed() < Duration::from_secs(5));\n}"), [2]);
        assert_eq!(lines("fn f() { assert!(begun.elapsed() < Duration::from_millis(500), \"late\"); }"), [1]);
        assert_eq!(lines("fn f() { assert!(begun.elapsed() < Duration::from_secs(60)); }"), [0; 0]);
        assert_eq!(lines("fn f() { assert!(begun.elapsed() >= Duration::from_millis(5)); }"), [0; 0]);
        assert_eq!(lines("fn f() { while begun.elapsed() < Duration::from_secs(1) {} }"), [0; 0]);
    }

    #[test]
    fn a_constant_is_looked_up() {
        let assertion = "fn f() { assert!(begun.elapsed() < LIMIT); }";
        assert_eq!(lines(&format!("const LIMIT: Duration = Duration::from_secs(20);\n{assertion}")), [2]);
        assert_eq!(lines(&format!("const LIMIT: Duration = Duration::from_secs(120);\n{assertion}")), [0; 0]);
    }
}
