//! The files of Turso by path, each as one volume.

use crate::file::VolumeFile;
use iopath::{Context, IoMode, OpenError, Options, Volume};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};
use turso_core::{
    Clock, File, IO, LimboError, MonotonicInstant, OpenFlags, Result, WallClockInstant, io_error,
};

/// Opens the volume of a file with these options of the file: the path, and the flags of Turso.
pub type Open = dyn Fn(&Path, OpenFlags) -> Result<Volume, OpenError> + Send + Sync;

/// The I/O of Turso over volumes.
pub struct VolumeIo {
    open: Box<Open>,
    /// Turso opens a file again, for example to look for a WAL; the handles share a volume, so one page cache.
    files: Mutex<HashMap<String, Weak<VolumeFile>>>,
}

impl VolumeIo {
    /// Files of the system. Each has a page cache of at most this size, all together four times as much.
    pub fn of_files(cache_bytes: u64) -> Self {
        let context = Context::new(cache_bytes.saturating_mul(4));
        Self::new(move |path, flags| {
            let options = Options::new().mode(IoMode::Buffered).context(&context).cache_bytes(cache_bytes);
            let options = options.lock(!flags.intersects(OpenFlags::ReadOnly | OpenFlags::NoLock));
            Volume::open(path, &with_flags(options, flags))
        })
    }

    /// Files of any kind, opened by `open`.
    pub fn new(open: impl Fn(&Path, OpenFlags) -> Result<Volume, OpenError> + Send + Sync + 'static) -> Self {
        Self { open: Box::new(open), files: Mutex::default() }
    }
}

fn with_flags(options: Options, flags: OpenFlags) -> Options {
    match flags {
        flags if flags.contains(OpenFlags::ReadOnly) => options,
        flags if flags.contains(OpenFlags::Create) => options.create(0).extend(true),
        _ => options.write(true).extend(true),
    }
}

impl IO for VolumeIo {
    fn open_file(&self, path: &str, flags: OpenFlags, _direct: bool) -> Result<Arc<dyn File>> {
        // Locked during the opening, so that two handles never have two volumes.
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(path).and_then(Weak::upgrade) {
            return Ok(file);
        }
        let volume = (self.open)(Path::new(path), flags).map_err(|error| match error {
            OpenError::Refused(_) | OpenError::SecondCache(_) => {
                LimboError::LockingError(format!("Failed locking file '{path}'. {error}"))
            }
            error => io_error(error.into(), "open"),
        })?;
        let file = Arc::new(VolumeFile::new(volume));
        files.retain(|_, file| file.strong_count() > 0);
        files.insert(path.to_owned(), Arc::downgrade(&file));
        Ok(file)
    }

    fn remove_file(&self, path: &str) -> Result<()> {
        std::fs::remove_file(path).map_err(|error| io_error(error, "remove_file"))
    }
}

impl Clock for VolumeIo {
    fn current_time_monotonic(&self) -> MonotonicInstant {
        MonotonicInstant::now()
    }

    fn current_time_wall_clock(&self) -> WallClockInstant {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallClockInstant { secs: now.as_secs().cast_signed(), micros: now.subsec_micros() }
    }
}
