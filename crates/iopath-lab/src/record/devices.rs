//! The devices of a recording: which ones the user names, the filters of their events, and their names in the log.

use std::fs;
use std::path::{Path, PathBuf};

use iopath_core::LogSink;
use iopath_log::kernel::{DeviceNumber, DeviceSource, OpenedDevice};
use iopath_log::{Intervals, Labels, LogError, QueueLabel, SyncLogWriter, Totals};
use iopath_os::target::{DeviceNumber as SysNumber, Disk, Roots};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::Arc;

use super::error::RecordError;

/// Stacks of devices are followed down to this level.
const LEVELS_MAX: usize = 8;

/// A device to record, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Selected {
    pub(super) name: String,
    pub(super) number: DeviceNumber,
    /// The sectors of a partition, with its own number.
    partition: Option<(DeviceNumber, u64, u64)>,
    /// The I/O scheduler.
    pub(super) scheduler: Option<String>,
}

impl Selected {
    /// The devices of these names, and the devices below them.
    pub(super) fn find(named: &[PathBuf]) -> Result<Vec<Self>, RecordError> {
        let mut selected = Vec::new();
        for name in named {
            let number = number_of(name)?;
            let disk = Disk::find(&Roots::live(), number);
            let disk = disk.ok_or_else(|| RecordError::NoDevice { device: name.clone() })?;
            add(&mut selected, &disk, 0);
        }
        Ok(selected)
    }

    /// The readahead of the kernel for files on it, as `--readahead` names it.
    pub(super) fn readahead(&self) -> Option<String> {
        let text = fs::read_to_string(format!("/sys/dev/block/{}/queue/read_ahead_kb", self.number)).ok()?;
        let kib: u64 = text.trim().parse().ok()?;
        Some(if kib == 0 { "off".to_owned() } else { format!("linux:{kib}k") })
    }

    /// The condition of the kernel's filter for the events with these fields.
    pub(super) fn condition(&self, has_sector: bool, has_length: bool, has_old: bool) -> String {
        let dev = self.number.0;
        let Some((own, first, end)) = self.partition.filter(|_| has_sector) else {
            return if has_old {
                format!("dev == {dev} || old_dev == {dev}")
            } else {
                format!("dev == {dev}")
            };
        };
        // A flush of a partition has no sectors of its own.
        let flush = if has_length { "nr_sector == 0 || " } else { "" };
        let part = format!("(dev == {dev} && ({flush}(sector >= {first} && sector < {end})))");
        if has_old { format!("{part} || old_dev == {}", own.0) } else { part }
    }
}

fn add(selected: &mut Vec<Selected>, disk: &Disk, level: usize) {
    let Some(number) = kernel_number(disk.device) else { return };
    let partition = disk.partition.as_ref().filter(|_| level == 0).and_then(|partition| {
        let first = partition.start_bytes? / 512;
        Some((kernel_number(partition.device)?, first, first + partition.size_bytes / 512))
    });
    let is_known = selected.iter().any(|known| known.number == number && known.partition.is_none());
    if is_known {
        return;
    }
    selected.push(Selected {
        name: disk.partition.as_ref().filter(|_| level == 0).map_or(&disk.name, |part| &part.name).clone(),
        number,
        partition,
        scheduler: disk.scheduler.as_ref().map(|scheduler| scheduler.current.clone()),
    });
    if level < LEVELS_MAX {
        let below = disk.slaves.iter().filter_map(|name| Disk::find(&Roots::live(), number_of_name(name)?));
        below.for_each(|disk| add(selected, &disk, level + 1));
    }
}

pub(super) fn kernel_number(number: SysNumber) -> Option<DeviceNumber> {
    DeviceNumber::new(number.major, number.minor)
}

/// The number of the block device of that name or path, or of the device that a file or directory is on.
fn number_of(name: &Path) -> Result<SysNumber, RecordError> {
    let is_name = name.components().count() == 1;
    if let Some(number) = name.to_str().filter(|_| is_name).and_then(number_of_name) {
        return Ok(number);
    }
    let metadata = fs::metadata(name);
    let metadata = metadata.map_err(|source| RecordError::Device { device: name.to_owned(), source })?;
    let raw = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    Ok(SysNumber::from_raw(raw))
}

fn number_of_name(name: &str) -> Option<SysNumber> {
    let text = fs::read_to_string(format!("/sys/class/block/{name}/dev")).ok()?;
    SysNumber::parse(text.trim())
}

/// Opens the queues of devices and files as they have their first event.
#[derive(Debug)]
pub(super) struct Queues {
    pub(super) receivers: Receivers,
    /// The number of queues, of devices and files.
    count: usize,
    /// The number of files.
    pub(super) files: usize,
    /// The queue of all files after [`super::files::FILES_MAX`].
    pub(super) further_files: Option<u16>,
    /// The devices, in the order of their queues.
    pub(super) labels: Vec<QueueLabel>,
    /// Devices with a request queue that were opened since this list was taken.
    pub(super) new: Vec<DeviceNumber>,
}

/// What receives the records of all devices.
#[derive(Debug, Clone)]
pub(super) enum Receivers {
    Log(Arc<SyncLogWriter>),
    /// The figures of intervals, and a log behind them.
    Intervals(Intervals, Option<Arc<SyncLogWriter>>),
}

impl Receivers {
    pub(super) fn log(&self) -> Option<&SyncLogWriter> {
        match self {
            Self::Log(log) | Self::Intervals(_, Some(log)) => Some(log),
            Self::Intervals(_, None) => None,
        }
    }

    pub(super) const fn intervals(&self) -> Option<&Intervals> {
        match self {
            Self::Log(_) => None,
            Self::Intervals(intervals, _) => Some(intervals),
        }
    }

    /// Ends the log.
    pub(super) fn finish(self, missed: u64) -> Result<Totals, LogError> {
        match self {
            Self::Log(log) | Self::Intervals(_, Some(log)) => {
                Arc::into_inner(log).expect("the joiner and its queues are dropped").finish_with(missed)
            }
            Self::Intervals(_, None) => Ok(Totals { missed, ..Totals::default() }),
        }
    }

    fn add_queue(&self) -> Box<dyn LogSink> {
        match self {
            Self::Log(log) => Box::new(log.add_queue()),
            Self::Intervals(intervals, log) => {
                intervals.add_queue(log.as_ref().map(|log| Box::new(log.add_queue()) as Box<dyn LogSink>))
            }
        }
    }
}

impl Queues {
    pub(super) const fn new(receivers: Receivers) -> Self {
        Self { receivers, count: 0, files: 0, further_files: None, labels: Vec::new(), new: Vec::new() }
    }

    /// The number of the next queue. The last number is that of all further queues.
    pub(super) fn next_queue(&mut self) -> u16 {
        self.count += 1;
        u16::try_from(self.count - 1).unwrap_or(u16::MAX)
    }
}

impl DeviceSource for Queues {
    fn open(&mut self, device: DeviceNumber) -> OpenedDevice {
        let folder = PathBuf::from(format!("/sys/dev/block/{device}"));
        let resolved = fs::canonicalize(&folder).ok();
        let name = resolved.as_deref().and_then(Path::file_name);
        let name = name.map_or_else(|| device.to_string(), |name| name.to_string_lossy().into_owned());
        // A device without this directory gets bios, unless it is gone already.
        let is_partition = folder.join("partition").exists();
        let has_requests = resolved.is_none() || is_partition || folder.join("mq").exists();
        let queue = self.next_queue();
        let label = QueueLabel { queue, name, number: device.to_string() };
        if let Some(log) = self.receivers.log() {
            // Before the first record of the queue, so that a reader can select the device.
            log.add_labels(&Labels { queues: vec![label.clone()], ..Labels::default() });
        }
        self.labels.push(label);
        self.new.extend(has_requests.then_some(device));
        let fua = fs::read_to_string(folder.join("queue/fua"));
        // Without the attribute: the device is gone, or a partition, which has no bios of its own.
        let has_fua = fua.map_or(true, |text| text.trim() != "0");
        OpenedDevice { queue, sink: self.receivers.add_queue(), has_requests, has_fua }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(partition: Option<(DeviceNumber, u64, u64)>) -> Selected {
        Selected { name: "sda".to_owned(), number: DeviceNumber(8 << 20), partition, scheduler: None }
    }

    #[test]
    fn a_partition_is_a_range_of_its_disk() {
        assert_eq!(selected(None).condition(true, true, false), "dev == 8388608");
        assert_eq!(selected(None).condition(true, true, true), "dev == 8388608 || old_dev == 8388608");
        let part = selected(Some((DeviceNumber(8 << 20 | 1), 2048, 4096)));
        let range = "(sector >= 2048 && sector < 4096)";
        assert_eq!(
            part.condition(true, true, false),
            format!("(dev == 8388608 && (nr_sector == 0 || {range}))")
        );
        assert_eq!(
            part.condition(true, false, true),
            format!("(dev == 8388608 && ({range})) || old_dev == 8388609")
        );
    }

    #[test]
    fn a_name_that_is_nothing_is_an_error_that_names_it() {
        let error = Selected::find(&["no-such-device".into()]).unwrap_err();
        assert!(error.to_string().contains("no-such-device"), "{error}");
        let error = Selected::find(&["/proc/self/status".into()]).unwrap_err();
        assert!(error.to_string().contains("/proc/self/status"), "{error}");
    }
}
