//! Access patterns: direction and order of the transfers of a workload. The transfers themselves are drawn in
//! `iopath-bench/src/plan.rs`.

use std::fmt;
use std::str::FromStr;

use crate::unknown::UnknownName;

/// Direction and order, named as fio names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rw {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Random reads.
    RandRead,
    /// Random writes.
    RandWrite,
    /// Reads and writes, sequential: each block is either read or written.
    Rw,
    /// Reads and writes, random.
    RandRw,
    /// Each block is read and then written, in order, as Bonnie's rewrite. fio has no such pattern.
    Rewrite,
    /// Sequential trims.
    Trim,
    /// Random trims.
    RandTrim,
    /// Each block is trimmed and then written, in order.
    TrimWrite,
    /// Random blocks, each trimmed and then written.
    RandTrimWrite,
}

impl Rw {
    /// All patterns.
    pub const ALL: [Self; 11] = [
        Self::Read,
        Self::Write,
        Self::RandRead,
        Self::RandWrite,
        Self::Rw,
        Self::RandRw,
        Self::Rewrite,
        Self::Trim,
        Self::RandTrim,
        Self::TrimWrite,
        Self::RandTrimWrite,
    ];

    /// The name that `--rw` uses, and fio if it has the pattern.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::Rw => "rw",
            Self::RandRw => "randrw",
            Self::Rewrite => "rewrite",
            Self::Trim => "trim",
            Self::RandTrim => "randtrim",
            Self::TrimWrite => "trimwrite",
            Self::RandTrimWrite => "randtrimwrite",
        }
    }

    /// Whether it contains reads.
    pub fn reads(self) -> bool {
        !(matches!(self, Self::Write | Self::RandWrite) || self.trims())
    }

    /// Whether it contains trims.
    pub fn trims(self) -> bool {
        matches!(self, Self::Trim | Self::RandTrim | Self::TrimWrite | Self::RandTrimWrite)
    }

    /// Whether it changes the target: it contains writes or trims.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::RandRead)
    }

    /// The direction of all transfers; none for a pattern with several.
    pub fn only_direction(self) -> Option<&'static str> {
        match self {
            Self::Read | Self::RandRead => Some("read"),
            Self::Write | Self::RandWrite => Some("write"),
            Self::Trim | Self::RandTrim => Some("trim"),
            Self::Rw | Self::RandRw | Self::Rewrite | Self::TrimWrite | Self::RandTrimWrite => None,
        }
    }

    /// Whether offsets are random.
    pub fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandRw | Self::RandTrim | Self::RandTrimWrite)
    }
}

impl fmt::Display for Rw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Rw {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|rw| rw.name() == text).ok_or_else(|| UnknownName {
            kind: "pattern",
            name: text.to_owned(),
            known: Self::ALL.iter().map(|rw| rw.name()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_parses_to_its_pattern() {
        for rw in Rw::ALL {
            assert_eq!(rw.name().parse::<Rw>().unwrap(), rw);
            assert!(rw.reads() || rw.writes());
        }
        let text = "randtrims".parse::<Rw>().unwrap_err().to_string();
        let known =
            "read, write, randread, randwrite, rw, randrw, rewrite, trim, randtrim, trimwrite, randtrimwrite";
        assert_eq!(text, format!("unknown pattern `randtrims`; use one of: {known}"));
    }
}
