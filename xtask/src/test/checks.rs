//! The checks of the sources: format, lints, documentation, style, licences, and no file left behind.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::Result;

use super::Outcome;
use super::logged::Logged;
use crate::artifact::FEATURES;
use crate::{tidy, workspace};

pub(super) fn format() -> Result<Outcome> {
    Logged::new("format", workspace::cargo()).args(["fmt", "--all", "--check"]).run()?;
    Ok(Outcome::Passed(String::new()))
}

pub(super) fn tidy() -> Result<Outcome> {
    let report = tidy::check()?;
    if report.is_clean() {
        return Ok(Outcome::Passed(report.to_string()));
    }
    println!();
    anyhow::bail!("{report}")
}

pub(super) fn clippy() -> Result<Outcome> {
    Logged::new("clippy", workspace::cargo())
        .args(["clippy", "--workspace", "--all-targets", FEATURES, "--", "-D", "warnings"])
        .run()?;
    Ok(Outcome::Passed(String::new()))
}

pub(super) fn docs() -> Result<Outcome> {
    Logged::new("docs", workspace::cargo())
        .args(["doc", "--workspace", "--no-deps", FEATURES])
        .env("RUSTDOCFLAGS", "-D warnings")
        .run()?;
    Ok(Outcome::Passed(String::new()))
}

pub(super) fn deny() -> Result<Outcome> {
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
pub(super) fn tree() -> Result<Outcome> {
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
