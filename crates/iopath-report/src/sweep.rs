//! The results file of a sweep, `iopath.sweep/1`: the matrix, and the cells measured so far. Does not measure.
//!
//! After each cell, a new file replaces the previous one: an interruption at any time leaves a file that can be
//! resumed.

mod formats;
mod view;

use serde::{Deserialize, Serialize};

use crate::result::{Host, HostFacts, Origin, RunResult, TargetFacts};
use crate::shard::Shard;

/// The name and version of the schema.
pub const SCHEMA: &str = "iopath.sweep/1";

/// The lists that are options of a workload; the others are settings.
pub const OF_WORKLOAD: [&str; 5] = ["path", "rw", "bs", "iodepth", "numjobs"];

/// A sweep with the results so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// The share of the cells in this file; none if all are present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// Whether each cell has a result or a reason, in a share each of its cells.
    pub complete: bool,
    /// The device whose settings vary; none without settings of a device.
    pub device: Option<String>,
    /// The machine; none in virtual time.
    pub host: Option<Host>,
    /// The hosts of all ranks of a sweep under MPI, without their targets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostFacts>,
    /// The target of the first measured cell.
    pub target: Option<TargetFacts>,
    /// The axes of the matrix.
    pub axes: Vec<Axis>,
    /// All cells. The last axis varies fastest.
    pub cells: Vec<Cell>,
}

/// A cell of the matrix.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
        let (shard, hosts) = (None, Vec::new());
        Self {
            schema,
            origin,
            arguments,
            place,
            seed,
            shard,
            complete,
            device,
            host,
            hosts,
            target,
            axes,
            cells,
        }
    }

    /// Reads [`SweepFile::to_json`]. The schema is for the caller to check.
    ///
    /// # Errors
    /// The position and the cause: it is not one JSON document, or a key is missing or wrong.
    pub fn from_json(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(bytes)
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

/// A condition that varies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Axis {
    /// The name, as in options: `bs`, or that of a setting.
    pub name: String,
    /// The values as text.
    pub values: Vec<String>,
}

/// Where a sweep began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Place {
    /// The working directory.
    pub directory: String,
    /// The target; none of a model and of a server.
    pub target: Option<Identity>,
}

/// The identity of a file, a directory or a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Identity {
    /// The number of the block device, or of the filesystem of a file or directory.
    pub device: u64,
    /// The inode of a file or directory; none of a block device.
    pub inode: Option<u64>,
}
