//! Checks that documents and comments name files that exist: relative links of Markdown with their headings, and names
//! of Rust files between back quotes. A name may be the end of a path: `queue/merge.rs`. Links to the web are not
//! opened.

use std::collections::HashSet;
use std::path::Path;

use super::Finding;
use super::tree::{File, Tree};

/// A part of the name of a file that a reader is to add.
const PLACEHOLDER: &str = "NAME";

/// Every named file is in the repository.
pub(super) fn named_files(tree: &Tree) -> Vec<Finding> {
    let ends: HashSet<&str> = tree.files.iter().flat_map(|file| ends(&file.path)).collect();
    let folders: HashSet<&str> = tree.files.iter().flat_map(|file| folders(&file.path)).collect();
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.has_extension(&["rs", "md"])) {
        for (number, line) in file.numbered_lines() {
            if file.is_rust() && !line.trim_start().starts_with("//") {
                continue;
            }
            let names = line.split('`').skip(1).step_by(2).filter(|name| is_rust_file(name));
            let missing = names.filter(|name| !ends.contains(name.trim_start_matches("../")));
            findings.extend(missing.map(|name| finding(file, number, format!("no file `{name}`"))));
            if !file.is_rust() {
                let broken = links(line).filter(|link| !leads_somewhere(tree, &folders, file, link));
                findings.extend(
                    broken.map(|link| finding(file, number, format!("no target of the link {link}"))),
                );
            }
        }
    }
    findings
}

/// The path, and the path without its first folders.
fn ends(path: &str) -> impl Iterator<Item = &str> {
    let after_slash = path.match_indices('/').map(|(at, _)| &path[at + 1..]);
    std::iter::once(path).chain(after_slash)
}

/// The folders above a file.
fn folders(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

fn is_rust_file(name: &str) -> bool {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let is_rust = Path::new(name).extension().is_some_and(|extension| extension == "rs");
    is_rust && name.chars().all(is_path) && !name.contains(PLACEHOLDER)
}

/// The relative links of a line: `[text](target)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target).filter(|target| !target.contains(':'))
}

fn leads_somewhere(tree: &Tree, folders: &HashSet<&str>, from: &File, link: &str) -> bool {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let path = if path.is_empty() { from.path.clone() } else { resolved(&from.path, path) };
    match tree.files.iter().find(|file| file.path == path) {
        Some(file) => heading.is_empty() || headings(file).any(|name| name == heading),
        None => heading.is_empty() && folders.contains(path.as_str()),
    }
}

/// `link` from the root of the repository.
fn resolved(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> =
        folders(from).last().into_iter().flat_map(|folder| folder.split('/')).collect();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The names that links have for the headings of a file.
fn headings(file: &File) -> impl Iterator<Item = String> {
    let titles = file.text.lines().filter(|line| line.starts_with('#'));
    titles.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

fn finding(file: &File, line: usize, message: String) -> Finding {
    let way_out = "name the file that has it now";
    Finding { path: file.path.clone(), line, message, way_out }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages about `text` in a document and in a comment of `queue/merge.rs`.
    fn found(text: &str) -> Vec<String> {
        let file = |path: &str, text: String| File::new(path.to_owned(), text).expect("text, or Rust");
        let files = vec![
            file("docs/a.md", format!("# A title: 2, and more\n{text}")),
            file("crates/x/src/queue/merge.rs", format!("// {text}\nconst NONE: &str = \"`none.rs`\";\n")),
        ];
        let findings = named_files(&Tree { files, packages: Vec::new() });
        findings.into_iter().map(|finding| format!("{finding}")).collect()
    }

    #[test]
    fn a_name_is_the_end_of_a_path() {
        assert_eq!(found("`queue/merge.rs`, `merge.rs`, `x/NAME.rs`, `{a,b}.rs`").len(), 0);
        let findings = found("`queue/split.rs`");
        assert_eq!(findings.len(), 2, "in the document and in the comment: {findings:?}");
        assert!(findings[0].starts_with("docs/a.md:2: no file `queue/split.rs`"), "{findings:?}");
        assert_eq!(found("`erge.rs`").len(), 2, "a part of a name");
    }

    #[test]
    fn a_link_leads_to_a_file_a_folder_or_a_heading() {
        let good = "[a](a.md) [b](../crates/x/src/queue/merge.rs) [c](../crates/x) [d](#a-title-2-and-more)";
        assert_eq!(found(good).len(), 0);
        assert_eq!(found("[web](https://example.org/none.md)").len(), 0);
        for bad in ["[a](b.md)", "[a](../docs/none/)", "[a](#none)", "[a](a.md#none)"] {
            assert_eq!(found(bad).len(), 1, "{bad}");
        }
    }
}
