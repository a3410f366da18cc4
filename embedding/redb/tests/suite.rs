//! redb's own tests over the backend. Copies the source of redb's package to the target directory, replaces redb's file
//! backend by `src/backend.rs`, and runs the tests of redb there. It needs the crates of redb's tests. Run it with
//! `cargo test --test suite -- --ignored`.

use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Not `backward_compatibility`: it needs a version of redb that redb's repository takes from git.
const TESTS: &[&str] = &["basic_tests", "integration_tests", "multimap_tests", "multithreading_tests"];

/// This test overwrites the file through another handle while the database is open, and expects the database to notice.
/// A page cache in the program cannot.
const SKIPPED: &str = "repair_allocator_checksums";

#[test]
#[ignore = "builds redb and runs its tests: minutes"]
fn the_tests_of_redb_pass_over_the_backend() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let original = source_of_redb(here).unwrap();
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("redb");
    patched_copy(here, &original, &copy).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(&copy).args(["test", "--no-fail-fast", "--lib"]);
    for name in TESTS {
        cargo.args(["--test", name]);
    }
    cargo.args(["--", "--skip", SKIPPED]);
    // Files of its tests are in a directory whose filesystem supports direct I/O.
    let files = copy.join("files");
    fs::create_dir_all(&files).unwrap();
    let status = cargo.env("TMPDIR", &files).status().unwrap();
    assert!(status.success(), "the tests of redb in {} failed", copy.display());
}

/// The directory of redb's package in the cache of cargo.
fn source_of_redb(here: &Path) -> Result<PathBuf> {
    let arguments = ["metadata", "--format-version", "1", "--locked"];
    let output = Command::new(env!("CARGO")).current_dir(here).args(arguments).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("cargo lists no packages")?;
    let redb =
        packages.iter().find(|package| package["name"] == "redb").context("cargo does not list redb")?;
    let manifest = redb["manifest_path"].as_str().context("the package has no manifest")?;
    Ok(Path::new(manifest).parent().context("the manifest is in no directory")?.to_owned())
}

fn patched_copy(here: &Path, original: &Path, copy: &Path) -> Result<()> {
    for part in ["src", "tests"] {
        let to = copy.join(part);
        if to.exists() {
            fs::remove_dir_all(&to)?;
        }
        copy_sources(&original.join(part), &to)?;
    }
    fs::write(copy.join("Cargo.toml"), manifest(here)?)?;
    let backend = fs::read_to_string(here.join("src/backend.rs"))?.replace("use redb::", "use crate::");
    // The names of redb's backend.
    let glue = "/// The name of redb's own backend.\npub type FileBackend = VolumeBackend;\n";
    let unix = copy.join("src/tree_store/page_store/file_backend/unix.rs");
    if !unix.is_file() {
        bail!("{} has no backend at {}", original.display(), unix.display());
    }
    fs::write(unix, format!("{backend}\n{glue}"))?;
    Ok(())
}

/// The manifest of the copy: what the library and the selected tests of redb need, and iopath.
fn manifest(here: &Path) -> Result<String> {
    let iopath = here.join("../../crates/iopath").canonicalize()?;
    Ok(format!(
        r#"[package]
name = "redb"
version = "2.6.3"
edition = "2024"

[dependencies]
iopath = {{ path = {iopath:?} }}
log = {{ version = "0.4", optional = true }}
pyo3 = {{ version = "0.24", optional = true }}

[dev-dependencies]
libc = "0.2"
rand = "0.9"
tempfile = "3"

[features]
cache_metrics = []
logging = ["dep:log"]
python = ["dep:pyo3"]

[workspace]

[profile.dev]
debug = "line-tables-only"
opt-level = 1
"#
    ))
}

fn copy_sources(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let name = path.file_name().context("an entry has a name")?;
        if path.is_dir() {
            copy_sources(&path, &to.join(name))?;
        } else if path.extension() == Some(OsStr::new("rs")) && name != "backward_compatibility.rs" {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}
