//! The location of a sector (zone, cylinder, track and angle), and the time of rotation from one sector to another.
//! Seek times are in `seek.rs`.
//!
//! Sectors are in cylinder order: all tracks of a cylinder, then the next cylinder inwards. Each track begins at a
//! later angle than the previous track. The difference, the skew, is the time of the switch, so a transfer that crosses
//! tracks loses no turn. Therefore one number describes the position of a sector: the number of turns that a transfer
//! from the start of the disk takes to reach it. The fraction of this number is the angle, and the difference of two
//! such numbers is a duration.

use crate::divisor::Divisor;
use crate::mechanism::Nanos;

/// Turns in units of 2^-32. The lower half is the angle.
pub(crate) type Turns = u64;

/// One turn.
pub(crate) const TURN: Turns = 1 << 32;

/// The number of equal parts of the disk. A table has the ring of each part.
const PARTS: u64 = 256;

/// A ring of cylinders with the same number of sectors on each track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Zone {
    pub(crate) cylinders: u32,
    pub(crate) sectors_per_track: u32,
}

/// The sectors of a track, and their location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Track {
    pub(crate) first: u64,
    end: u64,
    /// The track number, counted from the outermost cylinder over all heads.
    pub(crate) number: u32,
    pub(crate) cylinder: u32,
    /// The turns from the start of the disk to its first sector.
    turns: Turns,
    /// The width of a sector.
    sector: Divisor,
}

impl Track {
    pub(crate) const fn contains(&self, sector: u64) -> bool {
        self.first <= sector && sector < self.end
    }

    /// The turns up to the start of a sector of the track, or up to the end of its last sector.
    pub(crate) const fn turns_to(&self, sector: u64) -> Turns {
        self.turns + (sector - self.first) * self.sector.get()
    }

    /// The sector at `turns`, if it is on this track.
    pub(crate) const fn sector_at(&self, turns: Turns) -> Option<u64> {
        let sector = self.first + self.sector.div(turns - self.turns);
        if sector < self.end { Some(sector) } else { None }
    }
}

#[derive(Debug, Clone)]
struct Ring {
    first_sector: u64,
    first_cylinder: u32,
    turns: Turns,
    sectors_per_track: Divisor,
    /// The width of a sector.
    sector: Divisor,
}

/// The layout of a disk, outermost zone first.
#[derive(Debug, Clone)]
pub(crate) struct Geometry {
    rings: Vec<Ring>,
    /// The ring of the first sector of each of [`PARTS`] equal parts of the disk, then the last ring. Most parts lie in
    /// one ring, so the ring of a sector is found without a search.
    parts: Vec<u32>,
    /// The logarithm of the sectors of a part.
    part_shift: u32,
    heads: Divisor,
    period: Divisor,
    /// 2^60 / `period`, to compute turns without a division.
    per_period: u64,
    /// The turns of a track and of the skew to the next track of its cylinder.
    track: Divisor,
    /// The turns of all tracks of a cylinder and of the skew to the next cylinder.
    cylinder: Divisor,
    sectors: u64,
    cylinders: u32,
}

impl Geometry {
    /// `period` is the time of a turn. A switch takes at most one turn.
    pub(crate) fn new(
        zones: &[Zone],
        heads: u32,
        period: Nanos,
        head_switch: Nanos,
        cylinder_switch: Nanos,
    ) -> Self {
        let skew =
            |switch: Nanos| (u128::from(switch) * u128::from(TURN)).div_ceil(u128::from(period)) as Turns;
        let track = TURN + skew(head_switch);
        let cylinder = track * u64::from(heads - 1) + TURN + skew(cylinder_switch);
        let mut rings = Vec::new();
        let mut sectors = 0;
        let mut cylinders = 0;
        let mut turns = 0;
        for zone in zones {
            rings.push(Ring {
                first_sector: sectors,
                first_cylinder: cylinders,
                turns,
                sectors_per_track: Divisor::new(zone.sectors_per_track.into()),
                sector: Divisor::new(TURN / u64::from(zone.sectors_per_track)),
            });
            sectors += u64::from(zone.cylinders) * u64::from(heads) * u64::from(zone.sectors_per_track);
            turns += u64::from(zone.cylinders) * cylinder;
            cylinders += zone.cylinders;
        }
        let per_period = (1 << 60) / period;
        let part_shift = (sectors / PARTS).checked_ilog2().map_or(0, |log| log + 1);
        let ring_at = |sector| rings.partition_point(|ring: &Ring| ring.first_sector <= sector) - 1;
        let parts = (0..=PARTS).map(|part| ring_at(part << part_shift) as u32).collect();
        let [heads, period] = [u64::from(heads), period].map(Divisor::new);
        let [track, cylinder] = [track, cylinder].map(Divisor::new);
        Self { rings, parts, part_shift, heads, period, per_period, track, cylinder, sectors, cylinders }
    }

    pub(crate) const fn sectors(&self) -> u64 {
        self.sectors
    }

    pub(crate) const fn cylinders(&self) -> u32 {
        self.cylinders
    }

    /// The track of a sector of the disk.
    pub(crate) fn track(&self, sector: u64) -> Track {
        let part = (sector >> self.part_shift) as usize;
        let [first, last] = [part, part + 1].map(|part| self.parts[part] as usize);
        let further = &self.rings[first + 1..=last];
        let ring = &self.rings[first + further.partition_point(|ring| ring.first_sector <= sector)];
        let tracks = ring.sectors_per_track.div(sector - ring.first_sector);
        let (cylinder, head) = self.heads.div_rem(tracks);
        let per_track = ring.sectors_per_track.get();
        let first = ring.first_sector + tracks * per_track;
        let cylinders = ring.first_cylinder + cylinder as u32;
        Track {
            first,
            end: first + per_track,
            number: cylinders * self.heads.get() as u32 + head as u32,
            cylinder: cylinders,
            turns: ring.turns + cylinder * self.cylinder.get() + head * self.track.get(),
            sector: ring.sector,
        }
    }

    /// The first sector that does not end before `turns`. A transfer that has reached `turns` has transferred all
    /// earlier sectors.
    pub(crate) fn sector_at(&self, turns: Turns) -> u64 {
        let at = self.rings.partition_point(|ring| ring.turns <= turns) - 1;
        let ring = &self.rings[at];
        let rest = turns - ring.turns;
        let (cylinder, rest) = self.cylinder.div_rem(rest);
        let head = self.track.div(rest).min(self.heads.get() - 1);
        let sector = ring.sector.div(rest - head * self.track.get()).min(ring.sectors_per_track.get());
        let tracks = cylinder * self.heads.get() + head;
        let end = self.rings.get(at + 1).map_or(self.sectors, |next| next.first_sector);
        (ring.first_sector + tracks * ring.sectors_per_track.get() + sector).min(end)
    }

    /// The time of `turns` turns.
    pub(crate) const fn time(&self, turns: Turns) -> Nanos {
        ((turns as u128 * self.period.get() as u128) >> 32) as Nanos
    }

    /// The turns of the disk in `time`.
    pub(crate) const fn turns(&self, time: Nanos) -> Turns {
        ((time as u128 * self.per_period as u128) >> 28) as Turns
    }

    /// Does the same as [`Geometry::turns`], for a time below 4 s, without 128-bit arithmetic.
    pub(crate) const fn turns_of_seek(&self, time: u32) -> Turns {
        (time as u64 * (self.per_period >> 28)) + ((time as u64 * (self.per_period & 0xFFF_FFFF)) >> 28)
    }

    /// The angle under the heads at a time.
    pub(crate) const fn angle(&self, at: Nanos) -> u32 {
        self.turns(self.period.rem(at)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Nanos = 10_000_000;

    fn geometry() -> Geometry {
        let zones =
            [Zone { cylinders: 100, sectors_per_track: 500 }, Zone { cylinders: 50, sectors_per_track: 250 }];
        Geometry::new(&zones, 4, PERIOD, 1_000_000, 1_500_000)
    }

    #[test]
    fn sectors_fill_tracks_then_cylinders_then_zones() {
        let disk = geometry();
        assert_eq!((disk.sectors(), disk.cylinders()), (100 * 4 * 500 + 50 * 4 * 250, 150));
        let place = |sector| (disk.track(sector).number, disk.track(sector).cylinder);
        assert_eq!(place(0), (0, 0));
        assert_eq!(place(499), (0, 0));
        assert_eq!(place(500), (1, 0));
        assert_eq!(place(2000), (4, 1));
        assert_eq!(place(200_000), (400, 100));
        assert_eq!(place(200_250), (401, 100));
        assert_eq!(place(disk.sectors() - 1), (599, 149));
    }

    #[test]
    fn a_track_takes_a_turn_and_the_switch_to_the_next() {
        let disk = geometry();
        let turns = |sector| disk.track(sector).turns_to(sector);
        let time = |from, to| disk.time(turns(to) - turns(from));
        let near =
            |time: Nanos, wanted: Nanos| assert!(time.abs_diff(wanted) < 10, "{time} instead of {wanted}");
        near(time(0, 250), PERIOD / 2);
        near(time(0, 500), PERIOD + 1_000_000);
        near(time(0, 2000), 4 * PERIOD + 3 * 1_000_000 + 1_500_000);
        near(time(199_500, 200_000), PERIOD + 1_500_000);
        assert!(disk.track(499).turns_to(500) <= TURN);
    }

    #[test]
    fn the_sector_at_the_turns_to_a_sector_is_that_sector() {
        let disk = geometry();
        for sector in [0, 1, 499, 500, 1999, 2000, 150_001, 199_999, 200_000, 200_251, 249_999] {
            let track = disk.track(sector);
            assert!(track.contains(sector) && !track.contains(sector + 500));
            for turns in [track.turns_to(sector), track.turns_to(sector) + 1] {
                assert_eq!((disk.sector_at(turns), track.sector_at(turns)), (sector, Some(sector)));
            }
            assert_eq!(disk.sector_at(track.turns_to(sector + 1)), sector + 1);
        }
        assert_eq!(disk.track(499).sector_at(disk.track(499).turns_to(500)), None);
        assert_eq!(disk.sector_at(u64::MAX >> 1), disk.sectors());
    }

    #[test]
    fn the_angle_repeats_with_each_turn() {
        let disk = geometry();
        assert_eq!(disk.angle(0), 0);
        let quarter = disk.angle(PERIOD / 4);
        assert!(quarter.abs_diff(1 << 30) < 16 && disk.angle(7 * PERIOD + PERIOD / 4) == quarter);
        assert_eq!(disk.time(disk.turns(12_345_678)) / 10, 1_234_567);
        assert!(disk.turns_of_seek(12_345_678).abs_diff(disk.turns(12_345_678)) <= 1);
    }
}
