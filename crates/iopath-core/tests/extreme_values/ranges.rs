//! Ranges, limits, times and records: values without state.

use super::{EDGES, edges_u32, pairs};
use iopath_core::log::{Event, Step, Subject};
use iopath_core::mapper::{FileRange, IndirectShape};
use iopath_core::sorted::SortedSet;
use iopath_core::{
    Duration, Extent, Instant, Limits, Op, Page, PageRange, Record, SECTOR_BYTES, Sector, Stream,
};

const OPS: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];

#[test]
fn an_extent_out_of_range_is_none() {
    for (start, sectors) in pairs() {
        let end = u128::from(start) + u128::from(sectors);
        let extent = Extent::new(Sector(start), sectors);
        assert_eq!(extent.is_some(), end <= u128::from(Sector::MAX.0), "{start} + {sectors}");
        let of_bytes = Extent::from_bytes(start, sectors);
        let is_whole = start % SECTOR_BYTES == 0 && sectors % SECTOR_BYTES == 0;
        let is_within = end / 512 <= u128::from(Sector::MAX.0);
        assert_eq!(of_bytes.is_some(), is_whole && is_within, "bytes {start} + {sectors}");
        assert!(Sector(start).offset() >= start.min(Sector::MAX.0), "sector {start}");
        for extent in extent.into_iter().chain(of_bytes) {
            assert_eq!(extent.end().0, extent.start().0 + extent.sectors());
            assert_eq!(u128::from(extent.bytes()), u128::from(extent.sectors()) * 512);
            assert_eq!(extent.offset(), extent.start().offset());
            for boundary in EDGES.into_iter().filter(|boundary| *boundary > 0) {
                assert!(extent.sectors_to_boundary(boundary) <= extent.sectors());
            }
            let (before, after) = extent.split_at(extent.sectors() / 2);
            assert_eq!(before.join(after), Some(extent));
            assert!(extent.overlaps(extent) != extent.is_empty() && !extent.to_string().is_empty());
            check_limits(extent);
        }
    }
}

fn check_limits(extent: Extent) {
    for (bytes, chunk_sectors) in pairs() {
        let limits = Limits {
            request_bytes_max: bytes,
            discard_bytes_max: bytes,
            write_zeroes_bytes_max: bytes,
            chunk_sectors,
            logical_block_bytes: 4096,
            ..Limits::with_capacity(bytes)
        };
        for op in OPS {
            assert!(limits.first_piece(op, extent) <= extent.sectors());
            assert!(limits.sectors_max(op) <= Sector::MAX.0);
            limits.fits(op, extent);
        }
        limits.is_whole_blocks(extent);
    }
}

#[test]
fn a_range_of_pages_ends_at_the_highest_page() {
    for (start, count) in pairs() {
        let range = PageRange::new(Page(start), count);
        assert_eq!(u128::from(range.end().0), (u128::from(start) + u128::from(count)).min(u64::MAX.into()));
        assert_eq!(range.pages(), range.end().0 - start);
        assert!(PageRange::between(Page(start), Page(count)).end() >= Page(start));
        assert_eq!(range.and(PageRange::ALL), range);
        assert!(Page(start).since(Page(count)) <= start && Page(start) + count >= Page(start));
        assert!(Page(start) - count <= Page(start) && !range.to_string().is_empty());
        let (first, last) = (range.iter().next(), range.iter().next_back());
        assert_eq!(first.is_some() && last.is_some(), !range.is_empty());
        for page_bytes in edges_u32().filter(|bytes| *bytes > 0) {
            let touched = PageRange::touched_by(start, count, page_bytes);
            let inside = PageRange::inside(start, count, page_bytes);
            let wide = u128::from(page_bytes);
            let end = (u128::from(start) + u128::from(count)).min(u64::MAX.into());
            assert_eq!(touched.is_empty(), count == 0 || start == u64::MAX && u128::from(start) % wide == 0);
            assert!(count == 0 || u128::from(touched.start().0) * wide <= start.into());
            assert!(count == 0 || u128::from(touched.end().0) * wide >= end);
            assert!(inside.is_empty() || u128::from(inside.start().0) * wide >= start.into());
            assert!(inside.is_empty() || u128::from(inside.end().0) * wide <= end);
        }
    }
}

#[test]
fn a_range_of_a_file_ends_at_the_highest_offset() {
    for (start, bytes) in pairs() {
        let range = FileRange::new(start, bytes);
        assert!(range.end() >= start && range.bytes() <= bytes && !range.to_string().is_empty());
        for unit in EDGES.into_iter().filter(|unit| *unit > 0) {
            let (outward, inward) = (range.outward(unit), range.inward(unit));
            assert!(outward.is_whole(unit), "{range} outward by {unit} is {outward}");
            assert!(inward.is_whole(unit) || inward.is_empty(), "{range} inward by {unit} is {inward}");
            assert!(inward.bytes() <= range.bytes());
            assert!(
                range.from_offset(unit).bytes() <= range.bytes()
                    && range.up_to(unit).bytes() <= range.bytes()
            );
        }
    }
}

#[test]
fn the_shape_of_an_indirect_map_has_an_end_for_every_block() {
    for block_bytes in edges_u32().filter(|bytes| *bytes >= 8) {
        let shape = IndirectShape::new(block_bytes);
        assert!(shape.blocks_max() > 0 && shape.pointers() > 0);
        for (first, blocks) in pairs() {
            assert!(shape.share_end(first) >= first, "blocks of {block_bytes}, block {first}");
            let met = shape.indirect_blocks(first, blocks);
            assert!(
                met > 0 || blocks == 0 || first < 12 || first >= shape.blocks_max(),
                "{first} + {blocks}"
            );
            assert!(shape.indirect_blocks_shared(first, blocks) <= 3);
        }
    }
}

#[test]
fn time_saturates_584_years_after_the_epoch() {
    let spans = EDGES.into_iter().flat_map(|n| [Duration::from_nanos(n), Duration::from_secs(n)]);
    for span in spans.chain([Duration::MAX]) {
        for nanos in EDGES {
            let at = Instant::from_nanos(nanos);
            assert!(at + span >= at && (at + span) - at <= span);
            assert_eq!(at - (at + span), Duration::ZERO);
            assert_eq!(at.saturating_since(at + span), Duration::ZERO);
        }
    }
}

#[test]
fn a_record_clamps_its_fields_and_accepts_any_words() {
    for (a, b) in pairs() {
        let extent = Extent::new(Sector(a.min(Sector::MAX.0)), b.min(Sector::MAX.0 - a.min(Sector::MAX.0)));
        let now = Instant::from_nanos(a);
        for event in Event::ALL {
            for subject in [Subject::Queue, Subject::Bio(b as u32), Subject::Request(a as u32)] {
                let step = Step {
                    extent: extent.unwrap(),
                    stream: Stream(b as u32),
                    ..Step::new(event, subject).with_other(a as u32)
                };
                let record = Record::new(&step, now);
                assert_eq!(record.event(), Some(event));
                assert!(record.sector() <= Record::SECTOR_MAX && record.sectors() <= Record::SECTORS_MAX);
                assert!(record.parts().count() > 0);
            }
        }
        let any = Record::from_words([a, b, a.rotate_left(17) ^ b]);
        let _ = (any.step(), any.name(), any.extent(), any.parts().count(), Record::missed(a, now));
    }
}

#[test]
fn a_sorted_set_accepts_every_key() {
    let mut set = SortedSet::with_capacity(2 * EDGES.len());
    for (value, key) in (0..).zip(EDGES) {
        set.insert(key, value);
        set.insert(key, u32::MAX - value);
    }
    set.prefetch_inserts(EDGES);
    for (a, b) in pairs() {
        assert!(set.at_or_after(a).is_some_and(|(key, _)| key == a));
        let before = set.before(a);
        assert_eq!(before.is_some(), a > 0, "{before:?} before {a}");
        let (_, there) = set.around(a);
        assert!(there.is_some_and(|(key, _)| key == a) && set.neighbours(a).1.is_some());
        let there = if a < b { set.range(a..b).count() } else { set.range(b..=a).count() };
        assert!(there <= set.len());
        assert!(set.ahead(b as usize).is_none() || b < 100);
    }
    for (value, key) in (0..).zip(EDGES) {
        assert!(set.rekey(key, u64::MAX - key, value) && set.remove(u64::MAX - key, value));
        assert!(!set.remove(key, value + 1000));
    }
    while let Some((key, _)) = set.pop_at_or_after(0) {
        assert!(EDGES.contains(&key));
    }
    assert!(set.is_empty() && set.pop_at_or_after(u64::MAX).is_none());
}
