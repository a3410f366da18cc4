//! The files of docs/schema are the schemas of the types. `IOPATH_BLESS=1 cargo test -p iopath-lab schema`
//! writes them.

use std::fs;
use std::path::Path;

use iopath_bench::options::schema_of_facts;
use iopath_report::schema::SCHEMAS;

#[test]
fn the_files_in_docs_are_the_schemas_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
    let of_workload = schema_of_facts();
    let is_written = std::env::var_os("IOPATH_BLESS").is_some();
    for row in SCHEMAS {
        let file = folder.join(row.file());
        if is_written {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&file, row.to_json(&of_workload)).unwrap();
        }
        let written = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            written == row.to_json(&of_workload),
            "docs/schema/{} is not the schema of {}; write it with IOPATH_BLESS=1 cargo test -p iopath-lab schema",
            row.file(),
            row.name
        );
    }
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let unknown: Vec<String> = files.filter(|file| SCHEMAS.iter().all(|row| row.file() != *file)).collect();
    assert!(unknown.is_empty(), "docs/schema has files of no schema: {unknown:?}");
}
