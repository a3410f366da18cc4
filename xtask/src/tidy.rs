//! `cargo xtask tidy`: style rules that the compiler does not check. Reads text and tokens; does not change files.

mod circles;
mod edges;
mod ends;
mod guards;
mod modules;
mod named_files;
mod rules;
mod tree;
mod words;

use std::fmt;

use anyhow::Result;

use crate::workspace;
use tree::Tree;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// List the circles of dependencies between modules in every crate
    #[arg(long)]
    circles: bool,
}

/// A violation of a rule: its position, and the remedy.
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

/// The result of checking every rule.
#[derive(Debug)]
pub(crate) struct Report {
    /// The findings, each with the name of its rule.
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

/// Checks the working tree: tracked files, and new files that git does not ignore.
pub(crate) fn check() -> Result<Report> {
    let tree = Tree::read(workspace::root())?;
    let check =
        |rule: &rules::Rule| (rule.check)(&tree).into_iter().map(|finding| (finding, rule.name)).collect();
    let mut findings = rules::RULES.iter().flat_map::<Vec<_>, _>(check).collect::<Vec<_>>();
    findings.sort();
    Ok(Report { findings, files: tree.files.len() })
}

/// Prints the findings; returns whether there are none.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if options.circles {
        let tree = Tree::read(workspace::root())?;
        print!("{}", circles::report(&tree));
        return Ok(true);
    }
    let report = check()?;
    println!("{report}");
    Ok(report.is_clean())
}
