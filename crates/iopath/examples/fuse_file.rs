//! A volume mounted with FUSE: a directory whose files are a [`Volume`], or equal parts of one.
//!
//! ```sh
//! cargo run --release -p iopath --example fuse_file -- BACKING DIRECTORY --size 1073741824
//! ```
//!
//! This command creates or extends the file `BACKING`, and mounts one file, `DIRECTORY/0`, which any program can read,
//! write, truncate and sync. `--windows 8` divides the volume into eight files `0` to `7` of fixed size, so that
//! several processes share one volume. `umount DIRECTORY`, SIGINT and SIGTERM end the program; it flushes the volume
//! before it exits.
//!
//! Files are opened with `FOPEN_DIRECT_IO`: the kernel caches no data, and each read or write of a process reaches the
//! volume. Each of the `--threads` threads reads one request from the kernel, completes it, and reads the next, so that
//! many requests are in flight on the volume.
//!
//! Do not store permanent data in it. It does not store owner, mode and times of the files, and a `--mapper` other than
//! `identity` loses the location of the data when the program ends. Mounting needs root or the program `fusermount3`.

use clap::{Parser, ValueEnum};
use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, Session, TimeOrNow, WriteFlags,
};
use iopath::mapped::{FileLayout, FileMap};
use iopath::{Engine, Error, IoMode, Options, Unaligned, Volume};
use rustix::process::{getgid, getuid};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// A volume of one backing file, mounted with FUSE.
#[derive(Debug, Parser)]
struct Arguments {
    /// The file for the data; created if missing, extended if shorter than the volume
    backing: PathBuf,
    /// The mount point, an existing directory
    directory: PathBuf,
    /// Size of the volume in bytes; 0 keeps the size of the backing file (with --mapper: an empty volume)
    #[arg(long, default_value_t = 0)]
    size: u64,
    /// Number of files of equal size that the volume is divided into; a single file can be truncated and extended
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    windows: u64,
    /// How reads and writes of any offset and length reach the aligned backing file
    #[arg(long, value_enum, default_value_t = IoPath::Buffered)]
    path: IoPath,
    /// Place a new volume in the backing file with this mapper: identity, extent or indirect. Overwrites the content of
    /// the file
    #[arg(long)]
    mapper: Option<String>,
    /// auto, uring or threads
    #[arg(long, default_value = "auto")]
    engine: String,
    /// Size of the page cache in bytes, 16 pages at least
    #[arg(long, default_value_t = 256 << 20)]
    cache: u64,
    /// Size of a page of the cache in bytes
    #[arg(long, default_value_t = 4096)]
    page: u32,
    /// Requests executed at the same time
    #[arg(long, default_value_t = 8)]
    threads: usize,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum IoPath {
    /// Through the page cache of the volume
    Buffered,
    /// Direct I/O; through an aligned bounce buffer if offset, length or memory is unaligned
    Bounced,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fuse_file: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let volume = open(arguments)?;
    let files = Files { volume: volume.clone(), windows: arguments.windows, mounted_at: SystemTime::now() };
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("iopath".to_owned())];
    config.n_threads = Some(arguments.threads);
    config.clone_fd = true;
    let mut session = Session::new(files, &arguments.directory, &config)
        .map_err(|error| format!("cannot mount on {}: {error}", arguments.directory.display()))?;

    let mut unmounter = session.unmount_callable();
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            if let Err(error) = unmounter.unmount() {
                eprintln!("fuse_file: cannot unmount: {error}; close the files, then umount");
            }
        }
    });
    session.run()?;
    Ok(volume.flush()?)
}

fn open(arguments: &Arguments) -> Result<Volume, Box<dyn std::error::Error>> {
    let options = Options::new().extend(true).engine(arguments.engine.parse::<Engine>()?);
    let options = match arguments.path {
        IoPath::Buffered => {
            options.mode(IoMode::Buffered).cache_bytes(arguments.cache).page_bytes(arguments.page)
        }
        IoPath::Bounced => options.unaligned(Unaligned::Bounce),
    };
    let Some(mapper) = &arguments.mapper else {
        return Ok(Volume::open(&arguments.backing, &options.create(arguments.size))?);
    };
    // Space for data, for metadata, and for blocks that cannot be reused until I/O on them has completed.
    let data_bytes = arguments.size.checked_next_multiple_of(4096);
    let capacity_bytes = data_bytes.and_then(|bytes| bytes.checked_mul(2)?.checked_add(4 << 20));
    let capacity_bytes = capacity_bytes.ok_or("--size is too large for a mapped volume")?;
    let layout = FileLayout { block_bytes: 4096, size_bytes: arguments.size, capacity_bytes };
    let file = FileMap::fresh(mapper, &layout)?;
    Ok(Volume::open_mapped(&arguments.backing, &file, &options.create(capacity_bytes))?)
}

/// The mounted directory: files `0` to `windows - 1`, with inode numbers from 2.
struct Files {
    volume: Volume,
    windows: u64,
    mounted_at: SystemTime,
}

const FIRST_FILE: u64 = INodeNo::ROOT.0 + 1;

/// The time for which the kernel may cache attributes. Only the kernel changes the size, and then requests it again.
const ATTRIBUTES_VALID: Duration = Duration::from_secs(1);

impl Files {
    /// The offset of the file in the volume and its size, both in bytes.
    fn window(&self, inode: INodeNo) -> Result<(u64, u64), Errno> {
        let index = inode.0.checked_sub(FIRST_FILE).filter(|index| *index < self.windows);
        let bytes = self.volume.size_bytes() / self.windows;
        Ok((index.ok_or(Errno::ENOENT)? * bytes, bytes))
    }

    fn attributes(&self, inode: INodeNo) -> Result<FileAttr, Errno> {
        let is_root = inode == INodeNo::ROOT;
        let size = if is_root { 0 } else { self.window(inode)?.1 };
        Ok(FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(512),
            atime: self.mounted_at,
            mtime: self.mounted_at,
            ctime: self.mounted_at,
            crtime: self.mounted_at,
            kind: if is_root { FileType::Directory } else { FileType::RegularFile },
            perm: if is_root { 0o755 } else { 0o644 },
            nlink: 1,
            uid: getuid().as_raw(),
            gid: getgid().as_raw(),
            rdev: 0,
            blksize: self.volume.facts().block_bytes,
            flags: 0,
        })
    }

    /// Reads up to `bytes` bytes of the file: fewer at its end.
    fn read_file(&self, inode: INodeNo, offset: u64, bytes: u32) -> Result<Vec<u8>, Errno> {
        let (start, size) = self.window(inode)?;
        let mut buffer = vec![0; size.saturating_sub(offset).min(bytes.into()) as usize];
        if !buffer.is_empty() {
            let read = self.volume.read_at(&mut buffer, start + offset).map_err(|error| errno(&error))?;
            buffer.truncate(read);
        }
        Ok(buffer)
    }

    fn write_file(&self, inode: INodeNo, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let (start, size) = self.window(inode)?;
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        if end > size && self.windows > 1 {
            return Err(Errno::EPERM);
        }
        // A single file grows with its writes: see `Options::extend`.
        self.volume.write_at(data, start + offset).map_err(|error| errno(&error))
    }

    /// Changes the size of the file. The kernel sends no other write or truncation of the file meanwhile.
    fn resize_file(&self, inode: INodeNo, bytes: u64) -> Result<(), Errno> {
        let (_, size) = self.window(inode)?;
        match bytes {
            unchanged if unchanged == size => Ok(()),
            _ if self.windows > 1 => Err(Errno::EPERM),
            bytes => self.volume.resize(bytes).map_err(|error| errno(&error)),
        }
    }
}

/// The error number of `error` for the calling process. Prints the message, which has more detail, to standard error.
fn errno(error: &Error) -> Errno {
    eprintln!("fuse_file: {error}");
    Errno::from_i32(error.errno())
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let index = name.to_str().and_then(|name| name.parse::<u64>().ok());
        let inode = index.and_then(|index| index.checked_add(FIRST_FILE));
        match inode.ok_or(Errno::ENOENT).and_then(|inode| self.attributes(INodeNo(inode))) {
            Ok(attributes) => reply.entry(&ATTRIBUTES_VALID, &attributes, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Ok(attributes) => reply.attr(&ATTRIBUTES_VALID, &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let special = [".", ".."].map(|name| (INodeNo::ROOT, FileType::Directory, name.to_owned()));
        let files = (0..self.windows)
            .map(|index| (INodeNo(FIRST_FILE + index), FileType::RegularFile, index.to_string()));
        for (next, (inode, kind, name)) in (1..).zip(special.into_iter().chain(files)).skip(offset as usize) {
            if reply.add(inode, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.read_file(inode, offset, bytes) {
            Ok(data) => reply.data(&data),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_file(inode, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(errno),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        match self.volume.flush() {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Changes the size. Changes of other attributes succeed without effect.
    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let resized = size.map_or(Ok(()), |bytes| self.resize_file(inode, bytes));
        match resized.and_then(|()| self.attributes(inode)) {
            Ok(attributes) => reply.attr(&ATTRIBUTES_VALID, &attributes),
            Err(errno) => reply.error(errno),
        }
    }
}
