//! What is measured, as data: contests between a command of ours and a peer. How it is measured: `contest.rs`.

use super::side::Side;

/// One command of ours, one peer, and the figures that come of it.
#[derive(Debug)]
pub(super) struct Contest {
    pub(super) name: &'static str,
    pub(super) target: Target,
    pub(super) ours: Side,
    pub(super) peer: Side,
    pub(super) goals: &'static [(Metric, Goal)],
}

/// What both sides read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// The scratch file, in written extents with incompressible bytes.
    File,
    /// `/dev/zram0`: memory behind a block device. The device's speed leaves the software's price bare.
    Zram,
    /// No device at all.
    Nothing,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metric {
    Bandwidth,
    Iops,
    /// User and system time of the process, its `io_uring` workers included, for one I/O.
    ProcessCpu,
    /// Time of the whole machine less its idle rate for one I/O: interrupts and kernel threads count too.
    MachineCpu,
}

impl Metric {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bandwidth => "bandwidth",
            Self::Iops => "IOPS",
            Self::ProcessCpu => "CPU per I/O, process",
            Self::MachineCpu => "CPU per I/O, machine",
        }
    }

    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Bandwidth => "MiB/s",
            Self::Iops => "I/O/s",
            Self::ProcessCpu | Self::MachineCpu => "µs",
        }
    }
}

/// What the ratio ours : peer should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// No further than this from 1: agreement, not victory.
    Within(f64),
    /// For information.
    Free,
}

impl Goal {
    /// Whether `ratio` reaches it; none if there is nothing to reach.
    pub(super) fn is_reached(self, ratio: f64) -> Option<bool> {
        match self {
            Self::AtLeast(least) => Some(ratio >= least),
            Self::AtMost(most) => Some(ratio <= most),
            Self::Within(distance) => Some((ratio - 1.0).abs() <= distance),
            Self::Free => None,
        }
    }
}

/// `io_uring` with what fio 3.33 has to make it cheap: buffers and file registered, submission and completion
/// in batches of a quarter of the depth (cheapest of the batch sizes tried, at no loss of IOPS).
const FIO_BEST_32: &[&str] = &[
    "--ioengine=io_uring",
    "--iodepth=32",
    "--fixedbufs",
    "--registerfiles",
    "--iodepth_batch_submit=8",
    "--iodepth_batch_complete_min=8",
    "--iodepth_batch_complete_max=32",
];

/// The same at depth 64.
const FIO_BEST_64: &[&str] = &[
    "--ioengine=io_uring",
    "--iodepth=64",
    "--fixedbufs",
    "--registerfiles",
    "--iodepth_batch_submit=16",
    "--iodepth_batch_complete_min=16",
    "--iodepth_batch_complete_max=64",
];

pub(super) const CONTESTS: &[Contest] = &[
    Contest {
        name: "kernel-direct, 1 MiB sequential read",
        target: Target::File,
        ours: Side::iopath("kernel-direct", "read", "1m", &[]),
        peer: Side::fio("fio psync direct", "read", "1m", &["--ioengine=psync"]),
        goals: &[(Metric::Bandwidth, Goal::Within(0.05))],
    },
    Contest {
        name: "kernel-direct, 4 KiB random read",
        target: Target::File,
        ours: Side::iopath("kernel-direct", "randread", "4k", &[]),
        peer: Side::fio("fio psync direct", "randread", "4k", &["--ioengine=psync"]),
        goals: &[(Metric::Bandwidth, Goal::Within(0.05))],
    },
    Contest {
        name: "kernel-uring, 4 KiB random read, depth 32",
        target: Target::File,
        ours: Side::iopath("kernel-uring", "randread", "4k", &["--iodepth", "32"]),
        peer: Side::fio("fio io_uring", "randread", "4k", &["--ioengine=io_uring", "--iodepth=32"]),
        goals: &[(Metric::Bandwidth, Goal::Within(0.05))],
    },
    Contest {
        name: "iopath-direct, 4 KiB random read, depth 32",
        target: Target::File,
        ours: Side::iopath("iopath-direct", "randread", "4k", &["--iodepth", "32"]),
        peer: Side::fio("fio io_uring, best flags", "randread", "4k", FIO_BEST_32),
        goals: &[
            (Metric::Iops, Goal::AtLeast(1.0)),
            (Metric::ProcessCpu, Goal::AtMost(0.9)),
            (Metric::MachineCpu, Goal::Free),
        ],
    },
    Contest {
        name: "iopath-direct, zram, 4 KiB random read, depth 64",
        target: Target::Zram,
        ours: Side::iopath("iopath-direct", "randread", "4k", &["--iodepth", "64"]),
        peer: Side::fio("fio io_uring, best flags", "randread", "4k", FIO_BEST_64),
        goals: &[
            (Metric::Iops, Goal::AtLeast(1.2)),
            (Metric::ProcessCpu, Goal::Free),
            (Metric::MachineCpu, Goal::Free),
        ],
    },
    Contest {
        name: "null, queue with `none`, depth 32",
        target: Target::Nothing,
        ours: Side::iopath("null", "randread", "4k", &["--iodepth", "32", "--elevator", "none"]),
        peer: Side::Published { source: "io_uring, 512 B polled, one core (2021)", iops: 10e6 },
        goals: &[(Metric::Iops, Goal::AtLeast(1.0))],
    },
    Contest {
        name: "null, 2 threads against 1, depth 32",
        target: Target::Nothing,
        ours: Side::iopath("null", "randread", "4k", &["--iodepth", "32"]).on_threads(2),
        peer: Side::iopath("null", "randread", "4k", &["--iodepth", "32"]),
        goals: &[(Metric::Iops, Goal::AtLeast(1.8)), (Metric::ProcessCpu, Goal::AtMost(1.05))],
    },
    Contest {
        name: "log on against off, 4 KiB random read, depth 32",
        target: Target::File,
        ours: Side::iopath("iopath-direct", "randread", "4k", &["--iodepth", "32", "--log", "/dev/null"]),
        peer: Side::iopath("iopath-direct", "randread", "4k", &["--iodepth", "32"]),
        goals: &[(Metric::Iops, Goal::AtLeast(0.99)), (Metric::ProcessCpu, Goal::Free)],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_judge_ratios() {
        assert_eq!(Goal::AtLeast(1.0).is_reached(0.99), Some(false));
        assert_eq!(Goal::AtLeast(1.0).is_reached(1.0), Some(true));
        assert_eq!(Goal::AtMost(0.9).is_reached(0.91), Some(false));
        assert_eq!(Goal::Within(0.05).is_reached(1.06), Some(false));
        assert_eq!(Goal::Within(0.05).is_reached(0.96), Some(true));
        assert_eq!(Goal::Free.is_reached(0.1), None);
    }

    #[test]
    fn a_figure_is_named_once() {
        let mut names: Vec<_> = CONTESTS.iter().map(|contest| contest.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CONTESTS.len());
        assert!(CONTESTS.iter().all(|contest| !contest.goals.is_empty()));
    }
}
