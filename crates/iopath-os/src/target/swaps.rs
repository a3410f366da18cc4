//! The table of active swap areas, `/proc/swaps` (proc(5)).
//!
//! It lists areas in use. `target/signature.rs` finds a swap signature on a device that is not in use.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::roots::{Roots, TableError, unescape_octal};

/// The paths of active swap areas, devices and files alike.
///
/// A kernel without swap has no table; the list is empty then.
///
/// # Errors
/// [`TableError::Read`] or [`TableError::Malformed`].
pub fn load(roots: &Roots) -> Result<Vec<PathBuf>, TableError> {
    let path = roots.proc.join("swaps");
    match fs::read(&path) {
        Ok(table) => parse(&table).map_err(|(line, text)| TableError::Malformed { path, line, text }),
        Err(e) if e.kind() == ErrorKind::NotFound && roots.proc.join("self").exists() => Ok(Vec::new()),
        Err(source) => Err(TableError::Read { path, source }),
    }
}

/// Parses the table: a heading, then a line per area that begins with its escaped path.
///
/// # Errors
/// Number (from 1) and text of the first line of unknown form.
pub fn parse(table: &[u8]) -> Result<Vec<PathBuf>, (usize, String)> {
    let lines = table.split(|&byte| byte == b'\n').enumerate().skip(1).filter(|(_, line)| !line.is_empty());
    lines
        .map(|(at, line)| {
            parse_line(line).ok_or_else(|| (at + 1, String::from_utf8_lossy(line).into_owned()))
        })
        .collect()
}

/// `path type size used priority`, separated by spaces and tabs.
fn parse_line(line: &[u8]) -> Option<PathBuf> {
    let mut fields = line.split(|&byte| byte == b' ' || byte == b'\t').filter(|field| !field.is_empty());
    let path = fields.next()?;
    (fields.count() == 4).then(|| PathBuf::from(OsString::from_vec(unescape_octal(path))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn devices_and_files_are_listed_with_their_real_paths() {
        let table = b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
/dev/sda2                               partition\t8388604\t\t0\t\t-2\n\
/var/swap\\040file                       file\t\t1048572\t\t12\t\t-3\n";
        assert_eq!(parse(table), Ok(vec!["/dev/sda2".into(), "/var/swap file".into()]));
    }

    #[test]
    fn no_area_is_an_empty_list() {
        assert_eq!(parse(b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"), Ok(vec![]));
        assert_eq!(parse(b""), Ok(vec![]));
    }

    #[test]
    fn a_line_of_unknown_form_is_an_error() {
        assert_eq!(parse(b"Filename\n/dev/sda2 partition\n"), Err((2, "/dev/sda2 partition".to_owned())));
    }

    proptest! {
        #[test]
        fn parsing_any_bytes_does_not_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
