//! Each fault is reported as its own error, and the device continues to work.

use std::fs::OpenOptions;
use std::sync::Arc;

use iopath_core::{IoError, Op};

use super::rig::{ROWS, Rig, pattern};

#[test]
fn a_file_that_shrank_ends_before_the_range() {
    for row in ROWS {
        let file = row.scratch(65_536);
        let Some(mut rig) = Rig::new_on(row, file.clone()) else { continue };
        file.set_len(20_000).unwrap();
        assert_eq!(rig.read(16_384, 8192), Err(IoError::EndOfDevice), "{}", rig.name);
        assert_eq!(rig.read(32_768, 4096), Err(IoError::EndOfDevice), "{}", rig.name);
        assert_eq!(
            rig.read(16_384, 4096),
            Err(IoError::EndOfDevice),
            "{}: only the end is past the file",
            rig.name
        );
        assert_eq!(rig.read(12_288, 4096), Ok(vec![0; 4096]), "{}: and the device works", rig.name);
    }
}

#[test]
fn a_file_open_for_reading_is_read_only() {
    let named = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    named.as_file().set_len(65_536).unwrap();
    for row in ROWS {
        let file = Arc::new(row.open_file(named.path(), false).unwrap());
        let Some(mut rig) = Rig::new_on(row, file) else { continue };
        assert_eq!(rig.write(0, &pattern(4096, 0)), Err(IoError::ReadOnly), "{}", rig.name);
        assert_eq!(rig.run(Op::Discard, 0, 4096, &[]), Err(IoError::ReadOnly), "{}", rig.name);
        assert_eq!(rig.read(0, 4096), Ok(vec![0; 4096]), "{}: and the device works", rig.name);
    }
}

#[test]
fn a_full_disk_has_no_space() {
    // A new filesystem of 1 MiB, which only root can mount, and a larger file in it.
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mount = |program: &str, arguments: &[&str]| {
        let run = std::process::Command::new(program).args(arguments).arg(place.path()).output();
        run.is_ok_and(|run| run.status.success())
    };
    if !mount("mount", &["-t", "tmpfs", "-o", "size=1m", "none"]) {
        eprintln!("skipped: a filesystem cannot be mounted here");
        return;
    }
    let results: Vec<_> = ROWS.iter().filter_map(|row| fill_up(row, place.path())).collect();
    // The kernel closes the files of a ring some time after the ring is closed.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !mount("umount", &[]) {
        assert!(std::time::Instant::now() < end, "{} stays mounted", place.path().display());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for (name, result) in results {
        assert_eq!(result, Err(IoError::NoSpace), "{name}");
    }
}

fn fill_up(
    row: &super::rig::Row,
    directory: &std::path::Path,
) -> Option<(&'static str, Result<(), IoError>)> {
    let path = directory.join("large");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).ok()?;
    file.set_len(4 << 20).ok()?;
    let mut rig = Rig::new_on(row, Arc::new(file))?;
    let result = (0..4).try_for_each(|mebibyte| rig.write(mebibyte << 20, &pattern(1 << 20, 1)));
    Some((rig.name, result))
}
