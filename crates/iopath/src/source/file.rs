//! A regular file or block device as a source: opens, creates, inspects and locks it. The engines are in `iopath-os`.

use super::{DeviceSetup, OpenedDevice, Source, SourceError};
use crate::error::OpenError;
use crate::options::Options;
use iopath_core::{IoError, Limits, Op, QueueConfig};
use iopath_os::target::guard::Contents;
use iopath_os::target::{self, DioAlignment, FileId, Kind, Target, open_exclusive};
use iopath_os::{Engine, Geometry, REQUEST_BYTES, RealDevice, Tail, io_error_of, limits_of};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The upper limit for the depth from sysfs.
const DEVICE_DEPTH_MAX: u32 = 1024;

/// A regular file or block device, open for direct I/O.
#[derive(Debug)]
pub(crate) struct FileSource {
    file: Arc<File>,
    path: PathBuf,
    id: FileId,
    is_regular: bool,
    limits: Limits,
    engine: Engine,
}

impl FileSource {
    pub(crate) fn open(path: &Path, options: &Options) -> Result<(Self, Target), OpenError> {
        if let Some(bytes) = options.create_bytes {
            create(path, bytes, options)?;
        }
        let target = match &options.context {
            Some(context) => context.inspect(path)?,
            None => Target::inspect(path)?,
        };
        if target.kind == Kind::Directory {
            return Err(OpenError::Directory(target.path));
        }
        let file = open(&target, options)?;
        Self::of_file(file, target, options)
    }

    /// A file that the program has opened. Its flags become those of direct I/O.
    pub(crate) fn from_file(file: File, options: &Options) -> Result<(Self, Target), OpenError> {
        let target = Target::inspect_open(&file)?;
        if target.kind == Kind::Directory {
            return Err(OpenError::Directory(target.path));
        }
        let path = target.path.clone();
        let refused = |what| move |errno: Errno| system(&path, what)(errno.into());
        let flags = rustix::fs::fcntl_getfl(&file).map_err(refused.clone()("inspected"))?;
        if options.write && flags & OFlags::RWMODE != OFlags::RDWR {
            return Err(refused("written: it was not opened for reading and writing")(Errno::BADF));
        }
        if options.write && flags.contains(OFlags::APPEND) {
            // Such a write ignores its offset (pwrite(2), bugs).
            return Err(refused("written: it was opened for appending")(Errno::INVAL));
        }
        rustix::fs::fcntl_setfl(&file, flags | OFlags::DIRECT).map_err(refused("used for direct I/O"))?;
        Self::of_file(file, target, options)
    }

    fn of_file(file: File, target: Target, options: &Options) -> Result<(Self, Target), OpenError> {
        let alignment = DioAlignment::discover(&target.path)?;
        if options.lock {
            target::lock(&target, &file, options.write)?;
        }
        let geometry = Geometry {
            memory_align_bytes: alignment.memory_bytes,
            logical_block_bytes: alignment.offset_bytes,
            request_bytes_max: options.request_bytes_max.unwrap_or_else(|| request_bytes_max(&target)),
        };
        let limits = limits_of(&file, &geometry).map_err(system(&target.path, "measured"))?;
        let source = Self {
            file: Arc::new(file),
            path: target.path.clone(),
            id: target.id,
            is_regular: target.kind == Kind::RegularFile,
            limits,
            engine: options.engine,
        };
        Ok((source, target))
    }

    /// Opens the file once more, for writes without `O_DIRECT`. Its path may lead to another file by now.
    fn reopen(&self) -> Result<File, OpenError> {
        let open = |path: &Path| OpenOptions::new().write(true).open(path);
        if let Ok(again) = open(&PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))) {
            return Ok(again);
        }
        // Without `/proc`.
        let refused = system(&self.path, "opened for writing");
        let again = open(&self.path).and_then(|again| Ok((again.metadata()?, again)));
        match again {
            Ok((metadata, again)) if FileId::from(&metadata) == self.id => Ok(again),
            Ok(_) => Err(refused(Errno::STALE.into())),
            Err(error) => Err(refused(error)),
        }
    }
}

impl Source for FileSource {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn open(&self, setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice + Send>, OpenError> {
        Ok(self.engine.open_shared(&self.file, &setup.limits, &setup.engine())?.into())
    }

    fn open_local(&self, setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice>, OpenError> {
        Ok(self.engine.open(&self.file, &setup.limits, &setup.engine())?.into())
    }

    fn name(&self) -> PathBuf {
        self.path.clone()
    }

    fn can_resize(&self) -> bool {
        self.is_regular
    }

    fn resize(&self, size_bytes: u64) -> Result<(), SourceError> {
        Ok(self.file.set_len(size_bytes)?)
    }

    fn length_now(&self) -> Option<u64> {
        let metadata = self.is_regular.then(|| self.file.metadata())?;
        metadata.ok().map(|metadata| metadata.len())
    }

    /// It would extend the file.
    fn writes_last_block(&self) -> bool {
        false
    }

    /// A second descriptor, without `O_DIRECT`.
    fn tail(&self) -> Result<Option<Box<dyn Tail>>, OpenError> {
        if self.is_regular { Ok(Some(Box::new(self.reopen()?))) } else { Ok(None) }
    }

    /// By `FALLOC_FL_PUNCH_HOLE` of files and block devices: see `limits_of`.
    fn discard_zeroes(&self) -> bool {
        true
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Result<(), SourceError> {
        if !self.is_regular {
            return Err(IoError::Unsupported.into());
        }
        let allocated = fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, bytes);
        allocated.map_err(|errno| io_error_of(Op::Write, &errno.into()).into())
    }

    /// Moves the file position, which no other code uses.
    fn data_ranges(&self, range: Range<u64>, ranges_max: usize) -> Result<Vec<Range<u64>>, SourceError> {
        let file = &*self.file;
        let mut found = Vec::new();
        let mut offset = range.start;
        while offset < range.end && found.len() < ranges_max {
            let data = match seek(file, SeekFrom::Data(offset)) {
                Ok(data) => data,
                // No data after the offset.
                Err(Errno::NXIO) => break,
                // A block device, or a filesystem that does not record holes.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => offset,
                Err(errno) => return Err(io::Error::from(errno).into()),
            };
            if data >= range.end {
                break;
            }
            let hole = match seek(file, SeekFrom::Hole(data)) {
                Ok(hole) => hole.min(range.end),
                Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => range.end,
                Err(errno) => return Err(io::Error::from(errno).into()),
            };
            found.push(data..hole);
            offset = hole;
        }
        Ok(found)
    }

    fn file(&self) -> Option<&Arc<File>> {
        Some(&self.file)
    }
}

/// The queue depth of the disk: further requests wait in the elevator, not in the kernel.
pub(crate) fn device_depth(target: &Target) -> u32 {
    let disk = target.backing.disk();
    let depth =
        disk.and_then(|disk| disk.queue_depth.or(disk.nr_requests)).unwrap_or(QueueConfig::DEVICE_DEPTH);
    depth.clamp(1, DEVICE_DEPTH_MAX)
}

/// The largest request that the kernel allows for the disk: the CPU cost of a request hardly depends on its length.
/// Bounded above so that long I/O consists of several requests, and below so that the cost per request does not
/// dominate.
fn request_bytes_max(target: &Target) -> u64 {
    let disk_bytes = target.backing.disk().and_then(|disk| disk.max_sectors_kb).map(|kib| kib << 10);
    disk_bytes.unwrap_or(REQUEST_BYTES).clamp(REQUEST_BYTES, 8 * REQUEST_BYTES)
}

/// Creates the file or extends it. Never shortens it.
fn create(path: &Path, bytes: u64, options: &Options) -> Result<(), OpenError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .create_new(options.create_new)
        .mode(options.file_mode)
        .truncate(false)
        .open(path);
    let file = file.map_err(system(path, "created"))?;
    let metadata = file.metadata().map_err(system(path, "measured"))?;
    if metadata.is_file() && metadata.len() < bytes {
        file.set_len(bytes).map_err(system(path, "extended"))?;
    }
    Ok(())
}

fn open(target: &Target, options: &Options) -> Result<File, OpenError> {
    if options.write && options.claim && target.kind == Kind::BlockDevice {
        let contents = if options.overwrite { Contents::Expendable } else { Contents::Kept };
        return Ok(open_exclusive(target, true, contents)?);
    }
    let what = if options.write { "opened for writing" } else { "opened for reading" };
    let flags = OFlags::DIRECT | OFlags::CLOEXEC;
    let file = OpenOptions::new()
        .read(true)
        .write(options.write)
        .custom_flags(flags.bits().cast_signed())
        .open(&target.path);
    file.map_err(system(&target.path, what))
}

/// For `map_err`: the error of a system call on `path`, with the attempted action.
fn system(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::System { path, what, source }
}
