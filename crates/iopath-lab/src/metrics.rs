//! Publishes the metrics of a running command: answers scrapes over HTTP, or replaces a file every second. What is
//! published is in `iopath-report/src/metrics.rs`. Does not measure: it gets the progress of a run or the counters of a
//! server.
//!
//! A scrape reads a text that is ready, and its thread shares nothing else with the run. Each scrape ends after a few
//! seconds, and few run at the same time, so that clients that never read take neither time nor memory.

mod http;
mod record;
mod run;
mod serve;

pub use record::RecordMetrics;
pub use run::RunMetrics;
pub use serve::serve_metrics;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use iopath_bench::own_file::replace_own;
use iopath_report::metrics::{BUILD, CPU, Metrics};

/// The interval of files.
const INTERVAL: Duration = Duration::from_secs(1);

/// The interval of the checks for the end and for a scrape.
const POLL: Duration = Duration::from_millis(50);

/// Where metrics are published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsPlace {
    /// A server of HTTP.
    Address(SocketAddr),
    /// A file that is replaced as a whole, as for the textfile collector of `node_exporter`.
    File(PathBuf),
}

impl FromStr for MetricsPlace {
    type Err = String;

    /// `PORT` (of 127.0.0.1), `ADDRESS:PORT` or `localhost:PORT`; everything else is the name of a file.
    fn from_str(text: &str) -> Result<Self, String> {
        let local = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        let port = text.strip_prefix("localhost:").unwrap_or(text);
        if let Ok(port) = port.parse() {
            return Ok(Self::Address(local(port)));
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let is_host = text.rsplit_once(':').is_some_and(|(host, port)| {
            !host.contains('/') && !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
        });
        if is_host || text.is_empty() {
            return Err(format!(
                "`{text}` is neither a port, an IP address with a port, nor a file; name a file as ./{text}"
            ));
        }
        Ok(Self::File(text.into()))
    }
}

impl fmt::Display for MetricsPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Metrics cannot be published.
#[derive(Debug, thiserror::Error)]
#[error("--metrics {place}: {source}; use a free port, or a file that iopath may create")]
pub struct MetricsError {
    place: String,
    source: io::Error,
}

/// The latest text, and the end.
#[derive(Debug)]
struct Shared {
    text: Mutex<Arc<str>>,
    has_ended: AtomicBool,
}

impl Shared {
    /// The lock is held for the exchange of one pointer.
    fn text(&self) -> Arc<str> {
        Arc::clone(&self.text.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }
}

/// A running publication. Dropping it publishes the last text in the file, and ends the server.
#[derive(Debug)]
pub struct Exporter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The address of the server, with the port that the system has selected.
    pub address: Option<SocketAddr>,
}

impl Exporter {
    /// Starts to publish. `replaces` permits a file that iopath has not created.
    ///
    /// # Errors
    /// The error of the system: the address is in use, or the file cannot be written.
    pub fn start(place: &MetricsPlace, replaces: bool) -> io::Result<Self> {
        let first: Arc<str> = described().text().into();
        let shared =
            Arc::new(Shared { text: Mutex::new(Arc::clone(&first)), has_ended: AtomicBool::new(false) });
        let of_thread = Arc::clone(&shared);
        let (thread, address) = match place.clone() {
            MetricsPlace::Address(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let address = listener.local_addr()?;
                (thread::spawn(move || http::serve(&listener, &of_thread)), Some(address))
            }
            MetricsPlace::File(path) => {
                replace_own(&path, first.as_bytes(), replaces)?;
                let write = move || {
                    write_file(&of_thread, first, |text| replace_own(&path, text.as_bytes(), replaces));
                };
                (thread::spawn(write), None)
            }
        };
        Ok(Self { shared, thread: Some(thread), address })
    }

    /// As [`Exporter::start`], with an error that names the option.
    ///
    /// # Errors
    /// [`MetricsError`].
    pub fn of_option(place: &MetricsPlace, replaces: bool) -> Result<Self, MetricsError> {
        Self::start(place, replaces).map_err(|source| MetricsError { place: place.to_string(), source })
    }

    /// Publishes a text instead of the one before.
    pub fn publish(&self, text: String) {
        *self.shared.text.lock().unwrap_or_else(PoisonError::into_inner) = text.into();
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Writes the latest text every second and at the end; `written` is in the file already. A failure is not the end:
/// space may become free.
fn write_file(shared: &Shared, mut written: Arc<str>, write: impl Fn(&str) -> io::Result<()>) {
    let mut at = Instant::now();
    loop {
        let is_last = shared.has_ended();
        let text = shared.text();
        if (is_last || at.elapsed() >= INTERVAL) && !Arc::ptr_eq(&text, &written) && write(&text).is_ok() {
            (written, at) = (text, Instant::now());
        }
        if is_last {
            return;
        }
        thread::sleep(POLL);
    }
}

/// The metrics of every command: the program and its CPU time.
fn described() -> Metrics {
    let mut metrics = Metrics::default();
    metrics.add(&BUILD, &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let cpu = iopath_os::process_cpu_times();
    metrics.add(&CPU, &[("mode", "user")], cpu.user.as_secs_f64());
    metrics.add(&CPU, &[("mode", "system")], cpu.system.as_secs_f64());
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_report::fixtures::openmetrics::parse;

    #[test]
    fn ports_and_addresses_are_servers_and_other_names_files() {
        let place = |text: &str| text.parse::<MetricsPlace>();
        let address = |text: &str| Ok(MetricsPlace::Address(text.parse().unwrap()));
        assert_eq!(place("9100"), address("127.0.0.1:9100"));
        assert_eq!(place("localhost:0"), address("127.0.0.1:0"));
        assert_eq!(place("0.0.0.0:9100"), address("0.0.0.0:9100"));
        assert_eq!(place("[::1]:9100"), address("[::1]:9100"));
        for file in ["metrics.prom", "./9100", "/var/lib/a:9/b.prom"] {
            assert_eq!(place(file), Ok(MetricsPlace::File(file.into())));
        }
        for wrong in ["", "host:9100", "70000:80"] {
            assert!(place(wrong).unwrap_err().contains("name a file as"), "{wrong}");
        }
    }

    #[test]
    fn a_file_has_the_last_text_at_the_end_and_a_file_of_the_user_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("metrics.prom");
        let place = MetricsPlace::File(file.clone());
        let exporter = Exporter::start(&place, false).unwrap();
        parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
        exporter.publish("# EOF\n".to_owned());
        drop(exporter);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "# EOF\n");
        let own = directory.path().join("own");
        std::fs::write(&own, "mine").unwrap();
        assert!(Exporter::start(&MetricsPlace::File(own.clone()), false).is_err());
        assert_eq!(std::fs::read_to_string(&own).unwrap(), "mine");
    }
}
