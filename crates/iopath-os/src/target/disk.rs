//! A disk as sysfs describes it: sizes, limits, scheduler, caches. Reads; never changes a setting.
//!
//! The attributes are those of the kernel's `Documentation/ABI/stable/sysfs-block`. One that is missing (old kernel,
//! container, odd driver) is `None`, never a guess.

use std::fs;
use std::path::{Path, PathBuf};

use super::roots::{DeviceNumber, Roots};

/// A whole disk, and the partition of it that was asked for.
///
/// Fields ending in `_kb` are in units of 1024 bytes and are named as in sysfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Name in the kernel, without `/dev/`: `sda`, `nvme0n1`, `dm-0`.
    pub name: String,
    /// Its device number.
    pub device: DeviceNumber,
    /// The partition asked for; `None` if the whole disk was.
    pub partition: Option<Partition>,
    /// Capacity of the whole disk.
    pub size_bytes: u64,
    /// What the drive calls itself.
    pub model: Option<String>,
    /// Whether it refuses writes.
    pub read_only: Option<bool>,
    /// Whether it has heads that move, as far as the driver knows; virtual disks often say so wrongly.
    pub rotational: Option<bool>,
    /// Smallest unit it can address.
    pub logical_block_bytes: Option<u32>,
    /// Smallest unit it writes without reading first.
    pub physical_block_bytes: Option<u32>,
    /// Smallest request it prefers; `None` also where it reports 0.
    pub minimum_io_bytes: Option<u64>,
    /// Best size for streaming (a stripe's width, for instance); `None` also where it reports 0.
    pub optimal_io_bytes: Option<u64>,
    /// Requests do not cross multiples of this (stripe chunk, zone); `None` also where it reports 0.
    pub chunk_bytes: Option<u64>,
    /// Memory of direct I/O must lie on multiples of this (Linux 6.0 and later tell).
    pub dma_alignment_bytes: Option<u32>,
    /// Elevator in charge.
    pub scheduler: Option<Scheduler>,
    /// Readahead of buffered reads, KiB.
    pub read_ahead_kb: Option<u64>,
    /// Largest request the kernel sends now, KiB.
    pub max_sectors_kb: Option<u64>,
    /// Largest request the hardware takes, KiB.
    pub max_hw_sectors_kb: Option<u64>,
    /// Largest number of memory segments in a request.
    pub max_segments: Option<u32>,
    /// Requests the queue holds in each direction.
    pub nr_requests: Option<u32>,
    /// Whether completed writes may still be lost with the power.
    pub write_cache: Option<WriteCache>,
    /// Whether it can put a single write through its cache (FUA).
    pub fua: Option<bool>,
    /// Limits of discard; `None` if it has none.
    pub discard: Option<Discard>,
    /// Zone model if it has zones: `host-aware`, `host-managed`.
    pub zoned: Option<String>,
    /// The file or device behind it, if it is a loop device in use.
    pub loop_backing: Option<PathBuf>,
    /// Devices it is made of (md, dm): names, whole disks and partitions.
    pub slaves: Vec<String>,
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Name in the kernel: `sda1`.
    pub name: String,
    /// Its device number.
    pub device: DeviceNumber,
    /// Where it starts on the disk, in bytes; `None` if sysfs does not say.
    pub start_bytes: Option<u64>,
    /// Its capacity, in bytes.
    pub size_bytes: u64,
}

/// The elevator of a disk's queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduler {
    /// The one in use.
    pub current: String,
    /// All that can be chosen, the current one among them.
    pub available: Vec<String>,
}

/// What a disk does with a completed write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteCache {
    /// It may lie in volatile memory until a flush (`write back`).
    Volatile,
    /// It is on the medium (`write through`).
    None,
}

/// Limits of discard requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Discard {
    /// Unit of allocation inside the device; smaller discards may do nothing.
    pub granularity_bytes: u64,
    /// Largest discard the kernel sends in one request.
    pub max_bytes: u64,
    /// Largest discard the hardware takes, if sysfs tells.
    pub max_hw_bytes: Option<u64>,
}

impl Disk {
    /// The disk with this device number, or the disk of the partition with it; `None` if sysfs does not know it.
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
        let queue = dir.join("queue");
        let bytes = |name| number(&queue, name).filter(|&bytes| bytes > 0);
        let small = |name| number(&queue, name).and_then(|n| u32::try_from(n).ok());
        let flag = |dir: &Path, name| number(dir, name).map(|n| n != 0);
        Some(Self {
            name: name_of(dir),
            device: DeviceNumber::parse(&attribute(dir, "dev")?)?,
            partition,
            size_bytes: number(dir, "size").map(sectors_to_bytes)?,
            model: attribute(&dir.join("device"), "model").filter(|model| !model.is_empty()),
            read_only: flag(dir, "ro"),
            rotational: flag(&queue, "rotational"),
            logical_block_bytes: small("logical_block_size"),
            physical_block_bytes: small("physical_block_size"),
            minimum_io_bytes: bytes("minimum_io_size"),
            optimal_io_bytes: bytes("optimal_io_size"),
            chunk_bytes: bytes("chunk_sectors").map(sectors_to_bytes),
            dma_alignment_bytes: small("dma_alignment").and_then(|mask| mask.checked_add(1)),
            scheduler: attribute(&queue, "scheduler").and_then(|text| Scheduler::parse(&text)),
            read_ahead_kb: number(&queue, "read_ahead_kb"),
            max_sectors_kb: number(&queue, "max_sectors_kb"),
            max_hw_sectors_kb: number(&queue, "max_hw_sectors_kb"),
            max_segments: small("max_segments"),
            nr_requests: small("nr_requests"),
            write_cache: attribute(&queue, "write_cache").and_then(|text| WriteCache::parse(&text)),
            fua: flag(&queue, "fua"),
            discard: bytes("discard_max_bytes").map(|max_bytes| Discard {
                granularity_bytes: number(&queue, "discard_granularity").unwrap_or(0),
                max_bytes,
                max_hw_bytes: bytes("discard_max_hw_bytes"),
            }),
            zoned: attribute(&queue, "zoned").filter(|model| model != "none"),
            loop_backing: attribute(dir, "loop/backing_file").map(PathBuf::from),
            slaves: names_in(&dir.join("slaves")),
        })
    }
}

impl Scheduler {
    /// Parses `none [mq-deadline] kyber`; a lone name, as queues without a choice write it, is current.
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
    roots.sys.join("dev/block").join(device.to_string()).canonicalize().ok()
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

/// An attribute's text without the newline behind it.
pub(super) fn attribute(dir: &Path, name: &str) -> Option<String> {
    let bytes = fs::read(dir.join(name)).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

fn number(dir: &Path, name: &str) -> Option<u64> {
    attribute(dir, name)?.parse().ok()
}

/// Sectors of 512 bytes, whatever the disk's block size.
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
    fn a_lone_elevator_is_current_and_an_unmarked_choice_is_unknown() {
        assert_eq!(Scheduler::parse("none").map(|s| s.current).as_deref(), Some("none"));
        assert_eq!(Scheduler::parse("none bfq"), None);
        assert_eq!(Scheduler::parse(""), None);
    }

    #[test]
    fn only_the_two_known_words_say_what_the_cache_does() {
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
