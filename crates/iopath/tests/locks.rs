//! Locks of open volumes, and the refusal of a second writable page cache on one file.

use crate::support::{filled, options, scratch};
use iopath::{BatchOptions, Context, IoMode, OpenError, Options, Unaligned, Volume};
use std::path::Path;

const PAGE: usize = 4096;

/// Whether a lock of the process on the file would succeed. It conflicts with locks of open files of this process, too.
fn is_free(path: &Path, is_exclusive: bool) -> bool {
    use rustix::fs::FlockOperation::{NonBlockingLockExclusive, NonBlockingLockShared, Unlock};
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let kind = if is_exclusive { NonBlockingLockExclusive } else { NonBlockingLockShared };
    let is_free = rustix::fs::fcntl_lock(&file, kind).is_ok();
    if is_free {
        rustix::fs::fcntl_lock(&file, Unlock).unwrap();
    }
    is_free
}

fn buffered() -> Options {
    options().write(true).mode(IoMode::Buffered).cache_bytes(1 << 20)
}

#[test]
fn an_open_volume_is_locked_and_unlocked() {
    let Some((_directory, path)) = scratch(1 << 16) else { return };
    let volume = Volume::open(&path, &options().write(true)).unwrap();
    volume.try_lock().unwrap();
    if is_free(&path, true) {
        return eprintln!("skipped: the filesystem has no locks");
    }
    let other = Volume::open(&path, &options().write(true)).unwrap();
    for refused in [other.try_lock(), other.try_lock_shared()] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, OpenError::Refused(_)), "{refused}");
    }
    volume.try_lock_shared().unwrap();
    other.try_lock_shared().unwrap();
    assert!(is_free(&path, false) && !is_free(&path, true));
    other.unlock().unwrap();
    volume.unlock().unwrap();
    assert!(is_free(&path, true));
    // The last clone ends the lock.
    volume.try_lock().unwrap();
    let clone = volume.clone();
    drop(volume);
    assert!(!is_free(&path, false));
    drop(clone);
    assert!(is_free(&path, true));
    // A refused stripe leaves no lock on its first member.
    let second = path.with_extension("second");
    std::fs::copy(&path, &second).unwrap();
    let held = Volume::open(&second, &options().write(true).lock(true)).unwrap();
    let stripe = Volume::open_stripe(&[&path, &second], 4096, &options().write(true)).unwrap();
    stripe.try_lock().unwrap_err();
    assert!(is_free(&path, true));
    drop(held);
    stripe.try_lock().unwrap();
    assert!(!is_free(&path, true) && !is_free(&second, true));
}

#[test]
fn the_lock_of_the_options_stays() {
    let Some((_directory, path)) = scratch(1 << 16) else { return };
    let volume = Volume::open(&path, &options().write(true).lock(true)).unwrap();
    if is_free(&path, true) {
        return eprintln!("skipped: the filesystem has no locks");
    }
    volume.unlock().unwrap();
    volume.try_lock_shared().unwrap();
    assert!(!is_free(&path, false), "it is still exclusive");
    drop(volume);
    let reader = Volume::open(&path, &options().lock(true)).unwrap();
    let refused = reader.try_lock().unwrap_err();
    assert!(refused.to_string().contains("read-only"), "{refused}");
    reader.unlock().unwrap();
    assert!(is_free(&path, false) && !is_free(&path, true), "it is still shared");
}

#[test]
fn a_second_writable_page_cache_on_a_file_is_refused_by_name() {
    let Some((directory, path)) = scratch(1 << 16) else { return };
    let link = directory.path().join("link");
    std::fs::hard_link(&path, &link).unwrap();
    let context = Context::new(1 << 20);
    let first = Volume::open(&path, &buffered()).unwrap();
    let second = path.with_extension("second");
    std::fs::copy(&path, &second).unwrap();
    let refusals = [
        Volume::open(&path, &buffered()),
        Volume::open(&link, &buffered()),
        Volume::open(&link, &buffered().context(&context)),
        Volume::open(&path, &buffered().mode(IoMode::Direct).unaligned(Unaligned::Buffered)),
        Volume::open_stripe(&[&second, &path], 4096, &buffered()),
    ];
    for refused in refusals {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, OpenError::SecondCache(_)), "{refused}");
        assert_eq!(refused.errno(), 16);
        let text = refused.to_string();
        assert!(text.contains("clone that volume") && text.contains("Options::second_cache"), "{text}");
        let named = [&path, &link].map(|path| path.canonicalize().unwrap().display().to_string());
        assert!(named.iter().any(|name| text.contains(name)), "{text}");
    }
    // A refusal leaves no trace, and readers and direct writers have no pages to write back.
    Volume::open(&second, &buffered()).unwrap();
    Volume::open(&path, &options().mode(IoMode::Buffered)).unwrap();
    Volume::open(&path, &options().write(true)).unwrap();
    let permitted = Volume::open(&link, &buffered().second_cache(true)).unwrap();
    drop(first);
    Volume::open(&path, &buffered()).unwrap_err();
    drop(permitted);
    Volume::open(&path, &buffered()).unwrap();
}

#[test]
fn a_closed_volume_can_be_opened_again_at_once() {
    let Some((_directory, path)) = scratch(1 << 16) else { return };
    for round in 0..20 {
        let volume = Volume::open(&path, &buffered()).unwrap();
        volume.write_at(&filled(PAGE, round), 0).unwrap();
        let futures = iopath::AsyncVolume::new(&volume, &BatchOptions::new(2, 0)).unwrap();
        let batch = volume.batch(&BatchOptions::new(2, PAGE)).unwrap();
        volume.close().unwrap();
        Volume::open(&path, &buffered()).unwrap_err();
        drop(batch);
        Volume::open(&path, &buffered()).unwrap_err();
        drop(futures);
    }
}
