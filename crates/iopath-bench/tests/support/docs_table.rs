//! Tables in the documentation that tests compare with their source. `IOPATH_BLESS=1` writes them.

use std::env;
use std::fs;
use std::path::Path;

/// Compares the rows of the first table below a heading with those of the source.
pub(crate) fn check(file: &str, heading: &str, rows: &[String]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let section = lines.iter().position(|line| *line == heading).expect("the page has the heading");
    // The names of the columns, and the line below them.
    let first = section + lines[section..].iter().take_while(|line| !line.starts_with('|')).count() + 2;
    let count = lines[first..].iter().take_while(|line| line.starts_with('|')).count();
    if env::var_os("IOPATH_BLESS").is_some() {
        let rows = rows.iter().map(String::as_str);
        let all = lines[..first].iter().copied().chain(rows).chain(lines[first + count..].iter().copied());
        fs::write(&path, all.chain([""]).collect::<Vec<_>>().join("\n")).unwrap();
        return;
    }
    let way_out =
        "write the table with IOPATH_BLESS=1 cargo test -p iopath-bench -p iopath-fio the_documentation_has";
    assert_eq!(&lines[first..first + count], rows, "{file}: {way_out}");
}
