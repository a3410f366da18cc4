//! `cargo xtask tidy`: the rules of style that no compiler checks. Judges text and tokens, changes nothing.

mod edges;
mod rules;
mod tree;

use std::fmt;

use anyhow::Result;

use crate::workspace;
use tree::Tree;

/// Something that breaks a rule, where it is and what to do instead.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// Counted from 1.
    line: usize,
    message: String,
    way_out: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {} ({})", self.path, self.line, self.message, self.way_out)
    }
}

/// What came of checking a tree against every rule.
#[derive(Debug)]
pub(crate) struct Report {
    /// Each with the name of the rule.
    findings: Vec<(Finding, &'static str)>,
    files: usize,
}

impl Report {
    pub(crate) fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (finding, rule) in &self.findings {
            writeln!(f, "{finding} [{rule}]")?;
        }
        write!(f, "{} files, {} rules, {} findings", self.files, rules::RULES.len(), self.findings.len())
    }
}

/// Checks the workspace as it lies on disk: tracked files and new ones that git does not ignore.
pub(crate) fn check() -> Result<Report> {
    let tree = Tree::read(workspace::root())?;
    let check =
        |rule: &rules::Rule| (rule.check)(&tree).into_iter().map(|finding| (finding, rule.name)).collect();
    let mut findings = rules::RULES.iter().flat_map::<Vec<_>, _>(check).collect::<Vec<_>>();
    findings.sort();
    Ok(Report { findings, files: tree.files.len() })
}

/// Prints what `check` found; true if that is nothing.
pub(crate) fn run() -> Result<bool> {
    let report = check()?;
    println!("{report}");
    Ok(report.is_clean())
}
