//! Commands on exports of servers that are silent, lie about their size, or violate the protocol: every command ends,
//! and its result or its error names what happened.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::support::{iopath, json_of, with_default_signals};
use rustix::process::{Pid, Signal, kill_process};

/// A test that takes longer hangs.
const HANG: Duration = Duration::from_secs(120);

/// A server on a port of its own; each connection gets a thread. Returns its URI.
///
/// The end of a session closes the connection in order: without the rest of the requests read, the kernel would reset
/// it.
fn serve(session: impl Fn(&mut TcpStream) -> std::io::Result<()> + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("nbd://{}/x", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let session = session.clone();
            // An error is the end of the client.
            std::thread::spawn(move || -> std::io::Result<()> {
                let mut stream = stream?;
                session(&mut stream)?;
                stream.shutdown(Shutdown::Write)?;
                std::io::copy(&mut stream, &mut std::io::sink()).map(drop)
            });
        }
    });
    uri
}

/// Accepts the options up to `GO`, with an export of `size` bytes.
fn negotiate(stream: &mut TcpStream, size: u64) -> std::io::Result<()> {
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
    stream.read_exact(&mut [0; 4])?;
    loop {
        let mut head = [0; 16];
        stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes(head[12..].try_into().unwrap());
        stream.read_exact(&mut vec![0; length as usize])?;
        let mut reply = |kind: u32, data: &[u8]| {
            let magic = 0x0003_e889_0455_65a9_u64.to_be_bytes();
            let length = (data.len() as u32).to_be_bytes();
            stream.write_all(&[&magic[..], &head[8..12], &kind.to_be_bytes(), &length, data].concat())
        };
        if head[11] == 7 {
            // HAS_FLAGS, SEND_FLUSH, CAN_MULTI_CONN.
            reply(3, &[&[0, 0][..], &size.to_be_bytes(), &[1, 5]].concat())?;
            return reply(1, &[]);
        }
        reply(0x8000_0001, &[])?;
    }
}

/// Answers the next request, a read or a flush: `copies` replies. The end of the stream is an error.
fn answer(stream: &mut TcpStream, copies: usize) -> std::io::Result<()> {
    let mut head = [0; 28];
    stream.read_exact(&mut head)?;
    let length = if head[7] == 0 { u32::from_be_bytes(head[24..].try_into().unwrap()) } else { 0 };
    let reply =
        [&0x6744_6698_u32.to_be_bytes()[..], &[0; 4], &head[8..16], &vec![0; length as usize]].concat();
    stream.write_all(&reply.repeat(copies))
}

fn spawn(arguments: &[&str]) -> Child {
    let command: Command = iopath(arguments);
    with_default_signals(&command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The end of a process. Kills it if it hangs.
fn end_of(child: Child) -> Output {
    let pid = Pid::from_child(&child);
    let (sender, output) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output().unwrap()));
    output.recv_timeout(HANG).unwrap_or_else(|_| {
        let _ = kill_process(pid, Signal::KILL);
        panic!("the command does not end")
    })
}

fn interrupted(child: Child, signal: Signal) -> Output {
    kill_process(Pid::from_child(&child), signal).unwrap();
    let output = end_of(child);
    assert_eq!(output.status.signal(), Some(signal.as_raw()), "{output:?}");
    output
}

const READS: [&str; 9] =
    ["run", "--path", "iopath-direct", "--rw", "randread", "--bs", "4k", "--repeat", "1"];

#[test]
fn a_signal_ends_a_run_that_waits_for_a_silent_server() {
    let (sender, arrived) = mpsc::channel();
    let uri = serve(move |stream| {
        negotiate(stream, 1 << 20)?;
        answer(stream, 1)?;
        stream.read_exact(&mut [0; 28])?;
        let _ = sender.send(());
        stream.read_to_end(&mut Vec::new()).map(drop)
    });
    // The times of the client are longer than the test.
    let target = format!("{uri}?connections=1&silence-time=100000&connect-time=100000");
    let extra: [&[&str]; 4] = [
        &["--iodepth", "4"],
        &["--iodepth", "1", "--verify"],
        &["--path", "iopath-buffered", "--bs", "64k"],
        &["--iodepth", "2", "--runtime", "100s"],
    ];
    for (more, signal) in extra.into_iter().zip([Signal::INT, Signal::TERM, Signal::INT, Signal::HUP]) {
        let mut arguments = READS.to_vec();
        if more[0] == "--path" {
            arguments.drain(1..3);
        }
        arguments.extend(["--target", &target]);
        arguments.extend(more);
        let child = spawn(&arguments);
        arrived.recv_timeout(HANG).expect("the program waits for the server");
        interrupted(child, signal);
    }
}

#[test]
fn a_signal_ends_a_run_and_a_survey_that_wait_for_the_negotiation() {
    let (sender, arrived) = mpsc::channel();
    let uri = serve(move |stream| {
        let _ = sender.send(());
        stream.read_to_end(&mut Vec::new()).map(drop)
    });
    let target = format!("{uri}?connect-time=100000");
    for arguments in [&[&READS[..], &["--target", &target]].concat()[..], &["survey", &target]] {
        let child = spawn(arguments);
        arrived.recv_timeout(HANG).expect("the program waits for the server");
        interrupted(child, Signal::TERM);
    }
}

#[test]
fn lost_connections_are_counted_in_the_result_and_a_warning_states_the_reason() {
    // Each connection ends after 20 answers.
    let uri = serve(|stream| {
        negotiate(stream, 1 << 20)?;
        (0..20).try_for_each(|_| answer(stream, 1))
    });
    let target = format!("{uri}?connections=1");
    let output =
        end_of(spawn(&[&READS[..], &["--size", "360k", "--target", &target, "--json", "-"]].concat()));
    let run = &json_of(&output)["runs"][0];
    // 90 reads: the fifth connection does not end before the run.
    let connections = &run["connections"];
    assert_eq!(
        (connections["lost"].as_u64(), connections["reconnected"].as_u64()),
        (Some(4), Some(4)),
        "{run}"
    );
    let warning = run["warnings"].as_array().unwrap().iter().find_map(|warning| {
        let text = warning.as_str().unwrap();
        text.contains("were lost 4 times and made anew 4 times").then(|| text.to_owned())
    });
    let warning = warning.expect("a warning");
    assert!(warning.contains(&uri) && warning.contains("the server closed the connection"), "{warning}");
}

#[test]
fn a_refused_connection_and_a_failed_reconnect_are_named_with_the_remedy() {
    let remedy = "no server listens there: start it, or correct the address";
    // The listener is closed before the client starts, or with the only session, after ten answers.
    for answers in [None, Some(10)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("nbd://{}/x", listener.local_addr().unwrap());
        if let Some(answers) = answers {
            std::thread::spawn(move || -> std::io::Result<()> {
                let (mut stream, _) = listener.accept()?;
                drop(listener);
                negotiate(&mut stream, 1 << 20)?;
                (0..answers).try_for_each(|_| answer(&mut stream, 1))?;
                stream.shutdown(Shutdown::Both)
            });
        } else {
            drop(listener);
        }
        let target = format!("{uri}?connections=1&connect-time=5&reconnect-attempts=2");
        let output = end_of(spawn(&[&READS[..], &["--size", "360k", "--target", &target]].concat()));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains(&uri) && errors.contains(remedy), "{answers:?}: {errors}");
    }
}

#[test]
fn a_server_that_replies_twice_is_an_error_with_the_reason() {
    let uri = serve(|stream| {
        negotiate(stream, 1 << 20)?;
        loop {
            answer(stream, 2)?;
        }
    });
    let output = end_of(spawn(&[&READS[..], &["--target", &uri]].concat()));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains(&uri) && errors.contains("which is not in flight"), "{errors}");
}

#[test]
fn an_export_that_is_too_large_is_refused_and_a_wrong_uri_is_a_usage_error() {
    let uri = serve(|stream| negotiate(stream, u64::MAX));
    for (target, code, reason) in
        [(uri.as_str(), 1, "18446744073709551615"), ("nbd://h:99999/x", 2, "not a port")]
    {
        let output = end_of(spawn(&[&READS[..], &["--target", target]].concat()));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(errors.contains(reason), "{errors}");
    }
}
