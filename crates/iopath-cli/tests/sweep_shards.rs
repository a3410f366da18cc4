//! `iopath sweep --shard` and `--merge-parts`: the shares of any launcher join to the result of one process.

use crate::support::iopath;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Output;

const SWEEP: [&str; 15] = [
    "sweep",
    "--path",
    "iopath-direct",
    "--target",
    "model:ssd-nvme",
    "--size",
    "4m",
    "--repeat",
    "1",
    "--bs",
    "4k..32k",
    "--iodepth",
    "1,4",
    "--rw",
    "read,randread",
];

/// A launcher: its variables for a rank, from 0, of three.
type Launcher = fn(u32) -> Vec<(&'static str, String)>;

const LAUNCHERS: [(&str, Launcher); 5] = [
    ("Open MPI", |rank| {
        vec![("OMPI_COMM_WORLD_RANK", rank.to_string()), ("OMPI_COMM_WORLD_SIZE", "3".to_owned())]
    }),
    ("MPICH", |rank| vec![("PMI_RANK", rank.to_string()), ("PMI_SIZE", "3".to_owned())]),
    ("Slurm", |rank| vec![("SLURM_PROCID", rank.to_string()), ("SLURM_NTASKS", "3".to_owned())]),
    ("an array of Slurm", |rank| {
        vec![
            ("SLURM_ARRAY_TASK_ID", (7 + rank).to_string()),
            ("SLURM_ARRAY_TASK_MIN", "7".to_owned()),
            ("SLURM_ARRAY_TASK_COUNT", "3".to_owned()),
        ]
    }),
    ("Kubernetes", |rank| {
        vec![("JOB_COMPLETION_INDEX", rank.to_string()), ("JOB_COMPLETIONS", "3".to_owned())]
    }),
];

fn run(directory: &Path, arguments: &[&str], variables: &[(&str, String)]) -> Output {
    let mut command = iopath(arguments);
    for (_, launcher) in LAUNCHERS {
        for (name, _) in launcher(0) {
            command.env_remove(name);
        }
    }
    command.envs(variables.iter().map(|(name, value)| (name, value))).current_dir(directory).output().unwrap()
}

fn succeed(directory: &Path, arguments: &[&str], variables: &[(&str, String)]) -> String {
    let output = run(directory, arguments, variables);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(directory: &Path, arguments: &[&str], variables: &[(&str, String)]) -> String {
    let output = run(directory, arguments, variables);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

#[test]
fn the_shares_of_each_launcher_join_to_the_result_of_one_process() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = directory.path();
    let whole = succeed(folder, &[&SWEEP[..], &["--output", "whole.json"]].concat(), &[]);
    let expected = json(&folder.join("whole.json"));
    for (name, launcher) in LAUNCHERS {
        for rank in 0..3 {
            let own = [&SWEEP[..], &["--shard", "auto", "--output", "part-{shard}.json"]].concat();
            let shown = succeed(folder, &own, &launcher(rank));
            assert!(shown.contains(&format!("16 cells, share {} of 3", rank + 1)), "{name}: {shown}");
        }
        let parts = ["sweep", "--merge-parts", "part-2.json", "part-3.json", "part-1.json"];
        let merged = succeed(folder, &[&parts[..], &["--output", "all.json"]].concat(), &[]);
        assert_eq!(merged, whole, "{name}");
        let merged = json(&folder.join("all.json"));
        assert_eq!(merged["cells"], expected["cells"], "{name}");
        assert_eq!((&merged["complete"], &merged["shard"]), (&Value::Bool(true), &Value::Null));
        (1..=3).for_each(|part| fs::remove_file(folder.join(format!("part-{part}.json"))).unwrap());
    }
}

#[test]
fn each_share_has_cells_of_each_value_of_a_list() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let own = [&SWEEP[..], &["--shard=1/2", "--output", "part.json"]].concat();
    succeed(directory.path(), &own, &[]);
    let part = json(&directory.path().join("part.json"));
    let cells: Vec<&Value> =
        part["cells"].as_array().unwrap().iter().filter(|cell| !cell["run"].is_null()).collect();
    assert_eq!(cells.len(), 8);
    // A machine that measures one value alone would look like the effect of this value.
    for axis in ["rw", "iodepth"] {
        let index = part["axes"].as_array().unwrap().iter().position(|one| one["name"] == axis).unwrap();
        let values: std::collections::BTreeSet<&str> =
            cells.iter().map(|cell| cell["values"][index].as_str().unwrap()).collect();
        assert_eq!(values.len(), 2, "{axis}");
    }
}

#[test]
fn parts_that_do_not_join_are_refused_by_name() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = directory.path();
    for part in ["1/3", "2/3", "3/3"] {
        let shard = format!("--shard={part}");
        succeed(folder, &[&SWEEP[..], &[&shard, "--output", "part-{shard}.json"]].concat(), &[]);
    }
    let other = [&SWEEP[..13], &["--shard=3/3", "--output", "other.json"]].concat();
    succeed(folder, &[&other[..], &["--seed", "2"]].concat(), &[]);
    succeed(folder, &[&SWEEP[..], &["--output", "whole.json"]].concat(), &[]);
    let merge = |parts: &[&str]| {
        refused(folder, &[&["sweep", "--merge-parts"], parts, &["--output", "all.json"]].concat(), &[])
    };
    for (parts, message) in [
        (
            &["part-1.json", "part-3.json"][..],
            "of 16 cells: those of share 2 of 3; name the part of each share",
        ),
        (&["part-1.json", "part-1.json"], "as an earlier part; name each part once"),
        (&["part-1.json", "other.json"], "other.json is no part of the sweep: it is of another sweep"),
        (&["whole.json"], "whole.json is no part of the sweep: it has all cells"),
        (&["missing.json"], "missing.json"),
    ] {
        let refused = merge(parts);
        assert!(refused.contains(message), "{refused}");
    }
    let mut open = json(&folder.join("part-2.json"));
    open["complete"] = false.into();
    fs::write(folder.join("part-2.json"), open.to_string()).unwrap();
    let refused = merge(&["part-1.json", "part-2.json", "part-3.json"]);
    assert!(
        refused.contains("share 2 of 3 is not finished; continue it with --resume part-2.json"),
        "{refused}"
    );
    // Without the variables of the launcher that began it.
    succeed(folder, &["sweep", "--resume", "part-2.json"], &[]);
    succeed(
        folder,
        &["sweep", "--merge-parts", "part-1.json", "part-2.json", "part-3.json", "--output", "all.json"],
        &[],
    );
}

#[test]
fn a_share_that_no_launcher_names_is_refused() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let own = [&SWEEP[..], &["--shard", "auto"]].concat();
    let variable = |name, value: &str| (name, value.to_owned());
    for (variables, message) in [
        (vec![], "JOB_COMPLETION_INDEX is set; write the share as 1/4"),
        (vec![variable("JOB_COMPLETION_INDEX", "1")], "JOB_COMPLETIONS, the number of shares, is not"),
        (
            [LAUNCHERS[0].1(0), LAUNCHERS[3].1(0)].concat(),
            "OMPI_COMM_WORLD_RANK is of 3 processes and SLURM_ARRAY_TASK_ID of 3 jobs",
        ),
    ] {
        let refused = refused(directory.path(), &own, &variables);
        assert!(refused.contains(message), "{refused}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}
