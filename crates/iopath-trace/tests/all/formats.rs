//! Each row of the table of formats is detected and read.

use std::io::Write;
use std::path::Path;

use iopath_trace::{Content, FORMATS, Format, OUTPUTS, TraceClock, content_of};

use crate::samples::{self, bytes, file, samples, summary};

#[test]
fn every_format_is_detected_read_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let samples = samples();
    assert_eq!(samples.len(), FORMATS.len(), "each format has a sample");
    for (index, sample) in samples.iter().enumerate() {
        let path = file(folder.path(), &format!("sample-{index}"), &sample.content);
        let Content::Trace(format) = content_of(&path).unwrap() else {
            panic!("{} is not detected", sample.format)
        };
        assert_eq!(format.name, sample.format);
        let report = summary(&path);
        let found = (report.flow.bios, bytes(&report), report.stages.q2c.count);
        assert_eq!(found, (sample.bios, sample.bytes, sample.completed), "{}", sample.format);
        let notes: Vec<_> = report.log.notes.iter().chain(&report.notes).collect();
        assert!(notes.iter().any(|note| note.contains(sample.note)), "{}: {notes:?}", sample.format);
        assert_eq!(report.log.started_unix_ns > 0, format.clock == TraceClock::Unix, "{}", sample.format);
    }
}

#[test]
fn every_format_has_a_fuzz_target() {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/src/fuzz.rs");
    let targets = std::fs::read_to_string(targets).unwrap();
    for Format { name, .. } in &FORMATS {
        assert!(targets.contains(&format!("\"trace-{name}\",")), "{name} is in no list of fuzz targets");
    }
}

#[test]
fn a_compressed_trace_is_the_same_trace() {
    let folder = tempfile::tempdir().unwrap();
    for sample in samples() {
        let plain = summary(&file(folder.path(), "plain", &sample.content));
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&sample.content).unwrap();
        let zstd = zstd::encode_all(sample.content.as_slice(), 1).unwrap();
        for packed in [gzip.finish().unwrap(), zstd] {
            let report = summary(&file(folder.path(), "packed", &packed));
            assert_eq!(report.stages.q2c.max_ns, plain.stages.q2c.max_ns, "{}", sample.format);
            assert_eq!(
                (report.flow.bios, report.notes),
                (plain.flow.bios, plain.notes.clone()),
                "{}",
                sample.format
            );
        }
    }
}

#[test]
fn the_files_of_all_cpus_are_one_trace_in_the_order_of_time() {
    let folder = tempfile::tempdir().unwrap();
    // The completions are in the file of the other CPU.
    let events = |numbers: std::ops::Range<usize>| -> Vec<u8> {
        let of = |number: u32| samples::read(number, 100 * u64::from(number));
        (0..4)
            .flat_map(|number| {
                of(number)
                    .chunks(48)
                    .skip(numbers.start)
                    .take(numbers.len())
                    .flatten()
                    .copied()
                    .collect::<Vec<_>>()
            })
            .collect()
    };
    let first = file(folder.path(), "sda.blktrace.0", &events(0..4));
    file(folder.path(), "sda.blktrace.1", &events(4..5));
    let report = summary(&first);
    assert_eq!((report.stages.q2c.count, report.stages.d2c.count, report.stages.q2c.max_ns), (4, 4, 4000));
    assert_eq!(report.out_of_order, 0);
}

#[test]
fn latencies_and_stages_are_those_of_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let of = |format: &str| {
        let sample = samples().into_iter().find(|sample| sample.format == format).unwrap();
        summary(&file(folder.path(), format, &sample.content))
    };
    let perf = of("tracepoints");
    assert_eq!((perf.stages.d2c.max_ns, perf.stages.q2c.max_ns, perf.flow.merged), (100_000, 104_000, 1));
    let blkparse = of("blkparse").stages;
    let found = [blkparse.q2g.max_ns, blkparse.g2i.max_ns, blkparse.i2d.max_ns, blkparse.d2c.max_ns];
    assert_eq!(found, [1000, 1000, 1000, 100_000]);
    assert_eq!(of("biosnoop").stages.d2c.max_ns, 740_000);
    let msr = of("msr").stages.q2c;
    assert_eq!((msr.max_ns, msr.count), (38_800, 2));
}

#[test]
fn a_file_of_no_known_format_names_those_that_are_known() {
    let folder = tempfile::tempdir().unwrap();
    for content in ["hello\nworld\n", "{\"schema\": 1}", "\u{0}\u{1}\u{2}"] {
        let error =
            iopath_trace::open(&file(folder.path(), "other", content.as_bytes())).unwrap_err().to_string();
        assert!(error.contains("other byte 0") && error.contains("blktrace, iolog, csv"), "{error}");
    }
    let error = iopath_trace::open(&file(folder.path(), "utf16", b"\xff\xfea\0")).unwrap_err().to_string();
    assert!(error.contains("UTF-16"), "{error}");
}

#[test]
fn the_document_has_the_tables_of_formats_and_outputs() {
    let document = include_str!("../../../../docs/convert.md");
    let formats = FORMATS.iter().map(|format| {
        let notes = if format.notes.is_empty() { "–".to_owned() } else { format.notes.join("; ") };
        format!("| `{}` | {} | {} | {notes} |\n", format.name, format.title, format.detected_by)
    });
    let outputs = OUTPUTS.iter().map(|output| {
        format!("| `{}` | {} | `{}` | {} |\n", output.name, output.title, output.ending, output.lacks)
    });
    for rows in [formats.collect::<String>(), outputs.collect()] {
        assert!(document.contains(&rows), "docs/convert.md needs this table:\n{rows}");
    }
}
