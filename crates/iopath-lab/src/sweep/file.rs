//! Reads and writes the results file of a sweep. Its schema is in `iopath_report::sweep`.
//!
//! After each cell, a new file replaces the previous one: an interruption at any time leaves a file that can be
//! resumed.

use std::fs;
use std::path::Path;

use iopath_report::bounded;
use iopath_report::sweep::{Axis, Cell, SCHEMA, SweepFile};

use super::error::SweepError;
use super::matrix::product;
use iopath_bench::own_file;

/// The largest file that is read.
const BYTES_MAX: u64 = 1 << 30;

/// Reads a file.
///
/// # Errors
/// [`SweepError`]: it cannot be read, or is no sweep.
pub fn read(path: &Path) -> Result<SweepFile, SweepError> {
    let bytes = bounded::read_regular(path, BYTES_MAX).map_err(|source| SweepError::File {
        action: "read the sweep",
        path: path.to_owned(),
        source,
    })?;
    let problem = |problem: String| SweepError::NotResumable { path: path.to_owned(), problem };
    let file = SweepFile::from_json(&bytes).map_err(|error| problem(format!("it is no sweep ({error})")))?;
    if file.schema != SCHEMA {
        return Err(problem(format!("its schema is `{}`, and this version reads `{SCHEMA}`", file.schema)));
    }
    check(&file).map_err(problem)?;
    Ok(file)
}

/// Checks that the cells are the combinations of the axes, in their order.
fn check(file: &SweepFile) -> Result<(), String> {
    let SweepFile { axes, cells, .. } = file;
    if axes.is_empty() {
        return Err("it has no axis".to_owned());
    }
    for (index, Axis { name, values }) in axes.iter().enumerate() {
        if axes[..index].iter().any(|other| other.name == *name) {
            return Err(format!("axis {name} is there twice"));
        }
        let is_twice = |(index, value): (usize, &String)| values[..index].contains(value);
        if values.is_empty() || values.iter().enumerate().any(is_twice) {
            return Err(format!("axis {name} has no value, or one twice"));
        }
    }
    let expected = product(axes).map_err(|error| error.to_string())?;
    let is_expected = |(cell, indices): (&Cell, &Vec<usize>)| {
        let values = axes.iter().zip(indices).map(|(axis, index)| &axis.values[*index]);
        cell.values.iter().eq(values)
    };
    if cells.len() != expected.len() || !cells.iter().zip(&expected).all(is_expected) {
        return Err("its cells do not match its axes".to_owned());
    }
    Ok(())
}

/// Whether a new sweep may write to this file.
///
/// # Errors
/// [`SweepError`]: it has an unfinished sweep or is of another program.
pub fn check_replaceable(path: &Path) -> Result<(), SweepError> {
    match fs::metadata(path) {
        Err(_) => return Ok(()),
        Ok(about) if about.is_file() && about.len() == 0 => return Ok(()),
        Ok(_) => {}
    }
    match read(path) {
        Ok(earlier) if earlier.complete => Ok(()),
        Ok(_) => Err(SweepError::Unfinished { path: path.to_owned() }),
        Err(_) => Err(SweepError::Foreign { path: path.to_owned() }),
    }
}

/// Replaces the file as a whole.
///
/// # Errors
/// [`SweepError::File`]: the previous file is unchanged.
pub fn write(file: &SweepFile, path: &Path) -> Result<(), SweepError> {
    own_file::replace(path, file.to_json().as_bytes()).map_err(|source| SweepError::File {
        action: "write the results to",
        path: path.to_owned(),
        source,
    })
}
