//! Flushes that fail in the kernel: a loop device whose backing file is on a full tmpfs. After the program has made
//! room and written again, a flush that succeeds makes all bytes durable. Needs root, and mkfs.ext4. A program of its
//! own, since it mounts filesystems.

#[path = "../../iopath-os/tests/support/mod.rs"]
mod support;

use iopath::{AlignedBuf, Context, IoMode, Options, Unaligned, Volume};
use std::path::{Path, PathBuf};
use support::{Alone, Cleanup, MemoryFilesystem, run, text};

/// No multiple of a block: the last bytes are written through the kernel's page cache.
const BYTES: usize = 60_003;

/// An ext4 on a loop device, over a tmpfs.
struct Disk {
    // Before what it is on.
    _mounted: Cleanup,
    mount: tempfile::TempDir,
    memory: MemoryFilesystem,
    _alone: Alone,
}

impl Disk {
    fn new() -> Result<Self, String> {
        let alone = Alone::wait()?;
        let memory = MemoryFilesystem::new("size=24m")?;
        let image = memory.path().join("image");
        let file = std::fs::File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(128 << 20).map_err(|error| error.to_string())?;
        // Without a journal, which would fail first.
        let features = ["-q", "-O", "^has_journal", "-E", "lazy_itable_init=0"];
        run("mkfs.ext4", &[&features[..], &[text(&image)]].concat())?;
        let mount = tempfile::tempdir().map_err(|error| error.to_string())?;
        run("mount", &["-o", "loop", text(&image), text(mount.path())])?;
        let mut mounted = Cleanup::default();
        // Repeated while it is busy: the system closes the files of a ring later.
        mounted.add(&["umount", text(mount.path())]);
        // The first blocks are stored already.
        std::fs::write(mount.path().join("used"), vec![1; 1 << 20]).map_err(|error| error.to_string())?;
        Ok(Self { _mounted: mounted, mount, memory, _alone: alone })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mount.path().join(name)
    }

    /// What takes the room of the disk.
    fn filler(&self) -> PathBuf {
        self.memory.path().join("filler")
    }

    /// The disk has no room for a block that it has not stored before.
    fn fill(&self) {
        // What the files need so far is stored.
        run("sync", &[]).unwrap();
        let filler = vec![1; 1 << 20];
        let mut file = std::fs::File::create(self.filler()).unwrap();
        while std::io::Write::write_all(&mut file, &filler).is_ok() {}
    }

    fn make_room(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

fn buffered(context: &Context) -> Options {
    Options::new().mode(IoMode::Buffered).context(context).write(true).extend(true)
}

/// Opens a file, which is empty.
type Open = fn(&Path, &Context) -> Volume;

#[test]
fn bytes_that_are_written_again_after_a_failed_flush_are_durable() {
    let disk = match Disk::new() {
        Ok(disk) => disk,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let ways: [(&str, Open); 3] = [
        ("new", |path, context| Volume::open(path, &buffered(context)).unwrap()),
        ("cached", |path, context| {
            let volume = Volume::open(path, &buffered(context)).unwrap();
            volume.warm().unwrap();
            volume
        }),
        ("bounced", |path, _| {
            let bounced = Options::new().write(true).extend(true).unaligned(Unaligned::Bounce);
            Volume::open(path, &bounced).unwrap()
        }),
    ];
    let context = Context::new(64 << 20);
    let first = Volume::open(disk.path("first"), &buffered(&context).create(4096)).unwrap();
    first.warm().unwrap();
    let data: Vec<u8> = (0..BYTES as u32).map(|byte| (byte % 251) as u8 + 1).collect();
    let mut paths = Vec::new();
    for (name, open) in ways {
        let path = disk.path(name);
        std::fs::write(&path, "").unwrap();
        disk.fill();
        let volume = open(&path, &context);
        let written = volume.write_at(&data, 0);
        let flushed = volume.flush();
        assert!(written.is_err() || flushed.is_err(), "{name}: the disk has no room");
        disk.make_room();
        if volume.is_buffered() {
            volume.accept_loss().unwrap();
        }
        volume.write_at(&data, 0).unwrap();
        volume.flush().unwrap_or_else(|error| panic!("{name}: {error}"));
        volume.close().unwrap();
        paths.push(path);
    }
    for path in paths {
        // Past the kernel's page cache.
        let volume = Volume::open(&path, &Options::new()).unwrap();
        let mut found = AlignedBuf::new(BYTES.next_multiple_of(4096)).unwrap();
        assert_eq!(volume.read_at(&mut found, 0).unwrap(), BYTES);
        let lost = found[..BYTES].iter().zip(&data).filter(|(found, data)| found != data).count();
        assert_eq!(lost, 0, "bytes of {} are not on the disk", path.display());
    }
}
