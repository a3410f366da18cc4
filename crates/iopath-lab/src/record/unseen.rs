//! Finds completions that have no event. Tracepoints report nothing while some tasks run, such as those that a
//! hypervisor hides from tracing, and a completion interrupts any task. The kernel counts no loss for them. Without
//! this check, such a request stays in flight until the end, and a later request of its sectors gets its completion.
//!
//! The check compares the kernel's own count of requests in flight with that of the joiner, at the same time.

use std::fs;

use iopath_core::Instant;
use iopath_log::kernel::{DeviceNumber, DeviceSource, Joiner};

/// A difference counts if it is in so many samples in a row: a request may begin or end while the kernel's count is
/// read.
const SAMPLES: usize = 3;

/// Completions without an event.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    devices: Vec<Device>,
    /// The time of the last sample, if it was not compared.
    sampled: Option<Instant>,
    /// How many were found.
    pub(super) found: u64,
}

#[derive(Debug)]
struct Device {
    number: DeviceNumber,
    /// The kernel's count at the last sample.
    in_flight: u64,
    /// By how many requests the joiner had more, in the last samples.
    excess: [u64; SAMPLES],
}

impl Unseen {
    /// Begins to compare the requests of a device.
    pub(super) fn add(&mut self, number: DeviceNumber) {
        self.devices.push(Device { number, in_flight: 0, excess: [0; SAMPLES] });
    }

    /// The time up to which the joiner must have all events before the next [`Unseen::compare`].
    pub(super) const fn sampled(&self) -> Option<Instant> {
        self.sampled
    }

    /// Whether the last sample had an excess: the next ones should be soon.
    pub(super) fn has_excess(&self) -> bool {
        self.devices.iter().any(|device| device.excess[SAMPLES - 1] > 0)
    }

    /// Reads the counts of the kernel.
    pub(super) fn sample(&mut self, now: impl Fn() -> Instant) {
        // A device that is gone, or whose requests the kernel does not count, cannot be compared any more.
        self.devices.retain_mut(|device| {
            let count = kernel_count(device.number);
            device.in_flight = count.unwrap_or_default();
            count.is_some()
        });
        self.sampled = Some(now());
    }

    /// Compares the counts at the time of the sample. Forgets the requests of devices with an excess.
    pub(super) fn compare<S: DeviceSource>(&mut self, joiner: &mut Joiner<S>) {
        let Some(now) = self.sampled.take() else { return };
        for Device { number, in_flight, excess } in &mut self.devices {
            let of_joiner = joiner.at_device(*number) as u64;
            excess.rotate_left(1);
            excess[SAMPLES - 1] = of_joiner.saturating_sub(*in_flight);
            let lost = excess.iter().copied().min().unwrap_or(0);
            if lost > 0 {
                joiner.forget(*number, lost, now);
                self.found += lost;
                *excess = [0; SAMPLES];
            }
        }
    }
}

/// The requests of a device in flight; `None` if the kernel does not count them.
fn kernel_count(device: DeviceNumber) -> Option<u64> {
    let folder = format!("/sys/dev/block/{device}");
    let is_counted = fs::read_to_string(format!("{folder}/queue/iostats")).ok()?;
    if is_counted.trim() == "0" {
        return None;
    }
    // Reads, then writes.
    let counts = fs::read_to_string(format!("{folder}/inflight")).ok()?;
    counts.split_whitespace().map(|count| count.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_core::log::NoRoom;
    use iopath_core::{LogSink, RecordBatch};
    use iopath_log::kernel::{KernelEvent, KernelIo, OpenedDevice, What};

    const DISK: DeviceNumber = DeviceNumber(8 << 20);

    #[derive(Debug)]
    struct Discard;

    impl LogSink for Discard {
        fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
            batch.clear();
            Ok(())
        }
    }

    impl DeviceSource for Discard {
        fn open(&mut self, _device: DeviceNumber) -> OpenedDevice {
            OpenedDevice { queue: 0, sink: Box::new(Discard), has_requests: true, has_fua: true }
        }
    }

    fn joiner_with(sectors: &[u64]) -> Joiner<Discard> {
        let mut joiner = Joiner::new(Discard);
        for (index, sector) in sectors.iter().enumerate() {
            let io = KernelIo::new(DISK, *sector, 8, b"R");
            for (step, what) in [What::Queue(io), What::Get(io), What::Issue(io)].into_iter().enumerate() {
                let at = Instant::from_nanos((index * 10 + step) as u64);
                joiner.handle(&KernelEvent { at, pid: 1, tid: 1, command: [0; 16], what });
            }
        }
        joiner
    }

    #[test]
    fn an_excess_in_all_samples_is_forgotten_and_one_in_a_few_is_not() {
        let mut joiner = joiner_with(&[0, 8, 16]);
        let mut unseen = Unseen::default();
        unseen.add(DISK);
        let mut compare = |unseen: &mut Unseen, kernel: u64| {
            unseen.devices[0].in_flight = kernel;
            unseen.sampled = Some(Instant::from_nanos(1000));
            unseen.compare(&mut joiner);
            (joiner.at_device(DISK), unseen.found)
        };
        for kernel in [1, 1, 3, 1, 2] {
            assert_eq!(compare(&mut unseen, kernel), (3, 0));
        }
        assert_eq!(compare(&mut unseen, 1), (0, 1), "one request was in excess in each of three samples");
        assert_eq!(compare(&mut unseen, 1), (0, 1));
    }
}
