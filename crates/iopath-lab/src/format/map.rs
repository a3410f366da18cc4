//! Maps of files for the general formats.

use super::{Document, Records, Section, View, names, number};
use crate::map::view::RequestTable;
use crate::map::{FileMap, MapExtent};

impl Document for FileMap {
    fn text(&self, _view: View) -> String {
        Self::text(self, false)
    }

    fn json(&self) -> String {
        self.to_json()
    }

    /// A record is an extent. Holes are the ranges between them.
    fn records(&self) -> Records {
        let head = ["file", "logical_bytes", "physical_bytes", "bytes", "flags"];
        let row = |extent: &MapExtent| {
            vec![
                self.path.clone(),
                extent.logical_bytes.to_string(),
                number(extent.physical_bytes),
                extent.bytes.to_string(),
                extent.flags.join(" "),
            ]
        };
        Records::new(&head, self.extents.iter().map(row))
    }

    fn sections(&self) -> Vec<Section> {
        let RequestTable { head, rows, cut } = self.request_table();
        let requests = Section {
            title: "Requests of direct reads".to_owned(),
            head: names(&head),
            rows,
            texts: 0,
            paragraphs: self.request_limits().into_iter().flatten().chain(cut).collect(),
        };
        let extents = Section {
            title: "Extents and holes".to_owned(),
            head: names(&["state", "logical", "physical", "length"]),
            rows: self
                .rows()
                .into_iter()
                .map(|mut row| {
                    // The text is first.
                    row.rotate_right(1);
                    row
                })
                .collect(),
            texts: 1,
            paragraphs: self.warnings.iter().map(|warning| format!("Warning: {warning}")).collect(),
        };
        let heading =
            Section { paragraphs: vec![self.heading().trim_end().to_owned()], ..Section::default() };
        let tables = [requests, extents].into_iter().filter(|section| !section.rows.is_empty());
        std::iter::once(heading).chain(tables).collect()
    }
}
