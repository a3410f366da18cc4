//! The table of rules, and rules of one function each. Longer rules have their own files: `edges.rs`, `circles.rs`,
//! `ends.rs`, `named_files.rs`, `words.rs`.

use std::collections::BTreeSet;

use super::Finding;
use super::circles::no_circles;
use super::edges::crate_edges;
use super::ends::{no_print, own_files};
use super::guards::hang_guards;
use super::named_files::named_files;
use super::tree::{File, Token, Tree, words};
use super::words::plain_words;

/// A rule of style and the function that finds violations.
pub(super) struct Rule {
    pub(super) name: &'static str,
    pub(super) check: fn(&Tree) -> Vec<Finding>,
}

pub(super) const RULES: &[Rule] = &[
    Rule { name: "crate-edges", check: crate_edges },
    Rule { name: "no-circles", check: no_circles },
    Rule { name: "core-without-os", check: core_without_os },
    Rule { name: "unsafe-only-in-os", check: unsafe_only_in_os },
    Rule { name: "first-comment", check: first_comment },
    Rule { name: "file-length", check: file_length },
    Rule { name: "comment-width", check: comment_width },
    Rule { name: "named-files", check: named_files },
    Rule { name: "no-machine", check: no_machine },
    Rule { name: "no-print", check: no_print },
    Rule { name: "no-stub", check: no_stub },
    Rule { name: "own-files", check: own_files },
    Rule { name: "steady-clock", check: steady_clock },
    Rule { name: "hang-guards", check: hang_guards },
    Rule { name: "starvation-bound", check: starvation_bound },
    Rule { name: "tested-options", check: tested_options },
    Rule { name: "whitespace", check: whitespace },
    Rule { name: "plain-words", check: plain_words },
];

const CORE: &str = "crates/iopath-core/src/";
const ELEVATORS: &str = "crates/iopath-core/src/block/elevator/";
/// The places that may have `unsafe`: the system, the pointers of C programs, and the call that `SQLite` loads.
const PLACES_WITH_UNSAFE: [&str; 3] =
    ["crates/iopath-os/", "crates/iopath-capi/", "embedding/sqlite/src/extension.rs"];
const LINES_MAX: usize = 600;
const COMMENT_COLUMNS_MAX: usize = 120;

/// The modules of `std` that call the operating system.
const OS_MODULES: &[&str] = &["fs", "net", "process", "thread", "time"];

/// Crates that only call the operating system.
const OS_CRATES: &[&str] = &["libc", "rustix", "io_uring"];

/// The files that state when a run, a log or a result began.
const DATES: &[&str] = &[
    "crates/iopath-cli/src/output.rs",
    "crates/iopath-cli/src/sweep.rs",
    "crates/iopath-report/src/format/fio_json.rs",
    "crates/iopath-bench/src/request_log.rs",
    "crates/iopath-lab/src/record/session.rs",
    "crates/iopath-lab/src/serve/log.rs",
];

/// iopath-core is sans-I/O: it makes no system call and reads no clock.
fn core_without_os(tree: &Tree) -> Vec<Finding> {
    let way_out = "pass it as an argument, because the core makes no system call; use core::time::Duration for durations";
    let core = tree.rust_files().filter(|file| file.path.starts_with(CORE));
    core.flat_map(|file| {
        let modules = std_modules(&file.tokens).filter(|token| OS_MODULES.contains(&token.text.as_str()));
        let crates = file.tokens.iter().filter(|token| OS_CRATES.contains(&token.text.as_str()));
        let modules = modules
            .map(|token| finding(file, token.line, format!("std::{} in iopath-core", token.text), way_out));
        let crates =
            crates.map(|token| finding(file, token.line, format!("{} in iopath-core", token.text), way_out));
        modules.chain(crates).collect::<Vec<_>>()
    })
    .collect()
}

/// The token after `std::`, or the first token of each path in a group.
fn std_modules(tokens: &[Token]) -> impl Iterator<Item = &Token> {
    let is = |index: usize, text: &str| tokens.get(index).is_some_and(|token| token.text == text);
    let starts = (0..tokens.len()).filter(move |&at| is(at, "std") && is(at + 1, ":") && is(at + 2, ":"));
    starts.flat_map(move |at| {
        if is(at + 3, "{") {
            group_heads(&tokens[at + 3..])
        } else {
            tokens.get(at + 3).into_iter().collect()
        }
    })
}

/// The first tokens of the paths in `{a::b, c, d::{e, f}}`: a, c, d. `tokens` starts at the brace.
fn group_heads(tokens: &[Token]) -> Vec<&Token> {
    let mut depth = 0_usize;
    let mut heads = Vec::new();
    for (before, token) in tokens.iter().zip(&tokens[1..]) {
        match before.text.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        match depth {
            0 => break,
            1 if matches!(before.text.as_str(), "{" | ",") => heads.push(token),
            _ => {}
        }
    }
    heads
}

/// `unsafe` is allowed in iopath-os and the C interface only. The rule includes tests and macros.
fn unsafe_only_in_os(tree: &Tree) -> Vec<Finding> {
    let is_other = |path: &str| !PLACES_WITH_UNSAFE.iter().any(|allowed| path.starts_with(allowed));
    let others = tree.rust_files().filter(|file| is_other(&file.path));
    let way_out = "add a safe function to iopath-os";
    words(
        others,
        |tokens, at| tokens[at].text == "unsafe",
        "`unsafe` outside iopath-os and iopath-capi",
        way_out,
    )
}

/// A file begins with a comment that states its contents and its limits.
fn first_comment(tree: &Tree) -> Vec<Finding> {
    let missing = tree.rust_files().filter(|file| !file.text.starts_with("//! "));
    let way_out = "begin with `//! `, the contents of the file and its limits";
    missing.map(|file| finding(file, 1, "no first comment".to_owned(), way_out)).collect()
}

fn file_length(tree: &Tree) -> Vec<Finding> {
    let length = |file: &File| file.text.lines().count();
    let long = tree.rust_files().filter(|file| length(file) > LINES_MAX);
    long.map(|file| {
        let message = format!("{} lines; the limit is {LINES_MAX}", length(file));
        finding(file, LINES_MAX + 1, message, "split it by subject: queue.rs beside queue/merge.rs")
    })
    .collect()
}

/// A comment is as wide as the code beside it; rustfmt wraps code only.
fn comment_width(tree: &Tree) -> Vec<Finding> {
    let is_wide = |line: &str| {
        (line.trim_start().starts_with("//") || line.contains(" // "))
            && line.chars().count() > COMMENT_COLUMNS_MAX
    };
    let wide =
        |file| File::numbered_lines(file).filter(|(_, line)| is_wide(line)).map(move |(at, _)| (file, at));
    let message = format!("a comment of more than {COMMENT_COLUMNS_MAX} columns");
    let findings = tree.rust_files().flat_map(wide);
    findings.map(|(file, line)| finding(file, line, message.clone(), "wrap it")).collect()
}

/// No paths or registries that exist on one machine only.
fn no_machine(tree: &Tree) -> Vec<Finding> {
    // `concat!`, so that this file does not violate the rule.
    let paths = [concat!("/", "work/"), concat!("/", "root/")];
    let registries = [concat!("replace", "-with"), concat!("sparse", "+http"), concat!("[source", ".")];
    let mut findings = Vec::new();
    for file in &tree.files {
        for (number, line) in file.numbered_lines() {
            if let Some(path) = paths.iter().find(|path| starts_a_path(line, path)) {
                let message = format!("the path {path} of one machine");
                findings.push(finding(
                    file,
                    number,
                    message,
                    "use a path from the root of the repository, or a variable",
                ));
            }
            let is_foreign_source = file.path == "Cargo.lock" && is_foreign_source(line);
            if is_foreign_source || registries.iter().any(|registry| line.contains(registry)) {
                let way_out = "registries are set up in the user's own cargo configuration";
                findings.push(finding(file, number, "a registry of one machine".to_owned(), way_out));
            }
        }
    }
    findings
}

/// Whether `line` has an absolute path that starts with `path`.
fn starts_a_path(line: &str, path: &str) -> bool {
    let continues_a_path =
        |before: &str| before.ends_with(|c: char| c.is_alphanumeric() || "._-*/}".contains(c));
    line.match_indices(path).any(|(at, _)| !continues_a_path(&line[..at]))
}

fn is_foreign_source(line: &str) -> bool {
    let public = "\"registry+https://github.com/rust-lang/crates.io-index\"";
    line.strip_prefix("source = ").is_some_and(|source| source != public)
}

fn no_stub(tree: &Tree) -> Vec<Finding> {
    let is_stub = |tokens: &[Token], at: usize| {
        let is_name = matches!(tokens[at].text.as_str(), "todo" | "unimplemented");
        is_name && tokens.get(at + 1).is_some_and(|token| token.text == "!")
    };
    words(tree.rust_files(), is_stub, "a stub", "implement it, or remove it")
}

/// Times are of `CLOCK_MONOTONIC`: a step of the date must not end a run, change a latency or a timeout.
fn steady_clock(tree: &Tree) -> Vec<Finding> {
    let is_date = |tokens: &[Token], at: usize| {
        let path: Vec<&str> = tokens[at..].iter().take(4).map(|token| token.text.as_str()).collect();
        path == ["SystemTime", ":", ":", "now"] || tokens[at].text == "Realtime"
    };
    let sources =
        tree.rust_files().filter(|file| file.path.starts_with("crates/") && file.path.contains("/src/"));
    let others = sources.filter(|file| !DATES.contains(&file.path.as_str()));
    let way_out = "use std::time::Instant or iopath_os::now; add a file that shows a date to DATES";
    words(others, is_date, "the date as a clock", way_out)
}

/// The doc comment of an elevator states its starvation bound.
fn starvation_bound(tree: &Tree) -> Vec<Finding> {
    let is_elevator = |file: &&File| {
        let mut pairs = file.tokens.windows(2);
        file.path.starts_with(ELEVATORS)
            && pairs.any(|pair| pair[0].text == "Elevator" && pair[1].text == "for")
    };
    let states_bound = |file: &File| {
        let mut lines = file.text.lines().map(str::trim_start);
        lines.any(|line| {
            (line.starts_with("///") || line.starts_with("//!")) && line.contains("Starvation bound")
        })
    };
    let missing = tree.rust_files().filter(is_elevator).filter(|file| !states_bound(file));
    let way_out = "add `Starvation bound: …` to the doc comment of the type";
    let message = "an elevator without a starvation bound in its doc comment";
    missing.map(|file| finding(file, 1, message.to_owned(), way_out)).collect()
}

/// The test of the table of options has a value for the first name of each row.
fn tested_options(tree: &Tree) -> Vec<Finding> {
    let all = tree.rust_files().filter(|file| file.path.contains("/src/options/"));
    let (tests, sources): (Vec<&File>, Vec<&File>) = all.partition(|file| file.path.ends_with("/tests.rs"));
    let tested: BTreeSet<&str> =
        tests.iter().flat_map(|file| &file.tokens).map(|token| token.text.as_str()).collect();
    let mut findings = Vec::new();
    for file in sources {
        for (at, begin) in file.tokens.windows(4).enumerate() {
            let begin: Vec<&str> = begin.iter().map(|token| token.text.as_str()).collect();
            if !matches!(begin[..], ["OptionRow", ":", ":", "option" | "only_key"]) {
                continue;
            }
            let name = file.tokens[at..].iter().find(|token| token.text.starts_with('"'));
            if let Some(name) = name.filter(|name| !tested.contains(name.text.as_str())) {
                let message = format!("option {} without a value in the test of the table", name.text);
                findings.push(finding(file, name.line, message, "add one to options/tests.rs"));
            }
        }
    }
    findings
}

fn whitespace(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.has_extension(&["rs", "toml", "md", "sh", "yml"])) {
        for (number, line) in file.numbered_lines() {
            if line.ends_with([' ', '\t', '\r']) {
                findings.push(finding(file, number, "trailing white space".to_owned(), "remove it"));
            }
            if file.is_rust() && line.contains('\t') {
                findings.push(finding(file, number, "a tab".to_owned(), "use spaces, or \\t in a string"));
            }
        }
    }
    findings
}

fn finding(file: &File, line: usize, message: String, way_out: &'static str) -> Finding {
    Finding { path: file.path.clone(), line, message, way_out }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN_CORE: &str = "crates/iopath-core/src/block/queue.rs";
    const IN_LAB: &str = "crates/iopath-lab/src/run.rs";
    const IN_ELEVATORS: &str = "crates/iopath-core/src/block/elevator/closest.rs";

    /// The lines of the findings of `check` in a file of `text` at `path`.
    fn lines(check: fn(&Tree) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
        let file = File::new(path.to_owned(), text.to_owned()).expect("the sample is text, or Rust");
        let tree = Tree { files: vec![file], packages: Vec::new() };
        check(&tree).into_iter().map(|finding| finding.line).collect()
    }

    const NOTHING: Vec<usize> = Vec::new();

    #[test]
    fn core_may_not_call_the_os() {
        let found = |text: &str| lines(core_without_os, IN_CORE, text);
        assert_eq!(found("use std::time::Instant;"), [1]);
        assert_eq!(
            found(
                "use std::{\n    collections::BTreeMap,\n    fs,\n    fmt::{self, Write},\n    thread::sleep,\n};"
            ),
            [3, 5]
        );
        assert_eq!(found("fn f() {\n    std::thread::yield_now();\n}"), [2]);
        assert_eq!(found("use libc::off_t;"), [1]);
    }

    #[test]
    fn core_may_use_collections_and_durations() {
        let found = |text: &str| lines(core_without_os, IN_CORE, text);
        assert_eq!(found("//! Not std::time::Instant.\nuse core::time::Duration;"), NOTHING);
        assert_eq!(
            found("use std::{fmt::{self, Write}, collections::VecDeque};\nuse crate::time::Instant;"),
            NOTHING
        );
        assert_eq!(lines(core_without_os, IN_LAB, "use std::time::Instant;"), NOTHING);
    }

    #[test]
    fn unsafe_is_found_outside_iopath_os() {
        let text = "#![deny(unsafe_code)] // unsafe is elsewhere\nfn f() {\n    let _ = unsafe { g() };\n}";
        assert_eq!(lines(unsafe_only_in_os, IN_LAB, text), [3]);
        for allowed in ["crates/iopath-os/src/uring.rs", "crates/iopath-capi/src/batch.rs"] {
            assert_eq!(lines(unsafe_only_in_os, allowed, text), NOTHING);
        }
    }

    #[test]
    fn a_row_of_the_table_of_options_without_a_test_is_found() {
        let rows = "const ROWS: &[OptionRow] = &[\n    OptionRow::option(\"--bs\", One(\"N\")),\n    \
                    OptionRow::only_key(Yes, &[\"ba\", \"blockalign\"]),\n];";
        let file = |name: &str, text: &str| {
            File::new(format!("crates/iopath-bench/src/options/{name}"), text.to_owned()).unwrap()
        };
        let files = vec![file("rows.rs", rows), file("tests.rs", "const VALUES: &[&str] = &[\"--bs\"];")];
        let findings = tested_options(&Tree { files, packages: Vec::new() });
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_comment_is_at_most_120_columns_wide() {
        let comment = |columns: usize| format!("    // {}\n", "µ".repeat(columns - 7));
        assert_eq!(lines(comment_width, IN_LAB, &comment(120)), NOTHING);
        assert_eq!(lines(comment_width, IN_LAB, &comment(121)), [1]);
        assert_eq!(lines(comment_width, IN_LAB, &format!("fn f() {{}} {}", comment(120))), [1]);
        assert_eq!(
            lines(comment_width, IN_LAB, &format!("const A: &str = \"{}\";", "a".repeat(120))),
            NOTHING
        );
    }

    #[test]
    fn a_file_begins_with_a_comment() {
        assert_eq!(lines(first_comment, IN_LAB, "use std::fmt;\n"), [1]);
        assert_eq!(lines(first_comment, IN_LAB, "#![allow(x)]\n//! A queue.\n"), [1]);
        assert_eq!(lines(first_comment, IN_LAB, "//! A queue.\n"), NOTHING);
    }

    #[test]
    fn a_file_has_at_most_600_lines() {
        assert_eq!(lines(file_length, IN_LAB, &"//\n".repeat(601)), [601]);
        assert_eq!(lines(file_length, IN_LAB, &"//\n".repeat(600)), NOTHING);
    }

    #[test]
    fn paths_and_registries_of_one_machine_are_found() {
        let path = concat!("cd /", "work/x or \"/", "root/x\"");
        assert_eq!(lines(no_machine, "README.md", path), [1]);
        assert_eq!(lines(no_machine, "README.md", concat!("target/", "work/ and ./", "root/x")), NOTHING);
        assert_eq!(lines(no_machine, ".cargo/config.toml", concat!("[a]\nreplace", "-with = \"m\"")), [2]);
        let public = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
        assert_eq!(lines(no_machine, "Cargo.lock", public), NOTHING);
        assert_eq!(
            lines(no_machine, "Cargo.lock", "source = \"registry+https://mirror.example/index\""),
            [1]
        );
    }

    #[test]
    fn stubs_are_found_and_words_are_not() {
        assert_eq!(
            lines(no_stub, IN_LAB, "fn f() {\n    todo!()\n}\nfn g() {\n    unimplemented!(\"x\")\n}"),
            [2, 5]
        );
        assert_eq!(
            lines(no_stub, IN_LAB, "// todo!\nfn todo() -> &'static str {\n    \"todo!\"\n}"),
            NOTHING
        );
    }

    #[test]
    fn the_date_is_no_clock() {
        let text = "use std::time::SystemTime;\nfn f() {\n    let begun = SystemTime::now();\n}";
        assert_eq!(lines(steady_clock, IN_LAB, text), [3]);
        assert_eq!(lines(steady_clock, DATES[0], text), NOTHING);
        assert_eq!(lines(steady_clock, "crates/iopath-lab/tests/run.rs", text), NOTHING);
        assert_eq!(lines(steady_clock, IN_LAB, "let begun = Instant::now(); // SystemTime::now()"), NOTHING);
        assert_eq!(lines(steady_clock, IN_LAB, "clock_gettime(ClockId::Realtime)"), [1]);
    }

    #[test]
    fn an_elevator_needs_a_stated_bound_and_its_helpers_do_not() {
        let elevator = "pub struct Closest;\nimpl Elevator for Closest {}";
        assert_eq!(lines(starvation_bound, IN_ELEVATORS, elevator), [1]);
        let generic = "impl<S: Sort> super::Elevator for Sorted<S> { /* Starvation bound: none */ }";
        assert_eq!(lines(starvation_bound, IN_ELEVATORS, generic), [1]);
        let stated = format!("/// Starvation bound: `patience` dispatches.\n{elevator}");
        assert_eq!(lines(starvation_bound, IN_ELEVATORS, &stated), NOTHING);
        assert_eq!(lines(starvation_bound, IN_ELEVATORS, "pub struct Tree;"), NOTHING);
    }

    #[test]
    fn white_space_at_the_end_and_tabs_are_found() {
        assert_eq!(lines(whitespace, "README.md", "a \nb\nc\t\n"), [1, 3]);
        assert_eq!(lines(whitespace, IN_LAB, "//!\tx\n"), [1]);
        assert_eq!(lines(whitespace, "README.md", "a\tb\n"), NOTHING);
        assert_eq!(lines(whitespace, "tests/cli/table.trycmd", "a \n"), NOTHING);
    }

    #[test]
    fn a_finding_has_the_form_of_a_compiler_message() {
        let file = File::new("a.md".to_owned(), String::new()).expect("text");
        assert_eq!(
            finding(&file, 7, "a tab".to_owned(), "use spaces").to_string(),
            "a.md:7: a tab (use spaces)"
        );
    }

    #[test]
    fn names_of_rules_are_unique() {
        let mut names: Vec<_> = RULES.iter().map(|rule| rule.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RULES.len());
    }
}
