//! A regular file or block device as a source: opens, creates, inspects and locks it. The engines are in `iopath-os`.

use super::file_tail::FileTail;
use super::{DeviceSetup, OpenedDevice, Source, SourceError, system};
use crate::error::OpenError;
use crate::options::{Options, Unaligned};
use iopath_core::{IoError, Limits, Op, QueueConfig};
use iopath_os::target::guard::Contents;
use iopath_os::target::{
    self, DioAlignment, FileId, FileStat, Kind, KnownFilesystems, Target, open_exclusive,
};
use iopath_os::{Engine, Geometry, REQUEST_BYTES, RealDevice, Tail, io_error_of, limits_of_open};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The filesystems of all volumes.
static FILESYSTEMS: KnownFilesystems = KnownFilesystems::new();

/// The upper limit for the depth from sysfs.
const DEVICE_DEPTH_MAX: u32 = 1024;

/// A regular file or block device, open for direct I/O.
#[derive(Debug)]
pub(crate) struct FileSource {
    file: Arc<File>,
    target: Arc<Target>,
    limits: Limits,
    engine: Engine,
    tail: FileTail,
}

impl FileSource {
    pub(crate) fn open(path: &Path, options: &Options) -> Result<Self, OpenError> {
        let missing_bytes = options.create_bytes.filter(|bytes| options.create_new || !has(path, *bytes));
        let mut created = missing_bytes.map(|bytes| create(path, bytes, options)).transpose()?;
        let target = match (FILESYSTEMS.inspect(path), options.create_bytes) {
            // It was there a moment ago.
            (Err(error), Some(bytes)) if error.is_not_found() && created.is_none() => {
                created = Some(create(path, bytes, options)?);
                FILESYSTEMS.inspect(path)?
            }
            (inspected, _) => inspected?,
        };
        if target.kind == Kind::Directory {
            return Err(OpenError::Directory(target.path));
        }
        let file = open(&target, options)?;
        let access = if options.write { OFlags::RDWR } else { OFlags::RDONLY };
        Self::of_file(file, access | OFlags::DIRECT, target, created, options)
    }

    /// A file that the program has opened. Its flags become those of direct I/O.
    pub(crate) fn from_file(file: File, options: &Options) -> Result<Self, OpenError> {
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
        let flags = flags | OFlags::DIRECT;
        rustix::fs::fcntl_setfl(&file, flags).map_err(refused("used for direct I/O"))?;
        Self::of_file(file, flags, target, None, options)
    }

    /// An open file. `created` is the descriptor that has created or extended it, if one has.
    fn of_file(
        file: File,
        flags: OFlags,
        mut target: Target,
        created: Option<Created>,
        options: &Options,
    ) -> Result<Self, OpenError> {
        if options.lock {
            target::lock(&target, &file, options.write)?;
        }
        // With the lock: the owner of the lock may have changed the length.
        let stat = FileStat::of(&file).map_err(system(&target.path, "measured"))?;
        if stat.id() != target.id {
            // The path led to another file at the inspection.
            target = Target::inspect_open(&file)?;
        }
        if let Some(bytes) = stat.file_bytes() {
            target.size_bytes = bytes;
        }
        let alignment = DioAlignment::of_open(&file, &stat, &target.path)?;
        let geometry = Geometry {
            memory_align_bytes: alignment.memory_bytes,
            logical_block_bytes: alignment.offset_bytes,
            request_bytes_max: options.request_bytes_max.unwrap_or_else(|| request_bytes_max(&target)),
        };
        let limits =
            limits_of_open(&file, &stat, flags, &geometry).map_err(system(&target.path, "measured"))?;
        let (file, target) = (Arc::new(file), Arc::new(target));
        let tail = FileTail::new(&file, &target);
        let copies = options.is_cached() || options.unaligned == Unaligned::Bounce;
        let has_tail = options.extend || !target.size_bytes.is_multiple_of(alignment.offset_bytes.into());
        if options.write && copies && has_tail && target.kind == Kind::RegularFile {
            // In a context, volumes with a page cache open little. But the first writes of a new file need it.
            let is_lazy = options.context.is_some() && options.is_cached();
            let is_empty = target.size_bytes == 0;
            match created.filter(|created| created.id == target.id) {
                Some(created) if is_empty || !is_lazy => tail.keep(created.file),
                // Now, while the program has the right to open the file.
                _ if !is_lazy => tail.open()?,
                _ => {}
            }
        }
        Ok(Self { file, target, limits, engine: options.engine, tail })
    }

    fn is_regular(&self) -> bool {
        self.target.kind == Kind::RegularFile
    }
}

impl Source for FileSource {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn open(&self, setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice + Send>, OpenError> {
        Ok(OpenedDevice::of_engine(self.engine.open_shared(&self.file, &setup.limits, &setup.engine())?))
    }

    fn open_local(&self, setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice>, OpenError> {
        Ok(OpenedDevice::of_engine(self.engine.open(&self.file, &setup.limits, &setup.engine())?))
    }

    fn name(&self) -> PathBuf {
        self.target.path.clone()
    }

    fn size_bytes(&self) -> u64 {
        self.target.size_bytes
    }

    fn can_resize(&self) -> bool {
        self.is_regular()
    }

    fn resize(&self, size_bytes: u64) -> Result<(), SourceError> {
        Ok(self.file.set_len(size_bytes)?)
    }

    fn length_now(&self) -> Option<u64> {
        let metadata = self.is_regular().then(|| self.file.metadata())?;
        metadata.ok().map(|metadata| metadata.len())
    }

    /// It would extend the file.
    fn writes_last_block(&self) -> bool {
        false
    }

    fn tail(&self) -> Result<Option<Box<dyn Tail>>, OpenError> {
        Ok(self.is_regular().then(|| Box::new(self.tail.clone()) as Box<dyn Tail>))
    }

    /// By `FALLOC_FL_PUNCH_HOLE` of files and block devices: see `limits_of`.
    fn discard_zeroes(&self) -> bool {
        true
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Result<(), SourceError> {
        if !self.is_regular() {
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

    fn has_whole_files(&self) -> bool {
        true
    }

    fn target(&self) -> Arc<Target> {
        Arc::clone(&self.target)
    }

    /// The queue depth of the disk: further requests wait in the elevator, not in the kernel.
    fn device_depth(&self) -> u32 {
        let disk = self.target.backing.disk();
        let depth =
            disk.and_then(|disk| disk.queue_depth.or(disk.nr_requests)).unwrap_or(QueueConfig::DEVICE_DEPTH);
        depth.clamp(1, DEVICE_DEPTH_MAX)
    }

    fn shares_engine(&self) -> bool {
        self.is_regular()
    }
}

/// The largest request that the kernel allows for the disk: the CPU cost of a request hardly depends on its length.
/// Bounded above so that long I/O consists of several requests, and below so that the cost per request does not
/// dominate.
fn request_bytes_max(target: &Target) -> u64 {
    let disk_bytes = target.backing.disk().and_then(|disk| disk.max_sectors_kb).map(|kib| kib << 10);
    disk_bytes.unwrap_or(REQUEST_BYTES).clamp(REQUEST_BYTES, 8 * REQUEST_BYTES)
}

/// A file that `create` has opened, without `O_DIRECT`.
struct Created {
    file: File,
    id: FileId,
}

/// Whether there is a file of this length or more, or a target that is no regular file.
fn has(path: &Path, bytes: u64) -> bool {
    path.metadata().is_ok_and(|metadata| !metadata.is_file() || metadata.len() >= bytes)
}

/// Creates the file or extends it. Never shortens it.
fn create(path: &Path, bytes: u64, options: &Options) -> Result<Created, OpenError> {
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
    Ok(Created { id: FileId::from(&metadata), file })
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
    file.map_err(|source| {
        // The refusal of O_DIRECT names the filesystem.
        let is_refused = Errno::from_io_error(&source) == Some(Errno::INVAL);
        let refused = is_refused.then(|| DioAlignment::discover(&target.path).err()).flatten();
        refused.map_or_else(|| system(&target.path, what)(source), OpenError::from)
    })
}
