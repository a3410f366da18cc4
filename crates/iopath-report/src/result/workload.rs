//! The settings of a workload, as a part of its result: those that the other keys of a run do not state. The table of
//! options of the lab has their names, types and meanings.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The settings of a workload. A run with these settings, and with those beside them, measures the same again.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkloadFacts(Map<String, Value>);

impl WorkloadFacts {
    /// The name of its schema.
    #[cfg(feature = "schema")]
    pub(crate) const SCHEMA: &'static str = "WorkloadFacts";

    /// A setting that is a text; none without it.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str()
    }

    /// A setting that is a whole number; none without it.
    pub fn whole(&self, key: &str) -> Option<u64> {
        self.0.get(key)?.as_u64()
    }

    /// A setting that is a number; none without it.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.0.get(key)?.as_f64()
    }

    /// Whether a mixed pattern has writes only.
    pub(crate) fn has_no_reads(&self) -> bool {
        self.whole("read_percent") == Some(0)
    }
}

impl From<Map<String, Value>> for WorkloadFacts {
    fn from(settings: Map<String, Value>) -> Self {
        Self(settings)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for WorkloadFacts {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        Self::SCHEMA.into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "object",
            "description": "The settings of a workload. A run with these settings, and with those beside them, measures \
                            the same again.",
        })
    }
}
