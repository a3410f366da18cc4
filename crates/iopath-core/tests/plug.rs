//! The plug: a bio that waits for plugged pieces unplugs them.

use iopath_core::{Bio, Extent, Instant, LengthOnly, Limits, QueueConfig, RequestQueue, Sector};

#[test]
fn a_bio_that_waits_for_plugged_pieces_unplugs_them() {
    let now = Instant::ZERO;
    let limits = Limits { chunk_sectors: 8, ..Limits::with_capacity(1 << 20) };
    // Slots for four pieces, of which two merge into one request: neither the plug nor the slots are full.
    let config = QueueConfig { requests_max: 4, plug_requests_max: 4, ..QueueConfig::default() };
    let mut queue = RequestQueue::new(limits, &config);
    queue.plug();
    for (token, (start, sectors)) in (0..).zip([(4, 8), (12, 8), (800, 16)]) {
        let extent = Extent::new(Sector(start), sectors).unwrap();
        queue.submit_bio(Bio::read(extent, LengthOnly::new(extent.bytes()), token), now).unwrap();
    }
    let dispatched = std::iter::from_fn(|| queue.poll_dispatch(now).map(|io| io.extent)).count();
    assert_eq!(dispatched, 3, "the third bio waits for the pieces of the others");
}
