//! Each row of the table of formats is detected and read.

use std::io::Write;
use std::path::Path;

use iopath_trace::{Content, FORMATS, Format, OUTPUTS, TraceClock, content_of};

use crate::samples::{self, bytes, file, record, samples, summary};

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

/// Requests of a device without bios: inserted, refused and inserted again; issued directly; created for a bio.
const REQUESTS: &str = "\
8,0 0 1 0.000001000 7 I R 0 + 8 [a]
8,0 0 2 0.000002000 7 D R 0 + 8 [a]
8,0 0 3 0.000003000 7 R R 0 + 8 [0]
8,0 0 4 0.000004000 7 I R 0 + 8 [a]
8,0 0 5 0.000005000 7 D R 0 + 8 [a]
8,0 0 6 0.000009000 0 C R 0 + 8 [0]
8,0 0 7 0.000011000 7 D R 100 + 8 [a]
8,0 0 8 0.000019000 0 C R 100 + 8 [0]
8,0 0 9 0.000021000 7 G R 200 + 8 [a]
8,0 0 10 0.000022000 7 I R 200 + 8 [a]
8,0 0 11 0.000023000 7 D R 200 + 8 [a]
8,0 0 12 0.000029000 0 C R 200 + 8 [0]
";

#[test]
fn each_request_of_a_device_without_bios_has_one_bio() {
    let folder = tempfile::tempdir().unwrap();
    let report = summary(&file(folder.path(), "t", REQUESTS.as_bytes()));
    let requests: u64 = report.ops.iter().map(|op| op.requests).sum();
    assert_eq!((report.flow.bios, requests, report.stages.q2c.count, report.stages.d2c.count), (3, 3, 3, 3));
    assert!(
        report.notes.iter().any(|note| note.starts_with("3 requests have no bios")),
        "{:?}",
        report.notes
    );
}

#[test]
fn the_name_of_a_file_names_the_only_device_of_its_events() {
    let folder = tempfile::tempdir().unwrap();
    let names = |content: &[u8]| {
        let log = iopath_trace::open(&file(folder.path(), "sda.blktrace.0", content)).unwrap();
        let end = log.for_each_block(|_| {}).unwrap();
        end.labels.queues.into_iter().map(|label| label.name).collect::<Vec<_>>()
    };
    // A remap from the partition 8:1, whose bio is one of the disk.
    let mut remap = record(1, 0, 0xF | 1 << 16, 2048, 4096);
    remap[46..48].copy_from_slice(&16_u16.to_ne_bytes());
    for number in [8 << 20 | 1, 8_u32 << 20] {
        remap.extend(number.to_be_bytes());
    }
    remap.extend(8_u64.to_be_bytes());
    assert_eq!(names(&remap), ["8:1"]);
    let read: Vec<u8> = samples::read(1, 2048);
    assert_eq!(names(&[remap.clone(), read.clone()].concat()), ["8:1", "sda"]);
    let mut other = samples::read(2, 4096);
    for record in other.chunks_mut(48) {
        record[36..40].copy_from_slice(&(8_u32 << 20 | 16).to_ne_bytes());
    }
    assert_eq!(names(&[read, other].concat()), ["8:0", "8:16"]);
}

#[test]
fn the_empty_file_of_an_idle_cpu_is_a_file_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let idle = file(folder.path(), "sda.blktrace.0", b"");
    assert_eq!(summary(&idle).records, 0);
    assert!(matches!(content_of(&idle).unwrap(), Content::Trace(format) if format.name == "blktrace"));
    file(folder.path(), "sda.blktrace.1", &samples::read(1, 8));
    assert_eq!(summary(&idle).flow.bios, 1);
}
