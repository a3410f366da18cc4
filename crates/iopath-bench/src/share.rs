//! The part of a target that one of several processes accesses, if all of them share the target. `plan.rs` applies it.

/// How the blocks of a target are distributed over ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Each rank has all blocks of its own target. Only its random numbers are its own.
    Whole,
    /// Each rank has a range of its own.
    Segmented,
    /// The blocks belong to the jobs of all ranks in turn.
    Strided,
    /// Each rank draws blocks of the whole range at random.
    Random,
}

impl Layout {
    /// The layouts of a common target, each with its meaning.
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::Segmented, "each rank has one range of its own"),
        (Self::Strided, "the ranks have the blocks in turn"),
        (Self::Random, "each rank draws blocks of the whole range"),
    ];

    /// The name in options and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Segmented => "segmented",
            Self::Strided => "strided",
            Self::Random => "random",
        }
    }
}

/// The share of one rank in a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The number of the share, from 0.
    pub number: u32,
    /// The number of shares, at least one.
    pub count: u32,
    /// The distribution of the blocks.
    pub layout: Layout,
}

impl Share {
    /// The blocks of a range of `blocks` that the rank may access: first and end.
    pub(crate) fn blocks(self, blocks: u64) -> [u64; 2] {
        match self.layout {
            Layout::Segmented => [self.number, self.number + 1]
                .map(|number| (u128::from(blocks) * u128::from(number) / u128::from(self.count)) as u64),
            Layout::Whole | Layout::Strided | Layout::Random => [0, blocks],
        }
    }

    /// The bytes of this share, if all ranks together transfer `bytes`.
    pub(crate) fn bytes(self, bytes: u64) -> u64 {
        if self.layout == Layout::Whole { bytes } else { bytes / u64::from(self.count) }
    }

    /// The number of a job among those of all ranks.
    pub(crate) fn job(self, job: u32, jobs: u32) -> u64 {
        u64::from(self.number) * u64::from(jobs) + u64::from(job)
    }
}
