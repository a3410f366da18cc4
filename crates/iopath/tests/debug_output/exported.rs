//! The types that the crate exports, read from its sources, and those that a test has printed.

use std::any::{type_name, type_name_of_val};
use std::collections::BTreeSet;
use std::fmt::Debug;

/// The maximum bytes that a value prints for `{:?}`.
const BYTES_MAX: usize = 1024;

/// The maximum size of a type that is `Copy`: so many numbers and names of the library print briefly.
const COPY_BYTES_MAX: usize = 176;

/// Names of types, each as the crate that defines it and its name there: `iopath_os::Disk`.
#[derive(Default)]
pub(crate) struct Printed(BTreeSet<String>);

impl Printed {
    /// Prints a value.
    #[track_caller]
    pub(crate) fn short(&mut self, value: &impl Debug) {
        let (name, text) = (type_name_of_val(value), format!("{value:?}"));
        let bytes = text.len();
        assert!((1..=BYTES_MAX).contains(&bytes), "{name} prints {bytes} bytes: {text:.1024}…");
        // The type in an empty option is not printed.
        if text != "None" {
            self.add(name);
        }
    }

    /// A small type that is `Copy` holds no table, and no text of the program: any value prints briefly.
    #[track_caller]
    pub(crate) fn copy<T: Copy + Debug>(&mut self) {
        let (name, bytes) = (type_name::<T>(), size_of::<T>());
        assert!(bytes <= COPY_BYTES_MAX, "{name} has {bytes} bytes: print a value with the largest numbers");
        self.add(name);
    }

    /// Adds each type in a name such as `Option<iopath_os::target::Disk>`.
    fn add(&mut self, name: &str) {
        let is_part = |char: char| char.is_alphanumeric() || char == '_' || char == ':';
        for path in name.split(|char| !is_part(char)).filter(|path| path.starts_with("iopath")) {
            self.0.extend(short_path(path));
        }
    }

    /// The exported types that were not printed and that are not in `others`.
    pub(crate) fn missing(&self, others: &[&str]) -> Vec<String> {
        let exported = exported();
        let known = |name: &String| self.0.contains(name) || others.contains(&name.as_str());
        for other in others {
            assert!(exported.contains(*other), "{other} is not exported any longer: remove its row");
            assert!(!self.0.contains(*other), "{other} is printed here: remove its row");
        }
        exported.into_iter().filter(|name| !known(name)).collect()
    }
}

/// `iopath_os::target::disk::Disk` as `iopath_os::Disk`.
fn short_path(path: &str) -> Option<String> {
    let name = path.rsplit("::").next().filter(|name| is_type(name))?;
    let first = path.split("::").next().filter(|first| first.starts_with("iopath"));
    Some(format!("{}::{name}", first.unwrap_or("iopath")))
}

/// Whether a name is that of a type or trait: neither a function nor a constant.
fn is_type(name: &str) -> bool {
    name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase)
}

/// The exported types and traits: of the root of the crate, of the modules in it, and of the public modules in files.
fn exported() -> BTreeSet<String> {
    let source = |file: &str| {
        std::fs::read_to_string(format!("{}/src/{file}.rs", env!("CARGO_MANIFEST_DIR"))).expect("a source")
    };
    let root = source("lib");
    let files: Vec<String> = root
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        .map(source)
        .collect();
    for text in &files {
        let has_module = text.lines().any(|line| line.trim().starts_with("pub mod "));
        assert!(!has_module, "this test does not read public modules in files other than lib.rs");
    }
    let names: BTreeSet<String> =
        std::iter::once(&root).chain(&files).flat_map(|text| exports(text)).collect();
    assert!(names.len() > 100, "the sources have another form: {names:?}");
    names
}

/// The types and traits that the text of a file exports.
fn exports(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for item in text.split("pub use ").skip(1) {
        let item = item.split(';').next().unwrap_or_default();
        let is_read = !item.contains('*') && item.matches('{').count() <= 1;
        assert!(is_read, "this test does not read `pub use {item}`: list the names in one pair of braces");
        let (path, list) = item.split_once('{').unwrap_or((item, item));
        // The name in the crate that defines it, if it has another one here.
        let list = list.split([',', '}']).map(|name| name.split(" as ").next().unwrap_or_default().trim());
        names.extend(list.filter_map(|name| {
            let name = name.rsplit("::").next()?;
            short_path(&format!("{path}::{name}"))
        }));
    }
    let kinds = ["struct ", "enum ", "union ", "trait ", "type ", "unsafe trait "];
    for line in text.lines().filter_map(|line| line.trim().strip_prefix("pub ")) {
        let name = kinds.iter().find_map(|kind| line.strip_prefix(kind));
        let name = name.and_then(|name| name.split(|char: char| !char.is_alphanumeric()).next());
        names.extend(name.map(|name| format!("iopath::{name}")));
    }
    names
}
