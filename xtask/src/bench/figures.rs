//! Contests between a command of ours and a peer, as data. `contest.rs` runs them.

use super::side::Side;

/// One command of ours, one peer, and the figures to compare.
#[derive(Debug)]
pub(super) struct Contest {
    pub(super) name: &'static str,
    pub(super) target: Target,
    pub(super) ours: Side,
    pub(super) peer: Side,
    pub(super) goals: &'static [(Metric, Goal)],
}

/// The target of both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// The scratch file, in written extents with incompressible bytes.
    File,
    /// `/dev/zram0`: memory as a block device, fast enough to show the cost of the software.
    Zram,
    /// No target.
    Nothing,
}

/// A quantity to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metric {
    Bandwidth,
    Iops,
    /// The median latency.
    P50,
    /// User and system time of the process per I/O, including its `io_uring` workers.
    ProcessCpu,
    /// CPU time of the whole machine per I/O, without its idle load. Includes interrupts and kernel threads.
    MachineCpu,
}

impl Metric {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bandwidth => "bandwidth",
            Self::Iops => "IOPS",
            Self::P50 => "p50",
            Self::ProcessCpu => "CPU per I/O, process",
            Self::MachineCpu => "CPU per I/O, machine",
        }
    }

    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Bandwidth => "MiB/s",
            Self::Iops => "I/O/s",
            Self::P50 | Self::ProcessCpu | Self::MachineCpu => "µs",
        }
    }
}

/// The goal for the ratio ours : peer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// The ratio differs from 1 by at most this number.
    Within(f64),
    /// No goal: for information.
    Free,
}

impl Goal {
    /// Whether `ratio` reaches the goal; none without a goal.
    pub(super) fn is_reached(self, ratio: f64) -> Option<bool> {
        match self {
            Self::AtLeast(least) => Some(ratio >= least),
            Self::AtMost(most) => Some(ratio <= most),
            Self::Within(distance) => Some((ratio - 1.0).abs() <= distance),
            Self::Free => None,
        }
    }
}

/// `io_uring` with the cheapest options of fio 3.33: registered buffers and file, submission and completion in batches
/// of a quarter of the depth (the cheapest batch size without a loss of IOPS).
const FIO_BEST_32: &[&str] = &[
    "--ioengine=io_uring",
    "--iodepth=32",
    "--fixedbufs",
    "--registerfiles",
    "--iodepth_batch_submit=8",
    "--iodepth_batch_complete_min=8",
    "--iodepth_batch_complete_max=32",
];

/// The same options at depth 64.
const FIO_BEST_64: &[&str] = &[
    "--ioengine=io_uring",
    "--iodepth=64",
    "--fixedbufs",
    "--registerfiles",
    "--iodepth_batch_submit=16",
    "--iodepth_batch_complete_min=16",
    "--iodepth_batch_complete_max=64",
];

/// Direct I/O of one thread through the whole path, against the same I/O without it.
const AS_THE_KERNEL: &[(Metric, Goal)] = &[
    (Metric::Iops, Goal::AtLeast(1.0)),
    (Metric::P50, Goal::AtMost(1.0)),
    (Metric::ProcessCpu, Goal::AtMost(0.9)),
];

/// `iopath-direct` against `kernel-uring` with this pattern and depth.
macro_rules! against_the_kernel {
    ($pattern:literal, $rw:literal, $depth:literal $(, $more:literal)*) => {
        Contest {
            name: concat!("iopath-direct, 4 KiB ", $pattern, ", depth ", $depth, ", the kernel's"),
            target: Target::File,
            ours: Side::iopath("iopath-direct", $rw, "4k", &["--iodepth", $depth $(, $more)*]),
            peer: Side::iopath("kernel-uring", $rw, "4k", &["--iodepth", $depth $(, $more)*]),
            goals: AS_THE_KERNEL,
        }
    };
}

/// Threads of depth 32 that share a queue with this elevator, against a number of I/Os per second.
macro_rules! shared_queue {
    ($elevator:literal, $threads:literal, $iops:literal) => {
        Contest {
            name: concat!("null, queue of ", $threads, " threads with `", $elevator, "`, depth 32"),
            target: Target::Nothing,
            ours: Side::iopath("null", "randread", "4k", &["--iodepth", "32", "--elevator", $elevator])
                .on_threads($threads),
            peer: Side::Published { source: "goal for a shared queue", iops: $iops },
            goals: &[(Metric::Iops, Goal::AtLeast(1.0))],
        }
    };
}

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
            (Metric::ProcessCpu, Goal::AtMost(0.85)),
            (Metric::MachineCpu, Goal::Free),
        ],
    },
    Contest {
        name: "iopath-direct, 4 KiB random read, depth 1, the kernel's",
        target: Target::File,
        ours: Side::iopath("iopath-direct", "randread", "4k", &[]),
        peer: Side::iopath("kernel-direct", "randread", "4k", &[]),
        goals: &[(Metric::Iops, Goal::AtLeast(1.0)), (Metric::ProcessCpu, Goal::AtMost(1.0))],
    },
    against_the_kernel!("random read", "randread", "4"),
    against_the_kernel!("random read", "randread", "8"),
    against_the_kernel!("random read", "randread", "16"),
    against_the_kernel!("random read", "randread", "32"),
    against_the_kernel!("random read", "randread", "64"),
    against_the_kernel!("random read", "randread", "128"),
    against_the_kernel!("random write", "randwrite", "8", "--overwrite"),
    against_the_kernel!("random write", "randwrite", "32", "--overwrite"),
    against_the_kernel!("random read and 30% write", "randrw", "8", "--rwmixread", "70", "--overwrite"),
    against_the_kernel!("random read and 30% write", "randrw", "32", "--rwmixread", "70", "--overwrite"),
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
        name: "null, lab and queue, depth 32",
        target: Target::Nothing,
        ours: Side::iopath("null", "randread", "4k", &["--iodepth", "32", "--elevator", "none"]),
        peer: Side::fio("fio null", "randread", "4k", &["--ioengine=null", "--iodepth=32", "--size=1g"]),
        goals: &[(Metric::Iops, Goal::AtLeast(5.0)), (Metric::ProcessCpu, Goal::AtMost(0.2))],
    },
    Contest {
        name: "noop, overhead of the lab, depth 32",
        target: Target::Nothing,
        ours: Side::iopath("noop", "randread", "4k", &["--iodepth", "32"]),
        peer: Side::fio("fio null", "randread", "4k", &["--ioengine=null", "--iodepth=32", "--size=1g"]),
        goals: &[(Metric::Iops, Goal::AtLeast(5.0)), (Metric::ProcessCpu, Goal::AtMost(0.2))],
    },
    Contest {
        name: "noop, overhead of the lab, depth 1",
        target: Target::Nothing,
        ours: Side::iopath("noop", "randread", "4k", &["--iodepth", "1"]),
        peer: Side::fio("fio null", "randread", "4k", &["--ioengine=null", "--iodepth=1", "--size=1g"]),
        goals: &[(Metric::Iops, Goal::AtLeast(3.0))],
    },
    Contest {
        name: "null, lab and queue, depth 1",
        target: Target::Nothing,
        ours: Side::iopath("null", "randread", "4k", &["--iodepth", "1", "--elevator", "none"]),
        peer: Side::fio("fio null", "randread", "4k", &["--ioengine=null", "--iodepth=1", "--size=1g"]),
        goals: &[(Metric::Iops, Goal::AtLeast(1.0)), (Metric::ProcessCpu, Goal::AtMost(1.0))],
    },
    Contest {
        name: "null, 2 threads against 1, depth 32",
        target: Target::Nothing,
        ours: Side::iopath("null", "randread", "4k", &["--iodepth", "32"]).on_threads(2),
        peer: Side::iopath("null", "randread", "4k", &["--iodepth", "32"]),
        goals: &[(Metric::Iops, Goal::AtLeast(1.8)), (Metric::ProcessCpu, Goal::AtMost(1.05))],
    },
    shared_queue!("deadline", 1, 5e6),
    shared_queue!("deadline", 4, 5e6),
    shared_queue!("deadline", 32, 5e6),
    shared_queue!("deadline", 64, 5e6),
    shared_queue!("fair", 1, 4e6),
    shared_queue!("fair", 4, 4e6),
    shared_queue!("fair", 32, 4e6),
    shared_queue!("fair", 64, 4e6),
    Contest {
        name: "log on against off, 4 KiB random read, depth 32",
        target: Target::File,
        ours: Side::iopath("iopath-direct", "randread", "4k", &["--iodepth", "32", "--log", "/dev/null"]),
        peer: Side::iopath("iopath-direct", "randread", "4k", &["--iodepth", "32"]),
        goals: &[(Metric::Iops, Goal::AtLeast(0.99)), (Metric::ProcessCpu, Goal::Free)],
    },
    Contest {
        name: "log on against off, zram, both cores busy",
        target: Target::Zram,
        ours: Side::iopath("iopath-direct", "randread", "4k", &["--iodepth", "32", "--log", "/dev/null"])
            .on_threads(2),
        peer: Side::iopath("iopath-direct", "randread", "4k", &["--iodepth", "32"]).on_threads(2),
        goals: &[(Metric::Iops, Goal::AtLeast(0.97)), (Metric::ProcessCpu, Goal::Free)],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_compared_with_ratios() {
        assert_eq!(Goal::AtLeast(1.0).is_reached(0.99), Some(false));
        assert_eq!(Goal::AtLeast(1.0).is_reached(1.0), Some(true));
        assert_eq!(Goal::AtMost(0.9).is_reached(0.91), Some(false));
        assert_eq!(Goal::Within(0.05).is_reached(1.06), Some(false));
        assert_eq!(Goal::Within(0.05).is_reached(0.96), Some(true));
        assert_eq!(Goal::Free.is_reached(0.1), None);
    }

    #[test]
    fn names_of_figures_are_unique() {
        let mut names: Vec<_> = CONTESTS.iter().map(|contest| contest.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CONTESTS.len());
        assert!(CONTESTS.iter().all(|contest| !contest.goals.is_empty()));
    }
}
