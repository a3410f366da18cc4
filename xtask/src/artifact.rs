//! The programs that cargo builds, and the tests of test programs in groups. Does not run tests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::workspace;

/// The name of the program that contains the tests of a folder `tests`, a module for each file.
const ALL: &str = "all";

/// The optional parts of the library, for checks and tests.
pub(crate) const FEATURES: &str =
    "--features=iopath/bytes,iopath/tokio,iopath/tracing,iopath/metrics,iopath-cli/full,iopath-cli/parquet";

/// A program that cargo has built.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Artifact {
    pub(crate) package: String,
    kind: Kind,
    name: String,
    /// The folder of its crate.
    directory: PathBuf,
    pub(crate) executable: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A binary or an example.
    Program,
    /// The tests in the sources of a library.
    LibraryTests,
    /// The tests in the sources of a binary.
    BinaryTests,
    /// A test program in `tests`.
    Tests,
}

/// Tests of one program that run in one process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// `PACKAGE::MODULE` for tests in sources, `PACKAGE/FILE` for tests in `tests`.
    pub(crate) name: String,
    /// The paths of its tests in the program.
    pub(crate) tests: Vec<String>,
}

/// Runs cargo with these arguments, and returns the programs that they select. A failure of the compiler is on stderr.
///
/// All commands build the whole workspace, because cargo selects the features of dependencies for the selected crates
/// together. With other crates, it would build these dependencies once more.
pub(crate) fn build(arguments: &[&str]) -> Result<Vec<Artifact>> {
    build_with(arguments, |_| ())
}

/// The same, with a change of the command of cargo.
pub(crate) fn build_with(arguments: &[&str], change: impl FnOnce(&mut Command)) -> Result<Vec<Artifact>> {
    let mut cargo = command(arguments);
    change(&mut cargo);
    let output = cargo.arg("--quiet").stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "cargo {} failed", arguments.join(" "));
    Ok(of_messages(&String::from_utf8_lossy(&output.stdout)))
}

/// The command of cargo for [`build`].
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = cargo();
    command.args(arguments).args(["--workspace", FEATURES, "--message-format", "json-render-diagnostics"]);
    command
}

/// A cargo whose compiler is that of `cargo clippy`: lints and programs come from one compilation. Each command of
/// xtask that builds tests uses it, or cargo would compile the crates of the workspace once more.
pub(crate) fn cargo() -> Command {
    let mut command = workspace::cargo();
    command.env("RUSTC_WORKSPACE_WRAPPER", workspace::beside_cargo("clippy-driver"));
    command
}

/// The programs in the messages of cargo.
pub(crate) fn of_messages(messages: &str) -> Vec<Artifact> {
    messages.lines().filter_map(Artifact::from_message).collect()
}

/// The program of this name: a test program, a binary or an example.
pub(crate) fn find<'a>(artifacts: &'a [Artifact], package: &str, name: &str) -> Result<&'a Artifact> {
    let is_it = |artifact: &&Artifact| {
        artifact.package == package
            && artifact.name == name
            && matches!(artifact.kind, Kind::Program | Kind::Tests)
    };
    artifacts.iter().find(is_it).with_context(|| format!("cargo has not built {name} of {package}"))
}

impl Artifact {
    /// Reads a line of cargo. None for any other line than that of a program.
    fn from_message(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        let target = &message["target"];
        let is_of =
            |kind: &str| target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|it| it == kind));
        let kind = match message["profile"]["test"].as_bool()? {
            false => Kind::Program,
            true if is_of("test") => Kind::Tests,
            true if is_of("bin") => Kind::BinaryTests,
            true => Kind::LibraryTests,
        };
        let path = |value: &Value| value.as_str().map(PathBuf::from);
        Some(Self {
            package: package(message["package_id"].as_str()?)?,
            kind,
            name: target["name"].as_str()?.to_owned(),
            directory: path(&message["manifest_path"])?.parent()?.to_owned(),
            executable: path(&message["executable"])?,
        })
    }

    /// A command in the environment that cargo gives to a test: the folder of its crate, and variables.
    pub(crate) fn in_environment(&self, mut command: Command) -> Command {
        command.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory);
        command.env("CARGO_PKG_NAME", &self.package).stdin(Stdio::null());
        command
    }

    /// The groups of its tests, in the order of their names. None for a binary and an example.
    pub(crate) fn groups(&self) -> Result<Vec<Group>> {
        if self.kind == Kind::Program {
            return Ok(Vec::new());
        }
        let output = self
            .in_environment(Command::new(&self.executable))
            .args(["--list", "--format", "terse"])
            .output()
            .with_context(|| format!("cannot run {}", self.executable.display()))?;
        ensure!(output.status.success(), "{} cannot list its tests", self.executable.display());
        Ok(self.grouped(&String::from_utf8_lossy(&output.stdout)))
    }

    fn grouped(&self, list: &str) -> Vec<Group> {
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for test in list.lines().filter_map(|line| line.strip_suffix(": test")) {
            groups.entry(self.group_of(test)).or_default().push(test.to_owned());
        }
        groups.into_iter().map(|(name, tests)| Group { name, tests }).collect()
    }

    fn group_of(&self, test: &str) -> String {
        let module = test.split_once("::").map_or(test, |(module, _)| module);
        let Self { package, name, .. } = self;
        match self.kind {
            Kind::Tests if name == ALL => format!("{package}/{module}"),
            Kind::Tests | Kind::Program => format!("{package}/{name}"),
            Kind::LibraryTests => format!("{package}::{module}"),
            // Apart from the modules of a library of the same crate.
            Kind::BinaryTests => format!("{package}::main::{module}"),
        }
    }
}

/// The name in the identifier of a package: `path+file:///directory#name@version`, or `path+file:///name#version`.
fn package(id: &str) -> Option<String> {
    let (path, fragment) = id.rsplit_once('#')?;
    let name = match fragment.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next()?,
    };
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn message(kind: &str, name: &str) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"path+file:///p/crates/demo#0.1.0",
            "manifest_path":"/p/crates/demo/Cargo.toml","target":{{"kind":["{kind}"],"name":"{name}"}},
            "profile":{{"test":true}},"executable":"/p/target/debug/deps/{name}-1"}}"#
        )
    }

    fn artifact(kind: &str, name: &str) -> Artifact {
        Artifact::from_message(&message(kind, name)).expect("the message of a test program")
    }

    #[test]
    fn programs_are_read_from_the_messages_of_cargo() {
        let tests = artifact("lib", "demo");
        assert_eq!((tests.package.as_str(), tests.kind), ("demo", Kind::LibraryTests));
        assert_eq!(tests.directory, Path::new("/p/crates/demo"));
        assert_eq!(tests.executable, Path::new("/p/target/debug/deps/demo-1"));
        let program = Artifact::from_message(&message("bin", "demo").replace("true", "false"));
        assert_eq!(program.map(|program| program.kind), Some(Kind::Program));
        let library = message("lib", "demo").replace("\"executable\"", "\"filenames\"");
        assert_eq!(Artifact::from_message(&library), None, "no program");
        assert_eq!(Artifact::from_message("   Compiling demo v0.1.0"), None);
        assert_eq!(package("path+file:///p/x#named@0.1.0").as_deref(), Some("named"));
    }

    #[test]
    fn a_program_is_found_by_its_name_and_not_among_tests_of_sources() {
        let artifacts = [artifact("lib", "demo"), artifact("test", "demo")];
        assert_eq!(find(&artifacts, "demo", "demo").expect("the test program"), &artifacts[1]);
        assert!(find(&artifacts, "demo", "other").is_err());
    }

    #[test]
    fn a_group_is_a_module_or_a_program_of_its_own() {
        let list = "a::b::one: test\na::two: test\nc::three: test\nroot: test\nd::four: benchmark\n";
        let groups = |kind, name| {
            let groups = artifact(kind, name).grouped(list).into_iter();
            groups.map(|group| format!("{} {}", group.name, group.tests.len())).collect::<Vec<_>>()
        };
        assert_eq!(groups("lib", "demo"), ["demo::a 2", "demo::c 1", "demo::root 1"]);
        assert_eq!(groups("bin", "demo"), ["demo::main::a 2", "demo::main::c 1", "demo::main::root 1"]);
        assert_eq!(groups("test", "all"), ["demo/a 2", "demo/c 1", "demo/root 1"]);
        assert_eq!(groups("test", "alone"), ["demo/alone 4"]);
    }
}
