//! Model files: each mistake is an error that names file, line, parameter, range and unit; no input panics.

use std::fmt::Write as _;

use crate::rig::LAYERED;
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
            "my.toml:24: `depth_max` = 1.5 is not allowed: a whole number from 1 to 4096",
        ),
        (
            with("latency_p50_us", "latency_p50_us = 3000"),
            "my.toml:7: `latency_p99_us`: this must be at least `latency_p50_us`",
        ),
        (
            with("kind", "kind = \"tape\""),
            "my.toml:1: `kind`: there is no kind `tape`; one of: disk, flash, cloud, target, stripe, mapped, delay, throttle, faulty",
        ),
        (
            with("kind", ""),
            "my.toml:1: `kind`: missing; one of: disk, flash, cloud, target, stripe, mapped, delay, throttle, faulty",
        ),
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
        unknown.starts_with("my.toml:25: `seek_ms` is not a parameter of this model; known: capacity_gib, "),
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
    assert!(message.starts_with("my.toml:27: `source.speed`: "), "{message}");
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
    // A device of another kind, and another preset: no value of the device of the preset is left.
    let text =
        "base = \"iscsi-gbe\"\n[device]\nkind = \"stripe\"\nmembers = 2\n[device.device]\nbase = \"cloud\"\n";
    let cloud = Model::preset("cloud").unwrap().capacity();
    assert_eq!(Model::parse("t", text).unwrap().capacity(), 2 * cloud);
    let disk = Model::parse("t", "base = \"iscsi-gbe\"\n[device]\nbase = \"fc15k-2002\"\n").unwrap();
    assert_eq!(disk.capacity(), Model::preset("fc15k-2002").unwrap().capacity());
    let wrong = error("kind = \"target\"\n[link]\nbase = \"tin-can\"\n");
    assert_eq!(wrong, "my.toml:3: `link.base`: there is no link `tin-can`; links: fc-2g, gbe");
    let wrong = error("kind = \"target\"\n[link]\nbase = \"gbe\"\n[device]\nbase = \"cloud\"\n");
    assert_eq!(wrong, "my.toml:1: `host`: a target has this table");
    let wrong = error("base = \"cloud\"\n[[zone]]\ncylinders = 3\n");
    assert!(wrong.starts_with("my.toml:2: `zone` is not a parameter"), "{wrong}");
}

#[test]
fn a_model_of_models_names_the_table_of_a_mistake() {
    let cases = [
        (
            "kind = 'stripe'\nmembers = 4\n",
            "my.toml:1: `device`: missing; this kind of model has a table `device`",
        ),
        (
            "kind = 'delay'\n[device]\nbase = 'cloud'\n",
            "my.toml:1: `delay_us` is missing: added to each request, a number from 0 to 1000000000, in µs",
        ),
        (
            "kind = 'delay'\ndelay_us = 1\n[device]\nkind = 'stripe'\nmembers = 0\n[device.device]\nbase = 'cloud'\n",
            "my.toml:5: `device.members` = 0 is not allowed: a whole number from 1 to 1024",
        ),
        (
            "kind = 'delay'\ndelay_us = 1\n[device]\nkind = 'stripe'\nmembers = 2\n[device.device]\nbase = 'cloud'\ndepth_max = 0\n",
            "my.toml:8: `device.device.depth_max` = 0 is not allowed: a whole number from 1 to 4096",
        ),
        (
            "kind = 'stripe'\nmembers = 2\nchunk_kib = 0.7\ndevice.base = 'cloud'\n",
            "my.toml:3: `chunk_kib`: this must be whole sectors of 0.5 KiB",
        ),
        (
            "kind = 'stripe'\nmembers = 2\nchunk_kib = 2048\n[device]\nbase = 'cloud'\ncapacity_gib = 0.001\n",
            "my.toml:3: `chunk_kib`: member 0 has 2097 sectors, less than a chunk of 4096; choose a smaller chunk or a larger member",
        ),
        (
            "kind = 'stripe'\nmembers = 100\n[device]\nkind = 'stripe'\nmembers = 100\ndevice.base = 'cloud'\n",
            "my.toml:2: `members`: 10000 devices in all; at most 4096",
        ),
        (
            "kind = 'mapped'\nsize_mib = 10\nmapper = 'tree'\ndevice.base = 'cloud'\n",
            "my.toml:3: `mapper`: there is no `tree`; one of: extent, indirect",
        ),
        (
            "kind = 'mapped'\nsize_mib = 10\nboundary = 3\ndevice.base = 'cloud'\n",
            "my.toml:3: `boundary`: this must be a string",
        ),
        (
            "kind = 'mapped'\nsize_mib = 10\nblock_bytes = 700\ndevice.base = 'cloud'\n",
            "my.toml:3: `block_bytes`: mapper extent has no blocks of 700 bytes; a power of two, 512 or more",
        ),
        (
            "kind = 'mapped'\nsize_mib = 2000\n[device]\nbase = 'cloud'\ncapacity_gib = 1\n",
            "my.toml:2: `size_mib`: the file and its map need 2002.0 MiB of a device of 1024.0 MiB; choose a smaller file or a larger device",
        ),
        (
            "kind = 'throttle'\ndevice.base = 'cloud'\n",
            "my.toml:1: `cap_iops`: a throttle needs this cap, or `cap_mib_per_s`",
        ),
        (
            "kind = 'throttle'\ncap_iops = 0.5\ndevice.base = 'cloud'\n",
            "my.toml:2: `cap_iops`: this must be 0, or at least one a second",
        ),
        (
            "kind = 'faulty'\nreorder = 2\ndevice.base = 'cloud'\n",
            "my.toml:2: `reorder` = 2 is not allowed: a whole number from 0 to 1",
        ),
        (
            "kind = 'delay'\ndelay_us = 1\ndevice.base = 'clod'\n",
            "my.toml:3: `device.base`: there is no model `clod`; presets: ",
        ),
    ];
    for (text, expected) in cases {
        let message = error(text);
        assert!(message.starts_with(expected), "{message}\ninstead of\n{expected}");
    }
    let mut deep = "kind = 'delay'\ndelay_us = 1\n".to_owned();
    for level in 1..=9 {
        let kind = if level == 9 { "base = 'cloud'" } else { "kind = 'delay'\ndelay_us = 1" };
        writeln!(deep, "[{}]\n{kind}", vec!["device"; level].join(".")).unwrap();
    }
    let message = error(&deep);
    assert!(message.ends_with("`: tables `device` are nested in each other at most 8 times"), "{message}");
}

#[test]
fn a_layer_may_lie_on_a_preset_and_every_depth_has_its_base_and_its_overrides() {
    let text = "kind = 'stripe'\nmembers = 8\nchunk_kib = 128\n[device]\nkind = 'delay'\ndelay_us = 100\n\
                [device.device]\nbase = 'iscsi-gbe'\n[device.device.device]\nbase = 'cloud'\ncapacity_gib = 2\n\
                [device.device.link]\nbase = 'fc-2g'\n";
    let overrides = [("members", "4"), ("device.delay_us", "7"), ("device.device.device.depth_max", "9")];
    let model = Model::parse_with("s.toml", text, &overrides).unwrap();
    let value = |path: &str| model.settings().iter().find(|one| one.path == path).unwrap().value.to_string();
    assert_eq!((model.kind().name, model.limits().depth_max), ("stripe", 36));
    assert_eq!(model.capacity() * 512, 8 << 30, "four members of 2 GiB");
    assert_eq!(
        ["members", "device.delay_us", "device.device.link.bandwidth_mbit_per_s", "device.device.host.cpus"]
            .map(value),
        ["4", "7", "1700", "2"]
    );
    let mapped = Model::parse_with(
        "m",
        "kind = 'mapped'\nsize_mib = 3\ndevice.base = 'cloud'\n",
        &[("mapper", "indirect")],
    );
    assert_eq!(mapped.unwrap().capacity(), 6144);
    let unknown = Model::parse_with("m", text, &[("device.device.host.cpu", "3")]).unwrap_err().to_string();
    assert!(unknown.starts_with("m: `device.device.host.cpu` is not a parameter"), "{unknown}");
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
    fn no_text_panics(preset in 0..Preset::ALL.len() + LAYERED.len(), at in 0.0..1.0f64, cut in 0..40usize, new in "[-0-9a-z=\\[\\]\\.\"_{}é\n ]{0,20}") {
        let text = match preset.checked_sub(Preset::ALL.len()) {
            None => Preset::ALL[preset].text,
            Some(layered) => LAYERED[layered].1,
        };
        let start = (0..=(text.len() as f64 * at) as usize).rev().find(|&at| text.is_char_boundary(at)).unwrap();
        let end = (start + cut..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
        let changed = format!("{}{new}{}", &text[..start], &text[end..]);
        if let Err(error) = Model::parse("f", &changed) {
            prop_assert!(error.to_string().starts_with("f:") || error.to_string().starts_with("f: "));
        }
    }
}
