//! The values of options in results: the object `workload` of a run with its schema, and what a comparison does with
//! different values. Does not read results: `iopath-lab/src/compare/ours.rs` does.

use iopath_report::result::WorkloadFacts;
use iopath_report::size::format_size;
use serde_json::{Map, Value, json};

use super::{OptionRow, options};
use crate::workload::Workload;

/// The value of a setting that a workload lacks, such as a rate: a workload with a rate differs from one without.
pub const NONE: &str = "none";

/// A workload that has run.
#[derive(Debug, Clone, Copy)]
pub struct Ran<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// The end of its range in bytes.
    pub end_bytes: u64,
    /// The I/O engine that transferred the bytes.
    pub engine: Option<&'a str>,
}

/// The value of an option in a result.
#[derive(Debug, Clone, Copy)]
pub struct Fact {
    /// The key in a run, or in its `workload` if the value is stated here. A dot separates the keys of an object.
    pub key: &'static str,
    /// The type.
    pub kind: Kind,
    /// The difference of two results.
    pub difference: Difference,
    /// The value for `workload`; none if the result has a field of its own for it.
    stated: Option<Stated>,
}

/// A value in the `workload` of a run.
#[derive(Debug, Clone, Copy)]
struct Stated {
    /// Its meaning in the schema.
    about: &'static str,
    presence: Presence,
    value: fn(&Ran) -> Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Always,
    /// None is `null`.
    OrNull,
    /// The key is absent without a value.
    IfUsed,
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole number.
    Whole,
    /// A whole number that may be negative.
    Signed,
    /// A number.
    Number,
    /// A text.
    Text,
    /// True or false.
    Flag,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Nanoseconds.
    Nanoseconds,
    /// An object, which comparisons show as this text.
    Object(&'static str),
}

/// What a comparison does with results that have different values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// It does not read the value.
    Ignored,
    /// It shows the difference.
    Shown,
    /// It refuses them. Each result has the value.
    Refused,
    /// It refuses them, if both have the value.
    RefusedIfKnown,
    /// It refuses them. A result without the value has this one.
    RefusedOr(&'static str),
}

impl Kind {
    /// The value as the text of a comparison; none if it has another type.
    pub fn text(self, value: &Value) -> Option<String> {
        let number = || value.as_f64().filter(|number| number.is_finite() && *number >= 0.0);
        match self {
            Self::Whole => value.as_u64().map(|number| number.to_string()),
            Self::Signed => value.as_i64().map(|number| number.to_string()),
            Self::Number => number().map(|number| number.to_string()),
            Self::Text => value.as_str().map(str::to_owned),
            Self::Flag => value.as_bool().map(|flag| flag.to_string()),
            Self::Bytes => value.as_u64().map(format_size),
            Self::Seconds => number().map(|seconds| format!("{seconds} s")),
            Self::Nanoseconds => value.as_u64().map(|ns| format!("{ns} ns")),
            Self::Object(text) => value.as_object().map(|_| text.to_owned()),
        }
    }

    /// The type in JSON Schema.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Whole | Self::Signed | Self::Bytes | Self::Nanoseconds => "integer",
            Self::Number | Self::Seconds => "number",
            Self::Text => "string",
            Self::Flag => "boolean",
            Self::Object(_) => "object",
        }
    }
}

impl Fact {
    /// A value that has a field of its own in a run.
    pub(super) const fn of_run(key: &'static str, kind: Kind, difference: Difference) -> Self {
        Self { key, kind, difference, stated: None }
    }

    /// Whether the key is in the `workload` of a run.
    pub const fn is_stated(&self) -> bool {
        self.stated.is_some()
    }

    /// The stated value of a workload as the text of a condition, if different ones are refused.
    pub fn condition_of(&self, ran: &Ran) -> Option<String> {
        let value = (self.stated?.value)(ran).and_then(|value| self.kind.text(&value));
        match self.difference {
            Difference::Ignored | Difference::Shown => None,
            Difference::Refused | Difference::RefusedIfKnown => value,
            Difference::RefusedOr(absent) => Some(value.unwrap_or_else(|| absent.to_owned())),
        }
    }
}

impl OptionRow {
    /// Its value is in the `workload` of a run, whose key is absent without a value.
    pub(super) const fn states(
        self,
        key: &'static str,
        kind: Kind,
        difference: Difference,
        about: &'static str,
        value: fn(&Ran) -> Option<Value>,
    ) -> Self {
        let stated = Some(Stated { about, presence: Presence::IfUsed, value });
        Self { fact: Some(Fact { key, kind, difference, stated }), ..self }
    }

    /// Each workload has the stated value.
    pub(super) const fn always(self) -> Self {
        self.present(Presence::Always)
    }

    /// The key of the stated value is always there, with `null` for no value.
    pub(super) const fn or_null(self) -> Self {
        self.present(Presence::OrNull)
    }

    const fn present(self, presence: Presence) -> Self {
        let Some(Fact { stated: Some(stated), key, kind, difference }) = self.fact else { return self };
        let stated = Some(Stated { presence, ..stated });
        Self { fact: Some(Fact { key, kind, difference, stated }), ..self }
    }

    /// The name in comparisons: that of the flag, or of the key in the form of a flag.
    pub fn compared_name(&self) -> String {
        let of_key = || self.key.map(|key| key.names[0].replace('_', "-"));
        self.name().map(str::to_owned).or_else(of_key).unwrap_or_default()
    }
}

fn all_stated() -> impl Iterator<Item = (Fact, Stated)> {
    options().filter_map(|row| row.fact).filter_map(|fact| Some((fact, fact.stated?)))
}

/// The `workload` of the result of a run.
pub(crate) fn workload_facts(ran: &Ran) -> WorkloadFacts {
    let mut facts = Map::new();
    for (fact, Stated { presence, value, .. }) in all_stated() {
        let value = value(ran);
        let (object, key) = match fact.key.split_once('.') {
            Some((outer, key)) => (facts.get_mut(outer).and_then(Value::as_object_mut), key),
            None => (Some(&mut facts), fact.key),
        };
        let Some(object) = object else { continue };
        assert!(value.is_some() || presence != Presence::Always, "each workload has {key}");
        if value.is_some() || presence == Presence::OrNull {
            object.insert(key.to_owned(), value.unwrap_or(Value::Null));
        }
    }
    WorkloadFacts::from(facts)
}

/// The JSON Schema of the `workload` of a result.
pub fn schema_of_facts() -> Value {
    let mut schema = json!({ "type": "object" });
    for (Fact { key, kind, .. }, Stated { about, presence, .. }) in all_stated() {
        let (object, key) = match key.split_once('.') {
            Some((outer, key)) => (&mut schema["properties"][outer], key),
            None => (&mut schema, key),
        };
        let name = kind.name();
        let types = if presence == Presence::OrNull { json!([name, "null"]) } else { json!(name) };
        object["properties"][key] = json!({ "type": types, "description": about });
        if name == "integer" && kind != Kind::Signed {
            object["properties"][key]["minimum"] = json!(0);
        }
        match (&mut object["required"], presence) {
            (_, Presence::IfUsed) => {}
            (Value::Array(required), _) => required.push(key.into()),
            (none, _) => *none = json!([key]),
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docs_table;

    #[test]
    fn the_documentation_has_the_table_of_facts() {
        let line = |row: &OptionRow| {
            let Fact { key, stated, .. } = row.fact?;
            let Stated { about, presence, .. } = stated?;
            let option = row.flag.or(row.key.map(|key| key.names[0])).unwrap_or_default();
            let without = match presence {
                Presence::Always => "",
                Presence::OrNull => "`null`",
                Presence::IfUsed => "absent",
            };
            Some(format!("| `{key}` | `{option}` | {} | {without} |", about.trim_end_matches('.')))
        };
        let rows: Vec<String> = options().filter_map(line).collect();
        docs_table::check("docs/result.md", "### `workload`", &rows);
    }
}
