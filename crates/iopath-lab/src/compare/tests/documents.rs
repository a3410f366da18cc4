//! Documents of other formats, and damaged documents.

use iopath_report::format::{Document, View};
use std::panic::catch_unwind;

use super::*;

#[test]
fn fio_files_are_repetitions_with_the_options_of_their_job() {
    let runs = parse("f", &format!("fio: a warning\n{:#}\n", fio(1e8))).unwrap();
    let [run] = &runs[..] else { panic!("one direction has transfers: {runs:?}") };
    assert_eq!(
        (run.fact("bs"), run.fact("engine"), run.fact("numjobs")),
        (Some("8192"), Some("libaio"), Some("1"))
    );
    assert_eq!(run.values(data::CPU).unwrap(), [3.0], "30% of 10 s for 1 GiB");
    assert_eq!((run.values(data::P99).unwrap(), run.values(data::P90)), (&[90_000.0][..], None));
    let files = [1e8, 1.01e8, 0.99e8, 0.7e8, 0.71e8, 0.69e8].map(fio);
    let named: Vec<(&str, &Value)> = ["a", "b", "c", "d", "e", "f"].into_iter().zip(&files).collect();
    let comparison = Folder::with(&named).compare("{}/a,{}/b,{}/c", "{}/d,{}/e,{}/f", "").unwrap();
    assert_eq!((primary(&comparison).verdict, comparison.runs[0].repetitions), (Verdict::Slower, [3, 3]));
    let mut failed = fio(1e8);
    failed["jobs"][0]["error"] = json!(5);
    let error = parse("f", &failed.to_string()).unwrap_err().to_string();
    assert_eq!(error, "f: jobs[0].error: the job failed with error 5");
}

#[test]
fn clones_of_a_job_are_one_run_and_not_repetitions() {
    let mut file = fio(1e8);
    let clone = file["jobs"][0].clone();
    file["jobs"].as_array_mut().unwrap().push(clone);
    let runs = parse("f", &file.to_string()).unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].values(data::THROUGHPUT).unwrap(), [2e8]);
    assert_eq!(runs[0].values(data::P99), None, "percentiles cannot be added");
}

#[test]
fn the_published_table_compares_its_two_queues() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../iopath-experiments/published/readahead.csv");
    let options = CompareOptions {
        sides: [
            format!("{file}@queue=unpatched@readahead_kib=512@max_sectors_kib=512"),
            format!("{file}@queue=patched@readahead_kib=512@max_sectors_kib=512"),
        ],
        threshold: 0.03,
        metric: None,
        vary: Vec::new(),
    };
    let comparison = compare_files(&options).unwrap();
    assert!(comparison.runs.len() >= 10, "{}", comparison.text(View::plain(None)));
    assert!(comparison.runs.iter().all(|run| run.repetitions == [3, 3]));
}

/// Every document that differs from this one in one value: another type, an extreme number, or nothing.
fn mutations(document: &Value) -> Vec<Value> {
    let mut pointers = Vec::new();
    collect(document, &mut String::new(), &mut pointers);
    let strange =
        [json!(null), json!(true), json!(-1), json!(1e308), json!(0), json!("x"), json!([]), json!({})];
    let replace = |pointer: &String| {
        strange.clone().map(|value| {
            let mut mutated = document.clone();
            *mutated.pointer_mut(pointer).unwrap() = value;
            mutated
        })
    };
    pointers.iter().flat_map(replace).collect()
}

fn collect(value: &Value, pointer: &mut String, pointers: &mut Vec<String>) {
    pointers.push(pointer.clone());
    let length = pointer.len();
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(values) => {
            values.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect()
        }
        _ => Vec::new(),
    };
    for (name, child) in children {
        pointer.push('/');
        pointer.push_str(&name);
        collect(child, pointer, pointers);
        pointer.truncate(length);
    }
}

#[test]
fn a_damaged_document_is_compared_or_refused_with_its_file_and_key() {
    for whole in [result(&[1e8, 1.01e8]), fio(1e8), inputs::sweep([Some(&[1e8, 1.01e8]), None, None, None])] {
        for mutated in mutations(&whole) {
            let shown = mutated.to_string();
            let outcome = catch_unwind(|| {
                let runs = parse("FILE", &mutated.to_string())?;
                let original = parse("FILE", &whole.to_string())?;
                let matched = matching::pair_up([&[original], &[runs]], ["A", "B"], &["all".to_owned()])?;
                let pairs = matched
                    .pairs
                    .iter()
                    .map(|[a, b]| verdict::compare([a, b], ["A", "B"], None, Design::Independent));
                let compared: Vec<_> = pairs.collect::<Result<_, _>>()?;
                let decisions = verdict::decide(&compared, 1.03f64.ln(), ALPHA);
                Ok(report::report(
                    &letters(&["a".to_owned(), "b".to_owned()]),
                    0.03,
                    &matched.pairs,
                    &compared,
                    decisions,
                )
                .text(View::plain(None)))
            });
            let outcome: Result<String, CompareError> = outcome.unwrap_or_else(|_| panic!("panics: {shown}"));
            if let Err(error) = outcome {
                let text = error.to_string();
                assert!(text.contains("FILE") || error.is_usage(), "{text}: {shown}");
                assert!(text.lines().count() == 1, "{text}");
            }
        }
        let text = whole.to_string();
        for end in 1..text.len() {
            assert!(parse("FILE", &text[..end]).is_err(), "{}", &text[..end]);
        }
    }
    let key = |pointer: &str, value: Value| {
        let mut mutated = result(&[1e8, 1.01e8]);
        *mutated.pointer_mut(pointer).unwrap() = value;
        parse("FILE", &mutated.to_string()).unwrap_err().to_string()
    };
    assert_eq!(
        key("/runs/0/repeats/1/latency_ns/p99", json!("x")),
        "FILE: runs[0].repeats[1].latency_ns.p99: expected a number, found a text"
    );
    assert_eq!(key("/runs/0/repeats", json!([])), "FILE: runs[0].repeats: the list is empty");
    assert_eq!(
        key("/schema", json!("iopath.fit/1")),
        "FILE: schema: `iopath.fit/1` cannot be compared, only iopath.result/1 and iopath.sweep/1 can"
    );
}

#[test]
fn documents_of_one_file_are_repetitions() {
    let files = [1e8, 1.01e8, 0.99e8, 0.7e8, 0.71e8, 0.69e8].map(fio);
    let folder = Folder::with(&[]);
    for (name, documents) in [("a", &files[..3]), ("b", &files[3..])] {
        let text: Vec<String> = documents.iter().map(|document| format!("{document:#}\n")).collect();
        // As a loop of fio under an editor writes it.
        fs::write(folder.0.path().join(name), format!("\u{feff}fio: note\n{}", text.join("fio: bye\n")))
            .unwrap();
    }
    let comparison = folder.compare("{}/a", "{}/b", "").unwrap();
    assert_eq!((primary(&comparison).verdict, comparison.runs[0].repetitions), (Verdict::Slower, [3, 3]));
}

#[test]
fn the_servers_of_a_client_are_workloads_and_their_sum_is_none() {
    let mut file = fio(1e8);
    let job = file["jobs"][0].clone();
    let of = |host: &str| {
        let mut job = job.clone();
        job["hostname"] = json!(host);
        job
    };
    let mut sum = job.clone();
    sum["jobname"] = json!("All clients");
    file.as_object_mut().unwrap().remove("jobs");
    file["client_stats"] = json!([of("h1"), of("h2"), sum]);
    let runs = parse("f", &file.to_string()).unwrap();
    let clients: Vec<_> = runs.iter().map(|run| run.fact("client").unwrap()).collect();
    assert_eq!(clients, ["h1", "h2"]);
    assert!(runs.iter().all(|run| run.values(data::THROUGHPUT).unwrap() == [1e8]));
}

#[test]
fn the_units_of_fio_2_are_kib_and_microseconds() {
    let file = json!({
        "fio version": "fio-2.1.11",
        "jobs": [{
            "jobname": "j", "groupid": 0, "error": 0,
            "read": {"io_bytes": 1 << 20, "bw": 1000, "iops": 250, "total_ios": 100, "lat": {"mean": 50.0},
                "clat": {"mean": 49.0, "percentile": {"50.000000": 48, "99.000000": 90}}},
            "write": {"io_bytes": 0, "bw": 0, "iops": 0},
            "usr_cpu": 1.0, "sys_cpu": 2.0,
        }],
    });
    let [run] = &parse("f", &file.to_string()).unwrap()[..] else { panic!("one direction") };
    for (metric, value) in [
        (data::THROUGHPUT, 1_024_000.0),
        (data::IOPS, 250.0),
        (data::LATENCY, 50_000.0),
        (data::P99, 90_000.0),
    ] {
        assert_eq!(run.values(metric).unwrap(), [value], "{metric:?}");
    }
    assert_eq!(run.values(data::CPU), None);
}
