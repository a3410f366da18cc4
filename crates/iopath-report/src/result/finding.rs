//! An interpretation of measurements, and how sure it is. Does not interpret: see `iopath-lab/src/survey/findings.rs`.

use serde::{Deserialize, Serialize};

/// An interpretation of the measurements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// The finding's name, the same in every version.
    pub id: String,
    /// The finding, in words.
    pub text: String,
    /// The figures that show it.
    pub evidence: String,
    /// How sure it is; none in results of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Confidence>,
    /// The reasons that lower the confidence, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
}

impl Finding {
    /// Whether it is a reason to doubt the others, and not advice.
    pub fn is_doubt(&self) -> bool {
        ["spread", "cache", "no-disk"].contains(&self.id.as_str())
    }
}

/// How sure a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// A fact that the system reports, or steady measurements without a reason for doubt.
    High,
    /// One reason for doubt: noise, a cache that answered other runs, no known disk, other programs.
    Medium,
    /// Several reasons for doubt, or a comparison that is inconclusive.
    Low,
}

impl Confidence {
    /// The name, as in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}
