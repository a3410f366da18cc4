//! The checks of the sources: format, lints, style, licences, and no file left behind.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::Result;

use super::logged::Logged;
use super::{Length, Outcome};
use crate::artifact::{self, FEATURES};
use crate::{tidy, workspace};

pub(super) fn format(_: Length) -> Result<Outcome> {
    Logged::new("format", workspace::cargo()).args(["fmt", "--all", "--check"]).run()?;
    Ok(Outcome::Passed(String::new()))
}

pub(super) fn tidy(_: Length) -> Result<Outcome> {
    let report = tidy::check()?;
    if report.is_clean() {
        return Ok(Outcome::Passed(report.to_string()));
    }
    println!();
    anyhow::bail!("{report}")
}

/// The lints of all targets. The compilation that finds them makes the programs of the tests, which later steps take;
/// with `--quick`, most of these programs do not run, so the lints have a compilation of their own, without code.
pub(super) fn clippy(length: Length) -> Result<Outcome> {
    if length == Length::Quick {
        Logged::new("clippy", workspace::cargo())
            .args(["clippy", "--workspace", "--all-targets", FEATURES, "--", "-D", "warnings"])
            .run()?;
        return Ok(Outcome::Passed(String::new()));
    }
    let build = artifact::command(&["test", "--no-run", "--all-targets"]);
    let log = Logged::new("clippy", build).run()?;
    match warnings_of(&log) {
        None => Ok(Outcome::Passed(String::new())),
        Some(warnings) => {
            println!("\n{warnings}");
            anyhow::bail!("the compiler warns; the whole log is in target/xtask/clippy.log")
        }
    }
}

/// The warnings of the compiler in the log of a build, as text.
fn warnings_of(log: &str) -> Option<String> {
    let is_shown = |line: &&str| !line.starts_with('{') && !line.trim_start().starts_with("Compiling ");
    let lines: Vec<&str> = log.lines().filter(is_shown).collect();
    let of_crate = |line: &&str| line.starts_with("warning: `") && line.contains("generated ");
    let last = lines.iter().rposition(of_crate)?;
    let first = lines.iter().position(|line| line.starts_with("warning")).unwrap_or(last);
    Some(lines[first..=last].join("\n"))
}

pub(super) fn deny(_: Length) -> Result<Outcome> {
    if workspace::find_program("cargo-deny").is_none() {
        let reason = "cargo-deny is not installed: `cargo install cargo-deny` checks licences and advisories";
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    Logged::new("deny", workspace::cargo()).args(["deny", "check"]).run()?;
    Ok(Outcome::Passed(String::new()))
}

/// Notes the untracked files of the tree, for [`tree`].
pub(super) fn begin() {
    UNTRACKED.get_or_init(untracked);
}

/// The untracked files of the tree when the steps began. None without a checkout of git.
static UNTRACKED: OnceLock<Option<BTreeSet<String>>> = OnceLock::new();

/// Checks that no step left a file in the tree.
pub(super) fn tree(_: Length) -> Result<Outcome> {
    let (Some(Some(before)), Some(after)) = (UNTRACKED.get(), untracked()) else {
        return Ok(Outcome::Skipped("git or its checkout is missing".to_owned()));
    };
    let left: Vec<_> = after.difference(before).cloned().collect();
    anyhow::ensure!(left.is_empty(), "a step left files in the tree: {}", left.join(", "));
    Ok(Outcome::Passed(String::new()))
}

/// The files that git neither tracks nor ignores. None without git or a checkout.
fn untracked() -> Option<BTreeSet<String>> {
    let arguments = ["ls-files", "--others", "--exclude-standard"];
    let output = Command::new("git").current_dir(workspace::root()).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_found_among_the_messages_of_cargo() {
        let log = "   Compiling demo v0.1.0\n{\"reason\":\"compiler-artifact\"}\nwarning: unused import: `a`\n --> src/lib.rs:1:5\n\
                   {\"reason\":\"x\"}\nwarning: `demo` (lib) generated 1 warning\n   Compiling other v0.1.0\n    Finished `dev`\n";
        let warnings =
            "warning: unused import: `a`\n --> src/lib.rs:1:5\nwarning: `demo` (lib) generated 1 warning";
        assert_eq!(warnings_of(log).as_deref(), Some(warnings));
        assert_eq!(warnings_of("   Compiling demo v0.1.0\nwarning: unused manifest key: x\n"), None);
    }
}
