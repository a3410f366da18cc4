//! `iopath map` on real filesystems: extents hold the file's bytes at their physical offsets, and the counts of
//! requests match the extents and the requests that the kernel issues.

use crate::loops::{Alone, Loop, run, text};
use crate::support::{iopath, json_of};
use rustix::fs::{FallocateFlags, fallocate};
use serde_json::Value;
use std::fs::File;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const KIB: u64 = 1024;
const SIZE: u64 = 1024 * KIB;

/// Filesystems: name, command, and whether physical offsets are those of the device.
const FILESYSTEMS: [(&str, &[&str], bool); 5] = [
    ("ext2", &["mkfs.ext2", "-q", "-b", "1024"], true),
    ("ext3", &["mkfs.ext3", "-q", "-b", "4096"], true),
    ("ext4", &["mkfs.ext4", "-q", "-b", "4096"], true),
    ("xfs", &["mkfs.xfs", "-q"], true),
    ("btrfs", &["mkfs.btrfs", "-q"], false),
];

/// A mounted filesystem on a loop device.
fn mounted(alone: &Alone, make: &[&str]) -> Result<(Loop, PathBuf), String> {
    let mut device = Loop::new(alone, 400, &[])?;
    let disk = device.device.clone();
    run(make[0], &[&make[1..], &[text(&disk)]].concat())?;
    let at = device.mount(&disk)?;
    Ok((device, at))
}

/// Calls `check` with the name, device and a directory of each filesystem that this machine supports.
fn on_each(check: impl Fn(&str, &Path, &Path, bool)) {
    let alone = match Alone::wait() {
        Ok(alone) => alone,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    for (name, make, has_device_offsets) in FILESYSTEMS {
        match mounted(&alone, make) {
            Ok((device, at)) => check(name, &device.device, &at, has_device_offsets),
            Err(why) => eprintln!("skipped: no {name} here: {why}"),
        }
    }
}

fn is_mapped_by_blocks(name: &str) -> bool {
    ["ext2", "ext3"].contains(&name)
}

fn map(file: &Path, args: &[&str]) -> Value {
    json_of(&iopath(&["map", text(file), "--json"]).args(args).output().unwrap())
}

fn noise(bytes: u64, seed: u64) -> Vec<u8> {
    (0..bytes).map(|at| ((at + seed * 7919).wrapping_mul(2_654_435_761) >> 13) as u8 | 1).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is a number"))
}

/// The requests of a block size. Checks that they cover each byte of the file once.
fn requests(map: &Value, block_bytes: u64) -> &Value {
    let list = map["requests"].as_array().unwrap();
    let found = list.iter().find(|requests| requests["block_bytes"] == block_bytes);
    let found = found.unwrap_or_else(|| panic!("{block_bytes} in {map}"));
    let sum =
        ["request_bytes", "zero_bytes", "other_bytes"].map(|key| number(&found[key])).iter().sum::<u64>();
    assert_eq!(sum, number(&found["covered_bytes"]), "{found}");
    found
}

#[test]
fn holes_and_unwritten_extents_are_shown_and_data_lies_at_its_physical_offset() {
    on_each(|name, device, directory, has_device_offsets| {
        let path = directory.join("file");
        let file = File::create(&path).unwrap();
        file.write_all_at(&noise(64 * KIB, 1), 0).unwrap();
        file.write_all_at(&noise(64 * KIB, 2), 128 * KIB).unwrap();
        file.set_len(SIZE).unwrap();
        let has_unwritten = fallocate(&file, FallocateFlags::empty(), 256 * KIB, 256 * KIB).is_ok();
        file.sync_all().unwrap();

        let map = map(&path, &["--bs", "64k,1m"]);
        assert_eq!((&map["filesystem"], &map["size_bytes"]), (&name.into(), &SIZE.into()), "{map}");
        let flagged = |flag: &str| map["extents"].to_string().contains(flag);
        assert_eq!(flagged("unwritten"), has_unwritten, "{map}");
        assert_eq!(flagged("block-mapped"), is_mapped_by_blocks(name), "{map}");
        assert_eq!(map["mapped_by"], if is_mapped_by_blocks(name) { "blocks" } else { "extents" });
        let blocks = requests(&map, 64 * KIB);
        assert_eq!(
            (&blocks["reads"], &blocks["zero_bytes"]),
            (&16.into(), &(SIZE - 128 * KIB).into()),
            "{name}"
        );
        // Both ranges in one read may be adjacent on the disk, and are then one request.
        assert!(number(&blocks["requests"]) >= 2, "{map}");
        assert!(
            (1..=number(&blocks["requests"])).contains(&number(&requests(&map, SIZE)["requests"])),
            "{map}"
        );

        if has_device_offsets {
            check_offsets(&map, &path, device);
        }
        let table = iopath(&["map", text(&path)]).output().unwrap();
        let table = String::from_utf8(table.stdout).unwrap();
        assert!(table.contains("hole") && table.contains("64 KiB") && table.contains(name), "{table}");
        assert_eq!(table.contains("indirect block"), is_mapped_by_blocks(name), "{table}");
    });
}

/// Checks that the device has the bytes of each extent at its physical offset.
fn check_offsets(map: &Value, path: &Path, device: &Path) {
    let (file, device) = (File::open(path).unwrap(), File::open(device).unwrap());
    let mut checked = 0;
    for extent in map["extents"].as_array().unwrap() {
        if extent["flags"].to_string().contains("unwritten") {
            continue;
        }
        let logical = number(&extent["logical_bytes"]);
        let bytes = number(&extent["bytes"]).min(SIZE - logical) as usize;
        let (mut of_file, mut of_device) = (vec![0; bytes], vec![1; bytes]);
        file.read_exact_at(&mut of_file, logical).unwrap();
        device.read_exact_at(&mut of_device, number(&extent["physical_bytes"])).unwrap();
        assert!(of_file == of_device, "{extent} of {map}");
        checked += bytes as u64;
    }
    assert_eq!(checked, 128 * KIB, "all written bytes");
}

#[test]
fn a_fragmented_file_has_a_request_per_extent() {
    on_each(|name, _, directory, _| {
        let path = directory.join("pieces");
        let file = File::create(&path).unwrap();
        for piece in 0..64 {
            file.write_all_at(&noise(4 * KIB, piece), piece * 16 * KIB).unwrap();
        }
        file.set_len(SIZE).unwrap();
        file.sync_all().unwrap();
        let map = map(&path, &["--bs", "4k,1m"]);
        assert!(map["extents"].as_array().unwrap().len() >= 64, "{name}: {map}");
        let whole = requests(&map, SIZE);
        let places = || {
            map["extents"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|one| !one["flags"].to_string().contains("unwritten"))
        };
        let place = |extent: &Value| {
            let start = number(&extent["physical_bytes"]);
            (start, start + number(&extent["bytes"]))
        };
        // Neighbours on the disk are one request.
        let mut expected: Vec<(u64, u64)> = Vec::new();
        for (start, end) in places().map(place) {
            match expected.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                Some(last) if last.0 == end => last.0 = start,
                _ => expected.push((start, end)),
            }
        }
        assert_eq!(number(&whole["requests"]), expected.len() as u64, "{name}: {map}");
        assert_eq!(whole["requests"], whole["requests_of_a_read_max"], "{map}");
        // Extents that are adjacent on the disk across a hole are one request.
        let small = requests(&map, 4 * KIB);
        assert_eq!(
            (&small["reads"], &small["request_bytes"]),
            (&256.into(), &(64 * 4 * KIB).into()),
            "{name}"
        );

        let table = |args: &[&str]| {
            let shown = iopath(&["map", text(&path)]).args(args).output().unwrap();
            String::from_utf8(shown.stdout).unwrap()
        };
        assert!(table(&[]).contains("more: --all") && table(&[]).lines().count() < 50, "{}", table(&[]));
        assert!(table(&["--all"]).lines().count() > 128);
    });
}

#[test]
fn the_boundary_every_block_adds_requests_to_a_block_mapped_file() {
    on_each(|name, _, directory, _| {
        let path = directory.join("file");
        std::fs::write(&path, noise(SIZE, 3)).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        let count = |boundary| {
            let map = map(&path, &["--bs", "1m", "--boundary", boundary]);
            (number(&requests(&map, SIZE)["requests"]), number(&requests(&map, SIZE)["metadata_requests"]))
        };
        let [every, once, ignore] = ["every-block", "once", "ignore"].map(count);
        if name == "ext2" {
            assert!(every.0 > 2 * once.0 && ignore.0 <= once.0, "{every:?} {once:?} {ignore:?}");
            // Of 1,024 blocks, the inode points to 12, an indirect block to 256, and those below a double one to 256,
            // 256 and 244.
            assert_eq!(once.1, 5);
            let shown = |format: &[&str]| {
                let output =
                    iopath(&["map", text(&path), "--bs", "1m", "--boundary", "once"]).args(format).output();
                String::from_utf8(output.unwrap().stdout).unwrap()
            };
            let (plain, markdown) = (shown(&[]), shown(&["--format", "markdown"]));
            for part in [
                "Direct reads: alignment",
                "Boundaries: a request ends before an indirect block",
                "indirect blocks",
            ] {
                assert!(plain.contains(part) && markdown.contains(part), "{part}: {plain}\n{markdown}");
            }
        } else if !is_mapped_by_blocks(name) {
            assert_eq!([every, once, ignore], [once; 3], "{name}");
            assert_eq!(once.1, 0);
        }
    });
}

/// The reads that the kernel issues to a device while `work` runs; none without tracefs.
fn issued(device: &Path, work: impl FnOnce()) -> Option<u64> {
    let root = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].map(Path::new);
    let root = root.into_iter().find(|root| root.join("instances").exists())?;
    let instance = root.join("instances").join(format!("iopath-map-{}", std::process::id()));
    std::fs::create_dir(&instance).ok()?;
    let event = instance.join("events/block/block_rq_issue");
    let set = |file: PathBuf, value: &str| std::fs::write(file, value).is_ok();
    let number = std::fs::metadata(device).unwrap().st_rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let begun = set(event.join("filter"), &format!("dev == {}", major << 20 | minor))
        && set(event.join("enable"), "1");
    work();
    let ended = set(event.join("enable"), "0");
    let trace = std::fs::read_to_string(instance.join("trace"));
    std::fs::remove_dir(&instance).unwrap();
    let is_read = |line: &str| {
        let fields = line.split_once("block_rq_issue: ").map(|(_, fields)| fields);
        fields.and_then(|fields| fields.split_whitespace().nth(1)).is_some_and(|kind| kind.starts_with('R'))
    };
    (begun && ended).then(|| trace.unwrap().lines().filter(|line| is_read(line)).count() as u64)
}

#[test]
fn the_kernel_issues_the_counted_requests() {
    on_each(|name, device, directory, has_device_offsets| {
        if !has_device_offsets {
            return;
        }
        // The last block has 700 bytes. Every second block of the first MiB is a hole.
        let path = directory.join("counted");
        let file = File::create(&path).unwrap();
        for piece in 0..128 {
            file.write_all_at(&noise(4 * KIB, piece), piece * 8 * KIB).unwrap();
            file.sync_all().unwrap();
        }
        file.write_all_at(&noise(6 * SIZE + 700, 5), SIZE).unwrap();
        file.sync_all().unwrap();
        let map = map(&path, &["--bs", "4k,64k,1m"]);
        for block_bytes in [4 * KIB, 64 * KIB, SIZE] {
            let list = map["requests"].as_array().unwrap();
            let counted = list.iter().find(|one| one["block_bytes"] == block_bytes).unwrap();
            let reads = issued(device, || {
                let mut dd = std::process::Command::new("dd");
                dd.args(["of=/dev/null", "iflag=direct", "status=none"]);
                dd.args([format!("if={}", text(&path)), format!("bs={block_bytes}")]);
                assert!(dd.status().unwrap().success());
            });
            let Some(reads) = reads else { return eprintln!("skipped: no tracefs") };
            // The memory of dd is contiguous here and there.
            let [least, most] = ["requests", "requests_of_pages"].map(|key| number(&counted[key]));
            assert!((least..=most).contains(&reads), "{name}, {block_bytes}: {reads} of {least} to {most}");
            assert!(block_bytes == SIZE || least == most, "{name}: {counted}");
        }
        // The last read ends with the block of the filesystem.
        let last = requests_bytes(&map, SIZE);
        let block = number(&map["block_bytes"]);
        assert_eq!((last - 128 * 4 * KIB - 6 * SIZE), 700u64.next_multiple_of(block), "{map}");
    });
}

/// The bytes of all requests of a block size.
fn requests_bytes(map: &Value, block_bytes: u64) -> u64 {
    let list = map["requests"].as_array().unwrap();
    number(&list.iter().find(|one| one["block_bytes"] == block_bytes).unwrap()["request_bytes"])
}

#[test]
fn an_empty_file_has_no_extent_and_no_request() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("empty");
    File::create(&path).unwrap();
    let answer = iopath(&["map", text(&path), "--json"]).output().unwrap();
    if !answer.status.success() {
        return eprintln!("skipped: no FIEMAP here: {}", String::from_utf8_lossy(&answer.stderr));
    }
    let map = json_of(&answer);
    assert_eq!((&map["schema"], &map["size_bytes"]), (&"iopath.map/1".into(), &0.into()));
    assert_eq!(map["extents"].as_array().map(Vec::len), Some(0));
    assert!(map["requests"].as_array().unwrap().iter().all(|requests| requests["requests"] == 0), "{map}");
}

#[test]
fn an_unaligned_block_size_is_refused_with_the_alignment() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, noise(8192, 4)).unwrap();
    let answer = iopath(&["map", text(&path), "--bs", "4k,1000"]).output().unwrap();
    let stderr = String::from_utf8(answer.stderr).unwrap();
    if stderr.contains("does not support FIEMAP") || answer.status.success() {
        return eprintln!("skipped: no FIEMAP or no direct I/O here: {stderr}");
    }
    assert!(
        stderr.contains("--bs 1000 is not valid; use a multiple of") && stderr.lines().count() == 1,
        "{stderr}"
    );
}

#[test]
fn a_block_size_of_zero_is_refused_with_sizes_that_work() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, noise(8192, 4)).unwrap();
    let answer = iopath(&["map", text(&path), "--bs", "0"]).output().unwrap();
    let stderr = String::from_utf8(answer.stderr).unwrap();
    if stderr.contains("does not support FIEMAP") || answer.status.success() {
        return eprintln!("skipped: no FIEMAP or no direct I/O here: {stderr}");
    }
    assert!(stderr.contains("--bs") && stderr.contains("write 4k"), "{stderr}");
    assert!(!stderr.contains("use 0 bytes") && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn a_fifo_is_refused_as_a_pipe_without_extents() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fifo");
    run("mkfifo", &[text(&path)]).unwrap();
    let answer = iopath(&["map", text(&path)]).output().unwrap();
    let stderr = String::from_utf8(answer.stderr).unwrap();
    assert!(stderr.contains("is a pipe, which has no extents; name a regular file"), "{stderr}");
    assert!(!stderr.contains("block device"), "{stderr}");
}

#[test]
fn the_help_names_the_default_of_boundary() {
    let help = String::from_utf8(iopath(&["map", "--help"]).output().unwrap().stdout).unwrap();
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let default = iopath_lab::map::DEFAULT_BOUNDARY;
    assert!(words.contains(&format!("(ext2, ext3); default: {default}, ")), "{help}");
}
