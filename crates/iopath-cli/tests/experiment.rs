//! `iopath experiment`: text, JSON, settings and refusals. Verdicts are tested in `iopath-experiments`.

use crate::support::{iopath, json_of};
use serde_json::Value;

#[test]
fn one_experiment_shows_the_published_effect_the_model_the_figures_and_the_verdict() {
    let output = iopath(&["experiment", "closest", "--set", "ios=2000"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for part in
        ["closest: ", "Published: ", "parameter", "ios", "set", "deviation", "Request log:", "Verdict: "]
    {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr.trim(), "iopath: experiment closest, 1 of 1");
}

#[test]
fn json_has_each_row_with_its_deviation() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results.json");
    let mut command = iopath(&["experiment", "closest", "--set", "ios=2000", "--set", "bs=8k", "--json"]);
    command.arg(&file);
    // The second run replaces the results of the first.
    for _ in 0..2 {
        assert!(command.output().unwrap().status.success());
    }
    let json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(json["schema"], "iopath.experiments/1");
    let experiment = &json["experiments"][0];
    assert_eq!(experiment["id"], "closest");
    assert!(experiment["verdict"].is_null(), "the source has no such setting: {}", experiment["verdict"]);
    let parameter = |name: &str| {
        let all = experiment["parameters"].as_array().unwrap();
        all.iter().find(|parameter| parameter["name"] == name).unwrap().clone()
    };
    assert_eq!(
        (&parameter("bs_bytes")["value"], &parameter("bs_bytes")["set"]),
        (&"8192".into(), &true.into())
    );
    assert_eq!(parameter("queued")["set"], false);
    let rows = experiment["rows"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        assert!(
            row["what"].is_string() && row["unit"].is_string() && row["calibrated"].is_boolean(),
            "{row}"
        );
        assert!(row["ours"].is_f64() && row.get("published").is_some(), "{row}");
        assert_eq!(row["deviation"].is_null(), row["published"].is_null(), "{row}");
    }
}

#[test]
fn results_in_virtual_time_are_identical() {
    let run = || {
        let output = iopath(&["experiment", "closest", "--set", "ios=1000", "--json"]).output().unwrap();
        let mut json = json_of(&output);
        // The only figure of this machine.
        let rows = json["experiments"][0]["rows"].as_array_mut().unwrap();
        rows.retain(|row| !row["what"].as_str().unwrap().contains("this machine"));
        (json["experiments"][0]["rows"].clone(), json["experiments"][0]["evidence"].clone())
    };
    assert_eq!(run(), run());
}
