//! `unplug`: sequential reads through the page cache of a remote target; a reader that unplugs after readahead, and
//! smaller requests.

use iopath_report::experiment::{Direction, Parameter, Report, Row, Settings};

use super::error::ExperimentError;
use super::loop_reads::{Reads, Top};
use super::on_target::TargetRun;
use super::published::published;
use super::remote::{Constants, MODEL, Reader, SETUP, Setup, is_calibrated, size, throughput};
use super::row::{Experiment, OnTarget};

pub(super) static ROW: Experiment = Experiment {
    id: "unplug",
    title: "a reader that unplugs, and requests of 64 KiB, at a remote target",
    published: "dd reads 1 GiB from a remote target, with readahead 128 or 512 KiB, max_sectors 64 or 512 KiB and blocks of \
                16 KiB to 64 MiB. Unplugging after readahead is up to 9% faster at large blocks; max_sectors 64 KiB raises \
                204 MiB/s to 254 at 64 MiB blocks (Hifumi, Moesbergen, Bolkhovitin, LKML, 2009).",
    parameters: &PARAMETERS,
    run,
    on_target: Some(OnTarget::Reads(on_target)),
};

const PARAMETERS: [Parameter; SETUP.len() + MODEL.len()] = {
    let mut all = [SETUP[0]; SETUP.len() + MODEL.len()];
    let mut index = 0;
    while index < all.len() {
        all[index] = if index < SETUP.len() { SETUP[index] } else { MODEL[index - SETUP.len()] };
        index += 1;
    }
    all
};

/// Large blocks, as an exponent of two: 1 MiB to 64 MiB.
const LARGE: std::ops::RangeInclusive<u32> = 20..=26;

/// The minimum mean gain that counts as faster. The published pairs of rows have 3.7%.
const FASTER: f64 = 0.01;

fn run(settings: &Settings) -> Result<Report, ExperimentError> {
    if ["queue", "readahead_kib", "max_sectors_kib", "bs_bytes"].iter().any(|name| settings.is_set(name)) {
        return one(settings, Setup::of(settings));
    }
    let mut report = Report::default();
    let mut deviations = Vec::new();
    let table = published("readahead");
    for record in table.records() {
        let setup = Setup {
            is_patched: record.text("queue") == "patched",
            readahead_kib: record.number("readahead_kib") as u64,
            max_sectors_kib: record.number("max_sectors_kib") as u64,
            block_bytes: record.number("block_bytes") as u64,
        };
        let row = row(settings, setup, record.number("mean_mib_per_s"))?;
        if row.is_prediction() {
            deviations.extend(row.deviation().map(f64::abs));
        }
        report.rows.push(row);
    }
    let of = |is_patched, readahead_kib, max_sectors_kib, block_bytes| {
        let what = name(Setup { is_patched, readahead_kib, max_sectors_kib, block_bytes });
        report.rows.iter().find(|row| row.what == what).map_or(0.0, |row| row.ours)
    };
    let gains = LARGE.map(|bits| of(true, 512, 512, 1 << bits) / of(false, 512, 512, 1 << bits) - 1.0);
    let mean_gain = gains.sum::<f64>() / LARGE.count() as f64;
    report.directions = vec![
        Direction::new(
            format!(
                "with blocks of 1 MiB to 64 MiB, unplugging after readahead is faster: 1% or more in the mean (ours {:+.1}%)",
                mean_gain * 100.0
            ),
            mean_gain >= FASTER,
        ),
        Direction::new(
            "at blocks of 64 MiB, max_sectors 64 KiB is faster than 512 KiB",
            of(false, 512, 64, 64 << 20) > of(false, 512, 512, 64 << 20),
        ),
        Direction::new(
            "at blocks of 64 MiB, readahead 512 KiB is faster than 128 KiB",
            of(false, 512, 512, 64 << 20) > of(false, 128, 512, 64 << 20),
        ),
    ];
    let (count, within) =
        (deviations.len(), deviations.iter().filter(|deviation| **deviation <= 0.25).count());
    let mean = deviations.iter().sum::<f64>() / count.max(1) as f64;
    let max = deviations.iter().copied().fold(0.0, f64::max);
    report.notes = vec![
        format!(
            "Each of five constants is calibrated on one line of the table. The other {count} lines are predictions: mean \
             deviation {:.0}%, maximum {:.0}%, {within} within 25%.",
            mean * 100.0,
            max * 100.0
        ),
        "The table has the form of the results of scripts/blockdev-perftest of SCST, which reads with `dd iflag=direct` unless \
         set otherwise. So the reading machine has no page cache, max_sectors limits its commands, and readahead is that of \
         the target. The available copies of the thread name neither the options of the run nor the transport and the array."
            .to_owned(),
        "Missing: the gain of the patch. In the model, each wait already unplugs the queue, so few windows wait for the plug, \
         even if completions do not unplug it (`--set completion=waits`). Also missing is a limit of commands of 512 KiB at blocks of 16 MiB and more: \
         see `dip` for blocks of 512 KiB and 1 MiB. Such a limit would follow from PDUs of 256 KiB that wait for each other \
         (`--set data_in=waits --set status=own`), but the code of the target contradicts it."
            .to_owned(),
    ];
    Ok(report)
}

/// The prediction for one setting.
fn one(settings: &Settings, setup: Setup) -> Result<Report, ExperimentError> {
    let table = published("readahead");
    let queue = if setup.is_patched { "patched" } else { "unpatched" };
    let (readahead, max_sectors, block) =
        (setup.readahead_kib.to_string(), setup.max_sectors_kib.to_string(), setup.block_bytes.to_string());
    let record = table.find(&[
        ("queue", queue),
        ("readahead_kib", &readahead),
        ("max_sectors_kib", &max_sectors),
        ("block_bytes", &block),
    ]);
    let row = match record {
        Some(record) => row(settings, setup, record.number("mean_mib_per_s"))?,
        None => Row::unpublished(
            name(setup),
            "MiB/s",
            throughput(&Constants::of(settings), setup, Reader::Direct)?,
        ),
    };
    Ok(Report { rows: vec![row], ..Report::default() })
}

/// Reads real storage with the settings of the table, at the block size of the parameter.
fn on_target(target: &mut TargetRun<'_>) -> Result<Report, ExperimentError> {
    let block_bytes = target.settings().count("bs_bytes");
    let reads = Reads::prepare(target)?;
    let kernel = |readahead_kib, max_sectors_kib| Top::Kernel { readahead_kib, max_sectors_kib };
    let mut rates = Vec::new();
    for top in [kernel(128, 512), kernel(512, 512), kernel(512, 64), Top::Iopath] {
        rates.push(reads.mib_per_s(target, top, block_bytes)?);
    }
    let block = size(block_bytes);
    let names = [
        "readahead 128 KiB, max_sectors 512 KiB, kernel",
        "readahead 512 KiB, max_sectors 512 KiB, kernel",
        "readahead 512 KiB, max_sectors 64 KiB, kernel",
        "readahead of iopath, which unplugs at once",
    ];
    let rows = names.iter().zip(&rates).filter_map(|(name, rate)| {
        rate.map(|rate| Row::unpublished(format!("{name}, {block} blocks"), "MiB/s", rate))
    });
    let mut report = Report { rows: rows.collect(), notes: reads.notes(), ..Report::default() };
    if let [Some(small), Some(large), Some(pieces), Some(ours)] = rates[..] {
        report.directions = vec![
            Direction::new(
                format!("at blocks of {block}, max_sectors 64 KiB is faster than 512 KiB"),
                pieces > large,
            ),
            Direction::new(
                format!("at blocks of {block}, readahead 512 KiB is faster than 128 KiB"),
                large > small,
            ),
            Direction::new(
                format!(
                    "at blocks of {block}, the readahead of iopath is at least as fast as each of the kernel's"
                ),
                ours >= small.max(large).max(pieces),
            ),
        ];
    }
    Ok(report)
}

fn row(settings: &Settings, setup: Setup, published: f64) -> Result<Row, ExperimentError> {
    let ours = throughput(&Constants::of(settings), setup, Reader::Direct)?;
    let row = if is_calibrated(setup) { Row::calibrated } else { Row::predicted };
    Ok(row(name(setup), "MiB/s", published, ours))
}

fn name(setup: Setup) -> String {
    format!(
        "{}, readahead {} KiB, max_sectors {} KiB, {} blocks",
        if setup.is_patched { "patched" } else { "unpatched" },
        setup.readahead_kib,
        setup.max_sectors_kib,
        size(setup.block_bytes),
    )
}

#[cfg(test)]
mod tests {
    use iopath_report::experiment::ParameterKind;
    use iopath_report::experiment::Verdict;

    use super::*;
    use crate::suite::{Selection, experiments};
    use iopath_bench::progress::Silent;

    fn report(overrides: &[&str]) -> Report {
        let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
        run(&Settings::new(&PARAMETERS, &overrides).unwrap()).unwrap()
    }

    #[test]
    fn most_lines_of_the_table_are_predicted_within_a_quarter() {
        let report = report(&["size_mib=64"]);
        assert_eq!((report.rows.len(), report.predictions().count()), (65, 60));
        let within = report.predictions().filter(|row| row.is_within()).count();
        assert!(within * 4 >= report.predictions().count() * 3, "{within} within 25%: {report:#?}");
        assert_eq!(report.verdict(), Some(Verdict::Partly), "{report:#?}");
    }

    #[test]
    fn idling_between_contexts_makes_the_table() {
        let report = report(&["size_mib=64", "idle_ms=0"]);
        let within = report.predictions().filter(|row| row.is_within()).count();
        assert!(within * 2 < report.predictions().count(), "{within} within 25%: {report:#?}");
    }

    #[test]
    fn a_setting_that_is_not_published_is_predicted() {
        let report = report(&["size_mib=64", "queue=patched", "readahead=2m", "max_sectors=64k", "bs=64m"]);
        let [row] = &report.rows[..] else { panic!("{report:?}") };
        assert_eq!(row.what, "patched, readahead 2048 KiB, max_sectors 64 KiB, 64 MiB blocks");
        assert!(row.published.is_none() && row.ours > 100.0, "{row:?}");
    }

    #[test]
    fn the_patch_has_little_effect_even_if_completions_do_not_unplug() {
        let rate = |queue: &str| {
            let set =
                ["size_mib=256", "completion=waits", "bs=64m", &format!("queue={queue}")].map(str::to_owned);
            run(&Settings::new(&PARAMETERS, &set).unwrap()).unwrap().rows[0].ours
        };
        let gain = rate("patched") / rate("unpatched") - 1.0;
        assert!(gain.abs() < 0.037, "{gain}: no longer excluded, see docs/experiments.md");
    }

    #[test]
    fn only_pdus_that_wait_for_each_other_make_small_commands_faster() {
        let gain = |data_in: &str, status: &str| {
            let rate = |max_sectors_kib: u32| {
                let set = [
                    "size_mib=256",
                    "bs=64m",
                    &format!("max_sectors_kib={max_sectors_kib}"),
                    data_in,
                    status,
                ];
                let set = set.map(str::to_owned);
                run(&Settings::new(&PARAMETERS, &set).unwrap()).unwrap().rows[0].ours
            };
            rate(64) / rate(512) - 1.0
        };
        let (streams, waits) =
            (gain("data_in=streams", "status=in-data"), gain("data_in=waits", "status=own"));
        assert!(streams < 0.0 && waits > 0.1, "{streams} and {waits}: see docs/experiments.md");
    }

    /// The ends of the range of a parameter.
    fn ends(parameter: &Parameter) -> Vec<String> {
        let values: Vec<String> = match parameter.kind {
            ParameterKind::Count { range: (least, most), .. } => {
                [least, most].map(|value| value.to_string()).into()
            }
            ParameterKind::Number { range: (least, most), .. } => {
                [least, most].map(|value| value.to_string()).into()
            }
            ParameterKind::Choice(values) => values.iter().map(|value| (*value).to_owned()).collect(),
        };
        values.into_iter().map(|value| format!("{}={value}", parameter.name)).collect()
    }

    #[test]
    fn each_end_of_each_range_has_a_rate() {
        let named = |name: &str| ends(PARAMETERS.iter().find(|parameter| parameter.name == name).unwrap());
        let single = PARAMETERS.iter().filter(|parameter| parameter.name != "size_mib").flat_map(ends);
        let mut sets: Vec<Vec<String>> = single.map(|end| vec![end, "queue=patched".to_owned()]).collect();
        for readahead in named("readahead_kib") {
            for max_sectors in named("max_sectors_kib") {
                for block in named("bs_bytes") {
                    sets.push(vec![readahead.clone(), max_sectors.clone(), block]);
                }
            }
        }
        for mut set in sets {
            if set[0].starts_with("queue") {
                set.pop();
            }
            set.push("size_mib=16".to_owned());
            let report = run(&Settings::new(&PARAMETERS, &set).unwrap()).unwrap();
            let [row] = &report.rows[..] else { panic!("{set:?}: {report:?}") };
            assert!(row.ours.is_finite() && row.ours > 0.0, "{set:?}: {row:?}");
        }
    }

    #[test]
    fn values_outside_of_a_range_and_blocks_that_are_not_aligned_are_refused_by_name() {
        for parameter in &PARAMETERS {
            for value in ["", "-1", "nan", "inf", "x", "99999999999999999999"] {
                let error = Settings::new(&PARAMETERS, &[format!("{}={value}", parameter.name)]).unwrap_err();
                assert!(error.to_string().contains(parameter.name), "{value}: {error}");
            }
        }
        for set in ["readahead=0", "max_sectors=0", "bs=0", "bs=4095", "bs=1025m", "readahead=65537"] {
            assert!(Settings::new(&PARAMETERS, &[set.to_owned()]).is_err(), "{set}");
        }
        let set = vec!["bs=5000".to_owned()];
        let selection = Selection { ids: vec!["unplug".to_owned()], set, target: None };
        let error = experiments(&selection, &mut Silent).unwrap_err();
        let text = error.to_string();
        assert!(
            error.is_usage() && text.contains("bs_bytes=5000") && text.contains("multiple of 512"),
            "{text}"
        );
    }
}
