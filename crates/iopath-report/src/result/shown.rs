//! How fio shows a job: the keys of a job file that concern its formats. The results of iopath have all figures.

/// Reads, writes and trims in the formats of fio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unified {
    /// Apart.
    #[default]
    Apart,
    /// As one.
    Together,
    /// Apart, and as one.
    Both,
}

/// The settings of a job for the formats of fio.
#[expect(clippy::struct_excessive_bools, reason = "keys, independent of each other")]
#[derive(Debug, Clone, PartialEq)]
pub struct FioOutput {
    /// Whether the job is left out.
    pub is_left_out: bool,
    /// Whether the job is shown together with those of its group that have this setting.
    pub is_grouped: bool,
    /// Whether the job begins a group of the output.
    pub begins_group: bool,
    /// How its directions are shown.
    pub unified: Unified,
    /// The percentiles, in rising order; none for the default.
    pub percentiles: Option<Vec<f64>>,
    /// Whether the times of submissions have percentiles.
    pub of_submissions: bool,
    /// Whether latencies of completions have percentiles.
    pub of_completions: bool,
    /// Whether whole latencies have percentiles.
    pub of_whole: bool,
}

impl Default for FioOutput {
    /// The defaults of fio.
    fn default() -> Self {
        Self {
            is_left_out: false,
            is_grouped: false,
            begins_group: false,
            unified: Unified::default(),
            percentiles: None,
            of_submissions: false,
            of_completions: true,
            of_whole: false,
        }
    }
}
