//! Two engines that write to one block of the filesystem, and the times at which each is due.

use super::disk::{Arena, Disk};
use super::host::Host;
use iopath_core::mapped::{MappedDevice, MappedFile};
use iopath_core::mapper::{Boundary, FileLayout};
use iopath_core::{BlockDevice, Extent, Instant, Io, Limits, Op, Sector, Tag};

#[test]
fn a_blocked_engine_has_no_timeout_until_the_other_releases_the_block() {
    let arena = Arena::default();
    let disk = Disk::new(&Limits::with_capacity(1024), &arena);
    let layout = FileLayout { block_bytes: 4096, size_bytes: 65_536, capacity_bytes: 1024 * 512 };
    let host = Host::new(MappedFile::fresh("extent", &layout).unwrap(), &arena);
    let mut engines = [0, 1]
        .map(|_| MappedDevice::new(disk.clone(), host.clone(), host.add_engine(), Boundary::Once).unwrap());
    let start = Instant::ZERO;
    for (engine, sector) in engines.iter_mut().zip([0, 1]) {
        let extent = Extent::new(Sector(sector), 1).unwrap();
        engine.submit(&Io::new(Tag::from_bits(7), Op::Write, extent, &[arena.take(512)]), start).unwrap();
        engine.commit(start);
    }
    let [first, second] = &mut engines;
    assert_eq!((first.is_blocked(), second.is_blocked()), (false, true));
    assert_eq!(second.poll_timeout(), None, "only the other engine can end this wait");
    let mut now = start;
    while first.in_flight() > 0 {
        now = first.poll_timeout().expect("its bios are in flight");
        while first.poll_completion(now).is_some() {}
        first.commit(now);
    }
    assert!(second.poll_timeout().is_some_and(|due| due <= now), "the block is free");
    assert!(second.poll_completion(now).is_none());
    second.commit(now);
    assert!(
        !second.is_blocked() && second.poll_timeout().is_some_and(|due| due > now),
        "its bio is in flight"
    );
}
