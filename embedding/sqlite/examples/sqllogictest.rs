//! Runs files of sqllogictest over SQLite's VFS `unix` and over volumes of iopath, and compares each result:
//! `cargo run --release --example sqllogictest -- DIRECTORY [PART OF A PATH]...`. Fails if a result of the two differs.
//!
//! Also compares with the results in the files; those were written for another version of SQLite, so a difference
//! that both VFSs have is only counted.

use iopath_vfs::{Files, IopathVfs};
use md5::{Digest, Md5};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use sqlite_plugin::vfs::{RegisterOpts, register_static};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const JOURNAL_MODES: [&str; 4] = ["delete", "truncate", "persist", "wal"];

/// A record of a file.
#[derive(Default)]
struct Record {
    line: usize,
    sql: String,
    is_error: bool,
    /// `None` for a statement.
    query: Option<Query>,
}

struct Query {
    types: Vec<char>,
    sort: Sort,
    expected: Option<Vec<String>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    None,
    Rows,
    Values,
}

#[derive(Default)]
struct Totals {
    files: usize,
    statements: usize,
    queries: usize,
    values: usize,
    differ_from_unix: usize,
    /// Results of both sides that are not those of the file.
    differ_from_file: usize,
}

/// The outcome of a record: values, or an error.
type Outcome = Result<Vec<String>, rusqlite::Error>;

fn main() {
    let vfs = IopathVfs::new(Files::from_env());
    assert!(register_static(c"iopath".to_owned(), vfs, RegisterOpts { make_default: false }).is_ok());
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().expect("usage: sqllogictest DIRECTORY [PART OF A PATH]...");
    let parts: Vec<String> = arguments.collect();
    let mut files = Vec::new();
    find(Path::new(&directory), &mut files);
    files.retain(|file| {
        let name = file.to_string_lossy();
        parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str()))
    });
    files.sort();
    let mut totals = Totals::default();
    for (index, file) in files.iter().enumerate() {
        run(file, JOURNAL_MODES[index % JOURNAL_MODES.len()], &mut totals);
        if index % 20 == 19 {
            print(&totals);
        }
    }
    print(&totals);
    assert!(totals.queries > 0, "{directory} has no file with a query");
    assert!(totals.differ_from_unix == 0, "results differ");
}

fn print(totals: &Totals) {
    let Totals { files, statements, queries, values, differ_from_unix, differ_from_file } = totals;
    println!(
        "{files} files, {statements} statements, {queries} queries, {values} values: {differ_from_unix} differ from unix, {differ_from_file} of both from the file"
    );
}

fn find(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory that can be read") {
        let path = entry.expect("an entry that can be read").path();
        if path.is_dir() {
            find(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "test") {
            files.push(path);
        }
    }
}

/// Runs a file on both sides, each with a new database.
fn run(file: &Path, journal_mode: &str, totals: &mut Totals) {
    let text = std::fs::read_to_string(file).expect("a file of UTF-8");
    let directory = tempfile::tempdir().expect("a new directory");
    let paths = ["unix", "iopath"].map(|side| (side, directory.path().join(side)));
    let open = |(side, path): &(&str, PathBuf)| {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let connection = Connection::open_with_flags_and_vfs(path, flags, *side).expect("a new database");
        let set = format!("pragma journal_mode = {journal_mode}");
        let mode: String = connection.query_row(&set, [], |row| row.get(0)).expect("a journal mode");
        assert_eq!(mode, journal_mode);
        // The files test results, not durability.
        connection.execute_batch("pragma synchronous = off").expect("a pragma");
        connection
    };
    let sides = paths.each_ref().map(open);
    for record in records(&text) {
        let [unix, iopath] = sides.each_ref().map(|connection| execute(connection, &record));
        totals.statements += usize::from(record.query.is_none());
        totals.queries += usize::from(record.query.is_some());
        totals.values += iopath.as_ref().map_or(0, Vec::len);
        if unix != iopath {
            totals.differ_from_unix += 1;
            println!("{}:{}: {unix:?} with unix, {iopath:?}", file.display(), record.line);
        } else if !is_expected(&record, &iopath) {
            totals.differ_from_file += 1;
        }
    }
    drop(sides);
    for path in &paths {
        let check = open(path).query_row("pragma integrity_check", [], |row| row.get::<_, String>(0));
        assert_eq!(check.as_deref(), Ok("ok"), "{}, {}", file.display(), path.0);
    }
    totals.files += 1;
}

fn execute(connection: &Connection, record: &Record) -> Outcome {
    let Some(query) = &record.query else {
        return connection.execute_batch(&record.sql).map(|()| Vec::new());
    };
    let mut statement = connection.prepare(&record.sql)?;
    let columns = statement.column_count();
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let types = query.types.iter().chain(std::iter::repeat(&'T'));
        let value = |(column, kind)| row.get_ref(column).map(|value| text_of(value, kind));
        found.push((0..columns).zip(types.copied()).map(value).collect::<Result<Vec<_>, _>>()?);
    }
    if query.sort == Sort::Rows {
        found.sort();
    }
    let mut values: Vec<String> = found.into_iter().flatten().collect();
    if query.sort == Sort::Values {
        values.sort();
    }
    Ok(values)
}

/// The text of a value, as SQLite's runner of these files prints it.
fn text_of(value: ValueRef<'_>, kind: char) -> String {
    let bytes = match value {
        ValueRef::Null => return "NULL".to_owned(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        ValueRef::Integer(number) if kind == 'R' => return format!("{:.3}", number as f64),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) if kind == 'R' => return format!("{number:.3}"),
        ValueRef::Real(number) if kind == 'I' => return (number as i64).to_string(),
        ValueRef::Real(number) => number.to_string(),
    };
    match kind {
        'I' => leading_number(&bytes, |c| c.is_ascii_digit()).parse::<i64>().unwrap_or(0).to_string(),
        'R' => {
            let number = leading_number(&bytes, |c| c.is_ascii_digit() || c == '.');
            format!("{:.3}", number.parse::<f64>().unwrap_or(0.0))
        }
        _ if bytes.is_empty() => "(empty)".to_owned(),
        _ => bytes.chars().map(|c| if (' '..='~').contains(&c) { c } else { '@' }).collect(),
    }
}

fn leading_number(text: &str, belongs: fn(char) -> bool) -> &str {
    let text = text.trim_start();
    let sign = usize::from(text.starts_with(['-', '+']));
    let end = text[sign..].find(|c| !belongs(c)).map_or(text.len(), |at| sign + at);
    &text[..end]
}

fn is_expected(record: &Record, outcome: &Outcome) -> bool {
    match (outcome, record.query.as_ref().and_then(|query| query.expected.as_ref())) {
        (Err(_), _) => record.is_error,
        (Ok(_), None) => !record.is_error,
        (Ok(values), Some(expected)) => {
            let hash = format!("{} values hashing to {}", values.len(), md5(values));
            values == expected || expected.first().is_some_and(|first| *first == hash)
        }
    }
}

fn md5(values: &[String]) -> String {
    let mut state = Md5::new();
    for value in values {
        state.update(value);
        state.update("\n");
    }
    state.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The records of a file that SQLite executes.
fn records(text: &str) -> Vec<Record> {
    let mut records = Vec::new();
    let mut lines = text.lines().map(str::trim_end).enumerate();
    let mut is_skipped = false;
    while let Some((number, line)) = lines.next() {
        let mut words = line.split_whitespace();
        let (kind, word) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let (mut record, mut is_statement) = (Record { line: number + 1, ..Record::default() }, true);
        match kind {
            "skipif" => is_skipped |= word == "sqlite",
            "onlyif" => is_skipped |= word != "sqlite",
            "halt" if !is_skipped => break,
            "halt" | "hash-threshold" => is_skipped = false,
            _ => {}
        }
        match kind {
            "statement" => record.is_error = word == "error",
            "query" => {
                is_statement = false;
                let sort = match words.next() {
                    Some("rowsort") => Sort::Rows,
                    Some("valuesort") => Sort::Values,
                    _ => Sort::None,
                };
                record.query = Some(Query { types: word.chars().collect(), sort, expected: None });
            }
            _ => continue,
        }
        let mut expected: Option<Vec<String>> = None;
        for (_, line) in lines.by_ref() {
            match &mut expected {
                _ if line.is_empty() => break,
                Some(values) => values.push(line.to_owned()),
                None if line == "----" && !is_statement => expected = Some(Vec::new()),
                None => {
                    record.sql.push_str(line);
                    record.sql.push('\n');
                }
            }
        }
        if let Some(query) = &mut record.query {
            query.expected = expected;
        }
        if !std::mem::take(&mut is_skipped) {
            records.push(record);
        }
    }
    records
}
