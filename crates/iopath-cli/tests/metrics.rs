//! `--metrics`: scrapes of a run and of a server while they work, and the file at the end. The text passes a strict
//! parser.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use iopath_report::fixtures::openmetrics::{Sample, parse};
use rustix::process::{Pid, Signal, kill_process};

use crate::serving::Serving;
use crate::support::{becomes_true, iopath, json_of, scratch_directory, with_default_signals};

/// Guards against a hang.
const HANG: Duration = Duration::from_secs(120);

fn scraped(address: &str) -> Vec<Sample> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("application/openmetrics-text"), "{head}");
    parse(body).unwrap_or_else(|problem| panic!("{problem}\n{body}"))
}

fn value(samples: &[Sample], name: &str) -> Option<f64> {
    samples.iter().find(|sample| sample.name == name).map(|sample| sample.value)
}

/// Scrapes until the counter has risen above 0.
fn risen(address: &str, name: &str) -> Vec<Sample> {
    let begun = Instant::now();
    loop {
        let samples = scraped(address);
        if value(&samples, name).is_some_and(|value| value > 0.0) {
            return samples;
        }
        assert!(begun.elapsed() < HANG, "{name} stays 0");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The address in the line `metrics at http://ADDRESS/metrics`.
fn address_in(line: &str) -> String {
    let (_, rest) = line.split_once("http://").unwrap_or_else(|| panic!("no address: {line}"));
    rest.split('/').next().unwrap().to_owned()
}

#[test]
fn the_file_has_the_figures_of_the_result_at_the_end() {
    let Some(folder) = scratch_directory() else { return };
    let file = folder.path().join("metrics.prom");
    let name = file.to_str().unwrap();
    let args = ["run", "--path", "null", "--size", "64m", "--repeat", "3", "--json", "-", "--metrics", name];
    let result = json_of(&iopath(&args).output().unwrap());
    let samples = parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let run = &result["runs"][0];
    assert_eq!(value(&samples, "iopath_transferred_bytes_total"), run["bytes"].as_f64(), "{samples:?}");
    assert_eq!(value(&samples, "iopath_transfers_total"), run["ios"].as_f64());
    assert_eq!(value(&samples, "iopath_latency_seconds_count"), run["ios"].as_f64());
    assert_eq!(value(&samples, "iopath_repetitions_total"), Some(3.0));
    assert_eq!(value(&samples, "iopath_build_info"), Some(1.0));
    // A file of the user stays.
    std::fs::write(&file, "mine").unwrap();
    let refused = iopath(&args).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--metrics"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn a_running_workload_is_scraped_and_a_silent_client_does_not_stop_it() {
    let args = ["run", "--path", "null", "--runtime", "100s", "--repeat", "1", "--metrics", "127.0.0.1:0"];
    let mut command = with_default_signals(&iopath(&args));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = address_in(&line);
    let _silent = TcpStream::connect(&address).unwrap();
    let first = risen(&address, "iopath_transferred_bytes_total");
    assert!(value(&first, "iopath_cpu_seconds_total").is_some());
    let before = value(&first, "iopath_transferred_bytes_total").unwrap();
    let begun = Instant::now();
    while value(&scraped(&address), "iopath_transferred_bytes_total").unwrap() <= before {
        assert!(begun.elapsed() < HANG, "the counter does not rise");
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child.wait().unwrap();
    assert!(TcpStream::connect(&address).is_err());
}

#[test]
fn a_server_publishes_the_requests_of_its_clients() {
    let Some(folder) = scratch_directory() else { return };
    let socket = folder.path().join("socket");
    let arguments =
        ["serve", "model:ssd-nvme", "--unix", socket.to_str().unwrap(), "--metrics", "127.0.0.1:0"];
    let mut serving = Serving::start(&arguments);
    let uri = serving.line();
    let mut line = String::new();
    BufReader::new(serving.child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = address_in(&line);
    let client = ["run", "--path", "iopath-direct", "--rw", "randread", "--size", "4m", "--repeat", "1"];
    let output = iopath(&[&client[..], &["--target", &uri]].concat()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let samples = risen(&address, "iopath_transferred_bytes_total");
    assert!(value(&samples, "iopath_accepted_connections_total").unwrap() >= 1.0, "{samples:?}");
    assert!(value(&samples, "iopath_transfers_total").unwrap() >= 1.0, "{samples:?}");
    let requests = |direction: &str| {
        let of_direction = |one: &&Sample| {
            one.name == "iopath_request_latency_seconds_count"
                && one.labels == [("direction".to_owned(), direction.to_owned())]
        };
        samples.iter().find(of_direction).unwrap_or_else(|| panic!("{direction}: {samples:?}")).value
    };
    let all: f64 = ["read", "write", "other"].map(requests).iter().sum();
    assert!(requests("read") >= 1.0 && requests("write") < 1.0, "{samples:?}");
    assert!((all - value(&samples, "iopath_transfers_total").unwrap()).abs() < 0.5, "{samples:?}");
    assert_eq!(serving.end(Signal::TERM).0, Some(0));
}

#[test]
fn a_server_writes_the_file_and_ends_on_sigterm() {
    let Some(folder) = scratch_directory() else { return };
    let (socket, file) = (folder.path().join("socket"), folder.path().join("metrics.prom"));
    let (place, name) = (socket.to_str().unwrap(), file.to_str().unwrap());
    let mut serving = Serving::start(&["serve", "model:ssd-nvme", "--unix", place, "--metrics", name]);
    let uri = serving.line();
    let first = parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(value(&first, "iopath_build_info"), Some(1.0), "before the first request");
    let client = ["run", "--path", "iopath-direct", "--rw", "randread", "--size", "4m", "--repeat", "1"];
    let output = iopath(&[&client[..], &["--target", &uri]].concat()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    kill_process(Pid::from_child(&serving.child), Signal::TERM).unwrap();
    assert!(becomes_true(|| serving.child.try_wait().unwrap().is_some()), "it goes on after SIGTERM");
    assert!(serving.child.wait().unwrap().success());
    let last = parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert!(value(&last, "iopath_transferred_bytes_total") >= Some(4_194_304.0), "{last:?}");
    assert_eq!(value(&last, "iopath_clients"), Some(0.0), "{last:?}");
}

#[test]
fn an_address_in_use_and_a_host_name_are_refused_in_one_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (place, code, message) in
        [(taken.as_str(), 1, "use a free port"), ("host:9100", 2, "name a file as ./host:9100")]
    {
        let output = iopath(&["run", "--path", "null", "--size", "1m", "--metrics", place]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(message) && stderr.lines().count() == 1, "{stderr}");
    }
}
