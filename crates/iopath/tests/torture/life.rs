//! A life of a volume: stretches of operations by one thread or several, and between them what concerns all: faults
//! that come and go, reopening, another size, the power failing.

use crate::ground::Ground;
use crate::hand::{Hand, Mode, Source, Weather, Wrong};
use crate::model::Model;
use crate::settings::{Settings, Target, pick};
use iopath::{
    ELEVATORS, Engine, Extent, Fault, Faults, IoError, Op, Options, Path, Readahead, Unaligned, Volume,
};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::Range;
use std::sync::Arc;

/// Operations of a life, all threads' together.
pub(crate) const LIFE_OPS: u64 = 5_000;
/// The largest volume, in bytes.
const SIZE_MAX: usize = 1 << 20;

/// How often what happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Met {
    pub(crate) ops: u64,
    pub(crate) faults: u64,
    pub(crate) crashes: u64,
    pub(crate) sizes: u64,
}

impl Met {
    pub(crate) const fn add(&mut self, other: Self) {
        self.ops += other.ops;
        self.faults += other.faults;
        self.crashes += other.crashes;
        self.sizes += other.sizes;
    }
}

/// A volume, all who work on it, and what can happen to it.
struct Life {
    random: Xoshiro256PlusPlus,
    ground: Ground,
    faults: Option<Faults>,
    volume: Option<Volume>,
    hands: Vec<Hand>,
    /// Where the ranges of one hand end and those of the next begin.
    cuts: Vec<usize>,
    weather: Weather,
    met: Met,
}

/// Lives `ops` operations; what went wrong, for people to read, if something did.
pub(crate) fn live(settings: &Settings, source: &Arc<Source>, seed: u64, ops: u64) -> Result<Met, String> {
    let mut life = Life::new(settings, source, seed);
    let result = life.live(ops);
    result.map(|()| life.met).map_err(|(hand, wrong)| {
        let (hand, weather) = (&life.hands[hand], life.weather);
        format!("seed {seed}: {}\n{weather:?}\nagain: {}", hand.explain(&wrong), settings.replay(seed, ops))
    })
}

/// What went wrong, and which hand met it.
type Outcome = Result<(), (usize, Wrong)>;

impl Life {
    fn new(settings: &Settings, source: &Arc<Source>, seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let size = a_size(&mut random);
        let ground = Ground::new(&settings.target, size, &mut random);
        let faults = random.random::<bool>().then(|| Faults::new(random.random()));
        if let (Some(faults), Some(disk), 1) = (&faults, ground.crashes(), settings.threads) {
            faults.lose_on_failed_flush(disk);
        }
        let hands =
            (0..settings.threads).map(|_| Hand::new(random.random(), source, Model::new(size))).collect();
        let weather = Weather {
            may_fail: false,
            flush_may_fail: false,
            has_lost: false,
            may_lose: settings.threads == 1 && ground.crashes().is_some(),
            forces_by_flush: ground.forces_by_flush(),
            may_resize: settings.threads == 1,
            mode: Mode::default(),
            may_lack: matches!(settings.target, Target::File(_)),
        };
        let mut life = Self {
            random,
            ground,
            faults,
            volume: None,
            hands,
            cuts: Vec::new(),
            weather,
            met: Met::default(),
        };
        let opened = life.reopen(size);
        assert!(opened.is_ok(), "nothing was open before");
        life
    }

    fn live(&mut self, ops: u64) -> Outcome {
        while self.met.ops < ops {
            let most = if self.hands.len() == 1 { 400 } else { 2000 };
            let stretch = self.random.random_range(1..=most).min(ops - self.met.ops);
            self.work(stretch)?;
            if self.weather.has_lost {
                self.reopen(self.hands[0].model.size())?;
            }
            if self.random.random_range(0..3) == 0 {
                self.change_weather()?;
            }
            match self.random.random_range(0..16) {
                0 | 1 => self.reopen(self.hands[0].model.size())?,
                2 => self.resize()?,
                3..6 => self.crash()?,
                6 => self.look_at_everything()?,
                _ => {}
            }
        }
        self.look_at_everything()?;
        self.crash()
    }

    fn volume(&self) -> Volume {
        self.volume.clone().expect("open but while it is reopened")
    }

    /// All hands do their part of `ops` operations.
    fn work(&mut self, ops: u64) -> Outcome {
        let (volume, weather) = (self.volume(), self.weather);
        self.met.ops += ops;
        if let [hand] = &mut self.hands[..] {
            return hand.work(&volume, weather, ops).map_err(|wrong| (0, wrong));
        }
        let share = ops.div_ceil(self.hands.len() as u64);
        std::thread::scope(|scope| {
            let volume = &volume;
            let begin = |hand| scope.spawn(move || Hand::work(hand, volume, weather, share));
            let hands: Vec<_> = self.hands.iter_mut().map(begin).collect();
            let ends = hands.into_iter().map(|hand| hand.join().expect("hands do not panic"));
            ends.enumerate().try_for_each(|(index, end)| end.map_err(|wrong| (index, wrong)))
        })
    }

    /// Other things go wrong from now on, or none.
    fn change_weather(&mut self) -> Outcome {
        self.calm()?;
        let Some(faults) = &self.faults else { return Ok(()) };
        let random = &mut self.random;
        faults.shuffle(random.random());
        if random.random() {
            faults.add(Fault::short().one_in(random.random_range(1..20)));
        }
        for _ in 0..random.random_range(0..3) {
            let error = *pick(random, &[IoError::Media, IoError::NoSpace, IoError::Os(12)]);
            let mut fault = Fault::error(error).one_in(random.random_range(2..100));
            // Where write and flush are one, a flush fails with a write.
            let forces_at_once = !self.weather.forces_by_flush;
            let mut hits_flushes = true;
            match random.random_range(0..4) {
                0 | 1 => {
                    let ops =
                        [Op::Read, Op::Write, Op::Write, Op::Flush, Op::Flush, Op::Discard, Op::WriteZeroes];
                    let op = *pick(random, &ops);
                    hits_flushes = op == Op::Flush || (op == Op::Write && forces_at_once);
                    fault = fault.on(op);
                }
                2 => {
                    let sector = random.random_range(0..64) * 512;
                    fault = fault.within(Extent::from_bytes(sector, 4096).expect("sectors"));
                    hits_flushes = forces_at_once;
                }
                _ => {}
            }
            faults.add(fault);
            self.weather.may_fail = true;
            self.weather.flush_may_fail |= hits_flushes || self.ground.writes_in_flushes();
        }
        Ok(())
    }

    /// Nothing goes wrong from now on, and what a page cache still has to write is written. What failed to be written
    /// stayed dirty, so nothing but a flush of the device that failed can be to blame if flushes go on to fail.
    fn calm(&mut self) -> Outcome {
        let was_rough = std::mem::take(&mut self.weather.may_fail);
        let flush_may_have_failed = std::mem::take(&mut self.weather.flush_may_fail);
        if let Some(faults) = &self.faults {
            faults.clear();
            self.met.faults = faults.injected();
        }
        let cached = self.volume.clone().filter(|_| was_rough && self.weather.mode.is_cached);
        let Some(volume) = cached else { return Ok(()) };
        // The first may fail although nothing goes wrong any more: write-back had begun before.
        let first = volume.flush();
        // What is seen now and saved by a flush is there whatever went wrong before.
        if self.random.random() {
            self.look()?;
        }
        let second = volume.flush();
        let may_have_lost = flush_may_have_failed || self.weather.has_lost;
        match second {
            Ok(()) if self.weather.has_lost => Err((0, outcome("a loss is forgotten"))),
            Ok(()) => {
                self.hands.iter_mut().for_each(|hand| hand.model.flushed());
                Ok(())
            }
            Err(error) if first.is_ok() || !may_have_lost => {
                Err((0, outcome(&format!("a flush should not fail any more: {error}"))))
            }
            Err(_) => {
                self.weather.has_lost = true;
                let losers = self.hands.iter_mut().filter(|_| self.weather.may_lose);
                losers.for_each(|hand| hand.model.may_have_lost());
                Ok(())
            }
        }
    }

    /// Opens it anew in another way, with that many bytes.
    fn reopen(&mut self, size: usize) -> Outcome {
        self.calm()?;
        let random = &mut self.random;
        let elevator = pick(random, ELEVATORS).name;
        let mut options = Options::new()
            .write(true)
            .elevator(elevator)
            .depth(*pick(random, &[1, 2, 8, 32]))
            .engine(engine());
        if let Some(bytes) = *pick(random, &[None, None, Some(4096), Some(64 << 10)]) {
            options = options.request_bytes_max(bytes);
        }
        if let Some(faults) = &self.faults {
            options = options.faults(faults);
        }
        self.close();
        if size != self.hands[0].model.size() {
            self.ground.resize(size);
        }
        let opened = self.ground.open(&options);
        if opened.size_bytes() != size as u64 {
            return Err((0, outcome(&format!("there are {} bytes, not {size}", opened.size_bytes()))));
        }
        let block = opened.facts().block_bytes as usize;
        drop(opened);
        let (options, mode) = a_mode(options, size.is_multiple_of(block), &mut self.random);
        self.weather.mode = mode;
        self.volume = Some(self.ground.open(&options));
        self.share_out(size, block);
        Ok(())
    }

    /// A volume that is dropped writes back what is dirty; one that is closed says whether that went well.
    fn close(&mut self) {
        let Some(volume) = self.volume.take() else { return };
        let has_lost = std::mem::take(&mut self.weather.has_lost);
        if self.random.random() {
            assert_eq!(volume.close().is_err(), has_lost, "whether it closes well");
        }
    }

    /// Gives each hand its ranges.
    fn share_out(&mut self, size: usize, block: usize) {
        let hands = self.hands.len();
        for hand in &mut self.hands {
            hand.model.resize(size);
            hand.owned.clear();
        }
        if hands == 1 {
            self.hands[0].owned.push(0..size);
            return;
        }
        // Half of the lives have blocks of which two hands write a part each, where any bytes can be written.
        let unit = if self.cuts.is_empty() { *pick(&mut self.random, &[1, block]) } else { 1 };
        while self.cuts.last().is_none_or(|last| *last < SIZE_MAX) {
            let bytes = self.random.random_range(1..=16 * block / unit) * unit;
            self.cuts.push(self.cuts.last().unwrap_or(&0) + bytes);
        }
        let mut start = 0;
        for (index, cut) in self.cuts.iter().enumerate().filter(|_| size > 0) {
            let range: Range<usize> = start..(*cut).min(size);
            if range.is_empty() {
                break;
            }
            start = range.end;
            self.hands[index % hands].owned.push(range);
        }
        for hand in self.hands.iter_mut().filter(|hand| hand.owned.is_empty()) {
            hand.owned.push(0..0);
        }
    }

    fn resize(&mut self) -> Outcome {
        let size = a_size(&mut self.random);
        self.met.sizes += 1;
        self.reopen(size)
    }

    fn look_at_everything(&mut self) -> Outcome {
        self.calm()?;
        self.look()
    }

    fn look(&mut self) -> Outcome {
        let (volume, weather) = (self.volume(), self.weather);
        let mut hands = self.hands.iter_mut().enumerate();
        hands.try_for_each(|(index, hand)| {
            hand.look_at_everything(&volume, weather).map_err(|wrong| (index, wrong))
        })
    }

    /// The power fails, if that has consequences.
    fn crash(&mut self) -> Outcome {
        let Some(disk) = self.ground.crashes() else { return Ok(()) };
        let random = &mut self.random;
        match random.random_range(0..4) {
            0 => disk.crash(|_| 0),
            1 => disk.crash(|versions| versions),
            _ => disk.crash(|versions| random.random_range(0..=versions)),
        }
        self.met.crashes += 1;
        self.hands.iter_mut().for_each(Hand::crashed);
        // What is dirty in a page cache has nowhere to go.
        self.volume = None;
        self.weather.has_lost = false;
        self.reopen(self.hands[0].model.size())?;
        self.look_at_everything()?;
        self.hands.iter_mut().for_each(|hand| hand.model.survived());
        Ok(())
    }
}

fn outcome(what: &str) -> Wrong {
    Wrong::Outcome(what.to_owned())
}

/// Mostly small, so that operations meet; any number of bytes.
pub(crate) fn a_size(random: &mut Xoshiro256PlusPlus) -> usize {
    let most = *pick(random, &[8 << 10, 32 << 10, 64 << 10, 64 << 10, 128 << 10, SIZE_MAX]);
    let size = random.random_range(4096..=most);
    if random.random_range(0..3) == 0 { size } else { size / 4096 * 4096 }
}

/// Some way to open a volume; raw ones have whole blocks.
fn a_mode(options: Options, is_whole: bool, random: &mut Xoshiro256PlusPlus) -> (Options, Mode) {
    let direct = Mode::default();
    let any = Mode { takes_any: true, ..direct };
    let page_bytes = *pick(random, &[4096, 4096, 16 << 10, 64 << 10]);
    let readahead = *pick(random, &[Readahead::Auto, Readahead::Off, Readahead::Bytes(64 << 10)]);
    let pages = random.random_range(16..48);
    let cached = |options: Options| {
        let options = options.page_bytes(page_bytes).cache_bytes(u64::from(page_bytes) * pages);
        (options.readahead(readahead), Mode { is_cached: true, ..any })
    };
    match random.random_range(0..8) {
        0 | 1 if is_whole => (options.path(Path::Raw), Mode { is_raw: true, ..direct }),
        0..3 => (options, direct),
        3 => (options.unaligned(Unaligned::Bounce), any),
        4 => cached(options.unaligned(Unaligned::Buffered)),
        _ => cached(options.path(Path::Buffered)),
    }
}

/// As the other tests: what `IOPATH_TEST_ENGINE` names.
pub(crate) fn engine() -> Engine {
    std::env::var("IOPATH_TEST_ENGINE").map_or(Engine::Auto, |name| name.parse().expect("an engine"))
}
