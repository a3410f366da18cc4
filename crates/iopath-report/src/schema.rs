//! The JSON Schemas of all documents that the program writes. The files in docs/schema are these schemas; a test
//! compares them. The fields and their comments are those of the types.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use crate::result::{Origin, WorkloadFacts};
use crate::{compare, experiment, fit, map, replay, sweep, tune, whatif};
use crate::{elevators, exports, result};

/// The schema of a document.
#[derive(Debug, Clone, Copy)]
pub struct SchemaRow {
    /// The name and version in the document, such as `iopath.result/1`.
    pub name: &'static str,
    generate: fn(&mut SchemaGenerator) -> Value,
}

/// The schemas of all documents.
pub static SCHEMAS: &[SchemaRow] = &[
    row::<result::Report>(result::SCHEMA),
    row::<compare::Comparison>(compare::SCHEMA),
    row::<sweep::SweepFile>(sweep::SCHEMA),
    row::<experiment::ExperimentsDocument<'static>>(experiment::EXPERIMENTS_SCHEMA),
    row::<fit::FitReport>(fit::SCHEMA),
    row::<whatif::WhatIfReport>(whatif::SCHEMA),
    row::<replay::ReplayReport>(replay::SCHEMA),
    row::<map::FileMap>(map::SCHEMA),
    row::<elevators::ElevatorList>(elevators::SCHEMA),
    row::<tune::TuneReport>(tune::SCHEMA),
    row::<tune::TrialReport>(tune::TRIAL_SCHEMA),
    row::<exports::Exports>(exports::SCHEMA),
    row::<iopath_log::Report>(iopath_log::SUMMARY_SCHEMA),
];

const fn row<T: JsonSchema>(name: &'static str) -> SchemaRow {
    SchemaRow { name, generate: |generator| generator.root_schema_for::<T>().to_value() }
}

impl SchemaRow {
    /// The file below docs/schema: `iopath.result/1` is `result-1.json`.
    pub fn file(&self) -> String {
        let name = self.name.strip_prefix("iopath.").unwrap_or(self.name);
        format!("{}.json", name.replace('/', "-"))
    }

    /// The schema as indented JSON, with a newline at the end. `of_workload` is that of the settings of a workload,
    /// which the table of options has.
    pub fn to_json(&self, of_workload: &Value) -> String {
        let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
        // The program adds the origin to each document that it writes.
        let origin = generator.subschema_for::<Origin>().to_value();
        let mut schema = (self.generate)(&mut generator);
        let definitions = schema.get_mut("$defs").and_then(Value::as_object_mut);
        if let Some(definition) = definitions.and_then(|all| all.get_mut(WorkloadFacts::SCHEMA)) {
            for (key, value) in of_workload.as_object().into_iter().flatten() {
                definition[key] = value.clone();
            }
        }
        let properties = schema.get_mut("properties").expect("each document is an object");
        properties["schema"] =
            json!({ "const": self.name, "description": "The name and version of this schema." });
        if properties.get("origin").is_none() {
            properties["origin"] = origin;
        }
        schema["$id"] = format!("urn:iopath:{}", self.file().trim_end_matches(".json")).into();
        schema["title"] = self.name.into();
        serde_json::to_string_pretty(&schema).expect("a schema is JSON") + "\n"
    }
}
