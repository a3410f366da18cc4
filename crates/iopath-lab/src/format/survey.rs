//! Surveys for the general formats.

use super::{Document, Records, Section, View, result};
use crate::survey::Survey;

impl Document for Survey {
    fn text(&self, view: View) -> String {
        Self::text(self, view.is_fancy, view.width)
    }

    fn json(&self) -> String {
        self.report.to_json()
    }

    fn records(&self) -> Records {
        self.report.records()
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections = result::sections(&self.report);
        if let Some(last) = sections.last_mut() {
            last.paragraphs
                .extend(self.report.left_out.iter().map(|left_out| format!("Left out: {left_out}")));
        }
        sections
    }
}
