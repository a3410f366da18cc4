//! Tests of command lines: options of jobs and of the program, files, and what is refused.

use std::collections::HashMap;
use std::io;

use iopath_report::Rw;

use super::*;

/// Files by name; no variables.
#[derive(Default)]
struct Files(HashMap<&'static str, &'static str>);

impl Environment for Files {
    fn read(&self, file: &str, _from: &str) -> io::Result<(String, Vec<u8>)> {
        let text = self.0.get(file).ok_or(io::ErrorKind::NotFound)?;
        Ok((file.to_owned(), text.as_bytes().to_vec()))
    }

    fn variable(&self, _name: &str) -> Option<String> {
        None
    }

    fn keyword(&self, _name: &str) -> Option<u64> {
        None
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn parse(line: &str) -> CommandLine {
    match CommandLine::parse(&words(line)).unwrap() {
        Request::Jobs(line) => *line,
        other => panic!("{other:?}"),
    }
}

fn jobs_with(line: &str, files: &[(&'static str, &'static str)]) -> JobFile {
    parse(line).jobs(&Files(files.iter().copied().collect())).unwrap()
}

fn jobs(line: &str) -> JobFile {
    jobs_with(line, &[])
}

fn refused(line: &str) -> String {
    match CommandLine::parse(&words(line)) {
        Err(error) => error.to_string(),
        Ok(Request::Jobs(line)) => line.jobs(&Files::default()).unwrap_err().to_string(),
        Ok(other) => panic!("{other:?}"),
    }
}

/// Name, pattern and block size of each job.
fn facts(file: &JobFile) -> Vec<(&str, Rw, u32)> {
    file.jobs.iter().map(|job| (job.name.as_str(), job.workload.rw, job.sizes[0].max())).collect()
}

#[test]
fn options_before_the_first_name_are_defaults_of_all_jobs() {
    let file = jobs("--rw=randread --bs=8k --name=a --name=b --bs=16k --name=c");
    let all = [("a", Rw::RandRead, 8192), ("b", Rw::RandRead, 16384), ("c", Rw::RandRead, 8192)];
    assert_eq!(facts(&file), all);
    let file = jobs("--name=global --rw=randread --bs=8k --name=a --name=b --bs=16k --name=c");
    assert_eq!(facts(&file), all, "the section global");
}

#[test]
fn a_value_follows_an_equals_sign_or_a_space_and_a_switch_needs_none() {
    for line in [
        "--name=a --rw=randwrite --bs=8k --time_based --runtime=1",
        "-name a -rw randwrite -bs 8k -time-based=1 -runtime 1",
        "--name a --rw=randwrite --bs 8k --time_based --runtime 1",
    ] {
        let file = jobs(line);
        assert_eq!(facts(&file), [("a", Rw::RandWrite, 8192)], "{line}");
        assert!(file.jobs[0].time_based, "{line}");
    }
    // As in fio, the word after a switch is a file.
    assert_eq!(parse("--name=a --time_based 1").files, ["1"]);
}

#[test]
fn defaults_of_the_command_line_hold_for_the_first_file_and_a_further_file_waits() {
    let files = [("x", "[a]\nrw=write\n[b]\n"), ("y", "[global]\nbs=16k\n[c]\n[d]\n")];
    let file = jobs_with("--bs=8k x y", &files);
    assert_eq!(
        facts(&file),
        [("a", Rw::Write, 8192), ("b", Rw::Read, 8192), ("c", Rw::Read, 16384), ("d", Rw::Read, 16384)]
    );
    let waits: Vec<_> = file.jobs.iter().map(|job| job.stonewall).collect();
    assert_eq!(waits, [false, false, true, false]);
    let names: Vec<_> =
        jobs_with("x --section=b", &files).jobs.into_iter().map(|job| job.settings.name).collect();
    assert_eq!(names, ["b"]);
}

#[test]
fn a_value_is_taken_as_it_is() {
    let file = jobs("--name=a;b --filename=/tmp/#x --description=${HOME}");
    assert_eq!((file.jobs[0].name.as_str(), &file.jobs[0].files[..]), ("a;b", &["/tmp/#x".to_owned()][..]));
}

#[test]
fn options_of_the_program_may_stand_anywhere() {
    let line =
        parse("--output-format=json,normal --name=a --eta=never --output=o.json --size=1m --readonly x.fio");
    assert_eq!(line.formats, [OutputFormat::Json, OutputFormat::Normal]);
    assert_eq!((line.output.as_deref(), line.has_progress), (Some("o.json".as_ref()), Some(false)));
    assert_eq!((line.is_readonly, &line.files[..]), (true, &["x.fio".to_owned()][..]));
    assert_eq!(parse("--name=a --append-terse").formats, [OutputFormat::Normal, OutputFormat::Terse]);
    assert_eq!(parse("--minimal --terse-version=5 --name=a").terse_version, 5);
    assert_eq!(parse("--name=a --status-interval=1").notes.len(), 1);
    for (line, wants) in [("--help", "Help"), ("--version", "Version"), ("--enghelp=libaio", "Engines")] {
        assert_eq!(format!("{:?}", CommandLine::parse(&words(line)).unwrap()), wants);
    }
    for (line, key) in [("--cmdhelp", None), ("--cmdhelp=all", None), ("--cmdhelp=rw", Some("rw"))] {
        let Request::Keys(named) = CommandLine::parse(&words(line)).unwrap() else { panic!("{line}") };
        assert_eq!(named.as_deref(), key);
    }
}

#[test]
fn a_refused_argument_is_named_with_its_number() {
    for (line, starts) in [
        ("", "no job; add --name=NAME"),
        ("--rw=read --size=1m", "no job; add --name=NAME"),
        ("--name=a --frob=1", "argument 2: unknown option --frob;"),
        ("--name=a --direct", "argument 2: --direct needs a value"),
        ("--name=a --size=", "argument 2: --size needs a value"),
        ("--name=a --eta=maybe", "argument 2: `--eta=maybe` is not valid; use always"),
        ("--client=host --name=a", "argument 1: --client is not supported: no client"),
        ("--name=a --iodepth=x", "argument 2: `iodepth=x` is not valid; use a whole number"),
        ("--name=a --rw=write --readonly", "argument 1: job `a`: it writes or trims, and --readonly"),
        ("--name=a --ioengine=rbd", "argument 2: `ioengine=rbd` is not supported: "),
    ] {
        let error = refused(line);
        assert!(error.starts_with(starts), "{line}: {error}");
    }
}

#[test]
fn jobs_are_shown_as_a_command_line() {
    let files = Files([("x", "[global]\nbs=8k\n[a b]\nrw=read\ntime_based\n")].into());
    let line = parse("--size=1m x");
    assert_eq!(line.command(&files).unwrap(), "fio --size=1m --bs=8k --name='a b' --rw=read --time_based");
}

#[test]
fn options_have_letters_and_unique_parts_of_their_names() {
    let line = parse("-m -V 4 -r -P -o/tmp/out -F json --name=j");
    assert_eq!((&line.formats[..], line.terse_version), (&[OutputFormat::Json][..], 4));
    assert!(line.is_readonly && line.parses_only && line.output == Some("/tmp/out".into()));
    assert_eq!(parse("--mini --name=j").formats, [OutputFormat::Terse]);
    assert_eq!(parse("--output-f=json -s --name=j").formats, [OutputFormat::Json]);
    for ambiguous in ["--iode=4 --name=j", "--rea=1 --name=j"] {
        assert!(refused(ambiguous).contains("unknown option"), "{ambiguous}");
    }
}

#[test]
fn each_format_is_shown_once() {
    assert_eq!(parse("--minimal --append-terse --name=j").formats, [OutputFormat::Terse]);
    assert_eq!(parse("--output-format=json,json+ --name=j").formats, [OutputFormat::JsonPlus]);
    assert_eq!(
        parse("--output-format=normal,terse,normal --name=j").formats,
        [OutputFormat::Normal, OutputFormat::Terse]
    );
}

#[test]
fn a_section_that_is_left_out_is_not_parsed_and_its_file_begins_a_group() {
    let files = [("a", "[x]\nfrobnicate=1\n[y]\nname=other\nbs=8k\n"), ("b", "[z]\nbs=x\n[w]\nbs=16k\n")];
    let file = jobs_with("--section=y --section w a b", &files);
    assert_eq!(facts(&file), [("other", Rw::Read, 8192), ("w", Rw::Read, 16384)]);
    assert_eq!(file.groups().len(), 2);
}
