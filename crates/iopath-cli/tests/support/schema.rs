//! Checks documents of the program against their schemas in docs/schema.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// Forbids unknown keys: readers ignore them, and the program writes none.
fn forbid_unknown(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.contains_key("properties") {
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
            fields.values_mut().for_each(forbid_unknown);
        }
        Value::Array(values) => values.iter_mut().for_each(forbid_unknown),
        _ => {}
    }
}

/// Checks a document of the program that these arguments printed.
pub(crate) fn check(document: &Value, args: &[&str]) {
    let name = document["schema"].as_str().unwrap_or_else(|| panic!("{args:?} has no schema: {document}"));
    let file = format!("{}.json", name.strip_prefix("iopath.").unwrap().replace('/', "-"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema").join(file);
    let mut schema: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert!(jsonschema::meta::is_valid(&schema), "{} is no JSON Schema", path.display());
    forbid_unknown(&mut schema);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(document).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{args:?}: {errors:#?}");
    let origin = &document["origin"];
    assert_eq!(origin["version"], env!("CARGO_PKG_VERSION"), "{args:?}");
    let command: Vec<&str> =
        origin["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    assert!(args.iter().all(|arg| command.contains(arg)), "{args:?}: {command:?}");
    assert!(origin["started"].as_str().unwrap().ends_with('Z'), "{origin}");
}
