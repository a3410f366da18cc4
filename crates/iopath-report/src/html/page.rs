//! The document: head, navigation, sections. Embeds style sheet and scripts, so that the page needs no network.

use iopath_log::for_terminal;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::parts::{Statement, statements};

/// The first line of a page. It shows that iopath wrote the file.
pub const PAGE_START: &str = "<!DOCTYPE html><!-- iopath report -->";

const STYLE: &str = include_str!("../../assets/report/report.css");
const SCRIPT: &str = include_str!("../../assets/report/report.js");
const UPLOT: &str = include_str!("../../assets/report/uplot/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../../assets/report/uplot/uPlot.min.css");

/// The scripts and styles are those of the page; nothing is loaded.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// A section with a heading.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) title: String,
    /// The line below the heading; may be empty.
    pub(super) subtitle: String,
    pub(super) body: Markup,
}

/// The document. The findings come first.
pub(super) fn document(title: &str, subtitle: &str, findings: &[Statement], sections: &[Section]) -> String {
    let page = html! {
        (DOCTYPE)
        (PreEscaped("<!-- iopath report -->"))
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content=(concat!("iopath ", env!("CARGO_PKG_VERSION")));
                title { (title) }
                style { (PreEscaped(UPLOT_STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                a class="skip" href="#findings" { "Skip to the findings" }
                nav aria-label="Sections" {
                    p class="brand" { "iopath" }
                    ul {
                        li { a href="#findings" { "Findings" } }
                        @for (number, section) in (1..).zip(sections) {
                            li { a href=(format!("#part{number}")) { (section.title) } }
                        }
                    }
                    button type="button" id="theme" hidden { "Light / dark" }
                }
                main {
                    header {
                        h1 { (title) }
                        @if !subtitle.is_empty() { p class="subtitle" { (subtitle) } }
                    }
                    section id="findings" {
                        h2 { "Findings" }
                        @if findings.is_empty() { p class="note" { "None: the results are too few to interpret." } }
                        (statements(findings))
                    }
                    @for (number, section) in (1..).zip(sections) {
                        section id=(format!("part{number}")) {
                            h2 { (section.title) }
                            @if !section.subtitle.is_empty() { p class="subtitle" { (section.subtitle) } }
                            (section.body)
                        }
                    }
                    footer {
                        p { "Written by " (concat!("iopath ", env!("CARGO_PKG_VERSION"))) ". MB/s is 10" sup { "6" } " bytes per second, GiB is 2" sup { "30" } " bytes. Charts: uPlot 1.6.32, MIT licence, © Leon Sorokin." }
                    }
                }
                script { (PreEscaped(UPLOT)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    // Names of files and jobs may have characters that HTML does not permit and that control a terminal.
    for_terminal(&page.into_string(), false).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    /// The files of the package uplot 1.6.32 are unchanged. Their source: assets/report/uplot/README.md.
    #[test]
    fn the_vendored_files_are_those_of_the_package() {
        let hex = |text: &str| {
            Sha256::digest(text).iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
        };
        assert_eq!(hex(UPLOT), "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f");
        assert_eq!(hex(UPLOT_STYLE), "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04");
        assert!(UPLOT.contains("(v1.6.32)"));
    }

    #[test]
    fn the_page_refers_to_nothing_outside() {
        let page = document("t", "", &[], &[]);
        assert!(page.starts_with(PAGE_START));
        for attribute in ["src=\"", "href=\"http", "@import", "url("] {
            assert!(!page.contains(attribute), "{attribute}");
        }
    }

    #[test]
    fn scripts_and_styles_do_not_end_their_elements() {
        for text in [STYLE, SCRIPT, UPLOT, UPLOT_STYLE] {
            let lower = text.to_lowercase();
            assert!(!lower.contains("</script") && !lower.contains("</style") && !lower.contains("<!--"));
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        let page = document("a\u{1b}]0;b\u{7}", "c\u{202e}d", &[], &[]);
        assert!(page.contains("a\\u{1b}]0;b\\u{7}") && page.contains("c\\u{202e}d"));
        let is_control = |char: char| char.is_control() && !matches!(char, '\n' | '\t') || char == '\u{202e}';
        assert!(!page.contains(is_control), "{:?}", page.find(is_control));
    }

    #[test]
    fn titles_are_escaped() {
        let bad = "</title><script>alert(1)</script>";
        let section = Section { title: bad.to_owned(), subtitle: bad.to_owned(), body: Markup::default() };
        let page = document(bad, bad, &[], &[section]);
        assert!(!page.contains("<script>alert"), "the title is markup");
        assert_eq!(page.matches("&lt;script&gt;alert").count(), 6);
    }
}
