//! Maps sectors of the stripe to members: arithmetic only.

use crate::sector::{Extent, Sector};

/// Distributes chunks over members round robin.
///
/// ```text
/// member      0      1      2        chunk c of the stripe lies
///          ┌──────┬──────┬──────┐    on member c mod members,
/// row 0    │  0   │  1   │  2   │    in its row c / members.
/// row 1    │  3   │  4   │  5   │
///          └──────┴──────┴──────┘
/// ```
///
/// So the part of a range on one member is one range there, however many chunks it has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Map {
    chunk_sectors: u64,
    members: u64,
}

impl Map {
    pub(super) const fn new(chunk_sectors: u64, members: usize) -> Self {
        Self { chunk_sectors, members: members as u64 }
    }

    /// The part of `extent` that lies in its first chunk: the member, and the range on it.
    pub(super) fn first_part(self, extent: Extent) -> (usize, Extent) {
        let start = extent.start().0;
        let (chunk, in_chunk) = (start / self.chunk_sectors, start % self.chunk_sectors);
        let (row, member) = (chunk / self.members, chunk % self.members);
        let sectors = extent.sectors_to_boundary(self.chunk_sectors);
        (member as usize, range(row * self.chunk_sectors + in_chunk, sectors))
    }

    /// All of `extent` that lies on `member`, as a range there; empty if none does.
    pub(super) fn part_on(self, member: usize, extent: Extent) -> Extent {
        let start = self.sectors_before(member as u64, extent.start().0);
        let end = self.sectors_before(member as u64, extent.end().0);
        range(start, end - start)
    }

    /// The sectors of `member` that lie before this sector of the stripe.
    fn sectors_before(self, member: u64, sector: u64) -> u64 {
        let row_sectors = self.chunk_sectors * self.members;
        let (rows, in_row) = (sector / row_sectors, sector % row_sectors);
        let in_chunk = in_row.saturating_sub(member * self.chunk_sectors).min(self.chunk_sectors);
        rows * self.chunk_sectors + in_chunk
    }
}

fn range(start: u64, sectors: u64) -> Extent {
    Extent::new(Sector(start), sectors).expect("a member ends before the stripe does")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_lie_as_in_the_drawing() {
        let map = Map::new(8, 3);
        for (start, member, on_member) in [(0, 0, 0), (8, 1, 0), (16, 2, 0), (24, 0, 8), (35, 1, 11)] {
            let (found, part) = map.first_part(range(start, 1));
            assert_eq!((found, part), (member, range(on_member, 1)), "sector {start}");
        }
    }

    #[test]
    fn a_part_ends_with_its_chunk() {
        assert_eq!(Map::new(8, 2).first_part(range(13, 100)), (1, range(5, 3)));
        assert_eq!(Map::new(8, 2).first_part(range(13, 2)), (1, range(5, 2)));
    }

    #[test]
    fn parts_by_chunk_and_by_member_are_the_same_sectors() {
        for (chunk, members) in [(1, 1), (8, 1), (1, 3), (5, 2), (8, 4)] {
            let map = Map::new(chunk, members);
            for (start, sectors) in (0..50).flat_map(|start| (1..60).map(move |sectors| (start, sectors))) {
                let mut joined = vec![None::<Extent>; members];
                let mut rest = range(start, sectors);
                while !rest.is_empty() {
                    let (member, part) = map.first_part(rest);
                    joined[member] = Some(joined[member].map_or(part, |before| {
                        before.join(part).expect("consecutive chunks on a member are adjacent")
                    }));
                    rest = rest.split_at(part.sectors()).1;
                }
                for (member, joined) in joined.into_iter().enumerate() {
                    let part = map.part_on(member, range(start, sectors));
                    assert_eq!(part.sectors(), joined.map_or(0, Extent::sectors));
                    assert!(joined.is_none_or(|joined| joined == part), "{joined:?} and {part:?}");
                }
            }
        }
    }

    #[test]
    fn the_last_sector_number_is_mapped() {
        let last = range(Sector::MAX.0 - 1, 1);
        let (member, part) = Map::new(1 << 40, 7).first_part(last);
        assert_eq!(Map::new(1 << 40, 7).part_on(member, last), part);
    }
}
