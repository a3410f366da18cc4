//! Reads a small input file as a whole, up to a limit of its size. Does not parse.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads a file of at most `bytes_max` bytes. Also reads pipes; a device without an end exceeds the limit.
///
/// # Errors
/// The error of the system, or that the file is larger.
pub(crate) fn read(file: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let message = format!("it is larger than {} MiB", bytes_max >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_the_limit() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![7; 1 << 20]).unwrap();
        assert_eq!(read(file.path(), 1 << 20).unwrap().len(), 1 << 20);
        let error = read(Path::new("/dev/zero"), 1 << 20).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 1 MiB");
    }
}
