//! `iopath sweep --resume`: the same target from any directory, and damaged files.

use crate::support::iopath;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Output;

/// A directory with a target and a complete sweep of it.
struct Rig {
    directory: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let rig = Self { directory: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() };
        fs::write(rig.path().join("target"), vec![1; 1 << 16]).unwrap();
        let mut command = iopath(&["sweep", "--path", "kernel-buffered", "--bs", "4k,8k", "--repeat", "1"]);
        command.args(["--target", "target", "--output", "s.json"]).current_dir(rig.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        rig
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path().join("s.json")).unwrap()).unwrap()
    }

    /// Removes the result of the first cell.
    fn forget(&self) {
        let mut file = self.json();
        file["complete"] = false.into();
        file["cells"][0]["run"] = Value::Null;
        self.write(&file);
    }

    fn write(&self, file: &Value) {
        fs::write(self.path().join("s.json"), file.to_string()).unwrap();
    }

    /// Continues the sweep from another directory.
    fn resume(&self, from: &Path) -> Output {
        iopath(&["sweep", "--resume"]).arg(self.path().join("s.json")).current_dir(from).output().unwrap()
    }

    /// The last line of a sweep that cannot be continued.
    fn refusal(&self, from: &Path) -> String {
        let output = self.resume(from);
        let lines = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && !lines.contains("panicked"), "{lines}");
        lines.lines().last().unwrap_or_default().to_owned()
    }
}

#[test]
fn the_target_is_the_same_from_another_directory() {
    let rig = Rig::new();
    let other = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // A larger file of the same name.
    fs::write(other.path().join("target"), vec![2; 1 << 20]).unwrap();
    rig.forget();
    let output = rig.resume(other.path());
    assert!(output.status.success(), "{output:?}");
    let file = rig.json();
    let bytes = [0, 1].map(|cell| file["cells"][cell]["run"]["bytes"].as_u64());
    assert_eq!((bytes, &file["complete"]), ([Some(1 << 16); 2], &true.into()));
}

#[test]
fn another_target_and_a_missing_one_are_refused_and_no_cell_is_skipped() {
    let rig = Rig::new();
    rig.forget();
    fs::rename(rig.path().join("target"), rig.path().join("former")).unwrap();
    let line = rig.refusal(Path::new("/"));
    assert!(line.contains("target") && line.contains("does not exist now"), "{line}");
    assert_eq!((&rig.json()["complete"], &rig.json()["cells"][0]["skipped"]), (&false.into(), &Value::Null));
    fs::write(rig.path().join("target"), vec![3; 1 << 16]).unwrap();
    let line = rig.refusal(Path::new("/"));
    assert!(line.contains("is not the file, directory or device with which it began"), "{line}");
    fs::rename(rig.path().join("former"), rig.path().join("target")).unwrap();
    assert!(rig.resume(Path::new("/")).status.success());
    // A new sweep of a missing target fails as well.
    let mut command =
        iopath(&["sweep", "--path", "kernel-buffered", "--target", "missing", "--output", "n.json"]);
    assert_eq!(command.current_dir(rig.path()).output().unwrap().status.code(), Some(1));
}

#[test]
fn a_file_of_an_earlier_version_is_refused() {
    let rig = Rig::new();
    rig.forget();
    let mut file = rig.json();
    file.as_object_mut().unwrap().remove("place");
    rig.write(&file);
    assert!(rig.refusal(rig.path()).contains("begin a new sweep"));
}

/// Damages the file of a sweep.
type Damage<'a> = &'a dyn Fn(&mut Value);

#[test]
fn damaged_files_are_named_and_no_panic() {
    let rig = Rig::new();
    let good = rig.json();
    let axis = good["axes"][0].clone();
    let damages: [(&str, Damage); 7] = [
        ("an axis without values", &|file| file["axes"][2]["values"] = json!([])),
        ("no axis", &|file| file["axes"] = json!([])),
        ("a value twice", &|file| file["axes"][2]["values"] = json!(["4k", "4k"])),
        ("an axis twice", &|file| {
            file["axes"].as_array_mut().unwrap().push(axis.clone());
            for cell in file["cells"].as_array_mut().unwrap() {
                cell["values"].as_array_mut().unwrap().push(axis["values"][0].clone());
            }
        }),
        ("an empty axis and its cells", &|file| {
            file["axes"].as_array_mut().unwrap().push(json!({"name": "x", "values": []}));
            for cell in file["cells"].as_array_mut().unwrap() {
                cell["values"].as_array_mut().unwrap().push(json!("1"));
            }
        }),
        ("a missing cell", &|file| drop(file["cells"].as_array_mut().unwrap().pop())),
        ("another order", &|file| file["cells"].as_array_mut().unwrap().reverse()),
    ];
    for (name, damage) in damages {
        for complete in [true, false] {
            let mut file = good.clone();
            damage(&mut file);
            file["complete"] = complete.into();
            rig.write(&file);
            let line = rig.refusal(rig.path());
            assert!(line.contains("s.json cannot be resumed"), "{name}: {line}");
        }
    }
    // Devices without an end are not read at all.
    for device in ["/dev/zero", "/dev/stdin", "/"] {
        let output = iopath(&["sweep", "--resume", device]).output().unwrap();
        let lines = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && lines.contains("regular file"), "{device}: {lines}");
    }
}
