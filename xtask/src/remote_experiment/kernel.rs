//! The NBD client of the Linux kernel as a reader of the export: in a guest, whose connection crosses the limited link
//! (`steps.sh`). Does not measure the client of iopath.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};

use super::link::SERVER;
use super::published::Row;
use super::{Options, SETTINGS, Server};
use crate::guest::{Guest, Machine};

/// Readahead and longest request in KiB, and block in KiB.
type Key = (u32, u32, u64);

/// Slowest expected rate of the guest in MiB/s, for its time limit.
const SLOWEST: u64 = 4;

/// Longest time of the start of the guest in seconds.
const START: u64 = 120;

/// Reads all rows in the guest. Returns false if it failed. Prints a line and leaves the rows unchanged if no guest can
/// boot.
pub(super) fn read(server: &Server, options: &Options, rows: &mut [Row]) -> Result<bool> {
    let machine = match Machine::new() {
        Ok(machine) => machine,
        Err(error) => {
            eprintln!("skipped: the client of the kernel: {error:#}");
            return Ok(true);
        }
    };
    let list = |items: Vec<String>| items.join(",");
    let variables = format!(
        "host={SERVER} port={} mib={} repeat={} settings={} blocks={}",
        server.port()?,
        options.mib,
        options.repeat,
        list(SETTINGS.iter().map(|(readahead, request)| format!("{readahead}:{request}")).collect()),
        list(rows.iter().map(|row| (row.block >> 10).to_string()).collect()),
    );
    let guest = Guest {
        steps: include_str!("steps.sh"),
        programs: &["nbd-client"],
        files: &[],
        qemu: &[],
        variables: &variables,
    };
    let reads = (rows.len() * SETTINGS.len()) as u64 * u64::from(options.repeat);
    let limit = Duration::from_secs(START + reads * options.mib / SLOWEST);
    let mut rates = BTreeMap::<Key, Vec<f64>>::new();
    let has_passed = machine.boot(&guest, limit, |time, message| {
        eprintln!("{:6.1} s  guest: {message}", time.as_secs_f64());
        if let Some((key, seconds)) = parse(message) {
            rates.entry(key).or_default().push(options.mib as f64 / seconds);
        }
    })?;
    if !has_passed {
        return Ok(false);
    }
    for row in rows {
        for (readahead, request) in SETTINGS {
            let rates = rates.get(&(readahead, request, row.block >> 10));
            let rates = rates.context("the guest left out a read")?;
            row.kernel.push(rates.iter().sum::<f64>() / rates.len() as f64);
        }
    }
    Ok(true)
}

/// The read and its time in seconds, of a message `read READAHEAD REQUEST BLOCK HUNDREDTHS`.
fn parse(message: &str) -> Option<(Key, f64)> {
    let words: Vec<_> = message.strip_prefix("read ")?.split(' ').collect();
    let [readahead, request, block, hundredths] = words[..] else { return None };
    let key = (readahead.parse().ok()?, request.parse().ok()?, block.parse().ok()?);
    let hundredths: f64 = hundredths.parse().ok()?;
    (hundredths > 0.0).then_some((key, hundredths / 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_the_guest_is_a_read_and_its_time() {
        assert_eq!(parse("read 128 512 1024 250"), Some(((128, 512, 1024), 2.5)));
        assert_eq!(parse("read 128 512 1024 0"), None, "a rate without a limit");
        assert_eq!(parse("read 128 512"), None);
        assert_eq!(parse("ok connect"), None);
    }
}
