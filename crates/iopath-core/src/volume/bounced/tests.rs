//! Bounced reads and writes against a model of the bytes: every small range, and every interleaving of a few writers.

use super::*;
use crate::volume::{CacheUse, LockKind, RangeLocks, Ticket, Wake};
use std::collections::HashSet;

const BLOCK: usize = 4;
/// Two blocks, so that most ranges have several pieces.
const BUFFER: usize = 8;

const SHAPE: VolumeShape = VolumeShape {
    block_bytes: BLOCK as u32,
    memory_align_bytes: 8,
    page_bytes: 8,
    cache: CacheUse::None,
    bounces: true,
    is_writable: true,
    cuts_off_at_end: true,
    writes_last_block: false,
    is_resizable: true,
    extends: false,
};

/// The bytes of a volume, and of the rest of its last block.
fn disk(size: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (1..=size as u8).collect();
    bytes.resize(size.next_multiple_of(BLOCK), 0);
    bytes
}

#[test]
fn every_small_read_returns_the_bytes_before_the_end() {
    for (size, offset, len) in
        (0..22).flat_map(|size| (0..24).flat_map(move |at| (0..24).map(move |len| (size, at, len))))
    {
        let disk = disk(size);
        let mut read = BouncedRead::new(&SHAPE, offset as u64, len, BUFFER, size as u64).unwrap();
        let (mut buffer, mut found) = ([0xEE; BUFFER], vec![0; len]);
        let bytes = loop {
            match read.poll() {
                ReadStep::Read { offset, bytes } => {
                    let start = offset as usize;
                    assert!(
                        start < size
                            && start.is_multiple_of(BLOCK)
                            && bytes.is_multiple_of(BLOCK)
                            && bytes <= BUFFER
                    );
                    buffer[..bytes].copy_from_slice(&disk[start..start + bytes]);
                    read.handle_read(bytes.min(size - start));
                }
                ReadStep::Copy { from, to } => {
                    found[to.clone()].copy_from_slice(&buffer[from..from + to.len()]);
                    read.handle_copied();
                }
                ReadStep::Done(bytes) => break bytes,
            }
        };
        assert_eq!(bytes, size.saturating_sub(offset).min(len), "{len} bytes at {offset} of {size}");
        assert_eq!(found[..bytes], disk[offset.min(size)..offset.min(size) + bytes]);
    }
}

#[test]
fn a_read_ends_where_the_end_has_moved_to() {
    let mut read = BouncedRead::new(&SHAPE, 2, 20, BUFFER, 40).unwrap();
    assert_eq!(read.poll(), ReadStep::Read { offset: 0, bytes: 8 });
    read.handle_read(8);
    assert_eq!(read.poll(), ReadStep::Copy { from: 2, to: 0..6 });
    read.handle_copied();
    assert_eq!(read.poll(), ReadStep::Read { offset: 8, bytes: 8 });
    // The volume ends at byte 11 now.
    read.handle_read(3);
    assert_eq!(read.poll(), ReadStep::Copy { from: 0, to: 6..9 });
    read.handle_copied();
    assert_eq!(read.poll(), ReadStep::Read { offset: 8, bytes: 8 });
    read.handle_read(3);
    assert_eq!(read.poll(), ReadStep::Done(9));
}

/// Executes a step of a write on these bytes.
fn execute(step: &WriteStep, disk: &mut [u8], buffer: &mut [u8], source: &[u8]) {
    match step {
        WriteStep::Read { offset, at } => {
            let start = *offset as usize;
            buffer[at.clone()].copy_from_slice(&disk[start..start + at.len()]);
        }
        WriteStep::Copy { from, to } => {
            buffer[*to..to + from.len()].copy_from_slice(&source[from.clone()]);
        }
        WriteStep::Write { offset, bytes } => {
            let start = *offset as usize;
            disk[start..start + bytes].copy_from_slice(&buffer[..*bytes]);
        }
        WriteStep::WriteTail { offset, at } => {
            let start = *offset as usize;
            disk[start..start + at.len()].copy_from_slice(&buffer[at.clone()]);
        }
        WriteStep::Lock(_) | WriteStep::Flush | WriteStep::Done => {}
    }
}

#[test]
fn every_small_write_changes_its_bytes_and_no_others() {
    for (size, offset, len) in
        (0..22).flat_map(|size| (0..24).flat_map(move |at| (0..24).map(move |len| (size, at, len))))
    {
        for (writes_last_block, is_forced) in [(false, false), (true, true)] {
            let shape = VolumeShape { writes_last_block, ..SHAPE };
            let mut write = BouncedWrite::new(&shape, offset as u64, len, BUFFER, is_forced).unwrap();
            let WriteStep::Lock(range) = write.poll() else { panic!("{write:?} does not lock first") };
            assert_eq!(range, shape.lock_range(offset as u64, len as u64));
            let locked = write.handle_locked(size as u64);
            if offset + len > size {
                assert_eq!(locked, Err(CheckError::PastEnd { size_bytes: size as u64 }));
                continue;
            }
            locked.unwrap();
            let source: Vec<u8> = (100..100 + len as u8).collect();
            let (mut disk, mut expected) = (disk(size), disk(size));
            expected[offset..offset + len].copy_from_slice(&source);
            let (mut buffer, mut flushes, mut read) = ([0xEE; BUFFER], 0, Vec::new());
            loop {
                let step = write.poll();
                match &step {
                    WriteStep::Done => break,
                    WriteStep::Flush => flushes += 1,
                    WriteStep::Read { offset: at, .. } => read.push(*at as usize),
                    WriteStep::Write { offset, bytes } => {
                        assert!(offset % BLOCK as u64 == 0 && bytes % BLOCK == 0);
                        let end = *offset as usize + bytes;
                        assert!(writes_last_block || end <= size, "the write would extend a file");
                    }
                    WriteStep::WriteTail { offset, at } => {
                        let end = *offset as usize + at.len();
                        assert!(
                            !writes_last_block && *offset as usize >= size / BLOCK * BLOCK && end <= size
                        );
                    }
                    WriteStep::Copy { .. } | WriteStep::Lock(_) => {}
                }
                execute(&step, &mut disk, &mut buffer, &source);
                write.handle_done();
            }
            assert_eq!(disk, expected, "{len} bytes at {offset} of {size}");
            assert_eq!(flushes, i32::from(is_forced));
            // Only a block of which a part is written is read, once.
            let end = offset + len;
            let whole_end =
                if writes_last_block { size.next_multiple_of(BLOCK) } else { size / BLOCK * BLOCK };
            let mut parts = vec![];
            if offset % BLOCK != 0 && len > 0 {
                parts.push(offset / BLOCK * BLOCK);
            }
            if end % BLOCK != 0 && len > 0 && !parts.contains(&(end / BLOCK * BLOCK)) {
                parts.push(end / BLOCK * BLOCK);
            }
            parts.retain(|start| start + BLOCK <= whole_end);
            assert_eq!(read, parts, "{len} bytes at {offset} of {size}");
        }
    }
}

#[test]
fn a_read_only_volume_begins_no_write() {
    let shape = VolumeShape { is_writable: false, ..SHAPE };
    assert_eq!(BouncedWrite::new(&shape, 0, 1, BUFFER, false), Err(CheckError::ReadOnly));
    assert_eq!(shape.check_bounced(true, 0, 1, 8), Err(CheckError::ReadOnly));
    let raw = VolumeShape { cuts_off_at_end: false, ..SHAPE };
    assert_eq!(BouncedRead::new(&raw, 5, 4, BUFFER, 8), Err(CheckError::PastEnd { size_bytes: 8 }));
}

#[test]
fn a_batch_copies_only_what_is_unaligned_and_defers_what_needs_several_steps() {
    let route = |shape: VolumeShape, is_write, offset, bytes, address| {
        shape.batch_route(is_write, offset, bytes, address, 1000)
    };
    assert_eq!(route(SHAPE, true, 4, 8, 64), BatchRoute::Own);
    assert_eq!(route(SHAPE, false, 4, 8, 64), BatchRoute::Own);
    let copy = |start, skip, blocks_bytes| BatchRoute::Copy { start, skip, blocks_bytes };
    assert_eq!(route(SHAPE, true, 4, 8, 65), copy(4, 0, 8));
    assert_eq!(route(SHAPE, false, 5, 8, 64), copy(4, 1, 12));
    assert_eq!(route(SHAPE, false, 998, 8, 64), copy(996, 2, 12), "cut off at the end");
    assert_eq!(route(SHAPE, true, 5, 8, 64), BatchRoute::Now);
    assert_eq!(route(SHAPE, true, 4, 7, 64), BatchRoute::Now);
    let raw = VolumeShape { cuts_off_at_end: false, ..SHAPE };
    assert_eq!(raw.batch_route(false, 5, 5, 64, 12), copy(4, 1, 8));
    assert_eq!(raw.batch_route(false, 5, 5, 64, 11), BatchRoute::Now);
    assert_eq!(route(SHAPE, false, 1, u64::MAX, 64), copy(0, 1, u64::MAX));
    assert!(SHAPE.batch_bounces() && !VolumeShape { cache: CacheUse::All, ..SHAPE }.batch_bounces());
}

/// A writer, or a resize.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Actor {
    what: What,
    state: State,
    is_ok: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum What {
    Write {
        write: BouncedWrite,
        buffer: [u8; BUFFER],
        byte: u8,
    },
    /// An aligned write, which locks its range, and copies nothing.
    Aligned {
        blocks: Range<usize>,
        byte: u8,
    },
    Resize {
        size: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    Begins,
    Waits(Ticket),
    Woken(Ticket),
    Locked,
    /// Its I/O is at the device.
    InFlight,
    Over,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    disk: Vec<u8>,
    size: usize,
    locks: RangeLocks,
    actors: Vec<Actor>,
}

impl World {
    fn range(&self, number: usize) -> Range<u64> {
        match &self.actors[number].what {
            What::Write { write, .. } => write.lock_range(),
            What::Aligned { blocks, .. } => SHAPE.lock_range(blocks.start as u64, blocks.len() as u64),
            // The size cannot change while it waits: resizes exclude each other.
            What::Resize { size } => SHAPE.lock_range((*size).min(self.size) as u64, u64::MAX),
        }
    }

    fn step(&self, number: usize) -> Option<Self> {
        let mut next = self.clone();
        let range = self.range(number);
        let state = match self.actors[number].state {
            State::Begins if next.locks.try_lock(LockKind::Write, &range) => next.locked(number),
            State::Begins => State::Waits(next.locks.wait(LockKind::Write, range)),
            State::Woken(ticket) => match next.locks.try_waiting(ticket) {
                Some(_) => next.locked(number),
                None => State::Waits(ticket),
            },
            State::Locked => next.act(number),
            State::InFlight => next.complete(number),
            State::Waits(_) | State::Over => return None,
        };
        next.actors[number].state = state;
        if state == State::Over {
            let range = self.range(number);
            if next.locks.unlock(LockKind::Write, &range) == Wake::All {
                for actor in &mut next.actors {
                    if let State::Waits(ticket) = actor.state {
                        actor.state = State::Woken(ticket);
                    }
                }
            }
        }
        Some(next)
    }

    fn locked(&mut self, number: usize) -> State {
        let size = self.size as u64;
        let is_ok = match &mut self.actors[number].what {
            What::Write { write, .. } => write.handle_locked(size).is_ok(),
            What::Aligned { blocks, .. } => blocks.end as u64 <= size,
            What::Resize { .. } => true,
        };
        self.actors[number].is_ok = is_ok;
        State::Locked
    }

    /// Begins the next step.
    fn act(&mut self, number: usize) -> State {
        let actor = &mut self.actors[number];
        if !actor.is_ok {
            return State::Over;
        }
        match &mut actor.what {
            What::Write { write, buffer, byte } => match write.poll() {
                WriteStep::Done => return State::Over,
                step @ WriteStep::Copy { .. } => {
                    execute(&step, &mut [], buffer, &[*byte; 24]);
                    write.handle_done();
                    return State::Locked;
                }
                _ => {}
            },
            What::Resize { .. } | What::Aligned { .. } => {}
        }
        State::InFlight
    }

    /// The I/O ends.
    fn complete(&mut self, number: usize) -> State {
        let Self { disk, size, actors, .. } = self;
        match &mut actors[number].what {
            What::Write { write, buffer, byte } => {
                execute(&write.poll(), disk, buffer, &[*byte; 24]);
                write.handle_done();
                State::Locked
            }
            What::Aligned { blocks, byte } => {
                disk[blocks.clone()].fill(*byte);
                State::Over
            }
            What::Resize { size: new } => {
                disk[(*new).min(*size)..].fill(0);
                *size = *new;
                State::Over
            }
        }
    }

    /// The page that the I/O of an actor writes to, from its first byte on.
    fn writes(&self, number: usize) -> Option<Range<u64>> {
        let actor = &self.actors[number];
        (actor.state == State::InFlight).then_some(())?;
        let (start, bytes) = match &actor.what {
            What::Write { write, .. } => match write.poll() {
                WriteStep::Write { offset, bytes } => (offset, bytes as u64),
                WriteStep::WriteTail { offset, at } => (offset, at.len() as u64),
                _ => return None,
            },
            What::Aligned { blocks, .. } => (blocks.start as u64, blocks.len() as u64),
            What::Resize { size } => ((*size).min(self.size) as u64, u64::MAX),
        };
        Some(SHAPE.lock_range(start, bytes))
    }

    /// No two writes are at the device in one page.
    fn check(&self) {
        for one in 0..self.actors.len() {
            for other in 0..one {
                if let (Some(one), Some(other)) = (self.writes(one), self.writes(other)) {
                    assert!(one.start >= other.end || other.start >= one.end, "{self:?}");
                }
            }
        }
    }
}

fn writer(range: Range<usize>, byte: u8) -> Actor {
    let write = BouncedWrite::new(&SHAPE, range.start as u64, range.len(), BUFFER, false).unwrap();
    let what = What::Write { write, buffer: [0; BUFFER], byte };
    Actor { what, state: State::Begins, is_ok: false }
}

fn aligned(blocks: Range<usize>, byte: u8) -> Actor {
    Actor { what: What::Aligned { blocks, byte }, state: State::Begins, is_ok: false }
}

fn resize(size: usize) -> Actor {
    Actor { what: What::Resize { size }, state: State::Begins, is_ok: false }
}

/// Executes every interleaving, and returns the last states.
fn explore(size: usize, actors: Vec<Actor>) -> Vec<World> {
    let mut disk = disk(size);
    disk.resize(24, 0);
    let world = World { disk, size, locks: RangeLocks::default(), actors };
    let (mut seen, mut open, mut ends) = (HashSet::from([world.clone()]), vec![world], Vec::new());
    while let Some(world) = open.pop() {
        world.check();
        let next: Vec<_> = (0..world.actors.len()).filter_map(|number| world.step(number)).collect();
        if next.is_empty() {
            let is_over = world.actors.iter().all(|actor| actor.state == State::Over);
            assert!(is_over, "nobody can continue: {world:?}");
            ends.push(world);
        } else {
            open.extend(next.into_iter().filter(|next| seen.insert(next.clone())));
        }
    }
    ends
}

#[test]
fn writes_of_parts_of_one_block_are_all_kept_in_every_interleaving() {
    for (first, second) in [(1..3, 3..6), (2..11, 11..12), (0..1, 17..18), (6..9, 9..15), (13..17, 17..18)] {
        for end in [18, 20] {
            let actors =
                vec![writer(first.clone(), 0xA1), writer(second.clone(), 0xA2), aligned(20 - end..4, 0xA3)];
            let actors = if end == 20 { actors } else { actors[..2].to_vec() };
            let ends = explore(end, actors);
            for world in &ends {
                assert!(world.actors.iter().all(|actor| actor.is_ok));
                for (at, byte) in world.disk[..end].iter().enumerate() {
                    let old = at as u8 + 1;
                    let by = |range: &Range<usize>, new| if range.contains(&at) { new } else { old };
                    let writes = [by(&first, 0xA1), by(&second, 0xA2)];
                    let allowed: Vec<u8> = if end == 20 && at < 4 {
                        vec![writes[0], writes[1], 0xA3].into_iter().filter(|new| *new != old).collect()
                    } else {
                        writes.into_iter().filter(|new| *new != old).collect()
                    };
                    assert!(
                        allowed.contains(byte) || allowed.is_empty() && *byte == old,
                        "byte {at}: {world:?}"
                    );
                }
            }
            assert!(!ends.is_empty());
        }
    }
}

#[test]
fn a_resize_beside_writes_leaves_no_byte_past_the_end_in_any_interleaving() {
    for (size, new) in [(18, 10), (18, 6), (10, 18), (9, 24)] {
        let ends = explore(size, vec![writer(5..9, 0xA1), writer(9..10, 0xA2), resize(new)]);
        for world in &ends {
            assert_eq!(world.size, new);
            assert!(world.disk[new..].iter().all(|byte| *byte == 0), "bytes past the end: {world:?}");
            let [first, second] = [0, 1].map(|number: usize| world.actors[number].is_ok);
            assert!(first || new < 9, "refused inside the volume");
            assert!(second || new < 10 || size < 10);
            let end = new.min(size);
            let kept = |range: Range<usize>, byte| {
                world.disk[range.start.min(end)..range.end.min(end)].iter().all(|found| *found == byte)
            };
            assert!(!first || kept(5..9, 0xA1));
            assert!(!second || kept(9..10, 0xA2));
        }
    }
}
