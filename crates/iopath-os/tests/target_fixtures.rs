//! Properties and refusals with sysfs and procfs from fixtures: device-mapper, md, other disks, and tables of other
//! machines.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use iopath_os::target::disk::Disk;
use iopath_os::target::guard::refusals_in;
use iopath_os::target::{
    Backing, Beneath, DeviceNumber, Effect, FileId, Filesystem, Kind, Refusal, Roots, Submitter, TableError,
    Target, WriteCache,
};
use tempfile::TempDir;

const SDA: DeviceNumber = DeviceNumber { major: 8, minor: 0 };
const SDA1: DeviceNumber = DeviceNumber { major: 8, minor: 1 };
const SDA2: DeviceNumber = DeviceNumber { major: 8, minor: 2 };

/// A machine with one disk `sda` of two partitions, and nothing mounted.
struct Machine {
    dir: TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { dir: tempfile::tempdir().expect("temporary directory") };
        machine.device("devices/pci/sda", SDA, 2048 * 100);
        machine.device("devices/pci/sda/sda1", SDA1, 2048 * 10);
        machine.device("devices/pci/sda/sda2", SDA2, 2048 * 80);
        for (number, name) in [(1, "sda1"), (2, "sda2")] {
            machine.write(&format!("sys/devices/pci/sda/{name}/partition"), &number.to_string());
            machine.write(&format!("sys/devices/pci/sda/{name}/start"), &(2048 * number).to_string());
        }
        machine.write("proc/self/mountinfo", "");
        machine.write("proc/swaps", "Filename Type Size Used Priority\n");
        machine
    }

    fn roots(&self) -> Roots {
        let root = |name| self.dir.path().join(name);
        Roots { sys: root("sys"), proc: root("proc"), dev: root("dev") }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("fixture directory");
        fs::write(path, format!("{text}\n")).expect("fixture file");
    }

    fn device(&self, path: &str, number: DeviceNumber, sectors: u64) {
        self.write(&format!("sys/{path}/dev"), &number.to_string());
        self.write(&format!("sys/{path}/size"), &sectors.to_string());
        let links = self.dir.path().join("sys/dev/block");
        fs::create_dir_all(&links).expect("fixture directory");
        symlink(Path::new("../..").join(path), links.join(number.to_string())).expect("fixture link");
    }

    /// A block device with this number, which the machine of the test may lack.
    fn target(&self, device: DeviceNumber) -> Target {
        let disk = Disk::find(&self.roots(), device).expect("in the fixture");
        let size_bytes = disk.partition.as_ref().map_or(disk.size_bytes, |part| part.size_bytes);
        let mut target = Target::of_memory(size_bytes);
        target.path = PathBuf::from("/dev/fixture");
        target.kind = Kind::BlockDevice;
        target.id = FileId { device: DeviceNumber { major: 0, minor: 6 }, inode: 1 };
        target.device = Some(device);
        target.backing = Backing::Disk(Box::new(disk));
        target
    }

    /// The refusals by the tables, without the last ones, which report that `/dev/fixture` cannot be opened.
    fn refusals(&self, device: DeviceNumber) -> Vec<Refusal> {
        let mut found = refusals_in(&self.roots(), &self.target(device));
        found.retain(|refusal| !matches!(refusal, Refusal::Open { .. }));
        found
    }
}

#[test]
fn a_disk_has_the_attributes_of_sysfs() {
    let machine = Machine::new();
    for (name, text) in [
        ("rotational", "1"),
        ("logical_block_size", "512"),
        ("physical_block_size", "4096"),
        ("minimum_io_size", "4096"),
        ("optimal_io_size", "0"),
        ("chunk_sectors", "256"),
        ("dma_alignment", "3"),
        ("scheduler", "none [mq-deadline] bfq"),
        ("read_ahead_kb", "128"),
        ("max_sectors_kb", "1280"),
        ("max_hw_sectors_kb", "32767"),
        ("max_segments", "168"),
        ("nr_requests", "64"),
        ("write_cache", "write back"),
        ("fua", "0"),
        ("discard_granularity", "512"),
        ("discard_max_bytes", "2147450880"),
        ("zoned", "none"),
    ] {
        machine.write(&format!("sys/devices/pci/sda/queue/{name}"), text);
    }
    machine.write("sys/devices/pci/sda/device/model", "Samsung SSD 870 ");
    let disk = Disk::find(&machine.roots(), SDA2).expect("in the fixture");
    assert_eq!((disk.name.as_str(), disk.device, disk.size_bytes), ("sda", SDA, 100 << 20));
    let texts = [format!("{disk:?}"), format!("{:?} {:?}", disk.partition, disk.scheduler)];
    assert!(texts.iter().all(|text| text.len() <= 1024), "{texts:?}");
    let partition = disk.partition.expect("asked for one");
    assert_eq!((partition.name.as_str(), partition.device), ("sda2", SDA2));
    assert_eq!((partition.start_bytes, partition.size_bytes), (Some(2 << 20), 80 << 20));
    assert_eq!(disk.model.as_deref(), Some("Samsung SSD 870"));
    assert_eq!((disk.rotational, disk.fua), (Some(true), Some(false)));
    assert_eq!((disk.logical_block_bytes, disk.physical_block_bytes), (Some(512), Some(4096)));
    assert_eq!((disk.minimum_io_bytes, disk.optimal_io_bytes), (Some(4096), None), "0 means: not known");
    assert_eq!((disk.chunk_bytes, disk.dma_alignment_bytes), (Some(128 << 10), Some(4)));
    let scheduler = disk.scheduler.expect("it has one");
    assert_eq!(scheduler.current, "mq-deadline");
    assert_eq!(scheduler.available, ["none", "mq-deadline", "bfq"]);
    assert_eq!(
        (disk.read_ahead_kb, disk.max_sectors_kb, disk.max_hw_sectors_kb),
        (Some(128), Some(1280), Some(32767))
    );
    assert_eq!((disk.max_segments, disk.nr_requests), (Some(168), Some(64)));
    assert_eq!(disk.write_cache, Some(WriteCache::Volatile));
    let discard = disk.discard.expect("it has a limit");
    assert_eq!((discard.granularity_bytes, discard.max_bytes), (512, 2_147_450_880));
    assert_eq!((discard.max_hw_bytes, disk.zoned, disk.read_only), (None, None, None));
}

#[test]
fn a_free_disk_and_its_partitions_are_not_refused_by_the_tables() {
    let machine = Machine::new();
    for device in [SDA, SDA1, SDA2] {
        let found = machine.refusals(device);
        assert!(found.is_empty(), "{device}: {found:?}");
    }
}

#[test]
fn a_device_with_holders_is_refused_with_its_disk_and_partitions() {
    let machine = Machine::new();
    machine.write("sys/devices/pci/sda/sda2/holders/dm-0", "");
    machine.write("sys/devices/pci/sda/sda2/holders/md127", "");
    for (device, expected) in [(SDA2, "sda2 itself"), (SDA, "its partition sda2")] {
        match machine.refusals(device).as_slice() {
            [refusal @ Refusal::Held { subject, holders, .. }] => {
                assert_eq!(
                    (subject.as_str(), holders.as_slice()),
                    (expected, ["dm-0", "md127"].map(str::to_owned).as_slice())
                );
                assert!(refusal.to_string().contains("dm-0, md127"), "{refusal}");
            }
            other => panic!("{device}: {other:?}"),
        }
    }
    assert!(machine.refusals(SDA1).is_empty(), "the neighbour is free");

    let machine = Machine::new();
    machine.write("sys/devices/pci/sda/holders/md0", "");
    let found = machine.refusals(SDA1);
    assert!(matches!(&found[..], [Refusal::Held { subject, .. }] if subject == "its disk sda"), "{found:?}");
}

#[test]
fn a_number_in_the_mount_table_refuses_under_any_source_name() {
    let machine = Machine::new();
    machine.write("proc/self/mountinfo", "30 1 8:1 / /mnt/a\\040b rw - ext4 /dev/root rw");
    for (device, expected) in [(SDA1, "sda1 itself"), (SDA, "its partition sda1")] {
        let found = machine.refusals(device);
        assert!(
            matches!(&found[..], [Refusal::Mounted { subject, mount_point, .. }]
                if subject == expected && mount_point == Path::new("/mnt/a b")),
            "{found:?}"
        );
    }
    assert!(machine.refusals(SDA2).is_empty(), "the neighbour is free");
    machine.write("proc/self/mountinfo", "30 1 8:0 / /mnt rw - xfs /dev/sda rw");
    let found = machine.refusals(SDA2);
    assert!(
        matches!(&found[..], [Refusal::Mounted { subject, .. }] if subject == "its disk sda"),
        "{found:?}"
    );
}

#[test]
fn a_table_that_is_missing_or_malformed_refuses() {
    let machine = Machine::new();
    machine.write("proc/self/mountinfo", "a line of tomorrow's kernel");
    let found = machine.refusals(SDA);
    assert!(
        matches!(&found[..], [Refusal::Unknown { source: TableError::Malformed { line: 1, .. }, .. }]),
        "{found:?}"
    );
    fs::remove_file(machine.roots().proc.join("self/mountinfo")).expect("it was there");
    let found = machine.refusals(SDA);
    assert!(matches!(&found[..], [Refusal::Unknown { source: TableError::Read { .. }, .. }]), "{found:?}");
}

#[test]
fn without_sysfs_and_procfs_a_file_is_inspected_but_not_overwritten() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let nowhere = Roots { sys: "/nowhere".into(), proc: "/nowhere".into(), dev: "/nowhere".into() };
    let file = dir.path().join("file");
    fs::write(&file, "scratch").expect("fixture file");
    let target = Target::inspect_in(&nowhere, &file).expect("statx is enough");
    assert_eq!((target.size_bytes, target.filesystem.as_ref(), target.backing.disk()), (7, None, None));
    let found = refusals_in(&nowhere, &target);
    assert!(matches!(&found[..], [Refusal::Unknown { source: TableError::Read { .. }, .. }]), "{found:?}");
}

#[test]
fn a_device_without_an_entry_in_sysfs_is_refused() {
    let machine = Machine::new();
    let target = machine.target(SDA);
    fs::remove_file(machine.roots().sys.join("dev/block/8:0")).expect("it was there");
    let found = refusals_in(&machine.roots(), &target);
    assert!(matches!(found[0], Refusal::NoSysfs { device: SDA, .. }), "{found:?}");
}

#[test]
fn a_file_behind_a_loop_device_is_found_by_its_identity() {
    let machine = Machine::new();
    let image = machine.dir.path().join("image");
    fs::write(&image, "scratch").expect("fixture file");
    let other_name = machine.dir.path().join("link");
    fs::hard_link(&image, &other_name).expect("fixture link");
    machine.write("sys/block/loop3/loop/backing_file", image.to_str().expect("UTF-8"));
    let target = Target::inspect(&other_name).expect("it is there");
    let found = refusals_in(&machine.roots(), &target);
    assert!(matches!(&found[..], [Refusal::LoopBacking { device, .. }] if device == "loop3"), "{found:?}");
}

#[test]
fn beneath_a_mapped_device_lie_its_disks_and_the_image_of_a_loop_device() {
    let image = tempfile::NamedTempFile::new().expect("temporary file");
    let Some(FileId { device: disk, .. }) = FileId::of(image.path()).filter(|id| id.device.major != 0) else {
        return eprintln!("skipped: temporary files have no block device");
    };
    let (mapped, looped) = (DeviceNumber { major: 253, minor: 0 }, DeviceNumber { major: 7, minor: 0 });
    let machine = Machine::new();
    machine.write("proc/self/mountinfo", "1 1 0:1 / / rw - ext4 /dev/vdz rw");
    machine.device("devices/virtual/dm-0", mapped, 2048 * 50);
    machine.device("devices/virtual/loop0", looped, 2048 * 10);
    machine.device("devices/pci/vdz", disk, 2048 * 100);
    for (name, device) in [("sda1", SDA1), ("loop0", looped)] {
        machine.write(&format!("sys/devices/virtual/dm-0/slaves/{name}"), "");
        machine.write(&format!("sys/class/block/{name}/dev"), &device.to_string());
    }
    let backing = "sys/devices/virtual/loop0/loop/backing_file";
    machine.write(backing, image.path().to_str().expect("paths of tests are UTF-8"));
    let beneath = || Beneath::find(&machine.roots(), &machine.target(mapped));
    let found = beneath();
    assert_eq!(found.cached_files, [image.path()]);
    assert_eq!(
        (found.submitter, found.disks.as_slice()),
        (Submitter::Kernel, ["vdz", "sda"].map(str::to_owned).as_slice())
    );

    machine.write("sys/devices/virtual/loop0/loop/dio", "1");
    assert_eq!(beneath().cached_files, Vec::<PathBuf>::new(), "direct I/O needs no page");
    machine.write("sys/devices/virtual/dm-0/slaves/sdz", "");
    assert_eq!(beneath().submitter, Submitter::Unknown, "a member that sysfs does not show");
}

#[test]
fn layers_that_encrypt_compress_or_deduplicate_are_found_on_the_way_down() {
    let machine = Machine::new();
    let dm = |minor| DeviceNumber { major: 252, minor };
    for (minor, uuid) in [
        (0, "CRYPT-LUKS2-0123456789abcdef-secret"),
        (1, "LVM-abcdef"),
        (2, "CRYPT-VERITY-0123-root"),
        (3, "VDO-0123"),
        (4, "LVM-0123456789-vpool"),
        (5, "CRYPT-PLAIN-swap"),
    ] {
        machine.device(&format!("devices/virtual/block/dm-{minor}"), dm(minor), 2048 * 80);
        machine.write(&format!("sys/devices/virtual/block/dm-{minor}/dm/uuid"), uuid);
    }
    machine.device("devices/virtual/block/zram0", DeviceNumber { major: 253, minor: 0 }, 2048);
    machine.device("devices/virtual/block/zd16", DeviceNumber { major: 230, minor: 16 }, 2048);
    // A logical volume on an encrypted device.
    machine.write("sys/devices/virtual/block/dm-1/slaves/dm-0", "");
    machine.write("sys/class/block/dm-0/dev", &dm(0).to_string());
    let found = |device: DeviceNumber| -> Vec<(String, Effect)> {
        let beneath = Beneath::find(&machine.roots(), &machine.target(device));
        beneath.transforms.into_iter().map(|one| (one.layer, one.effect)).collect()
    };
    let one = |layer: &str, effect| vec![(layer.to_owned(), effect)];
    assert_eq!(found(dm(0)), one("dm-0 (dm-crypt, LUKS2)", Effect::Encrypts));
    assert_eq!(found(dm(1)), one("dm-0 (dm-crypt, LUKS2)", Effect::Encrypts));
    assert_eq!(found(dm(2)), []);
    assert_eq!(found(dm(3)), one("dm-3 (VDO)", Effect::Deduplicates));
    assert_eq!(found(dm(4)), one("dm-4 (VDO)", Effect::Deduplicates));
    assert_eq!(found(dm(5)), one("dm-5 (dm-crypt, PLAIN)", Effect::Encrypts));
    assert_eq!(found(DeviceNumber { major: 253, minor: 0 }), one("zram0 (memory)", Effect::Compresses));
    assert_eq!(
        found(DeviceNumber { major: 230, minor: 16 }),
        one("zd16 (a volume of ZFS)", Effect::MayReduce)
    );
    assert_eq!(found(SDA1), []);
    for (name, options, effect) in [
        ("btrfs", "rw,compress=zstd:3", Some(Effect::Compresses)),
        ("btrfs", "rw,compress=no", None),
        ("bcachefs", "rw,compression=lz4", Some(Effect::Compresses)),
        ("bcachefs", "rw,compression=none", None),
        ("zfs", "rw,xattr", Some(Effect::MayReduce)),
        ("ecryptfs", "rw", Some(Effect::Encrypts)),
        ("ext4", "rw", None),
    ] {
        let mut filesystem = Filesystem::default();
        (filesystem.name, filesystem.options) = (name.to_owned(), options.to_owned());
        filesystem.mount_point = PathBuf::from("/data");
        let mut target = machine.target(SDA1);
        (target.kind, target.filesystem) = (Kind::RegularFile, Some(filesystem));
        let beneath = Beneath::find(&machine.roots(), &target);
        let effects: Vec<Effect> = beneath.transforms.iter().map(|one| one.effect).collect();
        assert_eq!(effects, effect.into_iter().collect::<Vec<_>>(), "{name} {options}");
        assert!(beneath.transforms.iter().all(|one| one.to_string().contains(&format!("{name} at /data"))));
    }
}
