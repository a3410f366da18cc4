//! One deliberate bug: replacements of exact text in files of the tree. It does not write any file: see `scratch.rs`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::workspace;

/// A file of `xtask/mutants`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mutant {
    /// The name of the file, without `.toml`.
    pub(super) name: String,
    /// The bug, in one sentence.
    pub(super) bug: String,
    /// The rule that the bug breaks.
    pub(super) rule: String,
    edit: Vec<Edit>,
}

/// The program that searches for a bug.
#[derive(Debug, Clone, Copy)]
pub(super) struct Simulator {
    /// The arguments of cargo that select it.
    pub(super) arguments: &'static [&'static str],
    /// In the folder of the profile.
    pub(super) path: &'static str,
}

/// The simulator of the core.
const CORE: Simulator = Simulator { arguments: &["--package", "iopath-sim"], path: "iopath-sim" };

/// The simulator of the NBD client and server.
const NBD: Simulator = Simulator {
    arguments: &["--package", "iopath-nbd", "--example", "simulate", "--features", "sim"],
    path: "examples/simulate",
};

/// The replacement of a text that occurs exactly once in a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// Relative to the root of the workspace.
    file: String,
    old: String,
    new: String,
}

/// The mutants of `xtask/mutants`, by name.
pub(super) fn read_all() -> Result<Vec<Mutant>> {
    let folder = workspace::root().join("xtask/mutants");
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut mutants = entries.map(|entry| read(&entry?.path())).collect::<Result<Vec<_>>>()?;
    mutants.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(mutants)
}

fn read(path: &Path) -> Result<Mutant> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mutant: Mutant = toml::from_str(&text).with_context(|| format!("{} is no mutant", path.display()))?;
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    ensure!(stem == Some(&mutant.name), "{} has the name `{}`", path.display(), mutant.name);
    ensure!(!mutant.edit.is_empty(), "mutant `{}` has no edit", mutant.name);
    Ok(mutant)
}

impl Mutant {
    /// The simulator that must find it.
    pub(super) fn simulator(&self) -> Simulator {
        if self.name.starts_with("nbd-") { NBD } else { CORE }
    }

    /// The changed files below `root`, each with its new text.
    ///
    /// # Errors
    /// If a text to be replaced does not occur exactly once: the mutant no longer fits the tree.
    pub(super) fn edited(&self, root: &Path) -> Result<Vec<(PathBuf, String)>> {
        let mut edited: Vec<(PathBuf, String)> = Vec::new();
        for Edit { file, old, new } in &self.edit {
            let path = root.join(file);
            let known = edited.iter().position(|(edited, _)| *edited == path);
            let index = if let Some(index) = known {
                index
            } else {
                let text = std::fs::read_to_string(&path).with_context(|| {
                    format!("mutant `{}` changes {file}, which cannot be read", self.name)
                })?;
                edited.push((path, text));
                edited.len() - 1
            };
            let text = &mut edited[index].1;
            let count = text.matches(old.as_str()).count();
            ensure!(
                count == 1 && old != new,
                "mutant `{}` no longer applies: its text occurs {count} times in {file}, and must occur once; \
                 change xtask/mutants/{}.toml to fit the code:\n{old}",
                self.name,
                self.name,
            );
            *text = text.replacen(old.as_str(), new, 1);
        }
        Ok(edited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mutant_applies_to_the_present_tree() {
        let mutants = read_all().unwrap();
        assert!(mutants.len() >= 20, "{} mutants", mutants.len());
        for mutant in &mutants {
            mutant.edited(workspace::root()).unwrap();
            for text in [&mutant.bug, &mutant.rule] {
                assert!(!text.is_empty() && !text.contains(['|', '\n']), "{}: {text}", mutant.name);
            }
        }
    }

    #[test]
    fn a_text_that_occurs_never_or_twice_is_an_error_that_names_the_mutant() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.rs"), "one two two").unwrap();
        let edit = |old: &str| Edit { file: "a.rs".into(), old: old.into(), new: "x".into() };
        let mutant = |old| Mutant {
            name: "wrong-tail".into(),
            bug: String::new(),
            rule: String::new(),
            edit: vec![edit("one"), edit(old)],
        };
        for old in ["three", "two", "one"] {
            let error = mutant(old).edited(folder.path()).unwrap_err().to_string();
            assert!(error.contains("wrong-tail") && error.contains("a.rs"), "{error}");
        }
        let edited = mutant(" two two").edited(folder.path()).unwrap();
        assert_eq!(edited, [(folder.path().join("a.rs"), "xx".to_owned())]);
    }
}
