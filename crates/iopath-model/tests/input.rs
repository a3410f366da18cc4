//! Model files: each mistake is an error that names file, line, parameter, range and unit; no input panics.

use iopath_model::{Kind, Model, Preset};
use proptest::prelude::*;

const CLOUD: &str = include_str!("../presets/cloud.toml");

fn error(text: &str) -> String {
    Model::parse("my.toml", text).expect_err("the file has a mistake").to_string()
}

/// The preset with the line of `name` replaced.
fn with(name: &str, line: &str) -> String {
    let is_that = |old: &str| old.split('=').next().is_some_and(|key| key.trim() == name);
    let mut first = true;
    let lines = CLOUD.lines().filter_map(|old| {
        let replaced = is_that(old) && std::mem::take(&mut first);
        if replaced { (!line.is_empty()).then_some(line) } else { Some(old) }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_mistake_names_file_line_parameter_range_and_unit() {
    let cases = [
        (
            with("latency_p50_us", "latency_p50_us = -1"),
            "my.toml:6: `latency_p50_us` = -1 is not allowed: a number from 0 to 10000000, in µs",
        ),
        (
            with("latency_p50_us", "latency_p50_us = 1e12"),
            "my.toml:6: `latency_p50_us` = 1e12 is not allowed: a number from 0 to 10000000, in µs",
        ),
        (
            with("latency_p50_us", "latency_p50_us = nan"),
            "my.toml:6: `latency_p50_us` = nan is not allowed: a number from 0 to 10000000, in µs",
        ),
        (
            with("latency_p50_us", "latency_p50_us = \"fast\""),
            "my.toml:6: `latency_p50_us` = \"fast\" is not allowed: a number from 0 to 10000000, in µs",
        ),
        (
            with("depth_max", "depth_max = 1.5"),
            "my.toml:17: `depth_max` = 1.5 is not allowed: a whole number from 1 to 4096",
        ),
        (
            with("latency_p50_us", "latency_p50_us = 3000"),
            "my.toml:7: `latency_p99_us`: this must be at least `latency_p50_us`",
        ),
        (
            with("kind", "kind = \"tape\""),
            "my.toml:1: `kind`: there is no kind `tape`; one of: disk, flash, cloud, target",
        ),
        (with("kind", ""), "my.toml:1: `kind`: missing; one of: disk, flash, cloud, target"),
        (with("kind", "kind = 7"), "my.toml:1: `kind`: this must be a string"),
        (
            with("kind", "base = \"tape\""),
            "my.toml:1: `base`: there is no model `tape`; presets: ide-2001, fc15k-2002, sata-2006, hdd-20tb, ssd-sata, ssd-nvme, cloud, iscsi-gbe",
        ),
    ];
    for (text, expected) in cases {
        let message = error(&text);
        assert!(message.starts_with(expected), "{message}\ninstead of\n{expected}");
    }
    let unknown = error(&CLOUD.replace("depth_max = 256", "depth_max = 256\nseek_ms = 3"));
    assert!(
        unknown.starts_with("my.toml:18: `seek_ms` is not a parameter of this model; known: capacity_gib, "),
        "{unknown}"
    );
    let syntax = error("kind = \"cloud\"\nx = = 3\n");
    assert!(syntax.starts_with("my.toml:2: not TOML: "), "{syntax}");
    let missing =
        error(&CLOUD.lines().filter(|line| !line.starts_with("capacity_gib")).collect::<Vec<_>>().join("\n"));
    assert!(
        missing.starts_with("my.toml:1: `capacity_gib` is missing: the size of the disk, a number from 0.001 to 1000000, in GiB"),
        "{missing}"
    );
}

#[test]
fn a_source_without_its_parameter_is_refused() {
    let message = error(&CLOUD.replace("\n[source]\n", "\n[source]\nspeed = \"a guess\"\n"));
    assert!(message.starts_with("my.toml:20: `source.speed`: "), "{message}");
}

#[test]
fn a_file_may_be_based_on_a_preset() {
    let model = Model::parse("dir/mine.toml", "base = \"cloud\"\nsustained_iops = 100\n").unwrap();
    assert_eq!((model.name(), model.kind().name), ("mine", "cloud"));
    let setting = |path: &str| model.settings().iter().find(|one| one.path == path).unwrap().clone();
    assert_eq!(
        (setting("sustained_iops").value.to_string(), setting("sustained_iops").source),
        ("100".to_owned(), None)
    );
    assert_eq!(setting("burst_iops").value.to_string(), "3000");
    assert!(setting("burst_iops").source.is_some());
}

#[test]
fn the_tables_of_a_target_have_bases_of_their_own() {
    let text = "base = \"iscsi-gbe\"\n[device]\nbase = \"cloud\"\ndepth_max = 8\n[link]\nlatency_us = 99\n";
    let model = Model::parse_with("t", text, &[("host.cpus", "4"), ("device.credits", "7")]).unwrap();
    let value = |path: &str| model.settings().iter().find(|one| one.path == path).unwrap().value.to_string();
    assert_eq!((model.kind().name, model.limits().depth_max), ("target", 8));
    assert_eq!(
        ["link.latency_us", "link.frame_bytes", "host.cpus", "device.credits"].map(value),
        ["99", "1448", "4", "7"]
    );
    let wrong = error("kind = \"target\"\n[link]\nbase = \"tin-can\"\n");
    assert_eq!(wrong, "my.toml:3: `link.base`: there is no link `tin-can`; links: fc-2g, gbe");
    let wrong = error("kind = \"target\"\n[link]\nbase = \"gbe\"\n");
    assert_eq!(wrong, "my.toml:1: `host`: a target has this table");
    let wrong = error("base = \"iscsi-gbe\"\n[device]\nbase = \"iscsi-gbe\"\n");
    assert!(wrong.ends_with("`device.kind`: the device of a target is no target itself"), "{wrong}");
    let wrong = error("base = \"cloud\"\n[[zone]]\ncylinders = 3\n");
    assert!(wrong.starts_with("my.toml:2: `zone` is not a parameter"), "{wrong}");
}

#[test]
fn a_value_from_outside_is_checked_as_one_of_the_file() {
    let model = Model::preset_with("cloud", &[("depth_max", "8")]).unwrap();
    assert_eq!(model.limits().depth_max, 8);
    let wrong = Model::preset_with("cloud", &[("depth_max", "many")]).unwrap_err().to_string();
    assert_eq!(wrong, "cloud: `depth_max` = many is not allowed: a whole number from 1 to 4096");
    let unknown = Model::preset_with("cloud", &[("deep", "8")]).unwrap_err().to_string();
    assert!(unknown.starts_with("cloud: `deep` is not a parameter"), "{unknown}");
}

#[test]
fn presets_are_valid_and_name_the_source_of_each_figure() {
    for preset in Preset::ALL {
        let model = Model::preset(preset.name).unwrap_or_else(|error| panic!("{error}"));
        for setting in model.settings() {
            assert!(setting.source.is_some(), "{}: `{}` has no source", preset.name, setting.path);
        }
    }
    assert!(Model::preset("tape").unwrap_err().to_string().contains("there is no model `tape`; presets: "));
}

#[test]
fn the_unit_stands_last_in_the_name() {
    for parameter in Kind::ALL.iter().flat_map(|kind| kind.tables).flat_map(|(_, parameters)| *parameters) {
        let (name, suffix) = (parameter.name, parameter.unit.suffix());
        let is_whole_name = name == &suffix[suffix.len().min(1)..];
        assert!(name.ends_with(suffix) || is_whole_name, "{name}");
        assert!(
            parameter.min < parameter.max && parameter.default.is_none_or(|value| value >= parameter.min)
        );
    }
}

proptest! {
    #[test]
    fn no_text_panics(preset in 0..Preset::ALL.len(), at in 0.0..1.0f64, cut in 0..40usize, new in "[-0-9a-z=\\[\\]\\.\"_{}é\n ]{0,20}") {
        let text = Preset::ALL[preset].text;
        let start = (0..=(text.len() as f64 * at) as usize).rev().find(|&at| text.is_char_boundary(at)).unwrap();
        let end = (start + cut..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
        let changed = format!("{}{new}{}", &text[..start], &text[end..]);
        if let Err(error) = Model::parse("f", &changed) {
            prop_assert!(error.to_string().starts_with("f:") || error.to_string().starts_with("f: "));
        }
    }
}
