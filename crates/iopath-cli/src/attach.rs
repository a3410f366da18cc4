//! `iopath attach` and `iopath detach`: targets as block devices of this machine.

use crate::args::{AttachArgs, DetachArgs};
use crate::output::print;
use crate::serve::{clear, show};
use crate::stderr::{note, note_after};
use iopath_lab::metrics::serve_metrics;
use iopath_lab::serve::{AttachRequest, AttachedDevice, ServeRates, attach, attached, recover};
use iopath_report::size::format_size;
use std::fmt::Write;

pub(crate) fn run(args: &AttachArgs) -> anyhow::Result<()> {
    if args.list {
        return print(&table(&attached()?));
    }
    let exporter = args.metrics.start(false)?;
    let request = request(args);
    let attaching = match args.recover {
        Some(device) => recover(device, &request)?,
        None => attach(&request)?,
    };
    print(&format!("{}\n", attaching.paths.join("\n")))?;
    let end = attaching.run(|rates, messages| show(rates, messages, exporter.as_ref()))?;
    if let Some(exporter) = &exporter {
        exporter.publish(serve_metrics(&ServeRates::at_end(end.totals)));
    }
    let bytes = format_size(end.totals.bytes);
    note_after(clear(), format_args!("served {} requests, {bytes}", end.totals.requests));
    end.messages.iter().for_each(note);
    for device in end.left {
        note(format_args!(
            "/dev/ublkb{device} is in use and waits: continue it with `iopath attach --recover {device}`"
        ));
    }
    Ok(())
}

pub(crate) fn detach(args: &DetachArgs) -> anyhow::Result<()> {
    let all =
        || Ok::<_, anyhow::Error>(attached()?.iter().map(|found| found.info.device.to_string()).collect());
    let devices: Vec<String> = if args.all { all()? } else { args.device.clone() };
    let mut errors = iopath_lab::serve::detach(&devices, args.force);
    let Some(last) = errors.pop() else { return Ok(()) };
    errors.iter().for_each(note);
    Err(last.into())
}

fn request(args: &AttachArgs) -> AttachRequest {
    AttachRequest {
        targets: args.target.clone(),
        volume: args.volume.request(!args.read_only, args.overwrite),
        queues: args.queues,
        device: args.device,
    }
}

/// A line for each device.
fn table(devices: &[AttachedDevice]) -> String {
    let mut text = format!("{:<14}{:<20}{:>6}{:>8}  target\n", "device", "state", "queues", "process");
    for AttachedDevice { info, target } in devices {
        let path = format!("/dev/ublkb{}", info.device);
        let process = if info.pid > 0 { info.pid.to_string() } else { "-".to_owned() };
        let target = target.as_ref().map_or_else(|| "-".to_owned(), |target| target.display().to_string());
        let state = info.state.to_string();
        let _ = writeln!(text, "{path:<14}{state:<20}{:>6}{process:>8}  {target}", info.queues);
    }
    text
}
