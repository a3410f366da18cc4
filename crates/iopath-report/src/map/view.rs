//! What every format shows of a map: a line about the file, extents and holes, requests. Counts no requests: see
//! `iopath-lab/src/map/requests.rs`.

use std::fmt::Write as _;

use crate::format::{Document, Medium};
use crate::numbers::counted;
use crate::section::{Columns, Section, Table};
use crate::size::format_size;
use crate::value::Value;

use super::{BoundaryName, FileMap, MapExtent, Requests};

/// The maximum number of rows in the table of extents on a terminal, unless the caller requests all.
const ROWS_MAX: usize = 24;

impl Document for FileMap {
    fn sections(&self, medium: Medium) -> Vec<Section> {
        self.parts(medium, false)
    }

    /// A record is an extent. Holes are the ranges between them.
    fn records(&self) -> Table {
        Columns::of(&self.extents)
            .record("file", |_| &self.path)
            .record("logical_bytes", |extent| extent.logical_bytes)
            .record("physical_bytes", |extent| extent.physical_bytes)
            .record("bytes", |extent| extent.bytes)
            .record("flags", |extent| extent.flags.join(" "))
            .into()
    }

    fn json(&self) -> String {
        self.to_json()
    }
}

/// An extent, or the hole between two extents.
#[derive(Debug, Clone, Copy)]
struct Range<'a> {
    logical_bytes: u64,
    bytes: u64,
    extent: Option<&'a MapExtent>,
}

impl FileMap {
    /// The sections, on a terminal with every extent if `all` is set.
    pub fn parts(&self, medium: Medium, all: bool) -> Vec<Section> {
        let ranges = self.ranges();
        let is_cut = medium == Medium::Text && !all;
        let shown = if is_cut { ranges.len().min(ROWS_MAX) } else { ranges.len() };
        let more = ranges.len() - shown;
        let more = (more > 0).then(|| format!("… {more} more: --all"));
        let titled = |title: &str| if medium == Medium::Text { String::new() } else { title.to_owned() };
        let mut sections = vec![
            Section::prose([self.heading()]),
            Section::of(extents(&ranges[..shown])).titled(titled("Extents and holes")).with_after(more),
        ];
        if let Some(limits) = self.request_limits() {
            let requests = Section::of(self.request_columns()).titled(titled("Requests of direct reads"));
            sections.push(requests.with_before(limits).with_after(self.part_of_file()));
        }
        // The program prints them on stderr, and a page begins with them.
        let warnings = self.warnings.iter().filter(|_| medium == Medium::Markdown);
        sections.push(Section::prose(warnings.map(|warning| format!("Warning: {warning}"))));
        sections.retain(|section| !section.is_empty());
        sections
    }

    /// The limits of direct reads, and the effect of boundaries; none without requests.
    fn request_limits(&self) -> Option<Vec<String>> {
        let limits = self.limits.as_ref().filter(|_| !self.requests.is_empty())?;
        let mut first = format!(
            "Direct reads: alignment {}, requests of up to {}",
            format_size(limits.align_bytes.into()),
            format_size(limits.request_bytes_max)
        );
        if let Some(chunk_bytes) = limits.chunk_bytes {
            let _ = write!(first, ", not across multiples of {}", format_size(chunk_bytes));
        }
        if let Some(segments) = limits.segments_max.filter(|_| limits.page_bytes > 0) {
            let _ = write!(
                first,
                " and {segments} segments: {} of single pages",
                format_size(u64::from(segments) * u64::from(limits.page_bytes))
            );
        }
        Some(
            [Some(first), limits.boundary.map(|boundary| at_boundaries(boundary).to_owned())]
                .into_iter()
                .flatten()
                .collect(),
        )
    }

    fn heading(&self) -> String {
        let mut text = format!("{}: {}", self.path, format_size(self.size_bytes));
        if let Some(filesystem) = &self.filesystem {
            let _ = write!(text, " on {filesystem}");
        }
        if let Some(disk) = &self.disk {
            let _ = write!(text, ", disk {}", disk.name);
        }
        let _ = write!(
            text,
            "; {}, {} written; mapped by {}, block size {}",
            counted(self.extents.len() as u64, "extent"),
            self.written(),
            self.mapped_by,
            format_size(self.block_bytes.into())
        );
        text
    }

    /// Extents and the holes between them.
    fn ranges(&self) -> Vec<Range<'_>> {
        let mut ranges = Vec::new();
        let mut reached = 0;
        let hole = |from: u64, to: u64| Range { logical_bytes: from, bytes: to - from, extent: None };
        for extent in &self.extents {
            let MapExtent { logical_bytes, bytes, .. } = *extent;
            if logical_bytes > reached {
                ranges.push(hole(reached, logical_bytes));
            }
            ranges.push(Range { logical_bytes, bytes, extent: Some(extent) });
            reached = logical_bytes.saturating_add(bytes);
        }
        if reached < self.size_bytes {
            ranges.push(hole(reached, self.size_bytes));
        }
        ranges
    }

    /// The requests of direct reads, one row for each size.
    fn request_columns(&self) -> Columns<&Requests> {
        let has_metadata = self.mapped_by == "blocks";
        let has_pages =
            self.requests.iter().any(|one| one.requests_of_pages.is_some_and(|pages| pages != one.requests));
        let has_other = self.requests.iter().any(|requests| requests.other_bytes > 0);
        let mean = |requests: &Requests| match requests.requests {
            0 => Value::Unknown,
            count => Value::MeanSize(requests.request_bytes as f64 / count as f64),
        };
        Columns::of(&self.requests)
            .number("block", |requests| Value::Size(requests.block_bytes))
            .number("reads", |requests| requests.reads)
            .number("requests", |requests| requests.requests)
            .number("of single pages", |requests| {
                // The column has a reason only where the memory matters.
                Value::present(requests.requests_of_pages.filter(|_| has_pages), Value::Integer)
            })
            .number("mean size", mean)
            .number("max requests per read", |requests| requests.requests_of_a_read_max)
            .number("zeroes", |requests| Value::Size(requests.zero_bytes))
            .number("indirect blocks", |requests| {
                Value::present(has_metadata.then_some(requests.metadata_requests), Value::Integer)
            })
            .number("not counted", |requests| {
                Value::present(has_other.then_some(requests.other_bytes), Value::Size)
            })
    }

    /// A sentence, if the requests are those of the begin of the file only.
    fn part_of_file(&self) -> Option<String> {
        let cut = self.requests.iter().find(|requests| requests.covered_bytes < self.size_bytes)?;
        Some(format!(
            "The first {} only: {} reads of {}.",
            format_size(cut.covered_bytes),
            cut.reads,
            format_size(cut.block_bytes)
        ))
    }
}

fn extents<'a>(ranges: &'a [Range<'a>]) -> Columns<&'a Range<'a>> {
    Columns::of(ranges)
        .number("logical", |range| range.logical_bytes)
        .number("physical", |range| range.extent.and_then(|extent| extent.physical_bytes))
        .number("length", |range| Value::Size(range.bytes))
        .text("state", |range| state(range.extent))
}

fn state(extent: Option<&MapExtent>) -> String {
    let Some(extent) = extent else { return "hole".to_owned() };
    // `last` is visible from the position in the table.
    let flags: Vec<&str> = extent.flags.iter().map(String::as_str).filter(|flag| *flag != "last").collect();
    if flags.is_empty() { "written".to_owned() } else { flags.join(", ") }
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
