//! Answers scrapes over HTTP/1.1. Each has a thread with limits of its time and its bytes. Knows no metrics.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use iopath_report::metrics::MEDIA_TYPE;

use super::{POLL, Shared};

/// Scrapes at the same time. Further ones are closed at once.
const SCRAPES_MAX: usize = 8;

/// The longest time of a scrape.
const SCRAPE_MAX: Duration = Duration::from_secs(5);

/// The most bytes of a request.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// Serves until the end.
pub(super) fn serve(listener: &TcpListener, shared: &Arc<Shared>) {
    let running = Arc::new(AtomicUsize::new(0));
    while !shared.has_ended() {
        let Ok((stream, _)) = listener.accept() else {
            // No client, or no descriptor is free.
            thread::sleep(POLL);
            continue;
        };
        if running.load(Ordering::Acquire) >= SCRAPES_MAX {
            continue;
        }
        running.fetch_add(1, Ordering::AcqRel);
        let (shared, counted) = (Arc::clone(shared), Arc::clone(&running));
        let answer = move || {
            // A client that leaves is no failure.
            let _ = answer(stream, &shared);
            counted.fetch_sub(1, Ordering::AcqRel);
        };
        if thread::Builder::new().name("metrics".to_owned()).spawn(answer).is_err() {
            running.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let deadline = Instant::now() + SCRAPE_MAX;
    stream.set_nonblocking(false)?;
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        stream.set_read_timeout(Some(left(deadline)?))?;
        let mut bytes = [0; 1024];
        let count = stream.read(&mut bytes)?;
        if count == 0 || request.len() + count > REQUEST_BYTES_MAX {
            return Ok(());
        }
        request.extend_from_slice(&bytes[..count]);
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let text = shared.text();
    let (status, kind, body): (_, _, &str) = match (method, path) {
        ("GET" | "HEAD", "/metrics" | "/") => ("200 OK", MEDIA_TYPE, &text),
        ("GET" | "HEAD", _) => ("404 Not Found", "text/plain", "metrics are at /metrics\n"),
        _ => ("405 Method Not Allowed", "text/plain", "only GET and HEAD\n"),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let body = if method == "HEAD" { "" } else { body };
    for mut part in [head.as_bytes(), body.as_bytes()] {
        while !part.is_empty() {
            stream.set_write_timeout(Some(left(deadline)?))?;
            let count = stream.write(part)?;
            if count == 0 {
                return Ok(());
            }
            part = &part[count..];
        }
    }
    Ok(())
}

/// The time until the deadline.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::super::{Exporter, MetricsPlace};
    use super::*;
    use iopath_report::fixtures::openmetrics::parse;
    use std::net::SocketAddr;

    fn exporter() -> (Exporter, SocketAddr) {
        let exporter = Exporter::start(&"127.0.0.1:0".parse::<MetricsPlace>().unwrap(), false).unwrap();
        let address = exporter.address.unwrap();
        (exporter, address)
    }

    fn asked(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let mut text = String::new();
        // The server may close the connection before it has read a long request.
        let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut text));
        text
    }

    #[test]
    fn a_scrape_gets_the_latest_text_with_its_media_type() {
        let (exporter, address) = exporter();
        let get = || asked(address, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        let first = get();
        assert!(first.starts_with("HTTP/1.1 200 OK\r\n") && first.contains(MEDIA_TYPE), "{first}");
        parse(first.split_once("\r\n\r\n").unwrap().1).unwrap();
        exporter.publish("# EOF\n".to_owned());
        assert!(get().ends_with("\r\n\r\n# EOF\n"));
        assert!(
            asked(address, "HEAD / HTTP/1.1\r\n\r\n")
                .ends_with("Content-Length: 6\r\nConnection: close\r\n\r\n")
        );
        assert!(asked(address, "GET /other HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(asked(address, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert_eq!(asked(address, &"x".repeat(3 * REQUEST_BYTES_MAX / 2)), "", "no answer to a long request");
        drop(exporter);
        assert!(TcpStream::connect(address).is_err(), "the server ends with the command");
    }

    #[test]
    fn clients_that_send_nothing_leave_the_end_and_other_scrapes_alone() {
        let (exporter, address) = exporter();
        let silent: Vec<TcpStream> =
            (0..SCRAPES_MAX - 1).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(asked(address, "GET / HTTP/1.1\r\n\r\n").contains("200 OK"));
        for _ in 0..64 {
            let _ = TcpStream::connect(address);
        }
        exporter.publish("# EOF\n".to_owned());
        // Returns although the clients are still connected.
        drop(exporter);
        drop(silent);
    }
}
