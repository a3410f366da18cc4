//! A disk as sysfs describes it: sizes, limits, scheduler, caches. It changes no settings.
//!
//! The attributes are those of the kernel's `Documentation/ABI/stable/sysfs-block`. An attribute that is missing
//! (old kernel, container, driver) is `None`.

use std::fmt;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

use super::roots::{DeviceNumber, Roots};

/// The kernel limits an attribute to a page.
const ATTRIBUTE_BYTES_MAX: usize = 4096;

/// A whole disk, and the requested partition.
///
/// Fields ending in `_kb` are in units of 1024 bytes and are named as in sysfs.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Disk {
    /// Name in the kernel, without `/dev/`: `sda`, `nvme0n1`, `dm-0`.
    pub name: String,
    /// Its device number.
    pub device: DeviceNumber,
    /// The requested partition; `None` for the whole disk.
    pub partition: Option<Partition>,
    /// Capacity of the whole disk.
    pub size_bytes: u64,
    /// The model name that the drive reports.
    pub model: Option<String>,
    /// Whether it is read-only.
    pub read_only: Option<bool>,
    /// Whether the driver reports it as rotational; virtual disks are often reported so, too.
    pub rotational: Option<bool>,
    /// Whether it has queues whose completions are polled.
    pub polls: Option<bool>,
    /// Logical block size.
    pub logical_block_bytes: Option<u32>,
    /// Physical block size: the smallest write without read-modify-write.
    pub physical_block_bytes: Option<u32>,
    /// Smallest request it prefers; `None` also where it reports 0.
    pub minimum_io_bytes: Option<u64>,
    /// Best size for streaming (a stripe's width, for instance); `None` also where it reports 0.
    pub optimal_io_bytes: Option<u64>,
    /// Requests do not cross multiples of this (stripe chunk, zone); `None` also where it reports 0.
    pub chunk_bytes: Option<u64>,
    /// Alignment of memory for direct I/O (Linux 6.0).
    pub dma_alignment_bytes: Option<u32>,
    /// The kernel's I/O scheduler (elevator).
    pub scheduler: Option<Scheduler>,
    /// Readahead of buffered reads, KiB.
    pub read_ahead_kb: Option<u64>,
    /// Largest request that the kernel submits, KiB.
    pub max_sectors_kb: Option<u64>,
    /// Largest request that the hardware supports, KiB.
    pub max_hw_sectors_kb: Option<u64>,
    /// Largest number of memory segments in a request.
    pub max_segments: Option<u32>,
    /// Requests of the queue in each direction.
    pub nr_requests: Option<u32>,
    /// The maximum number of requests in flight at the device, if its driver reports it (SCSI and ATA).
    pub queue_depth: Option<u32>,
    /// Whether a power failure can lose completed writes.
    pub write_cache: Option<WriteCache>,
    /// Whether it supports FUA.
    pub fua: Option<bool>,
    /// Limits of discard; `None` without support.
    pub discard: Option<Discard>,
    /// Zone model if it has zones: `host-aware`, `host-managed`.
    pub zoned: Option<String>,
    /// The backing file or device, if it is a loop device in use.
    pub loop_backing: Option<PathBuf>,
    /// Names of its member devices (md, dm), whole disks and partitions.
    pub slaves: Vec<String>,
}

/// The properties by which people name a disk, and those that change its speed most.
impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk")
            .field("name", &self.name)
            .field("partition", &self.partition.as_ref().map(|partition| &partition.name))
            .field("size_bytes", &self.size_bytes)
            .field("model", &self.model)
            .field("rotational", &self.rotational)
            .field("logical_block_bytes", &self.logical_block_bytes)
            .field("scheduler", &self.scheduler.as_ref().map(|scheduler| &scheduler.current))
            .field("nr_requests", &self.nr_requests)
            .field("write_cache", &self.write_cache)
            .finish_non_exhaustive()
    }
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Partition {
    /// Name in the kernel: `sda1`.
    pub name: String,
    /// Its device number.
    pub device: DeviceNumber,
    /// Its start on the disk, in bytes; `None` if sysfs does not show it.
    pub start_bytes: Option<u64>,
    /// Its capacity, in bytes.
    pub size_bytes: u64,
}

/// The I/O scheduler (elevator) of a disk's queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scheduler {
    /// The one in use.
    pub current: String,
    /// All available ones, with the current one.
    pub available: Vec<String>,
}

/// The write cache of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteCache {
    /// Completed writes may be in volatile memory until a flush (`write back`).
    Volatile,
    /// Completed writes are on the medium (`write through`).
    None,
}

/// Limits of discard requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Discard {
    /// Allocation unit of the device; smaller discards may have no effect.
    pub granularity_bytes: u64,
    /// Largest discard request that the kernel submits.
    pub max_bytes: u64,
    /// Largest discard that the hardware supports; `None` if sysfs does not show it.
    pub max_hw_bytes: Option<u64>,
}

impl Disk {
    /// The disk with this device number, or the disk of that partition; `None` if sysfs has no entry.
    pub fn find(roots: &Roots, device: DeviceNumber) -> Option<Self> {
        let node = node_dir(roots, device)?;
        let whole = whole_disk_dir(&node);
        let partition = (whole != node).then(|| Partition {
            name: name_of(&node),
            device,
            start_bytes: number(&node, "start").map(sectors_to_bytes),
            size_bytes: number(&node, "size").map_or(0, sectors_to_bytes),
        });
        Self::read(whole, partition)
    }

    fn read(dir: &Path, partition: Option<Partition>) -> Option<Self> {
        // By descriptor: most of the time to open an attribute is the look-up of its path.
        let (disk, queue) = (Attributes::of(dir), Attributes::of(&dir.join("queue")));
        let bytes = |name| queue.number(name).filter(|&bytes| bytes > 0);
        let small = |name| queue.number(name).and_then(|n| u32::try_from(n).ok());
        let flag = |attributes: &Attributes, name| attributes.number(name).map(|n| n != 0);
        Some(Self {
            name: name_of(dir),
            device: DeviceNumber::parse(&disk.text("dev")?)?,
            partition,
            size_bytes: disk.number("size").map(sectors_to_bytes)?,
            model: disk.text("device/model").filter(|model| !model.is_empty()),
            read_only: flag(&disk, "ro"),
            rotational: flag(&queue, "rotational"),
            polls: flag(&queue, "io_poll"),
            logical_block_bytes: small("logical_block_size"),
            physical_block_bytes: small("physical_block_size"),
            minimum_io_bytes: bytes("minimum_io_size"),
            optimal_io_bytes: bytes("optimal_io_size"),
            chunk_bytes: bytes("chunk_sectors").map(sectors_to_bytes),
            dma_alignment_bytes: small("dma_alignment").and_then(|mask| mask.checked_add(1)),
            scheduler: queue.text("scheduler").and_then(|text| Scheduler::parse(&text)),
            read_ahead_kb: queue.number("read_ahead_kb"),
            max_sectors_kb: queue.number("max_sectors_kb"),
            max_hw_sectors_kb: queue.number("max_hw_sectors_kb"),
            max_segments: small("max_segments"),
            nr_requests: small("nr_requests"),
            queue_depth: disk.number("device/queue_depth").and_then(|n| u32::try_from(n).ok()),
            write_cache: queue.text("write_cache").and_then(|text| WriteCache::parse(&text)),
            fua: flag(&queue, "fua"),
            discard: bytes("discard_max_bytes").map(|max_bytes| Discard {
                granularity_bytes: queue.number("discard_granularity").unwrap_or(0),
                max_bytes,
                max_hw_bytes: bytes("discard_max_hw_bytes"),
            }),
            zoned: queue.text("zoned").filter(|model| model != "none"),
            loop_backing: disk.text("loop/backing_file").map(PathBuf::from),
            slaves: names_in(&dir.join("slaves")),
        })
    }
}

impl Scheduler {
    /// Parses `none [mq-deadline] kyber`. A single name, as of queues without a choice, is the current one.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |word: &str| word.trim_matches(['[', ']']).to_owned();
        let available: Vec<String> = text.split_whitespace().map(plain).collect();
        let marked = text.split_whitespace().find(|word| word.starts_with('[')).map(plain);
        let current = marked
            .or_else(|| <&[String; 1]>::try_from(available.as_slice()).ok().map(|[one]| one.clone()))?;
        Some(Self { current, available })
    }
}

impl WriteCache {
    /// Parses `write back` or `write through`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "write back" => Some(Self::Volatile),
            "write through" => Some(Self::None),
            _ => None,
        }
    }
}

/// The directory in sysfs of a block device, links followed.
pub(super) fn node_dir(roots: &Roots, device: DeviceNumber) -> Option<PathBuf> {
    let node = roots.sys.join("dev/block").join(device.to_string());
    // The link names a directory without further links. `canonicalize` asks for each part of the path.
    match fs::read_link(&node).ok()?.strip_prefix("../..") {
        Ok(below) => Some(roots.sys.join(below)),
        Err(_) => node.canonicalize().ok(),
    }
}

/// The directory of the disk that `node` is a partition of, or `node` itself.
pub(super) fn whole_disk_dir(node: &Path) -> &Path {
    match node.parent() {
        Some(parent) if node.join("partition").exists() => parent,
        _ => node,
    }
}

/// The device's name; sysfs writes `!` where the name has a `/`.
pub(super) fn name_of(dir: &Path) -> String {
    dir.file_name().unwrap_or_default().to_string_lossy().replace('!', "/")
}

/// The names in a directory of links, sorted; empty if there is none.
pub(super) fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| name_of(&entry.path())).collect();
    names.sort();
    names
}

/// The attributes of a directory in sysfs. None if it is missing.
struct Attributes(Option<OwnedFd>);

impl Attributes {
    fn of(dir: &Path) -> Self {
        Self(rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok())
    }

    fn text(&self, name: &str) -> Option<String> {
        attribute_at(self.0.as_ref()?.as_fd(), Path::new(name))
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

/// An attribute's text without the newline at its end.
pub(super) fn attribute(dir: &Path, name: &str) -> Option<String> {
    attribute_at(CWD, &dir.join(name))
}

fn attribute_at(dir: BorrowedFd<'_>, name: &Path) -> Option<String> {
    let file = rustix::fs::openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // sysfs returns an attribute with one read. `fs::read` would ask for its size before and for its end afterwards,
    // and a volume reads thirty attributes when it is opened.
    let mut text = [0; ATTRIBUTE_BYTES_MAX];
    let bytes = rustix::io::read(&file, &mut text).ok()?;
    Some(String::from_utf8_lossy(&text[..bytes]).trim().to_owned())
}

fn number(dir: &Path, name: &str) -> Option<u64> {
    attribute(dir, name)?.parse().ok()
}

/// Sectors have 512 bytes, for any block size of the disk.
fn sectors_to_bytes(sectors: u64) -> u64 {
    sectors.saturating_mul(512)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_elevator_in_brackets_is_current() {
        let found = Scheduler::parse("none [mq-deadline] kyber bfq ").expect("well-formed");
        assert_eq!(found.current, "mq-deadline");
        assert_eq!(found.available, ["none", "mq-deadline", "kyber", "bfq"]);
    }

    #[test]
    fn a_single_elevator_is_current_and_a_list_without_a_mark_is_unknown() {
        assert_eq!(Scheduler::parse("none").map(|s| s.current).as_deref(), Some("none"));
        assert_eq!(Scheduler::parse("none bfq"), None);
        assert_eq!(Scheduler::parse(""), None);
    }

    #[test]
    fn only_two_words_describe_a_write_cache() {
        assert_eq!(WriteCache::parse("write back"), Some(WriteCache::Volatile));
        assert_eq!(WriteCache::parse("write through"), Some(WriteCache::None));
        assert_eq!(WriteCache::parse("none"), None);
    }

    proptest! {
        // Each case writes a tree of files.
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_bytes_in_any_attribute_are_a_value_or_none(bytes: Vec<u8>) {
            let tree = tempfile::tempdir().expect("temporary directory");
            let root = tree.path();
            let disk = root.join("devices/sdx");
            for dir in ["devices/sdx/queue", "devices/sdx/device", "devices/sdx/loop", "dev/block"] {
                fs::create_dir_all(root.join(dir)).expect("fixture directory");
            }
            for name in ["size", "queue/scheduler", "queue/chunk_sectors", "queue/dma_alignment", "device/model",
                "queue/discard_max_bytes", "queue/nr_requests", "loop/backing_file", "queue/write_cache"]
            {
                fs::write(disk.join(name), &bytes).expect("fixture attribute");
            }
            fs::write(disk.join("dev"), "8:0\n").expect("fixture attribute");
            std::os::unix::fs::symlink("../../devices/sdx", root.join("dev/block/8:0")).expect("fixture link");
            let roots = Roots { sys: root.to_owned(), ..Roots::live() };
            let found = Disk::find(&roots, DeviceNumber { major: 8, minor: 0 });
            prop_assert_eq!(found.is_some(), attribute(&disk, "size").unwrap().parse::<u64>().is_ok());
        }
    }
}
