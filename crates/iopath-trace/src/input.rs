//! A file as a stream of bytes, unpacked if it is compressed. It knows nothing of formats of traces.

use std::fs::File;
use std::io::{self, Cursor, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use iopath_log::{LogError, Position};

/// The bytes at the start of a file by which its format is detected.
const START_BYTES: usize = 64 << 10;

const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";

/// An open file.
pub(crate) struct Input {
    path: PathBuf,
    reader: Box<dyn Read + Send>,
    /// The first bytes, which `reader` returns again.
    start: Vec<u8>,
    is_packed: bool,
    is_cut_off: bool,
    /// Bytes read so far, after unpacking.
    offset: u64,
}

impl Input {
    /// Opens a file.
    ///
    /// # Errors
    /// If it cannot be opened or read.
    pub(crate) fn open(path: &Path) -> Result<Self, LogError> {
        let failed = |source| LogError::Open { path: path.to_owned(), source };
        Self::new(path, Box::new(File::open(path).map_err(failed)?))
    }

    /// The content of a file, from `file`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn new(path: &Path, mut file: Box<dyn Read + Send>) -> Result<Self, LogError> {
        let read = |source| LogError::Read { offset: 0, source };
        let cannot_unpack = |error| LogError::Trace {
            path: path.to_owned(),
            at: Position::Byte(0),
            problem: format!("cannot unpack it: {error}"),
        };
        let (start, failure) = first_bytes(&mut file, ZSTD.len());
        let file: Box<dyn Read + Send> = failure.map_or(file, |error| Box::new(Failed(Some(error))));
        let is_packed = start.starts_with(GZIP) || start.starts_with(ZSTD);
        let all = Cursor::new(start.clone()).chain(file);
        let mut reader: Box<dyn Read + Send> = if start.starts_with(GZIP) {
            Box::new(MultiGzDecoder::new(all))
        } else if start.starts_with(ZSTD) {
            Box::new(zstd::Decoder::new(all).map_err(read)?)
        } else {
            Box::new(all)
        };
        let (start, failure) = first_bytes(&mut reader, START_BYTES);
        match failure {
            Some(error) if start.is_empty() && !is_packed => return Err(read(error)),
            failure if start.is_empty() && is_packed => {
                return Err(cannot_unpack(failure.unwrap_or_else(|| ErrorKind::UnexpectedEof.into())));
            }
            Some(error) => reader = Box::new(Failed(Some(error))),
            None => {}
        }
        let reader = Box::new(Cursor::new(start.clone()).chain(reader));
        Ok(Self { path: path.to_owned(), reader, start, is_packed, is_cut_off: false, offset: 0 })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The first bytes of the file.
    pub(crate) fn start(&self) -> &[u8] {
        &self.start
    }

    /// The reader of all bytes, from the first on.
    pub(crate) fn into_reader(self) -> Box<dyn Read + Send> {
        self.reader
    }

    /// Reads bytes into `into`. Returns 0 at the end, also if a compressed file is cut off.
    ///
    /// # Errors
    /// If the file cannot be read or unpacked.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Result<usize, LogError> {
        loop {
            match self.reader.read(into) {
                Ok(bytes) => {
                    self.offset += bytes as u64;
                    return Ok(bytes);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if self.is_packed && error.kind() == ErrorKind::UnexpectedEof => {
                    self.is_cut_off = true;
                    return Ok(0);
                }
                Err(error) if self.is_packed && error.kind() != ErrorKind::Other => {
                    return Err(self.error(Position::Byte(self.offset), format!("cannot unpack it: {error}")));
                }
                Err(source) => return Err(LogError::Read { offset: self.offset, source }),
            }
        }
    }

    /// Reads until `into` is full, or the file ends. Returns the number of bytes.
    ///
    /// # Errors
    /// As [`Input::read`].
    pub(crate) fn read_full(&mut self, into: &mut [u8]) -> Result<usize, LogError> {
        let mut filled = 0;
        while filled < into.len() {
            match self.read(&mut into[filled..])? {
                0 => break,
                bytes => filled += bytes,
            }
        }
        Ok(filled)
    }

    /// A note if the file ended before its end.
    pub(crate) fn note(&self) -> Option<String> {
        self.is_cut_off
            .then(|| format!("the compressed file is cut off after {} bytes of its content", self.offset))
    }

    pub(crate) fn error(&self, at: Position, problem: String) -> LogError {
        LogError::Trace { path: self.path.clone(), at, problem }
    }
}

/// The first bytes, and why there are no further ones. A decoder does not return an error twice.
fn first_bytes(reader: &mut impl Read, bytes: usize) -> (Vec<u8>, Option<io::Error>) {
    let mut start = Vec::new();
    let read = reader.by_ref().take(bytes as u64).read_to_end(&mut start);
    (start, read.err())
}

/// Returns an error once.
struct Failed(Option<io::Error>);

impl Read for Failed {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}
