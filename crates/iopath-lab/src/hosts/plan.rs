//! How ranks measure together, as the options of the program have it.

use iopath_bench::share::Layout;

/// When a repetition ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stop {
    /// Each rank has an end of its own.
    #[default]
    All,
    /// The first rank that ends stops the others: a stonewall.
    First,
}

/// How the ranks measure together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Plan {
    /// When a repetition ends.
    pub stop: Stop,
    /// How they share one target; none if each has its own.
    pub shared: Option<Layout>,
    /// Whether each accesses the share of a rank of another host.
    pub reordered: bool,
}
