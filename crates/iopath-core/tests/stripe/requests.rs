//! The requests to the members of a stripe: their sizes, number and members. Bytes are not checked here.

use iopath_core::{
    Bio, BlockDevice, Busy, Completion, Extent, Instant, Io, IoError, LengthOnly, Limits, Op, QueueConfig,
    RequestQueue, Sector, Stripe, StripeConfig, Tag,
};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// The requests to a member, and whether they had forced unit access.
type Requests = Rc<RefCell<Vec<(Op, Extent, bool)>>>;

/// Records its requests, and completes them at once.
struct Recorder {
    limits: Limits,
    asked: Requests,
    over: VecDeque<Tag>,
    result: Result<(), IoError>,
}

impl Recorder {
    fn new(limits: Limits, result: Result<(), IoError>) -> Self {
        Self { limits, asked: Requests::default(), over: VecDeque::new(), result }
    }
}

impl BlockDevice for Recorder {
    type Memory = LengthOnly;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, LengthOnly>, _now: Instant) -> Result<(), Busy> {
        self.asked.borrow_mut().push((io.op, io.extent, io.fua));
        self.over.push_back(io.tag);
        Ok(())
    }

    fn commit(&mut self, _now: Instant) {}

    fn poll_completion(&mut self, _now: Instant) -> Option<Completion> {
        Some(Completion { tag: self.over.pop_front()?, result: self.result })
    }
}

const CHUNK: u64 = 128;

struct Rig {
    stripe: Stripe<Recorder>,
    asked: Vec<Requests>,
}

impl Rig {
    fn new(limits: &Limits, results: [Result<(), IoError>; 4]) -> Self {
        let members: Vec<Recorder> =
            results.iter().map(|result| Recorder::new(limits.clone(), *result)).collect();
        let asked = members.iter().map(|member| Rc::clone(&member.asked)).collect();
        let config = StripeConfig { chunk_sectors: CHUNK, ..StripeConfig::default() };
        Self { stripe: Stripe::new(members, &config).unwrap(), asked }
    }

    /// Submits bios to a queue over the stripe, as a runner does, until all have completed.
    fn execute(&mut self, bios: impl IntoIterator<Item = Bio<LengthOnly>>) -> Vec<Result<(), IoError>> {
        let now = Instant::ZERO;
        let limits = self.stripe.limits().clone();
        let mut queue = RequestQueue::new(limits, &QueueConfig::default());
        queue.plug();
        for bio in bios {
            queue.submit_bio(bio, now).unwrap();
        }
        queue.unplug(now);
        let mut results = Vec::new();
        while queue.bios_in() > 0 {
            while let Some(io) = queue.poll_dispatch(now) {
                self.stripe.submit(&io, now).unwrap();
            }
            self.stripe.commit(now);
            while let Some(over) = self.stripe.poll_completion(now) {
                queue.handle_completion(over.tag, over.result, now);
            }
            results.extend(std::iter::from_fn(|| queue.poll_completion()).map(|done| done.result));
        }
        results
    }

    /// Sizes in bytes of the requests to each member since the last call.
    fn sizes(&self) -> Vec<Vec<u64>> {
        let sizes =
            |asked: &Requests| asked.borrow_mut().drain(..).map(|(_, extent, _)| extent.bytes()).collect();
        self.asked.iter().map(sizes).collect()
    }
}

fn extent(start: u64, sectors: u64) -> Extent {
    Extent::new(Sector(start), sectors).unwrap()
}

fn read(offset: u64, bytes: u64) -> Bio<LengthOnly> {
    Bio::read(Extent::from_bytes(offset, bytes).unwrap(), LengthOnly::new(bytes), 0)
}

fn all_supported() -> Limits {
    let bytes = 1 << 20;
    Limits {
        discard_bytes_max: bytes,
        write_zeroes_bytes_max: bytes,
        volatile_cache: true,
        fua: true,
        ..Limits::with_capacity(1 << 20)
    }
}

#[test]
fn a_sequential_stream_reaches_each_member_as_large_requests() {
    let mut rig = Rig::new(&all_supported(), [Ok(()); 4]);
    for offset in 0..4 {
        rig.execute([read(offset << 20, 1 << 20)]);
        assert_eq!(rig.sizes(), vec![vec![256 << 10]; 4], "four chunks of 64 KiB are one request");
    }
}

#[test]
fn requests_of_one_commit_merge_on_the_members() {
    // Blocks of 8 KiB that are not adjacent in memory: with 128 segments, a request to the stripe has 1 MiB; with 32
    // segments, a request to a member has 256 KiB.
    let mut rig = Rig::new(&Limits { segments_max: 32, ..all_supported() }, [Ok(()); 4]);
    rig.execute((0..512).map(|block| read(block << 13, 1 << 13)));
    let sizes = rig.sizes();
    assert!(sizes.iter().flatten().all(|bytes| *bytes == 256 << 10), "{sizes:?}");
    let mut rig = Rig::new(&all_supported(), [Ok(()); 4]);
    rig.execute((0..16).map(|block| read(block << 16, 1 << 16)));
    assert_eq!(rig.sizes(), vec![vec![256 << 10]; 4]);
}

#[test]
fn a_request_inside_a_chunk_reaches_one_member_whole() {
    let mut rig = Rig::new(&all_supported(), [Ok(()); 4]);
    rig.execute([read(5 << 16, 1 << 16)]);
    assert_eq!(rig.sizes(), [vec![], vec![1 << 16], vec![], vec![]]);
    rig.execute([read((6 << 16) - 512, 1024)]);
    assert_eq!(rig.sizes(), [vec![], vec![512], vec![512], vec![]]);
}

#[test]
fn a_flush_reaches_every_member() {
    let mut rig = Rig::new(&all_supported(), [Ok(()); 4]);
    assert_eq!(rig.execute([Bio::flush(0)]), [Ok(())]);
    for asked in &rig.asked {
        assert_eq!(*asked.borrow(), [(Op::Flush, Extent::EMPTY, false)]);
    }
}

#[test]
fn discards_and_zeroes_are_one_request_to_each_member() {
    for op in [Op::Discard, Op::WriteZeroes] {
        let mut rig = Rig::new(&all_supported(), [Ok(()); 4]);
        rig.execute([Bio { op, ..Bio::discard(extent(CHUNK / 2, 8 * CHUNK), 0) }]);
        let asked: Vec<_> = rig.asked.iter().map(|asked| asked.borrow().clone()).collect();
        let all = |start, sectors| vec![(op, extent(start, sectors), false)];
        let half = CHUNK / 2;
        assert_eq!(asked, [all(half, 2 * CHUNK), all(0, 2 * CHUNK), all(0, 2 * CHUNK), all(0, 2 * CHUNK)]);
    }
}

#[test]
fn forced_unit_access_is_the_members_or_a_flush_of_the_members_written() {
    let write = || Bio::write(extent(CHUNK - 8, 16), LengthOnly::new(16 << 9), 0).with_fua();
    let mut rig = Rig::new(&all_supported(), [Ok(()); 4]);
    rig.execute([write()]);
    assert_eq!(*rig.asked[0].borrow(), [(Op::Write, extent(CHUNK - 8, 8), true)]);
    assert_eq!(*rig.asked[1].borrow(), [(Op::Write, extent(0, 8), true)]);

    let mut rig = Rig::new(&Limits { fua: false, ..all_supported() }, [Ok(()); 4]);
    rig.execute([write()]);
    let flush = (Op::Flush, Extent::EMPTY, false);
    assert_eq!(*rig.asked[0].borrow(), [(Op::Write, extent(CHUNK - 8, 8), false), flush]);
    assert_eq!(*rig.asked[1].borrow(), [(Op::Write, extent(0, 8), false), flush]);
    assert_eq!(*rig.asked[2].borrow(), []);
}

#[test]
fn an_error_of_one_member_is_the_error_of_the_request() {
    let mut rig = Rig::new(&all_supported(), [Ok(()), Err(IoError::Gone), Ok(()), Ok(())]);
    assert_eq!(rig.execute([read(0, 1 << 18)]), [Err(IoError::Gone)]);
    assert_eq!(rig.execute([read(0, 1 << 16)]), [Ok(())], "the other members continue");
    assert_eq!(rig.execute([Bio::flush(0)]), [Err(IoError::Gone)]);
}

#[test]
fn a_stripe_of_stripes_is_one_device() {
    let pair = || {
        let members = vec![Recorder::new(all_supported(), Ok(())), Recorder::new(all_supported(), Ok(()))];
        let asked: Vec<Requests> = members.iter().map(|member| Rc::clone(&member.asked)).collect();
        let config = StripeConfig { chunk_sectors: CHUNK, ..StripeConfig::default() };
        (Stripe::new(members, &config).unwrap(), asked)
    };
    let ((left, left_asked), (right, right_asked)) = (pair(), pair());
    let config = StripeConfig { chunk_sectors: 2 * CHUNK, ..StripeConfig::default() };
    let mut stripe = Stripe::new(vec![left, right], &config).unwrap();
    let memory = [LengthOnly::new((8 * CHUNK) << 9)];
    let now = Instant::ZERO;
    stripe.submit(&Io::new(Tag::from_bits(7), Op::Read, extent(0, 8 * CHUNK), &memory), now).unwrap();
    stripe.commit(now);
    let over: Vec<Tag> = (0..4).filter_map(|_| stripe.poll_completion(now)).map(|over| over.tag).collect();
    assert_eq!(over, [Tag::from_bits(7)]);
    for asked in left_asked.iter().chain(&right_asked) {
        assert_eq!(*asked.borrow(), [(Op::Read, extent(0, 2 * CHUNK), false)]);
    }
}

/// A write of segments of 16 sectors that begins 4 sectors after the start of a chunk: 8 segments in each chunk, of
/// which a chunk cuts every eighth.
#[test]
fn without_merges_a_segment_that_a_chunk_cuts_is_requests_of_its_own() {
    let sizes = |merges_parts| {
        let limits = all_supported();
        let members: Vec<Recorder> = (0..2).map(|_| Recorder::new(limits.clone(), Ok(()))).collect();
        let asked: Vec<_> = members.iter().map(|member| Rc::clone(&member.asked)).collect();
        let config = StripeConfig { chunk_sectors: CHUNK, merges_parts, ..StripeConfig::default() };
        let mut stripe = Stripe::new(members, &config).unwrap();
        let memory = [LengthOnly::new(16 * 512); 16];
        let io = Io::new(Tag::from_bits(0), Op::Write, extent(4, 256), &memory);
        stripe.submit(&io, Instant::ZERO).unwrap();
        stripe.commit(Instant::ZERO);
        let sizes = |asked: &Requests| asked.borrow().iter().map(|one| one.1.sectors()).collect::<Vec<_>>();
        asked.iter().map(sizes).collect::<Vec<_>>()
    };
    assert_eq!(sizes(true), [vec![128], vec![128]], "the second row is adjacent to the first");
    assert_eq!(sizes(false), [vec![112, 12, 4], vec![4, 112, 12]]);
}
