//! Rules about the ends of the program: its streams and the files that it creates.

use super::Finding;
use super::tree::{File, Token, Tree, words};

/// Sources that may print: programs for developers, and builds that only tests run.
const PRINTERS: &[&str] = &["crates/iopath-sim/src/", "crates/iopath-os/src/sync/"];

/// The crates that create files for a user.
const WRITERS: &[&str] = &[
    "crates/iopath-cli/src/",
    "crates/iopath-lab/src/",
    "crates/iopath-bench/src/",
    "crates/iopath-fio/src/",
    "crates/iopath-experiments/src/",
];

/// The file that creates files, and those that open one under a name that the user or the system has chosen.
const CREATORS: &[&str] = &[
    "crates/iopath-bench/src/own_file.rs",
    "crates/iopath-bench/src/device_settings/journal.rs",
    "crates/iopath-cli/src/destination.rs",
];

/// `println!` and its relatives panic if the stream is closed or full, and the results are lost.
pub(super) fn no_print(tree: &Tree) -> Vec<Finding> {
    let is_print = |tokens: &[Token], at: usize| {
        let name = tokens[at].text.as_str();
        let is_name = matches!(name, "print" | "println" | "eprint" | "eprintln" | "dbg");
        is_name && tokens.get(at + 1).is_some_and(|token| token.text == "!")
    };
    let sources = sources(tree, &["crates/"]);
    let others = sources.filter(|file| PRINTERS.iter().all(|printer| !file.path.starts_with(printer)));
    let way_out = "use output::print, stderr::note, or return the text";
    outside_tests(others, is_print, "a print that panics if the stream cannot be written", way_out)
}

/// A file under a name that another user can predict may be a link to a file of a victim.
pub(super) fn own_files(tree: &Tree) -> Vec<Finding> {
    let creates = |tokens: &[Token], at: usize| {
        let path: Vec<&str> = tokens[at..].iter().take(4).map(|token| token.text.as_str()).collect();
        matches!(
            path[..],
            ["File", ":", ":", "create" | "create_new"]
                | ["fs", ":", ":", "write"]
                | ["create" | "create_new", "(", "true", ")"]
        )
    };
    let others = sources(tree, WRITERS).filter(|file| !CREATORS.contains(&file.path.as_str()));
    let way_out = "use own_file.rs of iopath-bench";
    outside_tests(others, creates, "a file that is created without own_file.rs", way_out)
}

/// The sources below `places`, without those of tests.
fn sources<'a>(tree: &'a Tree, places: &'static [&str]) -> impl Iterator<Item = &'a File> {
    tree.rust_files().filter(|file| {
        let is_source =
            places.iter().any(|place| file.path.starts_with(place)) && file.path.contains("/src/");
        is_source && !file.path.ends_with("tests.rs") && !file.path.contains("/tests/")
    })
}

/// A finding for each token that `matches` and is not in an item with `#[cfg(test)]`.
fn outside_tests<'a>(
    files: impl Iterator<Item = &'a File>,
    matches: impl Fn(&[Token], usize) -> bool,
    message: &str,
    way_out: &'static str,
) -> Vec<Finding> {
    let mut end_of_test = 0;
    let is_outside = |tokens: &[Token], at: usize| {
        if at == 0 {
            end_of_test = 0;
        }
        if at >= end_of_test && is_test(&tokens[at..]) {
            end_of_test = end_of_item(tokens, at);
        }
        at >= end_of_test && matches(tokens, at)
    };
    words(files, is_outside, message, way_out)
}

/// Whether tokens begin with `cfg(test)` or `cfg(all(test, …))`.
fn is_test(tokens: &[Token]) -> bool {
    let start: Vec<&str> = tokens.iter().take(5).map(|token| token.text.as_str()).collect();
    matches!(start[..], ["cfg", "(", "test", ")", ..] | ["cfg", "(", "all", "(", "test"])
}

/// The token after the item: behind its `;`, or behind the bracket that closes its first `{`.
fn end_of_item(tokens: &[Token], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.text.as_str() {
            "{" => depth += 1,
            "}" if depth == 1 => return at + 1,
            "}" => depth = depth.saturating_sub(1),
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of the findings of `check` in a file of `text` at `path`.
    fn lines(check: fn(&Tree) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
        let file = File::new(path.to_owned(), text.to_owned()).expect("the sample is Rust");
        let tree = Tree { files: vec![file], packages: Vec::new() };
        check(&tree).into_iter().map(|finding| finding.line).collect()
    }

    const IN_CLI: &str = "crates/iopath-cli/src/run.rs";
    const NOTHING: Vec<usize> = Vec::new();

    #[test]
    fn prints_are_found_outside_tests() {
        let text = "fn f() {\n    eprintln!(\"x\");\n    dbg!(1);\n    write!(out, \"x\");\n    output::print(\"x\");\n}";
        assert_eq!(lines(no_print, IN_CLI, text), [2, 3]);
        let text = "#[cfg(test)]\nuse a::{b, c};\nfn f() {\n    print!(\"x\");\n}\n#[cfg(test)]\nmod tests {\n    fn g() {\n        println!(\"x\");\n    }\n}";
        assert_eq!(lines(no_print, IN_CLI, text), [4]);
        let print = "fn f() { println!(\"x\"); }";
        for path in [
            "crates/iopath-sim/src/main.rs",
            "crates/iopath-cli/tests/run.rs",
            "crates/iopath-lab/src/a/tests.rs",
        ] {
            assert_eq!(lines(no_print, path, print), NOTHING, "{path}");
        }
    }

    #[test]
    fn files_are_created_in_one_place() {
        let text = "fn f() {\n    File::create(a);\n    std::fs::write(a, b);\n    options.write(true).create(true);\n    File::open(a);\n}";
        assert_eq!(lines(own_files, IN_CLI, text), [2, 3, 4]);
        assert_eq!(lines(own_files, CREATORS[0], text), NOTHING);
        assert_eq!(lines(own_files, "crates/iopath-os/src/a.rs", text), NOTHING);
    }
}
