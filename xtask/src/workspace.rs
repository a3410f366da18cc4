//! Directories of the workspace, and paths of installed programs. Does not run them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

/// The root of the workspace: the parent folder of xtask.
pub(crate) fn root() -> &'static Path {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest_dir.parent().expect("xtask lies in a folder of the workspace")
}

/// The folder for build output of cargo, and for logs and scratch files of xtask.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// The cargo that runs xtask, in the root of the workspace. Without the variables that cargo sets for xtask: build
/// scripts of dependencies depend on them, so each change between `cargo build` and `cargo xtask` would build these
/// dependencies again.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        let is_of_xtask = name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"));
        if is_of_xtask {
            command.env_remove(name);
        }
    }
    command
}

/// A program of the toolchain of cargo.
pub(crate) fn beside_cargo(program: &str) -> PathBuf {
    let beside = std::env::var_os("CARGO").map(|cargo| Path::new(&cargo).with_file_name(program));
    beside.filter(|file| file.is_file()).unwrap_or_else(|| program.into())
}

/// Builds the program `iopath` as it is packaged, for measurements.
pub(crate) fn build_iopath() -> Result<()> {
    let status = cargo()
        .args(["build", "--profile", "dist", "--package", "iopath-cli", "--features", "full"])
        .status()?;
    ensure!(status.success(), "cannot build the program to measure: cargo build: {status}");
    Ok(())
}

/// The path of the program of [`build_iopath`].
pub(crate) fn iopath_path() -> PathBuf {
    target_dir().join("dist/iopath")
}

/// A command of that program.
pub(crate) fn iopath() -> Command {
    Command::new(iopath_path())
}

/// The path of `program`: searches `PATH`, and system folders that are often missing in the `PATH` of a user.
pub(crate) fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Whether this process runs as root, according to `/proc/self/status`.
pub(crate) fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| effective_user(&status) == Some(0))
}

/// The second number of the line `Uid:` (real, effective, saved, filesystem), proc(5).
fn effective_user(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_user_is_read() {
        assert_eq!(effective_user("Name:\tx\nUid:\t1000\t0\t0\t0\n"), Some(0));
        assert_eq!(effective_user("Uid:\t0\t1000\t0\t0\n"), Some(1000));
        assert_eq!(effective_user("Name:\tx\n"), None);
    }

    #[test]
    fn the_root_contains_the_workspace_manifest() {
        let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("the root has a manifest");
        assert!(manifest.contains("[workspace]"));
    }

    #[test]
    fn cargo_runs_without_the_variables_of_xtask() {
        assert!(std::env::var_os("CARGO_PKG_NAME").is_some(), "cargo sets it for tests, too");
        let command = cargo();
        let is_removed = |name: &str| command.get_envs().any(|(key, value)| key == name && value.is_none());
        assert!(is_removed("CARGO_PKG_NAME") && !is_removed("CARGO_TARGET_DIR"));
    }

    #[test]
    fn programs_are_found_if_they_exist() {
        assert!(find_program("sh").is_some());
        assert_eq!(find_program("no-program-has-this-name"), None);
    }
}
