//! Tests of the lines of job files, with properties for arbitrary bytes.

use std::io;

use proptest::prelude::*;

use super::*;

/// Files and variables of a test.
#[derive(Debug, Default)]
struct Fixed {
    files: Vec<(&'static str, &'static str)>,
}

impl Environment for Fixed {
    fn read(&self, file: &str, _from: &str) -> io::Result<(String, Vec<u8>)> {
        let found = self.files.iter().find(|(name, _)| *name == file);
        let (name, text) = found.ok_or(io::ErrorKind::NotFound)?;
        Ok(((*name).to_owned(), text.as_bytes().to_vec()))
    }

    fn variable(&self, name: &str) -> Option<String> {
        (name == "SIZE").then(|| "64m".to_owned())
    }

    fn keyword(&self, name: &str) -> Option<u64> {
        [("pagesize", 4096), ("mb_memory", 1000), ("ncpus", 8)]
            .into_iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }
}

fn parse(text: &str) -> Result<Vec<Section>, JobFileError> {
    sections("f.fio", text.as_bytes(), &Fixed::default())
}

fn options(text: &str) -> Vec<(u32, String, Option<String>)> {
    let parsed = parse(text).unwrap();
    let options = parsed.into_iter().flat_map(|section| section.options);
    options.map(|option| (option.at.line, option.key, option.value)).collect()
}

fn refused(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn a_file_has_sections_with_keys_and_values() {
    let text =
        "; comment\n[global]\nrw = read \n\n# comment\n[job 1]\ntime_based\n\tbs=4k ; four\n  size=1m#x\n";
    let parsed = parse(text).unwrap();
    assert_eq!(parsed.len(), 2);
    assert!(parsed[0].is_defaults && !parsed[1].is_defaults);
    assert_eq!((parsed[1].name.as_str(), parsed[1].at.line), ("job 1", 6));
    let value = |text: &str| Some(text.to_owned());
    let expected = [
        (3, "rw".to_owned(), value("read")),
        (7, "time_based".to_owned(), None),
        (8, "bs".to_owned(), value("4k")),
        (9, "size".to_owned(), value("1m")),
    ];
    assert_eq!(options(text), expected);
}

#[test]
fn windows_line_ends_are_blanks() {
    assert_eq!(options("[a]\r\nbs=4k\r\n"), [(2, "bs".to_owned(), Some("4k".to_owned()))]);
}

#[test]
fn variables_and_keywords_are_replaced() {
    let text = "[a]\nsize=${SIZE}\nbs=2*$pagesize\nx=a${NONE}b\ny=$jobname.$jobnum\nz=${SIZE\nn=$ncpus\n";
    let values: Vec<_> = options(text).into_iter().filter_map(|(_, _, value)| value).collect();
    assert_eq!(values, ["64m", "2*4096", "ab", "$jobname.$jobnum", "${SIZE", "8"]);
    let text = refused("[a]\n\nbs=${NONE}\n");
    assert_eq!(text, "f.fio:3: `bs` is empty: the environment variable NONE is not set; set it");
}

#[test]
fn an_included_file_adds_to_its_section_with_its_own_lines() {
    let fixed = Fixed { files: vec![("inc", "\nbs=8k\ninclude deep\n"), ("deep", "rw=write")] };
    let parsed = sections("f.fio", b"[a]\ninclude inc\nsize=1m\n", &fixed).unwrap();
    let found: Vec<String> =
        parsed[0].options.iter().map(|option| format!("{} {}", option.at, option.key)).collect();
    assert_eq!(found, ["inc:2 bs", "deep:1 rw", "f.fio:3 size"]);
}

#[test]
fn an_included_file_has_no_sections_and_ends() {
    let fixed = Fixed { files: vec![("self", "include self"), ("section", "bs=1\n[x]\n")] };
    let refused = |text: &str| sections("f", text.as_bytes(), &fixed).unwrap_err().to_string();
    assert!(refused("[a]\ninclude self").contains("nested files"));
    assert!(refused("[a]\ninclude section").starts_with("section:2: an included file has no sections"));
    assert!(refused("[a]\ninclude none").starts_with("f:2: cannot read none: "));
}

#[test]
fn a_malformed_line_is_refused_with_its_number() {
    assert!(refused("bs=4k\n").starts_with("f.fio:1: the key is in no section"));
    assert!(refused("[a]\n\n=4k\n").starts_with("f.fio:3: the line is neither"));
    assert!(refused("[a]\ntwo words\n").starts_with("f.fio:2: the line is neither"));
    assert!(refused("\n[a\n").starts_with("f.fio:2: the section has no name"));
    assert!(refused("[]").starts_with("f.fio:1: the section has no name"));
    let error = sections("f", b"[a]\nx=\xff\n", &Fixed::default()).unwrap_err().to_string();
    assert!(error.starts_with("f:2: the line is not UTF-8"), "{error}");
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = sections("f", &bytes, &Fixed::default());
    }

    #[test]
    fn any_lines_are_read_or_refused(
        lines in prop::collection::vec(r"(\[a\]|[ab]=?|=|\$\{|\}|\$[a-z]*|include|[ ;#:\\]|[0-9%]){0,8}", 0..12)
    ) {
        let _ = parse(&lines.join("\n"));
    }

    #[test]
    fn line_numbers_are_those_of_the_file(gaps in prop::collection::vec(0..4_usize, 1..20), bad in any::<bool>()) {
        let mut text = "[job]\n".to_owned();
        let mut expected = Vec::new();
        for (number, gap) in gaps.iter().enumerate() {
            text += &["\n", "# comment\n", "  \n", "; [x]\n"][..*gap].concat();
            expected.push(text.lines().count() as u32 + 1);
            text.extend(["key", &number.to_string(), "=", &number.to_string(), "\n"]);
        }
        if bad {
            let line = text.lines().count() + 1;
            let error = refused(&(text + "= x\n"));
            let start = format!("f.fio:{line}: ");
            prop_assert!(error.starts_with(&start), "{}", error);
        } else {
            let lines: Vec<u32> = options(&text).into_iter().map(|(line, _, _)| line).collect();
            prop_assert_eq!(lines, expected);
        }
    }
}
