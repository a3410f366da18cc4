//! An environment for job files that need none.

use std::io;

use iopath_fio::Environment;

/// No files, no variables.
pub(crate) struct Nothing;

impl Environment for Nothing {
    fn read(&self, _file: &str, _from: &str) -> io::Result<(String, Vec<u8>)> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn variable(&self, _name: &str) -> Option<String> {
        None
    }

    fn keyword(&self, _name: &str) -> Option<u64> {
        None
    }
}
