//! The checks of what others get of a crate: its package, and its compilation on other systems.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::logged::Logged;
use super::{Length, Outcome};
use crate::workspace;

/// The texts of the licences, of which each package has a copy.
const LICENCES: &[&str] = &["LICENSE-MIT", "LICENSE-APACHE"];

/// The systems on which the crates of the library compile, and are empty if they need Linux.
const OTHER_SYSTEMS: &[&str] = &["x86_64-apple-darwin", "x86_64-pc-windows-gnu"];

/// The crates of the library; `iopath` compiles without `iopath-os` there.
const PORTABLE: &[&str] = &["iopath-core", "iopath"];

/// Packages each published crate without building it. A warning of cargo fails.
pub(super) fn packages(_: Length) -> Result<Outcome> {
    let mut arguments = vec!["package", "--workspace", "--no-verify", "--allow-dirty", "--offline"];
    let crates = crates()?;
    let (published, others): (Vec<_>, Vec<_>) = crates.iter().partition(|it| it.is_published);
    for other in &others {
        arguments.extend(["--exclude", &other.name]);
    }
    let faults: Vec<String> = published.iter().flat_map(|it| faults_of(&it.folder, &it.name)).collect();
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    let log = Logged::new("packages", workspace::cargo()).args(arguments).run()?;
    match log.lines().find(|line| line.starts_with("warning")) {
        None => Ok(Outcome::Passed(format!("packages: {}", published.len()))),
        Some(warning) => bail!("{warning}; the whole log is in target/xtask/packages.log"),
    }
}

/// Compiles the crates of the library for each of [`OTHER_SYSTEMS`] whose standard library is installed.
pub(super) fn other_systems(_: Length) -> Result<Outcome> {
    let output = Command::new(workspace::beside_cargo("rustc")).args(["--print", "sysroot"]).output()?;
    ensure!(output.status.success(), "rustc --print sysroot: {}", output.status);
    let sysroot = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    let is_installed = |system: &&str| sysroot.join("lib/rustlib").join(system).is_dir();
    let (installed, missing): (Vec<&str>, Vec<&str>) =
        OTHER_SYSTEMS.iter().partition(|system| is_installed(system));
    for system in &installed {
        let packages = PORTABLE.iter().flat_map(|name| ["--package", name]);
        Logged::new("other-systems", workspace::cargo())
            .args(["check", "--target", system])
            .args(packages)
            .run()?;
    }
    let missing = missing.join(" ");
    match (installed.as_slice(), missing.as_str()) {
        ([], _) => Ok(Outcome::Skipped(format!("not installed: `rustup target add {missing}`"))),
        (_, "") => Ok(Outcome::Passed(String::new())),
        (_, _) => Ok(Outcome::Passed(format!("not installed: `rustup target add {missing}`"))),
    }
}

/// A crate of the workspace.
struct Crate {
    name: String,
    folder: PathBuf,
    is_published: bool,
}

fn crates() -> Result<Vec<Crate>> {
    let root = workspace::root();
    let mut folders = vec![root.join("xtask")];
    for entry in fs::read_dir(root.join("crates"))? {
        folders.push(entry?.path());
    }
    folders.sort();
    let read = |folder: PathBuf| {
        let path = folder.join("Cargo.toml");
        let manifest =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = folder.file_name().and_then(|name| name.to_str()).context("a folder without a name")?;
        let is_published = !manifest.lines().any(|line| line == "publish = false");
        Ok(Crate { name: name.to_owned(), folder, is_published })
    };
    folders.into_iter().map(read).collect()
}

/// What the package of a crate lacks, and the links of its README that lead out of it.
fn faults_of(folder: &Path, name: &str) -> Vec<String> {
    let lacks = |file: &&&str| !folder.join(file).is_file();
    let missing = LICENCES.iter().filter(lacks).map(|file| format!("{name} has no {file}"));
    let readme = fs::read_to_string(folder.join("README.md"));
    let fault = match readme {
        Err(_) => Some(format!("{name} has no README.md")),
        Ok(text) if text.contains("](../") => {
            Some(format!("a link of README.md of {name} leads out of its package"))
        }
        Ok(_) => None,
    };
    missing.chain(fault).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_published_and_xtask_is_not() {
        let crates = crates().unwrap();
        let is_published = |name| crates.iter().find(|it| it.name == name).map(|it| it.is_published);
        assert_eq!((is_published("iopath-cli"), is_published("xtask")), (Some(true), Some(false)));
    }

    #[test]
    fn a_package_without_a_licence_and_with_links_that_lead_out_is_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("LICENSE-MIT"), "").unwrap();
        fs::write(folder.path().join("README.md"), "[out](../../README.md)").unwrap();
        let faults = faults_of(folder.path(), "demo");
        assert_eq!(
            faults,
            ["demo has no LICENSE-APACHE", "a link of README.md of demo leads out of its package"]
        );
        fs::write(folder.path().join("LICENSE-APACHE"), "").unwrap();
        fs::write(folder.path().join("README.md"), "[in](https://docs.rs/demo)").unwrap();
        assert!(faults_of(folder.path(), "demo").is_empty());
    }
}
