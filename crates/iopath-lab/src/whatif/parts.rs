//! Joins the parts of a study that was spread over several processes. The result is that of one process, to the byte.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use iopath_report::bounded;
use iopath_report::whatif::{CellReport, InputReport, SCHEMA, WhatIfReport};

use super::error::WhatIfError;
use super::verdict::verdict;

/// The maximum size of a part.
const PART_BYTES_MAX: u64 = 1 << 30;

/// Reads parts, and joins them.
///
/// # Errors
/// A file is no part of the same study, two parts have the same cell, or a cell is missing.
pub fn merge(parts: &[PathBuf]) -> Result<WhatIfReport, WhatIfError> {
    let mut merged: Option<WhatIfReport> = None;
    let mut inputs: BTreeMap<u64, InputReport> = BTreeMap::new();
    for path in parts {
        let part = read(path)?;
        let wrong = |problem: String| WhatIfError::NotAPart { path: path.clone(), problem };
        let study =
            merged.get_or_insert_with(|| WhatIfReport { inputs: Vec::new(), shard: None, ..part.clone() });
        if study.study != part.study {
            return Err(wrong(
                "it is of another study than the first part; name parts with the same inputs and options"
                    .to_owned(),
            ));
        }
        for input in part.inputs {
            let Some(known) = inputs.get_mut(&input.number) else {
                inputs.insert(input.number, input);
                continue;
            };
            let twice = |cell: &CellReport| known.cells.iter().any(|other| other.number == cell.number);
            if let Some(cell) = input.cells.iter().find(|cell| twice(cell)) {
                return Err(wrong(format!(
                    "it has cell {}, as an earlier part; name each part once",
                    cell.number
                )));
            }
            let facts = |input: &InputReport| InputReport { cells: Vec::new(), ..input.clone() };
            if facts(known) != facts(&input) {
                return Err(wrong(format!(
                    "its input {} differs from that of an earlier part; use the same files for all parts",
                    input.name
                )));
            }
            known.cells.extend(input.cells);
        }
    }
    let Some(merged) = merged else {
        return Err(WhatIfError::Missing { missing: 1, all: 1, first: 0 });
    };
    let mut has: Vec<u64> = Vec::new();
    for input in inputs.values_mut() {
        input.cells.sort_by_key(|cell| cell.number);
        has.extend(input.cells.iter().map(|cell| cell.number));
    }
    has.sort_unstable();
    has.dedup();
    let all = merged.study.cells;
    if let Some(first) = (0..all).find(|cell| has.binary_search(cell).is_err()) {
        let missing = all.saturating_sub(has.len() as u64).max(1);
        return Err(WhatIfError::Missing { missing, all, first });
    }
    Ok(with_verdicts(WhatIfReport { inputs: inputs.into_values().collect(), origin: None, ..merged }))
}

fn read(path: &Path) -> Result<WhatIfReport, WhatIfError> {
    let bytes = bounded::read(path, PART_BYTES_MAX)
        .map_err(|source| WhatIfError::Part { path: path.to_owned(), source })?;
    let part = WhatIfReport::from_json(&bytes).map_err(|error| WhatIfError::NotAPart {
        path: path.to_owned(),
        problem: format!("it is no part of a study: {error}; name files of iopath whatif --shard"),
    })?;
    if part.schema != SCHEMA {
        let problem = format!("its schema is {}, and this program reads {SCHEMA}", part.schema);
        return Err(WhatIfError::NotAPart { path: path.to_owned(), problem });
    }
    Ok(part)
}

/// The report with the verdict of each input.
pub(crate) fn with_verdicts(mut report: WhatIfReport) -> WhatIfReport {
    for input in &mut report.inputs {
        input.verdict = verdict(input, &report.study.by);
    }
    report
}
