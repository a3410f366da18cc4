//! Each refusal of the guard, on real loop devices. Needs root and the programs of util-linux. Without these, the tests
//! print a line and are skipped. Holders need device-mapper: `target_fixtures.rs` tests them with a fixture of sysfs.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use crate::support::{Alone, Loop, run, text};
use iopath_os::target::guard::Contents;
use iopath_os::target::{Kind, Refusal, Target, lock, may_overwrite, open_exclusive, refusals};

/// A loop device, or a skipped test.
macro_rules! loop_or_skip {
    ($alone:expr, $mib:expr) => {
        match Loop::new($alone, $mib, &[]) {
            Ok(device) => device,
            Err(why) => skip!("no loop device: {why}"),
        }
    };
}

fn inspect(path: &Path) -> Target {
    Target::inspect(path).expect("the target is there")
}

fn refused(path: &Path) -> Refusal {
    let refusal = may_overwrite(&inspect(path)).expect_err("must be refused");
    let message = refusal.to_string();
    assert!(message.contains(text(&path.canonicalize().unwrap())), "names the target: {message}");
    assert!(message.contains(';'), "names a way out: {message}");
    assert!(
        open_exclusive(&inspect(path), false, Contents::Kept).is_err(),
        "what is refused is not opened either"
    );
    refusal
}

fn format(device: &Path, filesystem: &str) -> Result<String, String> {
    let quiet = if filesystem == "vfat" { "-v" } else { "-q" };
    run(&format!("mkfs.{filesystem}"), &[quiet, text(device)])
}

#[test]
fn an_empty_device_is_free_and_is_held_once_opened() {
    let alone = or_skip!(Alone::wait());
    let device = loop_or_skip!(&alone, 8);
    let target = inspect(&device.device);
    assert_eq!((target.kind, target.size_bytes), (Kind::BlockDevice, 8 << 20));
    assert!(refusals(&target).is_empty(), "{:?}", refusals(&target));
    let file = open_exclusive(&target, true, Contents::Kept).expect("free");
    assert!(matches!(may_overwrite(&target), Err(Refusal::Busy { .. })), "held by us now");
    assert!(matches!(open_exclusive(&target, false, Contents::Kept), Err(Refusal::Busy { .. })));
    drop(file);
    may_overwrite(&target).expect("free again");
}

#[test]
fn a_mounted_device_is_refused_under_any_name() {
    let alone = or_skip!(Alone::wait());
    let mut device = loop_or_skip!(&alone, 16);
    or_skip!(format(&device.device, "ext4"));
    let at = or_skip!(device.mount(&device.device.clone()));
    let link = device.dir().join("innocent.img");
    symlink(&device.device, &link).unwrap();
    let node = device.dir().join("another-node");
    let major_minor =
        fs::read_to_string(Path::new("/sys/block").join(device.device.file_name().unwrap()).join("dev"));
    let major_minor = major_minor.unwrap().trim().to_owned();
    let (major, minor) = major_minor.split_once(':').unwrap();
    or_skip!(run("mknod", &[text(&node), "b", major, minor]));
    for name in [&device.device, &link, &node] {
        match refused(name) {
            Refusal::Mounted { mount_point, .. } => assert_eq!(mount_point, at),
            other => panic!("{}: {other}", name.display()),
        }
        assert_eq!(inspect(name).mount_points, std::slice::from_ref(&at));
    }
}

#[test]
fn a_disk_with_a_mounted_partition_is_refused_and_so_is_a_partition_of_a_mounted_disk() {
    let alone = or_skip!(Alone::wait());
    let mut device = loop_or_skip!(&alone, 48);
    let first = or_skip!(device.partition(1, 1, 16));
    let second = or_skip!(device.partition(2, 20, 8));
    or_skip!(format(&first, "ext4"));
    or_skip!(device.mount(&first));
    let whole = device.device.clone();
    let Refusal::Mounted { subject, .. } = refused(&whole) else { panic!("not refused as mounted") };
    assert!(subject.contains("its partition loop"), "{subject}");
    may_overwrite(&inspect(&second)).expect("the neighbour of a mounted partition is free");
    let part = inspect(&second);
    let partition = part.backing.disk().and_then(|disk| disk.partition.as_ref()).expect("a partition");
    assert_eq!((part.size_bytes, partition.start_bytes), (8 << 20, Some(20 << 20)));
}

#[test]
fn a_partition_of_a_mounted_disk_is_refused() {
    let alone = or_skip!(Alone::wait());
    let mut device = loop_or_skip!(&alone, 16);
    or_skip!(format(&device.device, "ext4"));
    let part = or_skip!(device.partition(1, 4, 8));
    or_skip!(device.mount(&device.device.clone()));
    let Refusal::Mounted { subject, .. } = refused(&part) else { panic!("not refused as mounted") };
    assert!(subject.contains("its disk loop"), "{subject}");
}

#[test]
fn a_mounted_btrfs_is_refused_on_each_of_its_devices() {
    let alone = or_skip!(Alone::wait());
    let mut first = loop_or_skip!(&alone, 128);
    let second = loop_or_skip!(&alone, 128);
    or_skip!(run(
        "mkfs.btrfs",
        &["-q", "-d", "raid1", "-m", "raid1", text(&first.device), text(&second.device)]
    ));
    let at = or_skip!(first.mount(&first.device.clone()));
    for device in [&first.device, &second.device] {
        assert!(matches!(refused(device), Refusal::Mounted { .. }), "{}", device.display());
    }
    let dir = inspect(&at);
    assert_eq!(dir.filesystem.as_ref().map(|fs| fs.name.as_str()), Some("btrfs"));
    assert_eq!(dir.backing.disk(), None, "two devices are not one disk: {:?}", dir.backing);
}

#[test]
fn an_active_swap_device_and_an_active_swap_file_are_refused() {
    let alone = or_skip!(Alone::wait());
    let mut device = loop_or_skip!(&alone, 8);
    let path = device.device.clone();
    or_skip!(run("mkswap", &[text(&path)]));
    assert!(matches!(refused(&path), Refusal::Signature { signature: "swap", .. }), "inactive: by signature");
    or_skip!(run("swapon", &["--priority", "0", text(&path)]));
    device.at_end(&["swapoff", text(&path)]);
    assert!(matches!(refused(&path), Refusal::Swap { .. }));

    let file = device.dir().join("swap file");
    File::create(&file).unwrap().write_all(&vec![0; 4 << 20]).unwrap();
    or_skip!(run("chmod", &["600", text(&file)]));
    or_skip!(run("mkswap", &[text(&file)]));
    or_skip!(run("swapon", &["--priority", "0", text(&file)]));
    device.at_end(&["swapoff", text(&file)]);
    assert!(matches!(refused(&file), Refusal::Swap { .. }));
}

#[test]
fn a_file_behind_a_loop_device_is_refused_also_through_a_hard_link_and_after_a_rename() {
    let alone = or_skip!(Alone::wait());
    let device = loop_or_skip!(&alone, 8);
    let link = device.dir().join("hard link");
    fs::hard_link(&device.image, &link).unwrap();
    for path in [&device.image, &link] {
        match refused(path) {
            Refusal::LoopBacking { device: name, .. } => assert!(device.device.ends_with(name)),
            other => panic!("{other}"),
        }
    }
    let renamed = device.dir().join("renamed");
    fs::rename(&device.image, &renamed).unwrap();
    assert!(matches!(refused(&renamed), Refusal::LoopBacking { .. }));
}

#[test]
fn a_second_loop_device_over_the_same_file_or_over_a_mounted_device_is_refused() {
    let alone = or_skip!(Alone::wait());
    let mut device = loop_or_skip!(&alone, 16);
    or_skip!(format(&device.device, "ext4"));
    or_skip!(device.mount(&device.device.clone()));
    for behind in [device.image.clone(), device.device.clone()] {
        let over = or_skip!(run("losetup", &["--find", "--show", text(&behind)]));
        device.at_end(&["losetup", "--detach", &over]);
        match refused(Path::new(&over)) {
            Refusal::Beneath { refusal, .. } => {
                assert!(
                    matches!(*refusal, Refusal::LoopBacking { .. } | Refusal::Mounted { .. }),
                    "{refusal}"
                );
            }
            other => panic!("over {}: {other}", behind.display()),
        }
    }
}

#[test]
fn formats_of_real_programs_are_recognised_until_they_are_wiped() {
    let formats: [(&str, &[&str], &str); 4] = [
        ("mkfs.ext4", &["-q"], "ext2/ext3/ext4"),
        ("mkfs.xfs", &["-q", "-f"], "xfs"),
        ("mkfs.btrfs", &["-q", "-f"], "btrfs"),
        ("mkswap", &["-f"], "swap"),
    ];
    let alone = or_skip!(Alone::wait());
    let device = loop_or_skip!(&alone, 320);
    let path = device.device.as_path();
    for (program, options, expected) in formats {
        let arguments: Vec<&str> = options.iter().copied().chain([text(path)]).collect();
        if let Err(why) = run(program, &arguments) {
            eprintln!("skipped: {why}");
            continue;
        }
        let Refusal::Signature { signature, .. } = refused(path) else {
            panic!("{program}: not by signature")
        };
        assert_eq!(signature, expected);
        or_skip!(run("wipefs", &["--all", "--force", text(path)]));
        may_overwrite(&inspect(path)).unwrap_or_else(|refusal| panic!("after wiping {expected}: {refusal}"));
    }
}

#[test]
fn a_disk_image_in_a_regular_file_is_refused_and_other_contents_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    File::create(&image).unwrap().set_len(4 << 20).unwrap();
    may_overwrite(&inspect(&image)).expect("zeroes are no image");
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(b"QFI\xfb", 0).unwrap();
    assert!(matches!(refused(&image), Refusal::Signature { signature: "qcow2 image", offset: 0, .. }));
    file.write_all_at(b"some words", 0).unwrap();
    may_overwrite(&inspect(&image)).expect("text is no image");
    assert!(matches!(refused(dir.path()), Refusal::Directory { .. }));
}

/// QEMU's raw images have no signature, and their locks belong to no process in `lslocks`.
#[test]
fn a_file_that_another_program_has_locked_is_refused() {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(1 << 20).unwrap();
    let lock = or_skip!(locked_by_another_open_file(image.path()));
    assert!(matches!(refused(image.path()), Refusal::Locked { .. }));
    // Closing the file is not enough: a process that another test has just forked has it open, too.
    set_record_lock(&lock, libc::F_UNLCK).expect("unlocked");
    may_overwrite(&inspect(image.path())).expect("free once unlocked");
}

#[test]
fn a_locked_target_is_refused_to_writers_and_to_readers_beside_a_writer() {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(1 << 20).unwrap();
    let target = inspect(image.path());
    let open = || File::options().read(true).write(true).open(image.path()).unwrap();
    let (readers, writer) = ([open(), open()], open());
    for reader in &readers {
        lock(&target, reader, false).expect("readers share it");
    }
    let refused = lock(&target, &writer, true).unwrap_err().to_string();
    let holder = format!("is locked by process {}", std::process::id());
    assert!(refused.contains(&holder) || refused.contains("is locked by a program"), "{refused}");
    assert!(matches!(may_overwrite(&target), Err(Refusal::Locked { .. })));
    for reader in &readers {
        set_record_lock(reader, libc::F_UNLCK).expect("unlocked");
    }
    lock(&target, &writer, true).expect("free once unlocked");
    assert!(matches!(lock(&target, &readers[0], false), Err(Refusal::Locked { .. })));
    assert!(matches!(lock(&target, &readers[0], true), Err(Refusal::Locked { .. })));
}

#[test]
fn a_target_that_cannot_be_locked_is_refused() {
    let image = tempfile::NamedTempFile::new().unwrap();
    let _other = or_skip!(locked_by_another_open_file(image.path()));
    // The kernel refuses an exclusive lock of a file that is not open for writing (EBADF).
    let refused = lock(&inspect(image.path()), &File::open(image.path()).unwrap(), true).unwrap_err();
    assert!(matches!(refused, Refusal::Open { .. }), "{refused}");
}

/// A read lock on one byte. Dropping the returned file releases the lock.
fn locked_by_another_open_file(path: &Path) -> Result<File, String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    set_record_lock(&file, libc::F_RDLCK)?;
    Ok(file)
}

fn set_record_lock(file: &File, kind: libc::c_int) -> Result<(), String> {
    // One byte is enough for a conflict. An unlock releases all.
    let (l_start, l_len) = if kind == libc::F_UNLCK { (0, 0) } else { (100, 1) };
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start,
        l_len,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open and the struct lives through the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => Err(format!("no record locks here: {}", std::io::Error::last_os_error())),
    }
}

#[test]
fn a_device_mounted_where_this_process_cannot_see_it_is_refused() {
    let alone = or_skip!(Alone::wait());
    let device = loop_or_skip!(&alone, 16);
    or_skip!(format(&device.device, "ext4"));
    let script = format!("mount {} /mnt && echo mounted && read line", device.device.display());
    let mut elsewhere = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(elsewhere.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let target = inspect(&device.device);
    let found = refusals(&target);
    drop(elsewhere.stdin.take());
    elsewhere.wait().unwrap();
    if said.is_empty() {
        skip!("no mount namespace of our own");
    }
    assert_eq!(target.mount_points, Vec::<std::path::PathBuf>::new(), "the mount table does not show it");
    assert!(matches!(found[0], Refusal::Busy { .. }), "{}", found[0]);
}

#[test]
fn a_target_replaced_after_the_inspection_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    File::create(&path).unwrap().write_all(b"scratch").unwrap();
    let target = inspect(&path);
    let precious = dir.path().join("precious");
    File::create(&precious).unwrap().write_all(b"precious").unwrap();
    fs::rename(&precious, &path).unwrap();
    assert!(matches!(open_exclusive(&target, false, Contents::Kept), Err(Refusal::Replaced { .. })));
    let mut kept = String::new();
    File::open(&path).unwrap().read_to_string(&mut kept).unwrap();
    assert_eq!(kept, "precious");
}
