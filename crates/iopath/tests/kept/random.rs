//! Random opens, closes and changes of files, in one thread with a model of each byte, and in several threads.

use super::{CHANGES, PAGE, buffered, file, keeping, locked, open, read, store, writable};
use iopath::{Context, Volume};
use iopath_os::kernel::Mmap;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::RwLock;
use std::thread;

/// A file, its bytes, and at most one volume on it.
struct World {
    random: Xoshiro256PlusPlus,
    path: PathBuf,
    model: Vec<u8>,
    context: Context,
    volume: Option<Volume>,
    is_writable: bool,
    /// Another program has changed the file while it was open.
    is_stale: bool,
    mapping: Option<Mmap>,
    other: Volume,
}

impl World {
    const SIZE_MAX: usize = 60_000;

    fn new(path: PathBuf, other: &Path, seed: u64) -> Self {
        let context = keeping(2);
        let other = open(other, &buffered(&context));
        let model = fs::read(&path).expect("it exists");
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (volume, mapping) = (None, None);
        Self { random, path, model, context, volume, is_writable: false, is_stale: false, mapping, other }
    }

    fn range(&mut self) -> (usize, usize) {
        let start = self.random.random_range(0..self.model.len());
        let bytes = self.random.random_range(1..=(self.model.len() - start).min(9000));
        (start, bytes)
    }

    fn step(&mut self) {
        match (self.random.random_range(0..10), self.volume.take()) {
            (0, Some(volume)) => volume.close().expect("no faults"),
            (1, Some(volume)) => drop(volume),
            (2, Some(volume)) if !self.is_writable => {
                self.change();
                self.is_stale = true;
                self.volume = Some(volume);
            }
            (_, Some(volume)) => {
                self.act(&volume);
                self.volume = Some(volume);
            }
            (0..4, None) => self.change(),
            (4, None) => self.disturb(),
            (_, None) => self.reopen(),
        }
    }

    fn reopen(&mut self) {
        let random = &mut self.random;
        self.is_writable = random.random();
        let cache_bytes = if random.random_range(0..4) == 0 { 1 << 17 } else { 1 << 18 };
        let options = buffered(&self.context).cache_bytes(cache_bytes).lock(random.random_range(0..8) > 0);
        let options = if self.is_writable { options.extend(true) } else { options };
        let volume = open(&self.path, &options);
        self.is_stale = false;
        let look = self.random.random_range(0..3);
        self.check(&volume, look == 0);
        self.volume = Some(volume);
    }

    fn check(&mut self, volume: &Volume, is_whole: bool) {
        let (start, bytes) = if is_whole { (0, self.model.len()) } else { self.range() };
        assert_eq!(volume.size_bytes(), self.model.len() as u64);
        let mut found = vec![0; bytes];
        volume.read_exact_at(&mut found, start as u64).expect("no faults");
        assert!(found == self.model[start..start + bytes], "{bytes} bytes at {start} differ");
    }

    fn act(&mut self, volume: &Volume) {
        match self.random.random_range(0..8) {
            _ if self.is_stale => (),
            0..3 if self.is_writable => {
                let (start, bytes) = self.range();
                let byte = self.random.random();
                self.model[start..start + bytes].fill(byte);
                volume.write_at(&vec![byte; bytes], start as u64).expect("no faults");
            }
            3 if self.is_writable => volume.flush().expect("no faults"),
            4 if self.is_writable => {
                let size = self.random.random_range(1..Self::SIZE_MAX);
                volume.resize(size as u64).expect("space");
                self.model.resize(size, 0);
                self.mapping = None;
            }
            5 if self.is_writable && self.model.len() + 100 < Self::SIZE_MAX => {
                volume.write_at(&[77; 100], self.model.len() as u64).expect("space");
                self.model.extend([77; 100]);
                self.mapping = None;
            }
            _ => self.check(volume, false),
        }
    }

    /// Another program changes the file.
    fn change(&mut self) {
        if self.random.random() {
            let (start, bytes) = self.range();
            let byte = self.random.random();
            let (path, size) = (&self.path, self.model.len() as u64);
            let mapping =
                self.mapping.get_or_insert_with(|| Mmap::new(writable(path), size, true).expect("a mapping"));
            store(mapping, byte, start as u64, bytes as u32);
            self.model[start..start + bytes].fill(byte);
            return;
        }
        if self.model.len() < 3 * PAGE {
            self.model.resize(4 * PAGE + 10, 9);
            fs::write(&self.path, &self.model).expect("space");
        }
        let (_, change) = CHANGES[self.random.random_range(0..CHANGES.len())];
        self.model = change(&self.path, std::mem::take(&mut self.model));
        // It may be that of another file now.
        self.mapping = None;
        if self.random.random_range(0..4) == 0 {
            // Changes ctime alone.
            fs::set_permissions(&self.path, fs::Permissions::from_mode(0o600)).expect("the file is ours");
        }
    }

    /// The context changes.
    fn disturb(&mut self) {
        match self.random.random_range(0..4) {
            0 => self.context.set_memory_bytes(self.random.random_range(0..200_000)),
            1 => self.context.set_memory_bytes(8 << 20),
            2 => {
                self.context.keep_closed(self.random.random_range(0..3));
                self.context.keep_closed(2);
            }
            _ => drop(read(&self.other)),
        }
    }
}

#[test]
fn volumes_find_the_bytes_of_the_file_after_changes_of_all_kinds() {
    let Some((directory, path)) = file(&vec![1; 5 * PAGE]) else { return };
    let other = directory.path().join("another");
    fs::write(&other, vec![2; 64 * PAGE]).expect("space");
    let mut reopened = 0;
    for seed in 0..10 {
        let mut world = World::new(path.clone(), &other, seed);
        let steps = std::panic::AssertUnwindSafe(|| (0..400).for_each(|_| world.step()));
        if let Err(panic) = std::panic::catch_unwind(steps) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
        reopened += world.context.stats().reopened;
    }
    // Without multigrain timestamps there are fewer.
    assert!(reopened > 0, "no cache was kept");
}

/// Several threads open, read and close files, one at a time changes one, and the memory changes meanwhile.
#[test]
fn threads_that_open_and_close_the_same_files_find_their_bytes() {
    let Some((directory, _)) = file(&[0; PAGE]) else { return };
    let context = keeping(2);
    let files: Vec<(PathBuf, RwLock<u8>)> = (0..3)
        .map(|number| {
            let path = directory.path().join(format!("file-{number}"));
            fs::write(&path, vec![0; 20 * PAGE + 7]).expect("space");
            (path, RwLock::new(0))
        })
        .collect();
    thread::scope(|scope| {
        for seed in 0..4 {
            let (files, context) = (&files, &context);
            scope.spawn(move || {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
                for _ in 0..300 {
                    let (path, version) = &files[random.random_range(0..files.len())];
                    match random.random_range(0..8) {
                        0 => {
                            let mut version = version.write().expect("no thread panics");
                            *version = version.wrapping_add(1);
                            let bytes = vec![*version; 20 * PAGE + 7];
                            if random.random() {
                                let volume = open(path, &locked(context));
                                volume.write_at(&bytes, 0).expect("no faults");
                                volume.close().expect("no faults");
                            } else {
                                writable(path).write_all_at(&bytes, 0).expect("space");
                            }
                        }
                        1 => context.set_memory_bytes(random.random_range(0..60) * PAGE as u64),
                        2 => context.keep_closed(random.random_range(0..4)),
                        _ => {
                            let version = version.read().expect("no thread panics");
                            let volume = open(path, &buffered(context).lock(true));
                            let mut found = vec![0; random.random_range(1..20 * PAGE)];
                            let last = 20 * PAGE + 7 - found.len();
                            volume
                                .read_exact_at(&mut found, random.random_range(0..=last) as u64)
                                .expect("no faults");
                            assert!(found.iter().all(|byte| *byte == *version));
                        }
                    }
                }
            });
        }
    });
    context.set_memory_bytes(0);
    assert_eq!((context.stats().volumes, context.stats().used_bytes), (0, 0));
}
