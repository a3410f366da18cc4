//! Tests of the whole table.

use std::ffi::OsStr;

use super::*;
use crate::workload::Workload;

#[test]
fn names_are_unique() {
    for row in options() {
        assert!(row.flag.is_some() || row.key.is_some(), "{row:?}");
        if let Some(name) = row.name() {
            assert_eq!(of_name(name).map(|found| found.help), Some(row.help), "{name}");
            assert!(!row.help.is_empty() && !row.help.ends_with('.'), "{name}");
        }
        let same_field = |other: &&OptionRow| row.field.is_some() && other.field == row.field;
        assert!(options().filter(same_field).count() <= 1, "{row:?}");
    }
}

#[test]
fn options_that_others_require_or_exclude_exist_and_requirements_come_first() {
    let position = |name: &str| options().position(|row| row.name() == Some(name)).unwrap();
    for row in options() {
        for other in row.conflicts {
            position(other);
        }
        if let Some(required) = row.requires {
            assert!(position(required) < position(row.name().unwrap()), "{row:?}");
        }
    }
}

#[test]
fn the_axes_of_a_sweep_are_the_lists_of_the_table() {
    let lists = options().filter(|row| row.is_list()).filter_map(OptionRow::name);
    assert!(lists.eq(iopath_report::sweep::OF_WORKLOAD));
}

#[test]
fn shown_defaults_are_those_of_a_workload() {
    let mut settings = Settings::default();
    for row in options() {
        if let Some(default) = row.default {
            row.set(&mut settings, &Given::on_command_line(OsStr::new(default))).unwrap();
        }
    }
    let workload = settings.to_workload(4096).unwrap();
    assert_eq!(format!("{workload:?}"), format!("{:?}", Workload::default()));
}

/// A value for each flag and each key that is not the default. A row without one fails the test.
const VALUES: &[(&str, &str)] = &[
    ("--path", "null"),
    ("ioengine", "libaio"),
    ("direct", "1"),
    ("buffered", "0"),
    ("--target", "disk"),
    ("filename", "a:b"),
    ("uri", "nbd://host"),
    ("--host", "name"),
    ("--overwrite", ""),
    ("--rw", "randwrite"),
    ("rw", "write:8k"),
    ("--rwmixread", "70"),
    ("rwmixread", "70"),
    ("rwmixwrite", "70"),
    ("--bs", "8k"),
    ("bs", "8k,16k"),
    ("--bssplit", "4k/60:64k/40"),
    ("bssplit", "4k/60:64k/40"),
    ("bsrange", "1k-2k"),
    ("blocksize_unaligned", "1"),
    ("ba", "8k"),
    ("--skip", "-8k"),
    ("--random-run", "4"),
    ("--percentage-random", "30"),
    ("percentage_random", "30"),
    ("norandommap", "1"),
    ("--random-distribution", "zipf:1.1"),
    ("random_distribution", "pareto:0.3"),
    ("random_sequence_stride", "1"),
    ("--iodepth", "8"),
    ("iodepth", "8"),
    ("iodepth_batch", "16"),
    ("iodepth_batch_complete_min", "4"),
    ("iodepth_low", "4"),
    ("--numjobs", "2"),
    ("numjobs", "2"),
    ("--seed", "7"),
    ("randseed", "7"),
    ("randrepeat", "0"),
    ("--size", "20%"),
    ("size", "1m"),
    ("--offset", "4k"),
    ("offset", "10%"),
    ("io_size", "8k"),
    ("filesize", "8k"),
    ("offset_increment", "8k"),
    ("offset_align", "8k"),
    ("number_ios", "7"),
    ("loops", "2"),
    ("zonemode", "strided"),
    ("zonesize", "8k"),
    ("zonerange", "8k"),
    ("zoneskip", "8k"),
    ("--runtime", "5"),
    ("runtime", "2m"),
    ("time_based", "1"),
    ("ramp_time", "1"),
    ("startdelay", "1"),
    ("--thinktime", "1ms"),
    ("thinktime", "50"),
    ("thinktime_blocks", "4"),
    ("--rate-iops", "100"),
    ("rate_iops", "100,50"),
    ("--rate", "1m"),
    ("rate", "1m"),
    ("--rate-process", "poisson"),
    ("rate_process", "poisson"),
    ("--fsync", "8"),
    ("fsync", "8"),
    ("--fdatasync", "8"),
    ("fdatasync", "8"),
    ("--sync", "dsync"),
    ("sync", "1"),
    ("--steady-state", "bw:5%"),
    ("steadystate", "iops_slope:0.1%"),
    ("--steady-window", "5s"),
    ("steadystate_duration", "5"),
    ("steadystate_ramp_time", "5"),
    ("steadystate_check_interval", "5"),
    ("--max-latency", "50ms"),
    ("max_latency", "500"),
    ("rate_min", "1m"),
    ("rate_iops_min", "10"),
    ("rate_cycle", "500"),
    ("latency_target", "100"),
    ("latency_window", "100"),
    ("latency_percentile", "99.9"),
    ("latency_run", "1"),
    ("flow", "2"),
    ("flow_id", "2"),
    ("flow_sleep", "100"),
    ("zero_buffers", "1"),
    ("buffer_pattern", "0xff"),
    ("buffer_compress_percentage", "50"),
    ("buffer_compress_chunk", "4k"),
    ("dedupe_percentage", "30"),
    ("dedupe_mode", "working_set"),
    ("dedupe_working_set_percentage", "10"),
    ("dedupe_global", "1"),
    ("mem", "mmaphuge"),
    ("thinktime_blocks_type", "issue"),
    ("group_reporting", "1"),
    ("new_group", "1"),
    ("stats", "0"),
    ("unified_rw_reporting", "both"),
    ("percentile_list", "99:50"),
    ("clat_percentiles", "0"),
    ("lat_percentiles", "1"),
    ("--verify", ""),
    ("verify", "crc32c"),
    ("--verify-backlog", "8"),
    ("verify_backlog", "8"),
    ("--verify-fatal", ""),
    ("verify_fatal", "1"),
    ("do_verify", "0"),
    ("verify_pattern", "0xff%o"),
    ("verify_dump", "1"),
    ("--warm", ""),
    ("pre_read", "1"),
    ("--cache", "64m"),
    ("--page", "16k"),
    ("--readahead", "off"),
    ("--borrow", ""),
    ("--elevator", "deadline"),
    ("--device-depth", "4"),
    ("--engine", "threads"),
    ("--repeat", "5"),
    ("--latency-every", "8"),
    ("--log", "other.log"),
    ("--log-limit", "1m"),
    ("--log-accesses", ""),
    ("directory", "a"),
    ("opendir", "a"),
    ("nrfiles", "4"),
    ("file_service_type", "sequential"),
    ("invalidate", "0"),
    ("fadvise_hint", "random"),
    ("unlink", "1"),
    ("ioscheduler", "none"),
    ("create_only", "1"),
    ("overwrite", "1"),
    ("fallocate", "none"),
    ("end_fsync", "1"),
    ("fsync_on_close", "1"),
    ("latency_from", "submission"),
    ("slat_percentiles", "1"),
    ("filename_format", "a"),
    ("name", "b"),
    ("stonewall", "1"),
    ("wait_for", "a"),
    ("exitall", "1"),
    ("exit_what", "all"),
    ("cpus_allowed", "0,2"),
    ("cpumask", "5"),
    ("cpus_allowed_policy", "split"),
    ("numa_cpu_nodes", "0"),
    ("numa_mem_policy", "bind:0"),
    ("nice", "5"),
    ("lockmem", "1m"),
    ("hipri", "1"),
    ("sqthread_poll", "1"),
    ("sqthread_poll_cpu", "1"),
    ("prio", "4"),
    ("prioclass", "3"),
    ("priohint", "2"),
    ("cmdprio_percentage", "20"),
    ("cmdprio_class", "2"),
    ("cmdprio", "3"),
    ("cmdprio_hint", "2"),
    ("cmdprio_bssplit", "4k/20"),
    ("write_bw_log", "a"),
    ("write_lat_log", "a"),
    ("write_iops_log", "a"),
    ("write_hist_log", "a"),
    ("log_hist_msec", "100"),
    ("log_hist_coarseness", "4"),
    ("log_avg_msec", "100"),
    ("per_job_logs", "0"),
    ("log_offset", "1"),
    ("log_prio", "1"),
];

/// Keys that accept the values with which iopath agrees, and set nothing.
const ONLY_CHECKED: [(&str, &str); 4] =
    [("iomem_align", "512"), ("fill_device", "1"), ("iodepth_batch_complete_max", "16"), ("kb_base", "1000")];

/// Settings in which each option can have an effect: some refine others.
fn base() -> Settings {
    let mut settings = Settings::default();
    let range = crate::shape::Sizes::range(4096, 16384, true).unwrap();
    settings.sizes = [range.clone(), range];
    of_name("log").unwrap().set(&mut settings, &Given::on_command_line(OsStr::new("base.log"))).unwrap();
    settings
}

/// The settings after a value of a flag or key.
fn after(name: &str, value: &str) -> String {
    let mut settings = base();
    let set = if let Some(flag) = name.strip_prefix("--") {
        of_name(flag).unwrap().set(&mut settings, &Given::on_command_line(OsStr::new(value)))
    } else {
        let given = Given::in_job_file(Some(value), KbBase::Binary);
        of_key(name).unwrap_or_else(|| panic!("{name}")).set(&mut settings, &given)
    };
    set.unwrap_or_else(|refused| panic!("{name}={value}: {refused}"));
    format!("{settings:?}")
}

#[test]
fn each_flag_and_each_key_of_the_table_has_a_value_here_that_changes_the_settings() {
    let unchanged = format!("{:?}", base());
    for (name, value) in VALUES {
        assert_ne!(after(name, value), unchanged, "{name}={value}");
    }
    for (name, value) in ONLY_CHECKED {
        assert_eq!(after(name, value), unchanged, "{name}={value}");
    }
    let names = options().flat_map(|row| row.flag.into_iter().chain(row.key.map(|key| key.names[0])));
    let known: Vec<&str> = VALUES.iter().chain(&ONLY_CHECKED).map(|(name, _)| *name).collect();
    for name in names {
        assert!(known.contains(&name), "{name} has no value in this test; add one");
    }
}

#[test]
fn a_neutral_value_of_a_job_replaces_the_value_of_global() {
    let rows = options().filter_map(|row| Some((row, row.key?)));
    for (row, key) in rows.filter(|(_, key)| !key.neutral.is_empty()) {
        let (_, value) = VALUES.iter().find(|(name, _)| *name == key.names[0]).unwrap();
        for neutral in key.neutral {
            let mut settings = base();
            for value in [value, neutral] {
                row.set(&mut settings, &Given::in_job_file(Some(value), KbBase::Binary)).unwrap();
            }
            assert_eq!(
                format!("{settings:?}"),
                format!("{:?}", base()),
                "{}={value}, then {neutral}",
                key.names[0]
            );
        }
    }
}

#[test]
fn the_kinds_of_flushes_are_independent_keys() {
    let mut settings = Settings::default();
    for (key, value) in [("fdatasync", "1"), ("fsync", "0")] {
        of_key(key).unwrap().set(&mut settings, &Given::in_job_file(Some(value), KbBase::Binary)).unwrap();
    }
    let workload = settings.to_workload(4096).unwrap();
    assert!(workload.flush_every.is_some() && !workload.flush_all);
    of_key("fsync").unwrap().set(&mut settings, &Given::in_job_file(Some("2"), KbBase::Binary)).unwrap();
    assert!(settings.to_workload(4096).unwrap().flush_all);
}

#[test]
fn sizes_do_not_depend_on_the_order_of_their_keys() {
    let shape = |keys: &[(&str, &str)]| {
        let mut settings = Settings::default();
        for (key, value) in keys {
            of_key(key)
                .unwrap()
                .set(&mut settings, &Given::in_job_file(Some(value), KbBase::Binary))
                .unwrap();
        }
        settings.shape(None)
    };
    let [range, unaligned] = [("bsrange", "4k-16k"), ("bs_unaligned", "1")];
    assert_eq!(shape(&[range, unaligned]), shape(&[unaligned, range]));
    assert_ne!(shape(&[range, unaligned]), shape(&[range]));
    // An empty part keeps the size before it; of several with colons, the last one counts.
    let sizes = |values: &[&str]| {
        let mut settings = Settings::default();
        for value in values {
            of_key("bs")
                .unwrap()
                .set(&mut settings, &Given::in_job_file(Some(value), KbBase::Binary))
                .unwrap();
        }
        settings.sizes.map(|sizes| sizes.max())
    };
    assert_eq!(sizes(&["64k", ",8k"]), [65536, 8192]);
    assert_eq!(sizes(&["4k:8k"]), [8192, 8192]);
}

#[test]
fn values_that_fio_does_not_take_are_none() {
    let includes =
        |values: Values, text: &str| Given::in_job_file(Some(text), KbBase::Binary).is_among(values);
    for (values, valid, invalid) in [
        (Values::Text, &["x", "0"][..], &[""][..]),
        (Values::Flag, &["0", "1"], &["2", "yes", ""]),
        (Values::Number, &["0", "4k", "-1"], &["many", "", "-"]),
        (Values::Range(1, 10), &["1", "10"], &["0", "11", "-1", "many"]),
        (Values::Names(&["none", "all"]), &["none", "all"], &["some", ""]),
        (Values::Errors, &["EIO", "EIO:ENOSPC,5,EIO"], &["eio", "some"]),
        (Values::Cpus, &["0,2-3"], &["all", ""]),
        (Values::Percentiles, &["50", "99:50:99.99"], &["101", "-1", "50:", "a:b", "NaN", ""]),
    ] {
        for text in valid {
            assert!(includes(values, text), "{values:?} {text}");
        }
        for text in invalid {
            assert!(!includes(values, text), "{values:?} {text}");
        }
    }
    assert!(Given::in_job_file(None, KbBase::Binary).is_among(Values::Flag), "a key alone is 1");
}
