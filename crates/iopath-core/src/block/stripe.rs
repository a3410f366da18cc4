//! RAID 0: one device whose chunks are distributed over several members, round robin.
//!
//! Splits requests into parts, one or more for each member, and completes them when their parts have completed. The
//! queue of each member splits parts to the member's limits, merges them, and retries when the member is busy. No
//! redundancy: the loss of a member loses data. Geometry: `stripe/map.rs`. Limits: `stripe/limits.rs`.

mod limits;
mod map;

use crate::block::bio::{Bio, Op};
use crate::block::device::{BlockDevice, Busy, Completion, Io};
use crate::block::elevator::ElevatorSpec;
use crate::block::limits::Limits;
use crate::block::log::LogSink;
use crate::block::queue::{QueueConfig, QueueStats};
use crate::block::queued::QueuedDevice;
use crate::block::request::Tag;
use crate::error::IoError;
use crate::memory::Memory;
use crate::sector::{Extent, SECTOR_SHIFT};
use crate::time::Instant;
use map::Map;
use std::collections::VecDeque;
use std::fmt;

/// The layout of a [`Stripe`].
#[derive(Debug, Clone)]
pub struct StripeConfig {
    /// Consecutive sectors on one member: whole blocks of every member. The default is 512 KiB, as in `mdadm`.
    pub chunk_sectors: u64,
    /// The elevator of each member's queue and its settings.
    pub elevator: ElevatorSpec,
    /// Whether adjacent parts merge in the queue of their member until [`BlockDevice::commit`]. If not, the stripe cuts
    /// requests as the device mapper of Linux 2.6: the whole segments of a request in one chunk are a request to the
    /// member, each part of a segment that a chunk cuts is another, and all of them go to the member at once.
    pub merges_parts: bool,
}

impl Default for StripeConfig {
    fn default() -> Self {
        Self { chunk_sectors: 1024, elevator: ElevatorSpec::default(), merges_parts: true }
    }
}

impl StripeConfig {
    /// The limits of a stripe whose members have the limits `members`.
    pub fn limits(&self, members: &[&Limits]) -> Result<Limits, StripeError> {
        limits::derive(members, self)
    }
}

/// The members cannot form a stripe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StripeError {
    /// There are no members.
    #[error("a stripe needs at least one member")]
    NoMembers,
    /// Requests would be cut inside a logical block.
    #[error(
        "a chunk of {chunk_sectors} sectors is not whole blocks of {block_bytes} bytes; choose a multiple"
    )]
    Chunk {
        /// The requested chunk.
        chunk_sectors: u64,
        /// The largest logical block of a member.
        block_bytes: u32,
    },
    /// A member is smaller than one chunk.
    #[error(
        "member {member} has {capacity} sectors, less than a chunk of {chunk_sectors}; \
         choose a smaller chunk or a larger member"
    )]
    MemberTooSmall {
        /// Its index, from 0.
        member: usize,
        /// Its size in sectors.
        capacity: u64,
        /// The requested chunk.
        chunk_sectors: u64,
    },
    /// The stripe would exceed the highest sector number.
    #[error("{members} members of {capacity} sectors exceed the highest sector number; use fewer")]
    TooLarge {
        /// The number of members.
        members: usize,
        /// The size of the smallest member in sectors.
        capacity: u64,
    },
}

/// One device made of several members; chunk `c` lies on member `c` modulo their number. RAID 0.
///
/// Each member has a queue of its own, plugged from its first part until [`BlockDevice::commit`]. Adjacent parts on a
/// member merge, so a sequential stream reaches the members as large requests at every chunk size. Parts with forced
/// unit access never merge.
///
/// A request completes when all its parts have, with the first error. A flush goes to every member. Members may be
/// stripes. Nothing is allocated for an I/O.
///
/// ```
/// use iopath_core::{BlockDevice, Instant, Stripe, StripeConfig};
/// # use iopath_core::{Busy, Completion, Io, LengthOnly, Limits};
/// # struct Disk(Limits);
/// # impl Disk { fn new(sectors: u64) -> Self { Self(Limits::with_capacity(sectors)) } }
/// # impl BlockDevice for Disk {
/// #     type Memory = LengthOnly;
/// #     fn limits(&self) -> &Limits { &self.0 }
/// #     fn submit(&mut self, io: &Io<'_, LengthOnly>, _: Instant) -> Result<(), Busy> { Err(Busy { tag: io.tag }) }
/// #     fn commit(&mut self, _: Instant) {}
/// #     fn poll_completion(&mut self, _: Instant) -> Option<Completion> { None }
/// # }
///
/// let config = StripeConfig { chunk_sectors: 128, ..StripeConfig::default() };
/// let stripe = Stripe::new(vec![Disk::new(10_000), Disk::new(9_999)], &config)?;
/// assert_eq!(stripe.limits().capacity, 2 * 9_984);
/// # Ok::<(), iopath_core::StripeError>(())
/// ```
pub struct Stripe<D: BlockDevice> {
    limits: Limits,
    map: Map,
    merges_parts: bool,
    members: Box<[Member<D>]>,
    /// The size of each member's queue, in bios.
    bios_max: u32,
    in_flight: Box<[InFlight]>,
    /// Unused entries of `in_flight`.
    free: Vec<u32>,
    completed: VecDeque<Completion>,
}

impl<D: BlockDevice> fmt::Debug for Stripe<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stripe")
            .field("members", &self.members.len())
            .field("in_flight", &(self.in_flight.len() - self.free.len()))
            .field("completed", &self.completed.len())
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Member<D: BlockDevice> {
    pump: QueuedDevice<D>,
    /// In [`Stripe::parts_if_room`]: the number of bios that the request has for this member.
    needs: u32,
}

/// A request with parts in flight.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    tag: Tag,
    parts: u32,
    error: Option<IoError>,
}

impl<D: BlockDevice> Stripe<D> {
    /// A stripe of `members`, in that order.
    pub fn new(members: Vec<D>, config: &StripeConfig) -> Result<Self, StripeError> {
        let of_members: Vec<&Limits> = members.iter().map(BlockDevice::limits).collect();
        let limits = limits::derive(&of_members, config)?;
        let bios_max = bios_max(&limits, of_members.len() as u64, config.chunk_sectors);
        let map = Map::new(config.chunk_sectors, members.len());
        let members = members
            .into_iter()
            .map(|device| Member::new(device, bios_max, config.elevator.clone()))
            .collect();
        let depth = limits.depth_max;
        let idle = InFlight { tag: Tag::from_bits(0), parts: 0, error: None };
        Ok(Self {
            limits,
            map,
            merges_parts: config.merges_parts,
            members,
            bios_max,
            in_flight: vec![idle; depth as usize].into(),
            free: (0..depth).rev().collect(),
            completed: VecDeque::with_capacity(depth as usize),
        })
    }

    /// The members, in order.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &D> {
        self.members.iter().map(|member| member.pump.device())
    }

    /// The members, in order, to wait in them or configure them. Their completions belong to the stripe.
    pub fn members_mut(&mut self) -> impl ExactSizeIterator<Item = &mut D> {
        self.members.iter_mut().map(|member| member.pump.device_mut())
    }

    /// Records every later step of a member's queue in `sink`.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn start_log(&mut self, member: usize, sink: Box<dyn LogSink>) {
        self.members[member].pump.queue_mut().start_log(sink);
    }

    /// Requests submitted and not yet returned by [`BlockDevice::poll_completion`].
    pub fn in_flight(&self) -> u32 {
        (self.in_flight.len() - self.free.len() + self.completed.len()) as u32
    }

    /// Collects completions of the members and dispatches further requests to them. Returns the number of requests
    /// ready for [`BlockDevice::poll_completion`].
    pub fn advance(&mut self, now: Instant) -> u32 {
        self.advance_members(now);
        self.ready()
    }

    /// Requests ready for [`BlockDevice::poll_completion`], as of the last call.
    pub fn ready(&self) -> u32 {
        self.completed.len() as u32
    }

    /// The statistics of the members' queues, in the order of the members.
    pub fn queue_stats(&self) -> impl ExactSizeIterator<Item = &QueueStats> {
        self.members.iter().map(|member| member.pump.queue().stats())
    }

    /// The number of parts of `io`; `None` if the queue of any member lacks room for the parts on that member.
    fn parts_if_room(&mut self, io: &Io<'_, D::Memory>) -> Option<u32> {
        self.members.iter_mut().for_each(|member| member.needs = 0);
        let mut parts = 0;
        let map = self.map;
        let members = &mut self.members;
        split(map, io, members.len(), |member, _, _| {
            members[member].needs += 1;
            parts += 1;
        });
        let has_room = |member: &Member<D>| member.needs <= self.bios_max - member.pump.queue().bios_in();
        self.members.iter().all(has_room).then_some(parts)
    }

    fn advance_members(&mut self, now: Instant) {
        for member in self.members.iter_mut().filter(|member| member.pump.queue().bios_in() > 0) {
            member.pump.collect(now);
            while let Some(done) = member.pump.poll_completion() {
                let slot = done.token as u32;
                let whole = &mut self.in_flight[slot as usize];
                whole.parts -= 1;
                whole.error = whole.error.or(done.result.err());
                if whole.parts == 0 {
                    let result = whole.error.map_or(Ok(()), Err);
                    self.completed.push_back(Completion { tag: whole.tag, result });
                    self.free.push(slot);
                }
            }
            member.pump.dispatch(now);
            member.pump.commit(now);
        }
    }
}

impl<D: BlockDevice> BlockDevice for Stripe<D> {
    type Memory = D::Memory;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    /// # Panics
    /// If the request violates the limits, or a segment is not whole blocks: a bug of the caller.
    fn submit(&mut self, io: &Io<'_, D::Memory>, now: Instant) -> Result<(), Busy> {
        check(&self.limits, io);
        let busy = Busy { tag: io.tag };
        let parts = self.parts_if_room(io).ok_or(busy)?;
        let slot = self.free.pop().ok_or(busy)?;
        self.in_flight[slot as usize] = InFlight { tag: io.tag, parts, error: None };
        let Self { map, members, merges_parts, .. } = self;
        // The member with parts that may still grow, and the end of the last.
        let mut open: Option<usize> = None;
        split(*map, io, members.len(), |member, bio, is_cut| {
            if let Some(before) = open.take_if(|before| *before != member || is_cut) {
                members[before].start(now);
            }
            members[member].submit(Bio { token: slot.into(), ..bio }, now);
            if is_cut && !*merges_parts {
                members[member].start(now);
            } else if !*merges_parts {
                open = Some(member);
            }
        });
        if let Some(last) = open {
            members[last].start(now);
        }
        Ok(())
    }

    fn commit(&mut self, now: Instant) {
        for member in &mut self.members {
            member.start(now);
        }
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        if self.completed.is_empty() {
            self.advance_members(now);
        }
        self.completed.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.members.iter().filter_map(|member| member.pump.poll_timeout()).min()
    }
}

impl<D: BlockDevice> Member<D> {
    fn new(device: D, bios_max: u32, elevator: ElevatorSpec) -> Self {
        let depth = device.limits().depth_max;
        let config = QueueConfig {
            bios_max,
            // The queue orders and merges as many requests as are at the device.
            requests_max: depth.saturating_mul(2).min(bios_max),
            depth: depth.min(bios_max),
            elevator,
            ..QueueConfig::default()
        };
        Self { pump: QueuedDevice::new(device, &config), needs: 0 }
    }

    fn start(&mut self, now: Instant) {
        self.pump.unplug(now);
        self.pump.dispatch(now);
        self.pump.commit(now);
    }

    fn submit(&mut self, bio: Bio<D::Memory>, now: Instant) {
        if let Err(refused) = self.pump.submit_bio(bio, now) {
            panic!("a member's queue refuses a part that fits its limits: {refused}");
        }
    }
}

/// The size of a member's queue: room for all parts of one request, and for twice as many small requests as the member
/// has in flight. Without room the stripe is busy; an idle stripe has room for any request.
fn bios_max(limits: &Limits, members: u64, chunk_sectors: u64) -> u32 {
    // A request that starts inside a chunk touches one more. Each segment may end inside a chunk.
    let chunks = limits.sectors_max(Op::Read) / chunk_sectors / members + 1;
    let of_one_request = chunks + u64::from(limits.segments_max);
    (of_one_request + u64::from(limits.depth_max).div_ceil(members) * 2) as u32
}

/// Splits `io`: calls `each` with the member and the bio of every part, and whether the part is a piece of a segment
/// that a chunk cuts. With memory there is a part for each piece of memory in one chunk, without memory one for each
/// member.
fn split<M: Memory>(map: Map, io: &Io<'_, M>, members: usize, mut each: impl FnMut(usize, Bio<M>, bool)) {
    let Io { op, fua, stream, priority, .. } = *io;
    let bio = |extent, memory| Bio { op, extent, memory, fua, stream, priority, token: 0 };
    if io.op == Op::Flush {
        (0..members).for_each(|member| each(member, bio(Extent::EMPTY, None), false));
        return;
    }
    if !io.op.has_memory() {
        let parts = (0..members).map(|member| (member, map.part_on(member, io.extent)));
        parts
            .filter(|(_, part)| !part.is_empty())
            .for_each(|(member, part)| each(member, bio(part, None), false));
        return;
    }
    let mut rest = io.extent;
    for segment in io.segments() {
        let mut offset = 0;
        while offset < segment.bytes() {
            let (of_segment, _) = rest.split_at((segment.bytes() - offset) >> SECTOR_SHIFT);
            let (member, part) = map.first_part(of_segment);
            assert!(!part.is_empty(), "{segment:?} of a request is not whole sectors");
            each(
                member,
                bio(part, Some(segment.slice(offset, part.bytes()))),
                part.bytes() < segment.bytes(),
            );
            offset += part.bytes();
            (_, rest) = rest.split_at(part.sectors());
        }
    }
    assert!(
        rest.is_empty(),
        "{} of {} has no memory for its last {} sectors",
        io.op,
        io.extent,
        rest.sectors()
    );
}

fn check<M: Memory>(limits: &Limits, io: &Io<'_, M>) {
    let Io { op, extent, .. } = *io;
    let within = !extent.is_empty() && extent.end().0 <= limits.capacity && limits.fits(op, extent);
    assert!(op == Op::Flush || within, "{op} of {extent} violates the stripe's {limits:?}");
}
