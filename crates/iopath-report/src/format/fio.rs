//! The formats of fio for `iopath fio`: its text (`normal`), its lines with semicolons (`terse`) and its JSON. All show
//! the figures of `fio_json.rs`. Figures that iopath does not measure are left out of the text, and 0 in the lines.

use std::fmt::Write;

use serde_json::Value;

use super::fio_entries::entries;
use super::fio_json;
pub use super::fio_json::Bins;
use crate::result::Report;

/// The directions with their names in the text, in the summary, and in the JSON. An entry has some of them.
const DIRECTIONS: [[&str; 3]; 4] = [
    ["  read", "   READ", "read"],
    [" write", "  WRITE", "write"],
    ["  trim", "   TRIM", "trim"],
    [" mixed", "  MIXED", "mixed"],
];

/// The classes of latencies of a line: µs, then ms.
const CLASSES: [&str; 10] = ["2", "4", "10", "20", "50", "100", "250", "500", "750", "1000"];

/// The percentiles of a line.
const PLACES: usize = 20;

/// The JSON of fio.
///
/// # Panics
/// Never: JSON can represent all values.
pub fn json(report: &Report, bins: Bins) -> String {
    let root = fio_json::root_now(report, &entries(report), bins);
    serde_json::to_string_pretty(&root).expect("JSON can represent all values") + "\n"
}

/// The text of fio.
pub fn normal(report: &Report) -> String {
    let entries = entries(report);
    let root = fio_json::root_now(report, &entries, Bins::No);
    let jobs = || root["jobs"].as_array().into_iter().flatten();
    let mut text = String::new();
    for (job, entry) in jobs().zip(&entries) {
        let _ = writeln!(
            text,
            "{}: (groupid={}, jobs={}): err= 0: pid={}: {}",
            string(&job["jobname"]),
            whole(&job["groupid"]),
            entry.jobs,
            std::process::id(),
            string(&root["time"]),
        );
        for [title, _, direction] in DIRECTIONS {
            add_direction(&mut text, title, &job[direction]);
        }
        add_flushes(&mut text, &job["sync"]);
        for (unit, key) in [("nsec", "latency_ns"), ("usec", "latency_us"), ("msec", "latency_ms")] {
            add_classes(&mut text, unit, &job[key]);
        }
        let _ = writeln!(
            text,
            "  cpu          : usr={:.2}%, sys={:.2}%, ctx={}",
            number(&job["usr_cpu"]),
            number(&job["sys_cpu"]),
            whole(&job["ctx"]),
        );
        // As in fio, the only section counts as reads.
        let only = if job["read"].is_null() { "mixed" } else { "read" };
        let total = |direction: &str| whole(&job[direction]["total_ios"]);
        let _ = writeln!(
            text,
            "     issued rwts: total={},{},{},0 short=0,0,0,0 dropped=0,0,0,0",
            total(only),
            total("write"),
            total("trim"),
        );
    }
    let mut groups: Vec<u64> = jobs().map(|job| whole(&job["groupid"])).collect();
    groups.dedup();
    for group in groups {
        let _ = writeln!(text, "\nRun status group {group} (all jobs):");
        for [_, title, direction] in DIRECTIONS {
            let parts = jobs().filter(|job| whole(&job["groupid"]) == group).map(|job| &job[direction]);
            add_summary(
                &mut text,
                title,
                &parts.filter(|part| whole(&part["total_ios"]) > 0).collect::<Vec<_>>(),
            );
        }
    }
    add_disks(&mut text, &root["disk_util"]);
    text
}

/// The transfers of disks.
fn add_disks(text: &mut String, disks: &Value) {
    let used = disks.as_array().into_iter().flatten().filter(|disk| !disk["util"].is_null());
    for (number, disk) in used.enumerate() {
        if number == 0 {
            text.push_str("\nDisk stats (read/write):\n");
        }
        let both = |reads: &str, writes: &str| format!("{}/{}", whole(&disk[reads]), whole(&disk[writes]));
        let _ = writeln!(
            text,
            "  {}: ios={}, merge={}, ticks={}, in_queue={}, util={:.2}%",
            string(&disk["name"]),
            both("read_ios", "write_ios"),
            both("read_merges", "write_merges"),
            both("read_ticks", "write_ticks"),
            whole(&disk["in_queue"]),
            self::number(&disk["util"]),
        );
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

fn whole(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn add_direction(text: &mut String, title: &str, part: &Value) {
    if whole(&part["total_ios"]) == 0 {
        return;
    }
    let bytes_per_second = number(&part["bw_bytes"]);
    let _ = writeln!(
        text,
        "{title}: IOPS={}, BW={}/s ({}/s)({}/{}msec)",
        short(number(&part["iops"]), 1000.0, ["", "k", "M", "G", "T"]),
        binary(bytes_per_second),
        decimal(bytes_per_second),
        binary(number(&part["io_bytes"])),
        whole(&part["runtime"]),
    );
    if whole(&part["slat_ns"]["N"]) > 0 {
        add_latency(text, "    slat", &part["slat_ns"]);
    }
    add_latency(text, "    clat", &part["clat_ns"]);
    add_latency(text, "     lat", &part["lat_ns"]);
    add_percentiles(text, "slat", &part["slat_ns"]);
    add_percentiles(text, "clat", &part["clat_ns"]);
    add_percentiles(text, " lat", &part["lat_ns"]);
    let [least, most] = ["bw_min", "bw_max"].map(|key| whole(&part[key]));
    let _ = writeln!(
        text,
        "   bw (  KiB/s): min={least:>5}, max={most:>5}, per=100.00%, avg={:.2}, stdev={:.2}, samples={}",
        number(&part["bw_mean"]),
        number(&part["bw_dev"]),
        whole(&part["bw_samples"]),
    );
    let [least, most] = ["iops_min", "iops_max"].map(|key| whole(&part[key]));
    let _ = writeln!(
        text,
        "   iops        : min={least:>5}, max={most:>5}, avg={:.2}, stdev={:.2}, samples={}",
        number(&part["iops_mean"]),
        number(&part["iops_stddev"]),
        whole(&part["iops_samples"]),
    );
}

fn add_flushes(text: &mut String, sync: &Value) {
    if whole(&sync["total_ios"]) > 0 {
        text.push_str("  fsync/fdatasync/sync_file_range:\n");
        add_latency(text, "    sync", &sync["lat_ns"]);
        add_percentiles(text, "sync", &sync["lat_ns"]);
    }
}

/// The unit in which fio shows latencies: nanoseconds unless all figures are large.
fn unit(latency: &Value) -> (&'static str, f64) {
    let [least, most] = ["min", "max"].map(|key| number(&latency[key]));
    match (least, most) {
        (least, most) if least > 2e6 && most > 99_999_999.0 => ("msec", 1e6),
        (least, most) if least > 2e3 && most > 99_999.0 => ("usec", 1e3),
        _ => ("nsec", 1.0),
    }
}

fn add_latency(text: &mut String, title: &str, latency: &Value) {
    let (name, scale) = unit(latency);
    let [least, most] = ["min", "max"].map(|key| {
        let scaled = (number(&latency[key]) / scale).floor();
        if scaled < 1e6 { format!("{scaled}") } else { format!("{:.1}k", scaled / 1e3) }
    });
    let _ = writeln!(
        text,
        "{title} ({name}): min={least}, max={most}, avg={:.2}, stdev={:.2}",
        number(&latency["mean"]) / scale,
        number(&latency["stddev"]) / scale,
    );
}

/// The percentiles in rising order, in units of so many nanoseconds.
fn percentiles(latency: &Value, scale: f64) -> Vec<(f64, u64)> {
    let all = latency["percentile"].as_object().into_iter().flatten();
    let one = |(percent, ns): (&String, &Value)| Some((percent.parse().ok()?, (number(ns) / scale) as u64));
    let mut all: Vec<(f64, u64)> = all.filter_map(one).collect();
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    all
}

fn add_percentiles(text: &mut String, title: &str, latency: &Value) {
    let (name, scale) = unit(latency);
    let all = percentiles(latency, scale);
    if all.is_empty() {
        return;
    }
    let width = all.iter().map(|(_, value)| value.to_string().len()).max().unwrap_or(1).max(5);
    let digits = all.iter().map(|(percent, _)| digits_of(*percent)).max().unwrap_or(0);
    let all_digits = digits + if digits > 0 { 3 } else { 2 };
    let _ = writeln!(text, "    {title} percentiles ({name}):");
    for row in all.chunks(4) {
        let one =
            |(percent, value): &(f64, u64)| format!("{percent:>all_digits$.digits$}th=[{value:>width$}]");
        let end = if row.last() == all.last() { "" } else { "," };
        let _ = writeln!(text, "     | {}{end}", row.iter().map(one).collect::<Vec<_>>().join(", "));
    }
}

/// The digits of a percentile after its point.
fn digits_of(percent: f64) -> usize {
    percent.to_string().split_once('.').map_or(0, |(_, digits)| digits.len())
}

fn add_classes(text: &mut String, unit: &str, classes: &Value) {
    let Some(classes) = classes.as_object() else { return };
    let mut used: Vec<(u64, String)> = classes
        .iter()
        .filter(|(_, percent)| number(percent) > 0.0)
        .map(|(bound, percent)| {
            let order = bound.trim_start_matches(">=").parse().unwrap_or(u64::MAX)
                + u64::from(bound.starts_with('>'));
            (order, format!("{bound}={:.2}%", number(percent)))
        })
        .collect();
    used.sort();
    for row in used.chunks(5) {
        let row: Vec<&str> = row.iter().map(|(_, text)| text.as_str()).collect();
        let _ = writeln!(text, "  lat ({unit})   : {}", row.join(", "));
    }
}

fn add_summary(text: &mut String, title: &str, parts: &[&Value]) {
    if parts.is_empty() {
        return;
    }
    let rates = || parts.iter().map(|part| number(&part["bw_bytes"]));
    let times = || parts.iter().map(|part| whole(&part["runtime"]));
    let bytes: f64 = parts.iter().map(|part| number(&part["io_bytes"])).sum();
    let [sum, least, most] = [rates().sum(), rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max)];
    let _ = writeln!(
        text,
        "{title}: bw={}/s ({}/s), {}/s-{}/s ({}/s-{}/s), io={} ({}), run={}-{}msec",
        binary(sum),
        decimal(sum),
        binary(least),
        binary(most),
        decimal(least),
        decimal(most),
        binary(bytes),
        decimal(bytes),
        times().min().unwrap_or(0),
        times().max().unwrap_or(0),
    );
}

fn binary(bytes: f64) -> String {
    short(bytes / 1024.0, 1024.0, ["KiB", "MiB", "GiB", "TiB", "PiB"])
}

fn decimal(bytes: f64) -> String {
    short(bytes / 1e3, 1e3, ["kB", "MB", "GB", "TB", "PB"])
}

/// A number of at most four characters with its unit, as in fio.
fn short(mut value: f64, base: f64, units: [&str; 5]) -> String {
    let mut unit = 0;
    while value >= 9999.5 && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$}{}", units[unit])
}

/// The lines of fio with semicolons, one for each job, in the format of this version: 2 to 5.
pub fn terse(report: &Report, version: u8) -> String {
    let entries = entries(report);
    let root = fio_json::root_now(report, &entries, Bins::No);
    let mut text = String::new();
    for (job, entry) in root["jobs"].as_array().into_iter().flatten().zip(&entries) {
        let mut fields = vec![version.to_string()];
        fields.extend((version > 2).then(|| string(&root["fio version"]).to_owned()));
        fields.push(string(&job["jobname"]).replace(';', "_"));
        fields.extend([whole(&job["groupid"]).to_string(), "0".to_owned()]);
        for [.., direction] in &DIRECTIONS {
            if !job[*direction].is_null() && (version != 3 || *direction != "trim") {
                terse_direction(&mut fields, &job[*direction], version);
            }
        }
        let percent = |value: f64| format!("{value:.6}%");
        fields.extend([percent(number(&job["usr_cpu"])), percent(number(&job["sys_cpu"]))]);
        fields.extend([whole(&job["ctx"]).to_string(), "0".to_owned(), "0".to_owned()]);
        // The class of its depth has all transfers.
        let class = (entry.first.io_depth.max(1).ilog2() as usize).min(6);
        fields.extend((0..7).map(|one| if one == class { "100.0%".to_owned() } else { "0.0%".to_owned() }));
        let of_class = |key: &str, class: &str| format!("{:.2}%", number(&job[key][class]));
        fields.extend(CLASSES.map(|class| of_class("latency_us", class)));
        fields.extend(CLASSES.iter().chain(&["2000", ">=2000"]).map(|class| of_class("latency_ms", class)));
        text.push_str(&fields.join(";"));
        text.push('\n');
    }
    text
}

fn terse_direction(fields: &mut Vec<String>, part: &Value, version: u8) {
    let micros = |value: &Value| format!("{}", (number(value) / 1e3) as u64);
    let micros_exact = |value: &Value| format!("{:.6}", number(value) / 1e3);
    let four = |latency: &Value| {
        [
            micros(&latency["min"]),
            micros(&latency["max"]),
            micros_exact(&latency["mean"]),
            micros_exact(&latency["stddev"]),
        ]
    };
    fields.extend(["io_kbytes", "bw"].map(|key| whole(&part[key]).to_string()));
    fields.extend([(number(&part["iops"]) as u64).to_string(), whole(&part["runtime"]).to_string()]);
    fields.extend(four(&part["slat_ns"]));
    fields.extend(four(&part["clat_ns"]));
    let percentiles = percentiles(&part["clat_ns"], 1e3);
    let shown = percentiles.iter().map(|(percent, micros)| format!("{percent:.6}%={micros}"));
    fields.extend(shown.chain(std::iter::repeat("0%=0".to_owned())).take(PLACES));
    fields.extend(four(&part["lat_ns"]));
    let exact = |key: &str| format!("{:.6}", number(&part[key]));
    fields.extend(["bw_min", "bw_max"].map(|key| whole(&part[key]).to_string()));
    fields.extend([format!("{}%", exact("bw_agg")), exact("bw_mean"), exact("bw_dev")]);
    if version == 5 {
        fields.extend(["bw_samples", "iops_min", "iops_max"].map(|key| whole(&part[key]).to_string()));
        fields.extend([exact("iops_mean"), exact("iops_stddev"), whole(&part["iops_samples"]).to_string()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_characters_at_most_as_in_fio() {
        let iops = |value| short(value, 1000.0, ["", "k", "M", "G", "T"]);
        assert_eq!(
            [2_048_000.0, 984_234.0, 98_765.0, 9876.4, 12.0].map(iops),
            ["2048k", "984k", "98.8k", "9876", "12"]
        );
        let mib = f64::from(1 << 20);
        assert_eq!(
            [8000.0 * mib, 13_517.0 * mib, 104.0 * mib, 1024.0].map(binary),
            ["8000MiB", "13.2GiB", "104MiB", "1KiB"]
        );
        assert_eq!(decimal(8_388_608_000.0), "8389MB");
    }

    #[test]
    fn the_unit_of_latencies_is_that_of_fio() {
        let of = |min: u64, max: u64| unit(&serde_json::json!({ "min": min, "max": max })).0;
        assert_eq!(
            [of(25, 13_748), of(3_000, 200_000), of(3_000_000, 200_000_000)],
            ["nsec", "usec", "msec"]
        );
    }
}
