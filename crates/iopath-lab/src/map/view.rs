//! Formats a map: a line about the file, a table of extents and holes, a table of requests. Counts no requests: see
//! `map/requests.rs`.

use std::fmt::Write as _;

use comfy_table::CellAlignment;
use iopath_report::size::format_size;
use iopath_report::table::{mean_size, ruled};

use super::{BoundaryName, FileMap, MapExtent, Requests};

/// The columns of [`request_row`].
const REQUEST_COLUMNS: [&str; 6] =
    ["block", "reads", "requests", "mean size", "max requests per read", "zeroes"];

/// The maximum number of rows in the table of extents, unless the caller requests all.
const ROWS_MAX: usize = 24;

impl FileMap {
    /// The map as text, with every extent if `all` is set.
    pub fn text(&self, all: bool) -> String {
        let mut text = self.heading();
        let rows = self.rows();
        if !rows.is_empty() {
            let shown = if all { rows.len() } else { rows.len().min(ROWS_MAX) };
            let _ =
                write!(text, "\n{}", table(&["logical", "physical", "length", "state"], 3, &rows[..shown]));
            if shown < rows.len() {
                let _ = writeln!(text, "… {} more: --all", rows.len() - shown);
            }
        }
        if let Some(limits) = self.request_limits() {
            for line in limits {
                let _ = write!(text, "\n{line}");
            }
            let table = self.request_table();
            let _ = write!(text, "\n{}", self::table(&table.head, table.head.len(), &table.rows));
            text.extend(table.cut);
        }
        text.trim_end().to_owned()
    }

    /// The limits of direct reads, and the effect of boundaries; none without requests.
    pub(crate) fn request_limits(&self) -> Option<Vec<String>> {
        let limits = self.limits.as_ref().filter(|_| !self.requests.is_empty())?;
        let mut first = format!(
            "Direct reads: alignment {}, requests of up to {}",
            format_size(limits.align_bytes.into()),
            format_size(limits.request_bytes_max)
        );
        if let Some(chunk_bytes) = limits.chunk_bytes {
            let _ = write!(first, ", not across multiples of {}", format_size(chunk_bytes));
        }
        Some(
            [Some(first), limits.boundary.map(|boundary| at_boundaries(boundary).to_owned())]
                .into_iter()
                .flatten()
                .collect(),
        )
    }

    pub(crate) fn heading(&self) -> String {
        let mut text = format!("{}: {}", self.path, format_size(self.size_bytes));
        if let Some(filesystem) = &self.filesystem {
            let _ = write!(text, " on {filesystem}");
        }
        if let Some(disk) = &self.disk {
            let _ = write!(text, ", disk {}", disk.name);
        }
        let _ = writeln!(
            text,
            "; {}, {} written; mapped by {}, block size {}",
            counted(self.extents.len(), "extent"),
            self.written(),
            self.mapped_by,
            format_size(self.block_bytes.into())
        );
        text
    }

    /// Extents and the holes between them.
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        let mut reached = 0;
        let hole = |from: u64, to: u64| {
            vec![from.to_string(), "-".to_owned(), format_size(to - from), "hole".to_owned()]
        };
        for extent in &self.extents {
            if extent.logical_bytes > reached {
                rows.push(hole(reached, extent.logical_bytes));
            }
            rows.push(row(extent));
            reached = extent.logical_bytes.saturating_add(extent.bytes);
        }
        if reached < self.size_bytes {
            rows.push(hole(reached, self.size_bytes));
        }
        rows
    }

    /// The requests of direct reads, one row for each size.
    pub(crate) fn request_table(&self) -> RequestTable {
        let has_metadata = self.mapped_by == "blocks";
        let has_other = self.requests.iter().any(|requests| requests.other_bytes > 0);
        let mut head = REQUEST_COLUMNS.to_vec();
        head.extend(has_metadata.then_some("indirect blocks"));
        head.extend(has_other.then_some("not counted"));
        let rows = self.requests.iter().map(|requests| {
            let mut row = request_row(requests);
            row.extend(has_metadata.then(|| requests.metadata_requests.to_string()));
            row.extend(has_other.then(|| format_size(requests.other_bytes)));
            row
        });
        let cut = self.requests.iter().find(|requests| requests.covered_bytes < self.size_bytes).map(|cut| {
            format!(
                "The first {} only: {} reads of {}.",
                format_size(cut.covered_bytes),
                cut.reads,
                format_size(cut.block_bytes)
            )
        });
        RequestTable { rows: rows.collect(), head, cut }
    }
}

/// The requests of direct reads.
pub(crate) struct RequestTable {
    /// The columns, all of them numbers.
    pub(crate) head: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
    /// A sentence, if the table covers the begin of the file only.
    pub(crate) cut: Option<String>,
}

fn row(extent: &MapExtent) -> Vec<String> {
    // `last` is visible from the position in the table.
    let flags: Vec<&str> = extent.flags.iter().map(String::as_str).filter(|flag| *flag != "last").collect();
    let state = if flags.is_empty() { "written".to_owned() } else { flags.join(", ") };
    let physical = extent.physical_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
    vec![extent.logical_bytes.to_string(), physical, format_size(extent.bytes), state]
}

/// The requests of direct reads of one size.
fn request_row(requests: &Requests) -> Vec<String> {
    let mean = requests.request_bytes as f64 / requests.requests as f64;
    vec![
        format_size(requests.block_bytes),
        requests.reads.to_string(),
        requests.requests.to_string(),
        if requests.requests == 0 { "-".to_owned() } else { mean_size(mean) },
        requests.requests_of_a_read_max.to_string(),
        format_size(requests.zero_bytes),
    ]
}

fn at_boundaries(boundary: BoundaryName) -> &'static str {
    match boundary {
        BoundaryName::EveryBlock => {
            "Boundaries: each block before an indirect block is a request (every-block)"
        }
        BoundaryName::Once => "Boundaries: a request ends before an indirect block (once)",
        BoundaryName::Ignore => "Boundaries: no effect on requests (ignore)",
    }
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A table whose first `numbers` columns are numbers.
fn table(columns: &[&str], numbers: usize, rows: &[Vec<String>]) -> String {
    let mut table = ruled();
    table.set_header(columns).add_rows(rows);
    for column in table.column_iter_mut().take(numbers) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt() + "\n"
}
