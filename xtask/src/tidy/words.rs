//! Words that code and documentation must not use, each with the standard term. The other rules are in `rules.rs`.

use super::Finding;
use super::tree::{File, Tree};

/// A word or phrase, and the standard term.
///
/// A word matches as a whole, in any case; `_` in code counts as a space, and so does the end of a line. A word with
/// `_` matches in code only.
type Word = (&'static str, &'static str);

const WORDS: &[Word] = &[
    ("manners", "semantics"),
    ("whoever", "any thread that, each caller that"),
    ("foresee", "prefetch, announce"),
    ("foreseen", "prefetched, announced"),
    ("come_by", "poll"),
    ("comes by", "polls"),
    ("go_on", "advance"),
    ("lest", "to avoid"),
    ("rouse", "wake"),
    ("strike off", "remove"),
    ("under way", "in flight"),
    ("hand over", "submit, pass"),
    ("hands over", "submits, passes"),
    ("handed over", "submitted, passed"),
    ("handing over", "submitting, passing"),
    ("give back", "release, return"),
    ("gives back", "releases, returns"),
    ("gave back", "released, returned"),
    ("given back", "released, returned"),
    ("giving back", "releasing, returning"),
    ("lend", "borrow"),
    ("lends", "borrows"),
    ("lent", "borrowed"),
    ("lending", "borrowing"),
    ("tell of", "record, report"),
    ("tells of", "records, reports"),
    ("told of", "notified of, recorded"),
    ("cpu price", "CPU cost"),
    ("half within", "p50"),
    ("99% within", "p99"),
    ("differs no more than it spreads", "not significantly different"),
    ("lost in the spread", "inconclusive"),
    ("orders them itself", "supports command queueing"),
    ("orders requests itself", "supports command queueing"),
    ("made_up", "fixtures"),
    ("for ever", "forever"),
    ("carry out", "execute"),
    ("carrying out", "executing"),
    ("made up for", "compensated, hidden"),
    ("in vain", "without success"),
    ("taking turns", "alternating"),
    ("heard of", "notified of"),
    ("hears of", "is notified of"),
    ("hand-over", "submission"),
    ("afresh", "again"),
    ("carried out", "executed, performed"),
    ("carries out", "executes, performs"),
    ("whatever", "any, at every, independent of"),
    ("get rid of", "remove, avoid"),
    ("gets rid of", "removes, avoids"),
    ("bell", "notifier"),
    ("bells", "notifiers"),
    ("goes on with", "continues with"),
    ("go on with", "continue with"),
];

/// The file that may use the words: this list.
const EXEMPT: &str = "xtask/src/tidy/words.rs";

/// No word of [`WORDS`] in code, comments and documentation.
pub(super) fn plain_words(tree: &Tree) -> Vec<Finding> {
    texts(tree).flat_map(find).collect()
}

fn texts(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.files.iter().filter(|file| file.has_extension(&["rs", "md"]) && file.path != EXEMPT)
}

fn find(file: &File) -> Vec<Finding> {
    let (text, starts) = joined_lines(file);
    let prose = text.replace('_', " ");
    let mut findings = Vec::new();
    for (word, instead) in WORDS {
        let searched = if word.contains('_') { &text } else { &prose };
        for (at, _) in searched.match_indices(word).filter(|(at, _)| is_whole(searched, *at, word.len())) {
            let line = starts.partition_point(|start| *start <= at);
            let message = format!("`{word}`: {instead}");
            let way_out = "use the standard term";
            findings.push(Finding { path: file.path.clone(), line, message, way_out });
        }
    }
    findings.sort();
    findings
}

/// The lines of a file in lower case, without comment signs and joined by spaces, and the start of each line.
fn joined_lines(file: &File) -> (String, Vec<usize>) {
    let mut text = String::new();
    let mut starts = Vec::new();
    for line in file.text.lines() {
        starts.push(text.len());
        let line = line.trim_start();
        let prose = line.trim_start_matches(['/', '!', '#', '>', '-', '*']).trim();
        text.push_str(&if line.starts_with("//") { prose } else { line }.to_lowercase());
        text.push(' ');
    }
    (text, starts)
}

/// Whether the match is a whole word: no letter, digit or `_` before or after it.
fn is_whole(text: &str, at: usize, len: usize) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (before, after) = (text[..at].chars().next_back(), text[at + len..].chars().next());
    !before.is_some_and(is_word) && !after.is_some_and(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let file = File::new(path.to_owned(), text.to_owned()).expect("the sample is text, or Rust");
        find(&file).into_iter().map(|finding| (finding.line, finding.message)).collect()
    }

    fn lines(path: &str, text: &str) -> Vec<usize> {
        found(path, text).into_iter().map(|(line, _)| line).collect()
    }

    const NOWHERE: [usize; 0] = [];

    #[test]
    fn words_are_found_in_prose_names_and_across_lines() {
        assert_eq!(lines("a.md", "One.\nIt is under way."), [2]);
        assert_eq!(lines("a.rs", "//! Pages that are Handed\n//! over.\nfn hands_over() {}"), [1, 3]);
        assert_eq!(lines("a.rs", "mod made_up;"), [1]);
        assert_eq!(found("a.md", "lest")[0].1, "`lest`: to avoid");
    }

    #[test]
    fn parts_of_words_and_other_senses_are_not_found() {
        assert_eq!(lines("a.md", "The silent, blessed talent is made up of parts that go on."), NOWHERE);
        assert_eq!(lines("a.rs", "//! They hand\n\nfn f() {}\nfn handed_overdue() {}"), NOWHERE);
    }

    #[test]
    fn only_code_and_documentation_are_searched() {
        let file = |path: &str| File::new(path.to_owned(), "lest".to_owned()).expect("text");
        let tree = Tree { files: vec![file("docs/new.md"), file("a.txt")], packages: Vec::new() };
        let paths: Vec<_> = plain_words(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["docs/new.md"]);
    }
}
