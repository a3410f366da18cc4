//! The machine and settings of a result, and the commands. Does not draw.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::parts::{command, facts};
use crate::numbers::digits;
use crate::result::{Clock, Host, Report, TargetFacts};
use crate::size::format_size;

/// The machine, the targets and the settings.
pub(super) fn conditions(report: &Report) -> Markup {
    let mut rows: Vec<(&str, String)> = Vec::new();
    if report.clock == Clock::Virtual {
        rows.push((
            "clock",
            "virtual time: the storage is a model, and the result does not depend on the machine".to_owned(),
        ));
    }
    if let Some(origin) = &report.origin {
        rows.push(("measured", format!("{}, by {} {}", origin.started, origin.tool, origin.version)));
    }
    rows.extend(report.host.iter().flat_map(host_facts));
    for target in report.target.iter().chain(&report.more_targets) {
        rows.extend(target_facts(target));
    }
    let mut settings: Vec<String> = Vec::new();
    for run in &report.runs {
        settings.extend(run.cache.as_ref().map(|cache| {
            let borrow = if cache.borrow { ", borrowed pages" } else { "" };
            format!(
                "iopath's page cache of {}, pages of {}, readahead {}{borrow}",
                format_size(cache.cache_bytes),
                format_size(cache.page_bytes.into()),
                cache.readahead
            )
        }));
        settings.extend(
            run.model_host
                .as_ref()
                .map(|host| format!("modelled host {} with {} CPUs", host.name, host.cpus)),
        );
        settings.extend(
            (run.latency_every > 1).then(|| format!("latency of one transfer in {}", run.latency_every)),
        );
    }
    settings.sort();
    settings.dedup();
    rows.extend(settings.into_iter().map(|setting| ("setting", setting)));
    let repeats = report.runs.iter().map(|run| run.repeats.len());
    let (least, most) = (repeats.clone().min().unwrap_or(0), repeats.max().unwrap_or(0));
    rows.push(("repetitions", if least == most { most.to_string() } else { format!("{least} to {most}") }));
    facts(&rows)
}

/// The machine and the target of a sweep.
pub(super) fn machine_and_target(host: Option<&Host>, target: Option<&TargetFacts>) -> Markup {
    facts(
        &host
            .into_iter()
            .flat_map(host_facts)
            .chain(target.into_iter().flat_map(target_facts))
            .collect::<Vec<_>>(),
    )
}

fn host_facts(host: &Host) -> Vec<(&'static str, String)> {
    let busy = host.idle_busy_cpus.map(|busy| format!("{} CPUs busy before the first run", digits(busy)));
    vec![
        ("kernel", host.kernel.clone()),
        ("CPU", format!("{}, {} in use", host.cpu, host.cores)),
        ("memory", format_size(host.memory_bytes)),
        ("other load", busy.unwrap_or_default()),
    ]
}

/// A command and its arguments, as a shell takes them.
pub(super) fn command_line(command: &str, arguments: &[String]) -> Markup {
    let words: Vec<String> = arguments.iter().map(|word| quoted(word)).collect();
    super::parts::command(format!("{command} {}", words.join(" ")).trim())
}

fn target_facts(target: &TargetFacts) -> Vec<(&'static str, String)> {
    let scratch = if target.scratch { "scratch " } else { "" };
    let filesystem = target.filesystem.as_ref().map_or_else(String::new, |name| format!(" on {name}"));
    let mut rows = vec![
        ("target", target.path.clone()),
        ("kind", format!("{scratch}{} of {}{filesystem}", target.kind, format_size(target.size_bytes))),
    ];
    let align = target.direct_align_bytes.map(|bytes| format!("aligned to {}", format_size(bytes.into())));
    if target.kind != "model" {
        rows.push(("direct I/O", align.unwrap_or_else(|| "refused".to_owned())));
    }
    if let Some(disk) = &target.disk {
        let model = disk.model.as_ref().map_or_else(String::new, |model| format!(" ({})", model.trim()));
        let rotational = match disk.rotational {
            Some(true) => ", rotational",
            Some(false) => ", not rotational",
            None => "",
        };
        rows.push(("disk", format!("{}{model}{rotational}", disk.name)));
        rows.push(("I/O scheduler", disk.scheduler.clone().unwrap_or_default()));
        let kib =
            |value: Option<u64>| value.map_or_else(String::new, |kib| format_size(kib.saturating_mul(1024)));
        rows.push(("readahead", kib(disk.read_ahead_kb)));
        rows.push(("largest request", kib(disk.max_sectors_kb)));
        let blocks = [disk.logical_block_bytes, disk.physical_block_bytes]
            .map(|bytes| bytes.map(|bytes| format_size(bytes.into())));
        if let [Some(logical), Some(physical)] = blocks {
            rows.push(("blocks", format!("{logical} logical, {physical} physical")));
        }
    }
    rows
}

/// The command line of each run, rebuilt from its facts: options without a trace in the result are missing.
pub(super) fn commands(report: &Report) -> Markup {
    if let Some(origin) = &report.origin {
        return command_line("", &origin.command);
    }
    let target = report.target.as_ref();
    let name = target.map_or_else(String::new, |target| {
        // The file of a scratch target no longer exists; its directory does.
        let path = if target.scratch {
            target.path.rsplit_once('/').map_or(".", |(folder, _)| folder)
        } else {
            &target.path
        };
        quoted(path)
    });
    if !report.findings.is_empty() {
        return command(format!("iopath survey {name} --json FILE").trim());
    }
    if report.runs.iter().any(|run| run.job.is_some()) {
        return html! { p class="note" { "The runs are the jobs of a job file: " code { "iopath run JOBFILE --json FILE" } } };
    }
    let mut lines: Vec<String> = Vec::new();
    for run in &report.runs {
        let mut line = format!(
            "iopath run --path {} --rw {} --bs {} --iodepth {}",
            quoted(&run.path),
            quoted(&run.rw),
            run.block_bytes,
            run.io_depth
        );
        let mut option = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                let _ = write!(line, " --{name} {value}");
            }
        };
        let targets = target.into_iter().chain(&report.more_targets);
        if super::series::has_target(run) {
            for target in targets {
                option("target", Some(if target.scratch { name.clone() } else { quoted(&target.path) }));
            }
        }
        option("numjobs", (run.jobs > 1).then(|| run.jobs.to_string()));
        option("rate-iops", run.rate_iops.map(digits));
        option("thinktime", run.think_ns.map(|ns| format!("{}us", ns / 1000)));
        option("latency-every", (run.latency_every > 1).then(|| run.latency_every.to_string()));
        option("host", run.model_host.as_ref().map(|host| quoted(&host.name)));
        option("repeat", Some(run.repeats.len().to_string()));
        if run.warm {
            line += " --warm";
        }
        lines.push(line);
    }
    lines.dedup();
    html! {
        p class="note" { "Rebuilt from the recorded conditions; the result does not record size and runtime." }
        (command(&lines.join("\n")))
    }
}

/// A word of a shell command.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_quotes_the_names_of_files() {
        assert_eq!(quoted("a.bin"), "a.bin");
        assert_eq!(quoted("it's; rm -rf"), "'it'\\''s; rm -rf'");
        assert_eq!(quoted(""), "''");
    }
}
