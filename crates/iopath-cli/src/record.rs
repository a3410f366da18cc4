//! `iopath record`: records the I/O of any program into a request log, and says what to do with it.

mod screen;

use crate::args::RecordArgs;
use crate::destination::{self, Destination};
use crate::stderr::note;
use iopath_bench::Interruption;
use iopath_lab::metrics::RecordMetrics;
use iopath_lab::record::{EventCounts, RecordRequest, Recorded, Top, record};
use iopath_log::Interval;
use iopath_report::numbers::{count, counted, digits};
use screen::Screen;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The interval of metrics without `--top`.
const METRICS_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &RecordArgs) -> anyhow::Result<ExitCode> {
    let targets: Vec<&Path> = args.devices.iter().map(PathBuf::as_path).collect();
    let default = || args.top.is_none().then(|| PathBuf::from("record.log"));
    let file = args.output.clone().or_else(default);
    let written: Vec<_> = file.iter().map(|file| Destination::recording(file, args.force)).collect();
    destination::check(&written, &targets)?;
    // Until the summary is printed, the first Ctrl-C only ends the recording.
    let interruption = Interruption::catch();
    let request = RecordRequest {
        devices: args.devices.clone(),
        duration: args.time,
        file,
        limit_bytes: args.log_limit,
        ring_bytes: args.ring_size,
        accesses: args.accesses,
        command: args.command.clone(),
    };
    let mut screen = Screen::new(!args.command.is_empty());
    let exporter = args.metrics.start(args.force)?;
    let mut metrics = RecordMetrics::default();
    let mut show = |interval: &Interval, counts: EventCounts| {
        if let Some(exporter) = &exporter {
            exporter.publish(metrics.add(interval, counts));
        }
        if args.top.is_some() { screen.show(interval) } else { ControlFlow::Continue(()) }
    };
    let every = args.top.or(exporter.as_ref().map(|_| METRICS_INTERVAL));
    let top = every.map(|every| Top { every, show: &mut show, shows_rest: exporter.is_some() });
    let recorded = record(&request, top)?;
    summarise(request.file.as_deref(), &recorded);
    screen.finish()?;
    drop(interruption);
    Ok(recorded.exit_code().map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// Prints the outcome, the losses, and the next command. On stderr: stdout belongs to the command.
fn summarise(file: Option<&Path>, recorded: &Recorded) {
    let Recorded { totals, events, losses, unseen, late, devices, elapsed, cpu, ring_use, .. } = recorded;
    let seconds = elapsed.as_secs_f64();
    let share = |part: f64| format!("{}%", digits(part * 100.0));
    let lost = totals.missed;
    note(format_args!(
        "recorded {} s, {}: {}, {} lost; {} of a CPU, rings at most {} full",
        digits(seconds),
        if devices.is_empty() { "no I/O on any device".to_owned() } else { devices.join(", ") },
        counted(*events, "event"),
        if lost == 0 { "none".to_owned() } else { count(lost) },
        share(cpu.as_secs_f64() / seconds.max(1e-9)),
        share(*ring_use),
    ));
    if let Some((accesses, files)) = recorded.accesses {
        note(format_args!("{} of {}", counted(accesses, "access"), counted(files as u64, "file")));
    }
    if recorded.ring_requests > 0 {
        note(format_args!(
            "WARNING: {} through io_uring have no file and range in the log",
            counted(recorded.ring_requests, "access")
        ));
    }
    if *unseen > 0 {
        note(format_args!(
            "WARNING: the kernel reported no completion of {}: busy time is too high by the time until iopath noticed",
            counted(*unseen, "request"),
        ));
    }
    if lost > *unseen {
        let mut by_event = losses.clone();
        by_event.sort_by_key(|loss| std::cmp::Reverse(loss.lost));
        let named = by_event.iter().take(3).map(|loss| {
            let cpu = loss.cpu.map_or_else(String::new, |cpu| format!(" on CPU {cpu}"));
            format!("{} {}{cpu}", count(loss.lost), loss.event)
        });
        note(format_args!(
            "WARNING: lost {}{}; counts, bytes and depth are too low, and latencies are of the I/Os without a loss; \
             --ring-size {} loses fewer",
            named.collect::<Vec<_>>().join(", "),
            if by_event.len() > 3 { ", ..." } else { "" },
            iopath_report::size::format_size(recorded.ring_bytes as u64 * 4),
        ));
    }
    if totals.over_limit > 0 {
        let dropped = count(totals.over_limit);
        note(format_args!(
            "{dropped} records are not in the log: it has reached its size limit (--log-limit)"
        ));
    }
    if *late > 0 {
        let late = counted(*late, "event");
        note(format_args!("{late} arrived late and have the time of the event before"));
    }
    if let Some(file) = file.filter(|_| totals.records > 0) {
        note(format_args!("next: iopath log {}", file.display()));
    }
}
