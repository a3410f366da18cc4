//! Page caches and disks beneath overlay, bind, tmpfs and loop mounts. Needs root. If the machine lacks a feature, the
//! test prints a line and is skipped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::support::{Alone, Cleanup, Loop, run, text};
use iopath_os::target::{Backing, Beneath, Submitter, Target, drop_cached, residency};
use tempfile::TempDir;

/// The directory of the build: `/tmp` is often in memory.
const ON_DISK: &str = env!("CARGO_TARGET_TMPDIR");

const BYTES: usize = 1 << 20;

/// A mount that ends with the test.
struct Mounted {
    _cleanup: Cleanup,
    dir: TempDir,
}

impl Mounted {
    /// Creates a directory on disk with the subdirectories `m` and `names`, and mounts on `m` with mount(8).
    fn new(names: &[&str], arguments: impl FnOnce(&Path) -> Vec<String>) -> Result<Self, String> {
        let dir = TempDir::new_in(ON_DISK).map_err(|error| error.to_string())?;
        let at = dir.path().join("m");
        for name in names.iter().chain([&"m"]) {
            fs::create_dir(dir.path().join(name)).map_err(|error| error.to_string())?;
        }
        let arguments = arguments(dir.path());
        let words: Vec<&str> = arguments.iter().map(String::as_str).chain([text(&at)]).collect();
        run("mount", &words)?;
        let mut cleanup = Cleanup::default();
        cleanup.add(&["umount", text(&at)]);
        Ok(Self { _cleanup: cleanup, dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

fn write_noise(path: &Path) {
    let noise: Vec<u8> = (0..BYTES).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(path, noise).expect("room for the file");
    File::open(path).and_then(|file| file.sync_all()).expect("the disk takes it");
}

fn overlay() -> Result<Mounted, String> {
    Mounted::new(&["lower", "upper", "work"], |dir| {
        let at = |name: &str| dir.join(name).display().to_string();
        write_noise(&dir.join("lower/below"));
        let options = format!("lowerdir={},upperdir={},workdir={}", at("lower"), at("upper"), at("work"));
        ["-t", "overlay", "overlay", "-o", &options].map(str::to_owned).to_vec()
    })
}

#[test]
fn pages_of_a_file_on_an_overlay_are_counted_and_dropped_in_the_file_below() {
    let overlay = or_skip!(overlay());
    write_noise(&overlay.path("m/above"));
    for (name, real) in [("m/below", "lower/below"), ("m/above", "upper/above")] {
        let (path, real) = (overlay.path(name), overlay.path(real));
        fs::read(&path).expect("it is there");
        let file = File::open(&path).expect("it is there");
        let warm = residency(&file, 0..u64::MAX).expect("root may ask");
        assert_eq!((warm.resident, warm.pages * warm.page_bytes), (warm.pages, BYTES as u64), "{name}");
        let cold = drop_cached(&file, 0..u64::MAX).expect("root may drop");
        assert!(cold.is_cold(), "{name}: {cold:?}");
        let below = residency(&File::open(&real).expect("it is there"), 0..u64::MAX).expect("root may ask");
        assert!(below.is_cold(), "{name}: {below:?}");
    }
}

#[test]
fn a_file_on_an_overlay_has_the_disk_of_the_file_below() {
    let overlay = or_skip!(overlay());
    write_noise(&overlay.path("m/above"));
    for (name, real) in [("m/below", "lower/below"), ("m/above", "upper/above")] {
        let target = Target::inspect(overlay.path(name)).expect("it is there");
        let real = Target::inspect(overlay.path(real)).expect("it is there");
        assert_eq!(target.filesystem.as_ref().map(|found| found.name.as_str()), Some("overlay"));
        assert_eq!(target.backing, real.backing, "{name}");
        assert_eq!(Beneath::of(&target).submitter, Submitter::Caller, "{name}");
    }
}

#[test]
fn a_file_under_a_bind_mount_has_the_disk_of_its_filesystem() {
    let bind = or_skip!(Mounted::new(&["from"], |dir| {
        write_noise(&dir.join("from/file"));
        vec!["--bind".to_owned(), dir.join("from").display().to_string()]
    }));
    let [bound, real] =
        ["m/file", "from/file"].map(|name| Target::inspect(bind.path(name)).expect("it is there"));
    assert_eq!(bound.backing, real.backing);
    assert_eq!(Beneath::of(&bound), Beneath::of(&real));
    let file = File::open(bind.path("m/file")).expect("it is there");
    assert!(
        matches!(real.backing, Backing::None { .. })
            || drop_cached(&file, 0..u64::MAX).expect("it is ours").is_cold()
    );
}

#[test]
fn a_file_on_tmpfs_lies_in_memory() {
    let tmpfs = or_skip!(Mounted::new(&[], |_| ["-t", "tmpfs", "none"].map(str::to_owned).to_vec()));
    write_noise(&tmpfs.path("m/file"));
    let target = Target::inspect(tmpfs.path("m/file")).expect("it is there");
    let beneath = Beneath::of(&target);
    assert_eq!((beneath.submitter, beneath.disks.len()), (Submitter::Memory, 0));
}

/// What lies beneath a loop device and a file on it, with the image of the device.
fn beneath_loop(alone: &Alone, options: &[&str]) -> Result<(Beneath, Beneath, PathBuf), String> {
    let mut device = Loop::new(alone, 64, options)?;
    let raw = Beneath::of(&Target::inspect(&device.device).map_err(|error| error.to_string())?);
    run("mkfs.ext4", &["-q", text(&device.device)])?;
    let disk = device.device.clone();
    let at = device.mount(&disk)?.join("file");
    write_noise(&at);
    let file = Beneath::of(&Target::inspect(&at).map_err(|error| error.to_string())?);
    Ok((raw, file, device.image.clone()))
}

#[test]
fn beneath_a_loop_device_lies_its_image_with_pages_of_its_own() {
    let alone = or_skip!(Alone::wait());
    let (raw, file, image) = or_skip!(beneath_loop(&alone, &["--direct-io=off"]));
    assert_eq!(raw, file, "a file on the device has the same beneath it");
    assert_eq!(raw.cached_files, [image]);
    assert!(matches!(raw.submitter, Submitter::Kernel | Submitter::Memory), "{raw:?}");
    assert!(raw.disks.iter().all(|disk| !disk.starts_with("loop")), "{raw:?}");
}

#[test]
fn an_image_that_is_read_by_direct_io_has_no_pages() {
    let alone = or_skip!(Alone::wait());
    let (raw, ..) = or_skip!(beneath_loop(&alone, &["--direct-io=on"]));
    assert_eq!(raw.cached_files, Vec::<PathBuf>::new());
}
