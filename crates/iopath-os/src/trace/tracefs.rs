//! The file system of tracepoints: their numbers, and where the fields of their events are. The offsets differ between
//! kernels, so they are always read from the kernel.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::error::TraceError;
use iopath_core::debug;

/// The usual mount points.
const MOUNT_POINTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The file system of tracepoints.
pub struct Tracefs {
    root: PathBuf,
    /// A mount of our own, which no other process sees and which ends with this value.
    _mount: Option<OwnedFd>,
}

impl fmt::Debug for Tracefs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracefs").field("root", &debug::Text(&self.root)).finish_non_exhaustive()
    }
}

/// A tracepoint of this kernel.
#[derive(Clone)]
pub struct Tracepoint {
    /// Group and name, as in `block/block_rq_issue`.
    pub name: String,
    /// Its number.
    pub id: u16,
    /// The fields of its events.
    pub format: Format,
}

impl fmt::Debug for Tracepoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracepoint")
            .field("name", &debug::Text(&self.name))
            .field("id", &self.id)
            .field("format", &self.format)
            .finish()
    }
}

/// The fields of the events of a tracepoint.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Format {
    fields: Vec<(String, Field)>,
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Format").field("fields", &self.fields.len()).finish_non_exhaustive()
    }
}

/// A field of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The position of its first byte.
    pub offset: usize,
    /// Its length in bytes.
    pub size: usize,
}

impl Tracefs {
    /// Finds the mounted file system, or mounts it for this process alone.
    ///
    /// # Errors
    /// If it is not mounted and cannot be, or is not readable.
    pub fn open() -> Result<Self, TraceError> {
        let mut unreadable = None;
        for root in MOUNT_POINTS.map(Path::new) {
            match fs::read_dir(root.join("events")) {
                Ok(_) => return Ok(Self { root: root.to_owned(), _mount: None }),
                Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                    let path = root.display().to_string();
                    unreadable.get_or_insert(TraceError::Unreadable { path, source });
                }
                Err(_) => {}
            }
        }
        match mount() {
            Ok(mount) => {
                let root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
                Ok(Self { root, _mount: Some(mount) })
            }
            Err(source) => Err(unreadable.unwrap_or(TraceError::NoTracefs { source })),
        }
    }

    /// The tracepoint of that group and name, as in `block/block_rq_issue`.
    ///
    /// # Errors
    /// If the kernel has no such tracepoint, or it cannot be read.
    pub fn tracepoint(&self, name: &str) -> Result<Tracepoint, TraceError> {
        let folder = self.root.join("events").join(name);
        let read = |file| {
            fs::read_to_string(folder.join(file)).map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => TraceError::NoTracepoint { name: name.to_owned() },
                _ => TraceError::Unreadable { path: folder.display().to_string(), source },
            })
        };
        let no_tracepoint = || TraceError::NoTracepoint { name: name.to_owned() };
        let id = read("id")?.trim().parse().map_err(|_| no_tracepoint())?;
        Ok(Tracepoint { name: name.to_owned(), id, format: Format::parse(&read("format")?) })
    }
}

impl Tracepoint {
    /// A field that the events must have.
    ///
    /// # Errors
    /// If they lack it.
    pub fn field(&self, field: &str) -> Result<Field, TraceError> {
        let missing = || TraceError::NoField { name: self.name.clone(), field: field.to_owned() };
        self.format.field(field).ok_or_else(missing)
    }
}

impl Format {
    /// Parses the file `format` of a tracepoint. Lines of another form are ignored.
    pub fn parse(text: &str) -> Self {
        Self { fields: text.lines().filter_map(field).collect() }
    }

    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<Field> {
        self.fields.iter().find(|(own, _)| own == name).map(|(_, field)| *field)
    }
}

impl Field {
    /// The number in the field of an event: 1, 2, 4 or 8 bytes of this machine's order. `None` if the event is shorter,
    /// or the field has another size.
    #[inline]
    pub fn number(self, event: &[u8]) -> Option<u64> {
        let bytes = self.bytes(event)?;
        Some(match bytes.len() {
            1 => bytes[0].into(),
            2 => u16::from_ne_bytes(bytes.try_into().ok()?).into(),
            4 => u32::from_ne_bytes(bytes.try_into().ok()?).into(),
            8 => u64::from_ne_bytes(bytes.try_into().ok()?),
            _ => return None,
        })
    }

    /// The bytes of the field of an event. `None` if the event is shorter.
    #[inline]
    pub fn bytes(self, event: &[u8]) -> Option<&[u8]> {
        event.get(self.offset..self.offset.checked_add(self.size)?)
    }
}

/// The field of a line such as `field:char comm[16]; offset:38; size:16; signed:0;`, with tabs in between.
fn field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?;
    let name = declaration.split('[').next()?.trim_end().rsplit(' ').next()?.trim_start_matches('*');
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
    let offset = number("offset:")?;
    Some((name.to_owned(), Field { offset, size: number("size:")? }))
}

/// Mounts the file system without a mount point.
fn mount() -> io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    let flags = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: block_rq_issue\nID: 2104\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:char comm[16];\toffset:44;\tsize:16;\tsigned:0;\n\
        \tfield:__data_loc char[] cmd;\toffset:60;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned int broken;\toffset:x;\tsize:4;\n\n\
        print fmt: \"%d,%d\", ((unsigned int) ((REC->dev) >> 20))\n";

    #[test]
    fn fields_are_where_the_kernel_says() {
        let format = Format::parse(FORMAT);
        assert_eq!(format.field("dev"), Some(Field { offset: 8, size: 4 }));
        assert_eq!(format.field("sector"), Some(Field { offset: 16, size: 8 }));
        assert_eq!(format.field("comm"), Some(Field { offset: 44, size: 16 }));
        assert_eq!((format.field("broken"), format.field("bytes")), (None, None));
    }

    #[test]
    fn a_short_event_has_no_number() {
        let field = Field { offset: 8, size: 4 };
        let mut event = [0; 12];
        event[8..].copy_from_slice(&7_u32.to_ne_bytes());
        assert_eq!((field.number(&event), field.number(&event[..11])), (Some(7), None));
        assert_eq!(Field { offset: 0, size: 3 }.number(&event), None);
        assert_eq!(Field { offset: usize::MAX, size: 4 }.number(&event), None);
    }
}
