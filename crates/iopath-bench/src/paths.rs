//! The table of measurable paths. Each path is one file below `paths/` and one row here; files without a row contain
//! code shared by several paths.

mod batch;
pub mod iopath_buffered;
pub mod iopath_direct;
pub(crate) mod iopath_raw;
mod kernel;
pub mod kernel_buffered;
pub mod kernel_direct;
pub mod kernel_mmap;
pub mod kernel_uring;
mod noop;
pub mod null;
mod passes;
mod spread;

use iopath_report::UnknownName;

use crate::path::PathRow;

/// All paths, in the order of tables and help.
pub static PATHS: &[&PathRow] = &[
    &kernel_buffered::ROW,
    &kernel_direct::ROW,
    &kernel_uring::ROW,
    &kernel_mmap::ROW,
    &iopath_direct::ROW,
    &iopath_raw::ROW,
    &iopath_buffered::ROW,
    &null::ROW,
    &noop::ROW,
];

/// The row of a path.
///
/// # Errors
/// [`UnknownName`], with the known names.
pub fn find_path(name: &str) -> Result<&'static PathRow, UnknownName> {
    PATHS.iter().copied().find(|row| row.name == name).ok_or_else(|| UnknownName {
        kind: "path",
        name: name.to_owned(),
        known: PATHS.iter().map(|row| row.name).collect(),
    })
}

#[cfg(test)]
mod tests {
    use iopath_report::result::{PATH_NAMES, WITHOUT_TARGET};

    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for row in PATHS {
            assert_eq!(PATHS.iter().filter(|other| other.name == row.name).count(), 1, "{}", row.name);
            assert_eq!(find_path(row.name).unwrap().name, row.name);
            assert!(!row.about.is_empty(), "{}", row.name);
        }
    }

    #[test]
    fn the_names_in_results_are_those_of_the_table() {
        let names: Vec<&str> = PATHS.iter().map(|row| row.name).collect();
        assert_eq!(names, PATH_NAMES);
        let without = PATHS.iter().filter(|row| !row.capabilities.needs_target).map(|row| row.name);
        assert_eq!(without.collect::<Vec<_>>(), WITHOUT_TARGET);
    }

    #[test]
    fn an_unknown_path_is_refused_with_a_list_of_paths() {
        let text = find_path("kernel").unwrap_err().to_string();
        assert!(text.starts_with("unknown path `kernel`; use one of: kernel-buffered, "), "{text}");
    }
}
