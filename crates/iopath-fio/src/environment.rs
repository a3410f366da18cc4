//! The surroundings of a job file: included files, environment variables, and the values of keywords. Does not parse.

use std::env;
use std::io::{self, Read};
use std::path::Path;
use std::thread;

use iopath_report::bounded;
use rustix::param::page_size;

use iopath_bench::host::memory_bytes;

/// The largest job file.
const BYTES_MAX: u64 = 1 << 20;

/// The values that a job file takes from outside.
pub trait Environment {
    /// Reads a file. `from` is the file that includes it. Returns its bytes and the name for messages.
    ///
    /// # Errors
    /// The error of the system.
    fn read(&self, file: &str, from: &str) -> io::Result<(String, Vec<u8>)>;

    /// An environment variable; none if it is not set.
    fn variable(&self, name: &str) -> Option<String>;

    /// The value of `$pagesize` (bytes), `$mb_memory` (MiB) and `$ncpus`; none for any other name.
    fn keyword(&self, name: &str) -> Option<u64>;
}

/// This machine and process.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Environment for System {
    /// A relative name is relative to the current directory, or else to the directory of `from`, as in fio. The name
    /// `-` is the standard input.
    fn read(&self, file: &str, from: &str) -> io::Result<(String, Vec<u8>)> {
        if file == "-" && from.is_empty() {
            return Ok(("stdin".to_owned(), read_bounded(io::stdin().lock())?));
        }
        match bounded::read(Path::new(file), BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let beside = Path::new(from).parent().unwrap_or(Path::new("")).join(file);
                let bytes = bounded::read(&beside, BYTES_MAX)?;
                Ok((beside.display().to_string(), bytes))
            }
            read => Ok((file.to_owned(), read?)),
        }
    }

    fn variable(&self, name: &str) -> Option<String> {
        env::var(name).ok()
    }

    fn keyword(&self, name: &str) -> Option<u64> {
        match name {
            "pagesize" => Some(page_size() as u64),
            "mb_memory" => memory_bytes().map(|bytes| bytes >> 20),
            "ncpus" => thread::available_parallelism().ok().map(|cpus| cpus.get() as u64),
            _ => None,
        }
    }
}

/// All bytes of a stream, up to the size of a job file.
fn read_bounded(stream: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        let message = format!("it has more than {BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_stream_is_refused_and_not_cut() {
        assert_eq!(read_bounded(io::repeat(b'#').take(BYTES_MAX)).unwrap().len() as u64, BYTES_MAX);
        let error = read_bounded(io::repeat(b'#').take(BYTES_MAX + 1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
