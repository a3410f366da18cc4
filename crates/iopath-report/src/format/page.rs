//! Sections as fragments of an HTML page.

use maud::{Markup, html};

use crate::section::{Section, Table};

/// The sections of a part of a page that have contents, with their titles below its own.
pub fn sections(sections: &[Section]) -> Markup {
    html! {
        @for Section { title, before, table, after } in sections.iter().filter(|section| !section.is_empty()) {
            @if !title.is_empty() { h4 { (title) } }
            @for line in before { p class="note" { (line.plain()) } }
            (self::table(table))
            @for line in after { p class="note" { (line.plain()) } }
        }
    }
}

/// A table, nothing without rows. The first column names the row.
pub fn table(table: &Table) -> Markup {
    let columns = table.shown(true);
    html! { @if !table.is_empty() {
        div class="scroll" tabindex="0" role="region" aria-label="table" {
            table class="figures" {
                thead { tr { @for (head, _) in &columns { th scope="col" { (head) } } } }
                tbody { @for row in 0..table.rows() { tr {
                    @for (index, (_, column)) in columns.iter().enumerate() {
                        @let cell = column.cells[row].shown("–");
                        @if index == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                    }
                } } }
            }
        }
    } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::Columns;

    const BAD: &str = "</script><script>alert(1)</script>\"'<img src=x onerror=alert(1)>";

    #[test]
    fn a_section_without_contents_has_no_title() {
        let columns = || Columns::of(std::iter::empty::<&str>()).text("kind", |text| text);
        assert_eq!(sections(&[Section::of(columns()).titled("faults")]).into_string(), "");
    }

    #[test]
    fn no_fragment_contains_markup_of_the_data() {
        let section = Section::of(Columns::of([BAD]).text(BAD, |text| text)).titled(BAD);
        let html = sections(&[section.with_before([BAD]).with_after([BAD])]).into_string();
        assert_eq!(html.matches("&lt;img").count(), 5, "{html}");
        assert!(!html.contains("<script") && !html.contains("<img"), "{html}");
    }
}
