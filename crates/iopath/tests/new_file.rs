//! New files in a context: small writes and flushes do without a page cache, and the first call that needs one opens
//! it. Compares with a model.

use crate::support::{filled, options, scratch};
use iopath::{Advice, BatchOptions, Context, IoMode, Request, Volume};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::{Path, PathBuf};
use std::thread;

/// A context on a filesystem whose engine is known, so that the caches of its volumes open later.
struct Place {
    context: Context,
    directory: PathBuf,
    _scratch: tempfile::TempDir,
    _first: Volume,
}

impl Place {
    fn new() -> Option<Self> {
        let (scratch, path) = scratch(1 << 16)?;
        let context = Context::new(64 << 20);
        let buffered = options().mode(IoMode::Buffered).context(&context);
        let first = Volume::open(&path, &buffered).unwrap();
        first.warm().unwrap();
        let directory = path.parent().unwrap().to_owned();
        Some(Self { context, directory, _scratch: scratch, _first: first })
    }

    fn create(&self, name: &str) -> (Volume, PathBuf) {
        let path = self.directory.join(name);
        let new = options().mode(IoMode::Buffered).context(&self.context).create_new(0).extend(true);
        (Volume::open(&path, &new).unwrap(), path)
    }

    /// The number of new files with a page cache.
    fn caches(&self) -> usize {
        self.context.stats().volumes - 1
    }
}

fn check_file(path: &Path, model: &[u8]) {
    assert!(std::fs::read(path).unwrap() == model, "the file of {} has other bytes", path.display());
}

fn check_volume(volume: &Volume, model: &[u8], why: &str) {
    let mut found = vec![0xee; model.len() + 100];
    let bytes = volume.read_at(&mut found, 0).unwrap();
    assert_eq!(bytes, model.len(), "{why}");
    assert!(found[..bytes] == *model, "{why}: other bytes");
}

/// Writes to the model as a volume that extends does.
fn write(model: &mut Vec<u8>, bytes: &[u8], offset: usize) {
    model.resize(model.len().max(offset + bytes.len()), 0);
    model[offset..offset + bytes.len()].copy_from_slice(bytes);
}

#[test]
fn a_journal_that_is_written_flushed_and_removed_has_no_page_cache() {
    let Some(place) = Place::new() else { return };
    let (volume, path) = place.create("journal");
    let data = filled(1 << 16, 1);
    let mut model = Vec::new();
    for bytes in [512, 4, 4096, 4, 4, 4096, 4] {
        volume.write_at(&data[..bytes], model.len() as u64).unwrap();
        model.extend(&data[..bytes]);
    }
    assert_eq!(volume.size_bytes(), model.len() as u64);
    assert_eq!(volume.read_at(&mut [0; 8], model.len() as u64).unwrap(), 0, "the volume ends here");
    volume.flush().unwrap();
    volume.write_durably_at(&data[..12], 0).unwrap();
    write(&mut model, &data[..12], 0);
    check_file(&path, &model);
    assert_eq!(place.caches(), 0);
    volume.close().unwrap();
    check_file(&path, &model);
}

type CallOf<'a> = dyn Fn(&Volume, &mut Vec<u8>) + 'a;

#[test]
fn every_call_that_needs_the_page_cache_finds_the_bytes_of_plain_writes() {
    let Some(place) = Place::new() else { return };
    let data = filled(1 << 20, 2);
    let calls: &[(&str, &CallOf)] = &[
        ("read", &|volume, model| check_volume(volume, model, "a read")),
        ("borrow", &|volume, model| {
            let bytes: Vec<u8> = volume.borrow(5, 5000).unwrap().slices().flatten().copied().collect();
            assert!(bytes == model[5..5005]);
        }),
        ("advise", &|volume, _| volume.advise(0, 4096, Advice::WillNeed).unwrap()),
        ("large write", &|volume, model| {
            volume.write_at(&data, 100).unwrap();
            write(model, &data, 100);
        }),
        ("gap", &|volume, model| {
            let offset = model.len() + 10_000;
            volume.write_at(&data[..10], offset as u64).unwrap();
            write(model, &data[..10], offset);
        }),
        ("shorter", &|volume, model| {
            volume.resize(700).unwrap();
            model.truncate(700);
        }),
        ("longer", &|volume, model| {
            volume.resize(70_000).unwrap();
            model.resize(70_000, 0);
        }),
        ("discard", &|volume, model| {
            volume.discard(10, 5000).unwrap();
            model[10..5010].fill(0);
        }),
        ("batch", &|volume, model| {
            let mut batch = volume.batch(&BatchOptions::new(2, 4096)).unwrap();
            let mut buffer = batch.buffer().unwrap();
            buffer.copy_from_slice(&data[..4096]);
            batch.queue(Request::write(buffer, 3).token(0)).unwrap();
            batch.wait().unwrap().unwrap().result.unwrap();
            write(model, &data[..4096], 3);
        }),
        ("more than a step", &|volume, model| {
            for part in data.chunks(5000).chain(data.chunks(5000)) {
                volume.write_at(part, model.len() as u64).unwrap();
                model.extend(part);
            }
        }),
    ];
    for (name, call) in calls {
        for (bytes, is_flushed) in [(5500, false), (5500, true), (8192, false), (12_289, false)] {
            let (volume, path) = place.create(&format!("{name} {bytes} {is_flushed}"));
            let mut model = Vec::new();
            for part in data[..bytes].chunks(1000) {
                volume.write_at(part, model.len() as u64).unwrap();
                model.extend(part);
            }
            if is_flushed {
                volume.flush().unwrap();
            }
            assert_eq!(place.caches(), 0, "{name}");
            call(&volume, &mut model);
            assert_eq!(place.caches(), 1, "{name} needs the page cache");
            assert_eq!(volume.size_bytes(), model.len() as u64, "{name}");
            // The last page, which plain writes have begun.
            volume.write_at(b"end", model.len() as u64).unwrap();
            model.extend(b"end");
            volume.write_at(b"begin", 0).unwrap();
            write(&mut model, b"begin", 0);
            check_volume(&volume, &model, name);
            volume.flush().unwrap();
            check_file(&path, &model);
            volume.close().unwrap();
            check_file(&path, &model);
        }
    }
}

#[test]
fn random_calls_on_new_files_agree_with_a_model() {
    let Some(place) = Place::new() else { return };
    let data = filled(1 << 17, 3);
    for seed in 0..60 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (volume, path) = place.create(&format!("{seed}"));
        let mut model = Vec::new();
        // Of so many calls, one needs the page cache.
        let rarity = random.random_range(2..60);
        for step in 0..120 {
            let why = || format!("seed {seed}, step {step}");
            let end = model.len();
            if random.random_range(0..rarity) == 0 {
                match random.random_range(0..3) {
                    0 => check_volume(&volume, &model, &why()),
                    1 => {
                        let bytes = random.random_range(0..end + 20_000);
                        volume.resize(bytes as u64).unwrap();
                        model.resize(bytes, 0);
                    }
                    _ => {
                        let bytes = random.random_range(1..data.len());
                        volume.write_at(&data[..bytes], end as u64).unwrap();
                        write(&mut model, &data[..bytes], end);
                    }
                }
                continue;
            }
            let bytes = random.random_range(0..6000);
            let from = random.random_range(0..data.len() - bytes);
            let part = &data[from..from + bytes];
            let offset = if random.random() { end } else { random.random_range(0..=end) };
            match random.random_range(0..8) {
                0 => volume.flush().unwrap(),
                1 => {
                    volume.write_durably_at(part, offset as u64).unwrap();
                    write(&mut model, part, offset);
                    assert!(std::fs::read(&path).unwrap()[offset..offset + bytes] == *part, "{}", why());
                }
                _ => {
                    volume.write_at(part, offset as u64).unwrap();
                    write(&mut model, part, offset);
                }
            }
            assert_eq!(volume.size_bytes(), model.len() as u64, "{}", why());
        }
        check_volume(&volume, &model, &format!("seed {seed}, at the end"));
        volume.close().unwrap();
        check_file(&path, &model);
    }
}

#[test]
fn threads_that_write_and_flush_a_new_file_at_once_lose_no_byte() {
    const THREADS: usize = 4;
    const PART: usize = 700;
    let Some(place) = Place::new() else { return };
    for round in 0..10 {
        let (volume, path) = place.create(&format!("{round}"));
        volume.write_at(&[0; THREADS * PART], 0).unwrap();
        assert_eq!(place.caches(), 0);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let volume = &volume;
                scope.spawn(move || {
                    for step in 0..20_u8 {
                        volume.write_at(&[step; PART], (thread * PART) as u64).unwrap();
                        volume.flush().unwrap();
                    }
                });
            }
        });
        check_file(&path, &[19; THREADS * PART]);
        check_volume(&volume, &[19; THREADS * PART], "after the threads");
        drop(volume);
    }
}
