//! Logs with correct checksums around arbitrary numbers, which our writer never writes. The tests read, dump and
//! summarise each log, with and without filters. Each call returns a result or an error, in bounded time and memory,
//! and prints no control characters. `tests/file.rs` tests logs with wrong checksums.

mod made;

use iopath_core::log::{Event, Step, Subject};
use iopath_core::{Extent, Instant, Op, Record, Sector, Stream};
use iopath_log::{Block, Filter, LogError, LogReader};
use made::{Made, MadeBlock};
use proptest::prelude::*;
use std::time::{Duration, Instant as Clock};

/// Numbers that are likely to overflow.
const EDGES: [u64; 12] = [
    0,
    1,
    511,
    1 << 31,
    u32::MAX as u64,
    1 << 40,
    (1 << 48) - 1,
    i64::MAX as u64 - 511,
    i64::MAX as u64,
    i64::MAX as u64 + 1,
    u64::MAX - 4095,
    u64::MAX,
];

/// The time limit for one log of these tests, which have fewer than 100,000 records.
const TIME_MAX: Duration = Duration::from_secs(120);

fn is_plain(text: &str) -> bool {
    text.chars().all(|char| char == '\n' || !char.is_control())
}

/// Reads a log in every way. The outcome is a result or an error; `whole` states whether it must be undamaged.
fn check(bytes: &[u8], whole: Option<bool>) {
    let begun = Clock::now();
    let filters = [
        Filter::default(),
        Filter { time: Some(Duration::ZERO..Duration::MAX), ..Filter::default() },
        Filter { time: Some(Duration::MAX..Duration::ZERO), ..Filter::default() },
        Filter {
            streams: vec![0, 65_535, u32::MAX],
            sectors: Extent::new(Sector(1), Sector::MAX.0 - 1),
            ..Filter::default()
        },
        Filter { events: Event::ALL.to_vec(), ..Filter::default() },
        Filter { repeats: vec![0, 1, u32::MAX], ..Filter::default() },
    ];
    for filter in filters {
        let open = || LogReader::new(bytes);
        let summary = open().and_then(|log| log.summarise(&filter));
        let mut dump = Vec::new();
        let dumped = open().and_then(|log| log.dump(&filter, &mut dump));
        let dump = String::from_utf8(dump).expect("a dump is text");
        assert!(is_plain(&dump), "{dump:?}");
        match (&summary, &dumped) {
            (Ok(report), Ok(dumped)) => {
                let end = &dumped.end;
                let json = report.to_json();
                assert!(is_plain(&json), "{json:?}");
                let parsed: serde_json::Value = serde_json::from_str(&json).expect("JSON");
                assert_eq!(parsed["records"], end.totals.records);
                assert_eq!(report.damage, end.damage);
                assert!(whole.is_none_or(|whole| whole == end.damage.is_none()), "{:?}", end.damage);
            }
            (Err(a), Err(b)) => {
                assert!(is_plain(&format!("{a}{b}")), "{a}{b}");
                assert!(whole.is_none(), "{a}");
            }
            (a, b) => panic!("the summary returns {a:?}, the dump {b:?}"),
        }
    }
    let mut block = Block::default();
    if let Ok(mut log) = LogReader::new(bytes) {
        while log.read_block(&mut block).expect("memory gives no error") {
            assert!(block.entries().count() >= block.len());
        }
    }
    assert!(begun.elapsed() < TIME_MAX, "it took {:?}", begun.elapsed());
}

fn step(event: Event, subject: Subject) -> Step {
    let extent = Extent::new(Sector(Record::SECTOR_MAX), Record::SECTORS_MAX).unwrap();
    Step { extent, stream: Stream(7), op: Op::Read, ..Step::new(event, subject) }
}

fn record(event: Event, subject: Subject, nanos: u64) -> Record {
    Record::new(&step(event, subject), Instant::from_nanos(nanos))
}

/// A step with the full time `nanos`, whose upper bits are in a record of their own.
fn at(event: Event, subject: Subject, nanos: u64) -> [Record; 2] {
    let high = (nanos >> Record::TIME_BITS) as u32;
    let clock = Step::new(Event::Clock, Subject::Queue).with_other(high);
    [Record::new(&clock, Instant::from_nanos(nanos)), record(event, subject, nanos)]
}

/// Bios that are queued at time 0 and complete at the largest time.
fn long_bios(count: u32) -> Vec<Record> {
    let each = |bio| {
        [at(Event::Queue, Subject::Bio(bio), 0), at(Event::Complete, Subject::Bio(bio), u64::MAX - 1)]
            .concat()
    };
    (0..count).flat_map(each).collect()
}

#[test]
fn sums_of_times_do_not_overflow() {
    let log = Made::of(vec![MadeBlock::of(long_bios(100))]);
    check(&log.to_bytes(), Some(true));
    let report = LogReader::new(&log.to_bytes()[..]).unwrap().summarise(&Filter::default()).unwrap();
    let mean = report.streams[0].mean_q2c_ns;
    assert!((mean / u64::MAX as f64 - 1.0).abs() < 1e-6, "{mean}");
    assert_eq!((report.streams[0].max_q2c_ns, report.stages.q2c.max_ns), (u64::MAX - 1, u64::MAX - 1));
}

#[test]
fn sums_of_missed_records_saturate() {
    let block = |queue| MadeBlock { queue, missed: u64::MAX, ..MadeBlock::of(long_bios(1)) };
    // The log is complete, and then truncated. In a truncated log, the counts of all queues are added.
    let mut whole = Made::of(vec![block(0), block(1)]);
    whole.totals = whole.totals.map(|[records, ..]| [records, u64::MAX, u64::MAX]);
    check(&whole.to_bytes(), Some(true));
    let truncated = Made { totals: None, ..whole };
    check(&truncated.to_bytes(), Some(false));
    let report = LogReader::new(&truncated.to_bytes()[..]).unwrap().summarise(&Filter::default()).unwrap();
    assert_eq!(report.missed, u64::MAX);
}

#[test]
fn any_number_in_any_field_is_read() {
    let requests = (0..3).map(Subject::Request).chain((0..3).map(Subject::Bio));
    let subjects: Vec<Subject> = requests.chain([Subject::Queue, Subject::Bio(u32::MAX)]).collect();
    for edge in EDGES {
        let mut records: Vec<Record> = Event::ALL
            .iter()
            .flat_map(|event| subjects.iter().flat_map(|subject| at(*event, *subject, edge)))
            .collect();
        records.extend([[edge; 3], [edge, 0, u64::MAX], [u64::MAX, edge, 0]].map(Record::from_words));
        records.extend((0..64).map(|bit| Record::from_words([edge, edge.rotate_left(7), edge ^ 1 << bit])));
        records.push(Record::missed(edge, Instant::from_nanos(edge)));
        let block = MadeBlock { queue: edge as u16, time_ns: edge, missed: edge, ..MadeBlock::of(records) };
        for start_ns in EDGES {
            let mut log = Made::of(vec![block.clone(), MadeBlock { queue: u16::MAX, ..block.clone() }]);
            log.info["start_ns"] = start_ns.into();
            log.info["started_unix_ns"] = edge.into();
            check(&log.to_bytes(), Some(true));
        }
    }
}

#[test]
fn impossible_sizes_are_damage_or_no_log() {
    let block = || MadeBlock::of(long_bios(2));
    for edge in EDGES {
        let changed = [
            MadeBlock { claims_records: Some(edge as u32), ..block() },
            MadeBlock { claims_frame_bytes: Some(edge as u32), ..block() },
            MadeBlock { claims_first: Some(edge + u64::from(edge == 0)), ..block() },
        ];
        for block in changed {
            // If the frame is shorter or has fewer records, the remaining bytes are not a block.
            check(&Made::of(vec![block]).to_bytes(), Some(false));
        }
        let log = Made { totals: Some([edge, edge, edge]), ..Made::of(vec![block()]) };
        check(&log.to_bytes(), Some(edge == block().records.len() as u64));
        for header_bytes in [edge as u32, u32::MAX] {
            let mut bytes = Made::of(vec![block()]).to_bytes();
            bytes[4..8].copy_from_slice(&header_bytes.to_le_bytes());
            check(&bytes, None);
        }
    }
    // A frame that decompresses to more than its header states.
    let bomb =
        MadeBlock { claims_records: Some(1), ..MadeBlock::of(vec![Record::from_words([0; 3]); 90_000]) };
    check(&Made::of(vec![bomb]).to_bytes(), Some(false));
}

#[test]
fn the_largest_numbers_of_queues_streams_and_requests_take_bounded_memory() {
    let far = |number: u32| {
        let extent = Extent::new(Sector(8), 8).unwrap();
        let stream = Stream(number & 0xFFFF);
        let queued = Step { extent, stream, ..Step::new(Event::Queue, Subject::Bio(number)) };
        let sent = Step { subject: Subject::Request(number), event: Event::Dispatch, ..queued };
        [queued, sent].map(|step| Record::new(&step, Instant::from_nanos(u64::from(number))))
    };
    let before = peak_kib();
    let records = (0..24).flat_map(|bit| far(((1 << bit) - 1) | 1 << 23)).collect();
    let blocks = (0..2000_u16).map(|queue| MadeBlock { queue: queue * 32, ..MadeBlock::of(vec![far(1)[0]]) });
    let log = Made::of(blocks.chain([MadeBlock { queue: u16::MAX, ..MadeBlock::of(records) }]).collect());
    check(&log.to_bytes(), Some(true));
    if let (Some(before), Some(after)) = (before, peak_kib()) {
        // The budget of the join is 128 MiB; parallel tests allocate memory, too.
        assert!(after - before < 512 << 10, "from {before} to {after} KiB");
    }
}

/// The peak memory of this process in KiB.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

#[test]
fn control_characters_of_a_log_do_not_reach_the_terminal() {
    let evil = "\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}31m\r\n\t\u{7f}\u{202e}end";
    let mut elevator = *b"\x1b[31mevil\x07\x00\x9b\x00\x00\x00\x00";
    let name = |bytes: &[u8; 16]| {
        let words = bytes.as_chunks::<8>().0;
        let code = u64::from(Event::Elevator.code()) << 48 | 0xFF_FFFF;
        let (low, high) = (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]) & 0xFF_FFFF);
        Record::from_words([high << Record::TIME_BITS, low, code])
    };
    let mut records = vec![name(&elevator)];
    elevator.fill(b'\n');
    records.push(name(&elevator));
    let mut log = Made::of(vec![MadeBlock::of(records)]);
    for field in ["target", "elevator", "clock", "written_by"] {
        log.info[field] = evil.into();
    }
    check(&log.to_bytes(), Some(true));
    let report = LogReader::new(&log.to_bytes()[..]).unwrap().summarise(&Filter::default()).unwrap();
    assert_eq!(report.log.target, evil, "the data is unchanged");
    let json = report.to_json();
    assert!(!json.contains('\u{202e}'), "{json}");
    let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(parsed["log"]["target"], evil);
}

#[test]
fn an_invalid_header_is_an_error() {
    for json in [
        "",
        "{",
        "null",
        "\"\u{1b}[2J\"",
        "{\"start_ns\":-1}",
        "{\"start_ns\":18446744073709551616}",
        "{\"start_ns\":1e400}",
        "{\"target\":{\"\u{1b}[2J\":1}}",
        &format!("{{\"other\":{}", "[".repeat(60_000)),
    ] {
        let bytes = made::header(json.as_bytes());
        let error = LogReader::new(&bytes[..]).map(|log| log.info().clone()).unwrap_err();
        assert!(matches!(error, LogError::NotALog { .. }), "{json}: {error}");
        assert!(is_plain(&error.to_string()), "{error}");
    }
    // Invalid text, and a future version.
    check(&made::header(b"{\"target\":\"\xFF\xFE\"}"), None);
    let later = made::header_of(u16::MAX, b"\x1b[2J");
    assert!(matches!(LogReader::new(&later[..]).unwrap_err(), LogError::Version { version: u16::MAX }));
}

/// A change of a log that keeps its checksums valid.
#[derive(Debug, Clone)]
enum Change {
    /// Changes bits of a word of a record.
    Flip(prop::sample::Index, usize, u64),
    /// Sets a word of a record.
    Word(prop::sample::Index, usize, u64),
    /// Copies a record over another.
    Copy(prop::sample::Index, prop::sample::Index),
    /// Sets a field of a block header.
    Head(prop::sample::Index, u8, u64),
    /// Repeats a block at the end.
    Again(prop::sample::Index),
    /// Sets a total.
    Total(usize, u64),
    /// Sets a number or a string of the header.
    Info(usize, u64, String),
    /// Adds a mark.
    Mark(u32, u64),
}

fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![
        prop::sample::select(&EDGES[..]),
        any::<u64>(),
        (any::<u64>(), 0_u32..64).prop_map(|(n, s)| n >> s)
    ]
}

fn any_change() -> impl Strategy<Value = Change> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => (index(), 0_usize..3, 0_u32..64).prop_map(|(at, word, bit)| Change::Flip(at, word, 1 << bit)),
        4 => (index(), 0_usize..3, any_number()).prop_map(|(at, word, to)| Change::Word(at, word, to)),
        2 => (index(), index()).prop_map(|(from, to)| Change::Copy(from, to)),
        2 => (index(), 0_u8..6, any_number()).prop_map(|(at, field, to)| Change::Head(at, field, to)),
        1 => index().prop_map(Change::Again),
        1 => (0_usize..3, any_number()).prop_map(|(which, to)| Change::Total(which, to)),
        1 => (any::<u32>(), any_number()).prop_map(|(repeat, at_ns)| Change::Mark(repeat, at_ns)),
        1 => (0_usize..6, any_number(), ".{0,12}").prop_map(|(which, to, text)| Change::Info(which, to, text)),
    ]
}

fn change(log: &mut Made, change: Change) {
    let records = |log: &Made| log.blocks.iter().map(|block| block.records.len()).sum::<usize>().max(1);
    match change {
        Change::Flip(at, word, bits) => {
            let at = at.index(records(log));
            log.with_record(at, |words| words[word] ^= bits);
        }
        Change::Word(at, word, to) => {
            let at = at.index(records(log));
            log.with_record(at, |words| words[word] = to);
        }
        Change::Copy(from, to) => {
            let (from, to) = (from.index(records(log)), to.index(records(log)));
            let mut copied = [0; 3];
            log.with_record(from, |words| copied = *words);
            log.with_record(to, |words| *words = copied);
        }
        Change::Head(at, field, to) => {
            let at = at.index(log.blocks.len());
            let block = &mut log.blocks[at];
            match field {
                0 => block.queue = to as u16,
                1 => block.time_ns = to,
                2 => block.missed = to,
                3 => block.claims_records = Some(to as u32),
                4 => block.claims_frame_bytes = Some(to as u32),
                _ => block.claims_first = Some(to),
            }
        }
        Change::Again(at) => {
            let again = log.blocks[at.index(log.blocks.len())].clone();
            log.blocks.push(again);
        }
        Change::Total(which, to) => log.totals.get_or_insert_default()[which] = to,
        Change::Mark(repeat, at_ns) => log.marks.push((repeat, at_ns)),
        Change::Info(which, to, text) => match which {
            0 => log.info["start_ns"] = to.into(),
            1 => log.info["started_unix_ns"] = to.into(),
            2 => log.info["target"] = text.into(),
            3 => log.info["elevator"] = text.into(),
            4 => log.info["clock"] = text.into(),
            _ => log.info["start_ns"] = text.into(),
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_log_is_read_to_a_result_or_an_error(
        changes in prop::collection::vec(any_change(), 1..24),
    ) {
        let mut log = made::of_a_queue();
        for each in changes {
            change(&mut log, each);
        }
        check(&log.to_bytes(), None);
    }
}
