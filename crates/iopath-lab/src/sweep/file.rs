//! The results file of a sweep, `iopath.sweep/1`: the matrix, and the cells measured so far. Does not measure.
//!
//! After each cell, a new file replaces the previous one: an interruption at any time leaves a file that can be
//! resumed.

use std::fs;
use std::path::Path;

use iopath_report::bounded;
use iopath_report::result::{Host, Origin, RunResult, TargetFacts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::matrix::{Axis, product};
use super::place::Place;
use crate::own_file;
use crate::sweep_error::SweepError;

/// The name and version of the schema.
pub const SCHEMA: &str = "iopath.sweep/1";

/// The largest file that is read.
const BYTES_MAX: u64 = 1 << 30;

/// A sweep with the results so far.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct SweepFile {
    /// [`SCHEMA`].
    pub schema: String,
    /// The program, and the command that began the sweep; none in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The arguments of the command, for `--resume`.
    pub arguments: Vec<String>,
    /// The directory and the target, for `--resume`; none in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// The seed of the order of measurement.
    pub seed: u64,
    /// Whether each cell has a result or a reason.
    pub complete: bool,
    /// The device whose settings vary; none without settings of a device.
    pub device: Option<String>,
    /// The machine; none in virtual time.
    pub host: Option<Host>,
    /// The target of the first measured cell.
    pub target: Option<TargetFacts>,
    /// The axes of the matrix.
    pub axes: Vec<Axis>,
    /// All cells. The last axis varies fastest.
    pub cells: Vec<Cell>,
}

/// A cell of the matrix.
#[derive(Debug, Clone, PartialEq, Default, JsonSchema, Serialize, Deserialize)]
pub struct Cell {
    /// The value of each axis.
    pub values: Vec<String>,
    /// The result; none if it is not measured.
    pub run: Option<RunResult>,
    /// The reason why the cell cannot run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Settings that another program changed while the cell ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<String>,
}

impl Cell {
    /// Whether it has a result or a reason.
    pub fn is_done(&self) -> bool {
        self.run.is_some() || self.skipped.is_some()
    }
}

impl SweepFile {
    /// A sweep without results.
    pub fn new(arguments: Vec<String>, seed: u64, axes: Vec<Axis>, cells: Vec<Vec<String>>) -> Self {
        let cells = cells.into_iter().map(|values| Cell { values, ..Cell::default() }).collect();
        let (schema, complete) = (SCHEMA.to_owned(), false);
        let (origin, place, device, host, target) = (None, None, None, None, None);
        Self { schema, origin, arguments, place, seed, complete, device, host, target, axes, cells }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`SweepError`]: it cannot be read, or is no sweep.
    pub fn read(path: &Path) -> Result<Self, SweepError> {
        let bytes = bounded::read_regular(path, BYTES_MAX).map_err(|source| SweepError::File {
            action: "read the sweep",
            path: path.to_owned(),
            source,
        })?;
        let problem = |problem: String| SweepError::NotResumable { path: path.to_owned(), problem };
        let file: Self =
            serde_json::from_slice(&bytes).map_err(|error| problem(format!("it is no sweep ({error})")))?;
        if file.schema != SCHEMA {
            return Err(problem(format!(
                "its schema is `{}`, and this version reads `{SCHEMA}`",
                file.schema
            )));
        }
        file.check().map_err(problem)?;
        Ok(file)
    }

    /// Checks that the cells are the combinations of the axes, in their order.
    fn check(&self) -> Result<(), String> {
        let Self { axes, cells, .. } = self;
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
        match Self::read(path) {
            Ok(earlier) if earlier.complete => Ok(()),
            Ok(_) => Err(SweepError::Unfinished { path: path.to_owned() }),
            Err(_) => Err(SweepError::Foreign { path: path.to_owned() }),
        }
    }

    /// Replaces the file as a whole.
    ///
    /// # Errors
    /// [`SweepError::File`]: the previous file is unchanged.
    pub fn write(&self, path: &Path) -> Result<(), SweepError> {
        own_file::replace(path, self.to_json().as_bytes()).map_err(|source| SweepError::File {
            action: "write the results to",
            path: path.to_owned(),
            source,
        })
    }

    /// The file as indented JSON, with a newline at the end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("JSON can represent all fields") + "\n"
    }

    /// A cell in words: the values of all axes with several values.
    pub fn name(&self, cell: &Cell) -> String {
        let several = self.axes.len() > 1;
        let shown = self.axes.iter().zip(&cell.values).filter(|(axis, _)| axis.values.len() > 1 || !several);
        shown.map(|(axis, value)| format!("{} {value}", axis.name)).collect::<Vec<_>>().join(", ")
    }

    /// The number of cells with a result, and of those without one for a reason.
    pub fn counts(&self) -> [usize; 2] {
        let of = |is: fn(&Cell) -> bool| self.cells.iter().filter(|cell| is(cell)).count();
        [of(|cell| cell.run.is_some()), of(|cell| cell.skipped.is_some())]
    }
}
