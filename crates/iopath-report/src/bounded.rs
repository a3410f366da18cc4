//! Reads a small text file as a whole, up to a limit of its size, without a byte order mark. Names what is no text in
//! UTF-8. Does not parse.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use iopath_log::other_encoding;
use rustix::fs::OFlags;

/// Reads a file of at most `bytes_max` bytes. Also reads pipes; a device without an end exceeds the limit.
///
/// # Errors
/// The error of the system, or that the file is larger.
pub fn read(file: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_from(File::open(file)?, bytes_max)
}

/// Reads as [`read`] does, but only a regular file. The open of a named pipe does not wait for a writer.
///
/// # Errors
/// Returns the errors of [`read`], and one for a file that is not a regular file.
pub fn read_regular(file: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(file)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    read_from(file, bytes_max)
}

fn read_from(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let message = format!("it is larger than {} MiB", bytes_max >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    text_of(bytes)
}

/// The text without its byte order mark.
///
/// # Errors
/// The bytes are compressed or in UTF-16.
fn text_of(mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    refuse_encoded(&bytes)?;
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

/// The mark that editors put before text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Refuses a file by its first bytes.
///
/// # Errors
/// The file is compressed or in UTF-16.
pub fn refuse_encoded(first: &[u8]) -> io::Result<()> {
    other_encoding(first).map_or(Ok(()), |what| Err(io::Error::new(io::ErrorKind::InvalidData, what)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_pipe_without_a_writer_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, rustix::fs::Mode::from_raw_mode(0o600), 0).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(read_regular(&fifo, 1 << 20)));
        let read = receiver.recv_timeout(std::time::Duration::from_secs(30)).expect("the open does not wait");
        assert_eq!(read.unwrap_err().to_string(), "it is not a regular file");
    }

    #[test]
    fn a_file_is_read_up_to_the_limit() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![7; 1 << 20]).unwrap();
        assert_eq!(read(file.path(), 1 << 20).unwrap().len(), 1 << 20);
        for (content, expected) in [
            (&b"\xef\xbb\xbf[job]\n"[..], Ok("[job]\n")),
            (b"\xff\xfe[\0", Err("UTF-16")),
            (b"\x1f\x8b\x08", Err("gunzip")),
            (b"BZh9", Err("bunzip2")),
            (b"", Ok("")),
        ] {
            std::fs::write(file.path(), content).unwrap();
            match (read(file.path(), 1 << 20), expected) {
                (Ok(bytes), Ok(text)) => assert_eq!(bytes, text.as_bytes()),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (read, _) => panic!("{content:?}: {read:?}"),
            }
        }
        let error = read(Path::new("/dev/zero"), 1 << 20).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 1 MiB");
    }
}
