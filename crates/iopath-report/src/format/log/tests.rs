//! The parts of the text, its width, and its safety, on the log of a small queue.

use super::*;
use iopath_core::{
    Bio, Extent, Instant, IoError, LengthOnly, Limits, QueueConfig, RequestQueue, Sector, Stream,
};
use iopath_log::{ElevatorChange, Filter, LogInfo, LogOptions, LogReader, LogWriter};

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

/// Three repeats of a batch of eight reads, which only the device delays; then another elevator, and a read on each
/// of 70 streams, of which one fails.
fn report(filter: &Filter) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = LogWriter::create(&path, &LogInfo::default(), &LogOptions::default()).unwrap();
    let mut queue = RequestQueue::new(Limits::with_capacity(1 << 20), &QueueConfig::default());
    queue.start_log(Box::new(log.add_queue()));
    let read = |sector, stream| {
        let extent = Extent::new(Sector(sector), 8).unwrap();
        Bio::read(extent, LengthOnly::new(4096), sector).on_stream(Stream(stream))
    };
    for repeat in 1..=3 {
        let begin = 10_000 * u64::from(repeat);
        log.begin_repeat(repeat, at(begin));
        for bio in 0..8 {
            queue.submit_bio(read(bio * 100, 0), at(begin)).unwrap();
        }
        let tags: Vec<_> = std::iter::from_fn(|| queue.poll_dispatch(at(begin)).map(|io| io.tag)).collect();
        for tag in tags {
            queue.handle_completion(tag, Ok(()), at(begin + 5000));
        }
    }
    queue.set_elevator(&"two-list".parse().unwrap(), at(36_000));
    for stream in 0..70 {
        let now = 40_000 + u64::from(stream) * 1000;
        queue.submit_bio(read(now, stream), at(now)).unwrap();
        let tag = queue.poll_dispatch(at(now)).unwrap().tag;
        let result = if stream == 3 { Err(IoError::Media) } else { Ok(()) };
        queue.handle_completion(tag, result, at(now + 100));
    }
    drop(queue);
    log.finish().unwrap();
    LogReader::open(&path).unwrap().summarise(filter).unwrap()
}

fn text(report: &Report, width: u16) -> String {
    report.text(View::plain(Some(width)))
}

/// The cells of the line that begins with a word.
fn cells(text: &str, first: &str) -> Vec<String> {
    let line = text.lines().find(|line| line.trim_start().starts_with(first)).expect(first);
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_text_has_repeats_changes_errors_and_the_slowest_bios() {
    let text = text(&report(&Filter::default()), 100);
    for part in [
        "1 queue, 3 repeats",
        "none missed",
        "elevator two-list from 36.0 µs on, queue 0",
        "of all repeats together",
        "FAILED with errno 5: 1 bio\n",
        "bios 94: 94 with a request of their own\n",
        "and 62 more streams",
        "(the largest of the repeats)",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert_eq!(cells(&text, "4 KiB"), ["4", "KiB", "94", &"#".repeat(BAR), "94", &"#".repeat(BAR)]);
    let slowest = text.split("Slowest bios\n").nth(1).unwrap();
    let like = ["5.00", "µs", "5.00", "µs", "10.0", "µs", "8", "read", "0", "+", "8", "0", "0"];
    assert_eq!(cells(slowest, "5.00 µs"), like, "eight of one batch are one row: {text}");
}

#[test]
fn a_stage_that_was_not_timed_has_no_times() {
    let text = text(&report(&Filter::default()), 100);
    assert_eq!(cells(&text, "I2D"), ["I2D", "elevator", "94", "-", "-", "-", "-", "-", "-"]);
    assert!(!cells(&text, "D2C").contains(&"-".to_owned()), "{text}");
    assert!(text.contains("A stage without times"), "{text}");
}

#[test]
fn a_text_is_no_wider_than_the_terminal() {
    let report = report(&Filter::default());
    for width in [40, 50, 60, 80, 100, 132] {
        let text = text(&report, width);
        let line = text.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(line.chars().count() <= usize::from(width), "{width} columns: {line:?}");
        assert!(text.contains("D2C") && text.contains("Slowest bios"), "{text}");
    }
}

#[test]
fn every_medium_has_the_tables_and_a_page_has_charts_of_some() {
    let report = report(&Filter::default());
    let titles = |medium| -> Vec<String> {
        report.sections(medium).into_iter().map(|section| section.title).collect()
    };
    let markdown = titles(Medium::Markdown);
    for title in ["Repeats", "Operations", "Sizes", "Not merged", "Stages", "Streams", "Slowest bios"] {
        assert!(markdown.iter().any(|one| one == title), "{title}: {markdown:?}");
        assert_eq!(titles(Medium::Page).iter().any(|one| one == title), title != "Sizes", "{title}");
    }
    let streams = report.sections(Medium::Page).into_iter().find(|section| section.title == "Streams");
    assert_eq!(streams.unwrap().table.rows(), 64);
}

#[test]
fn a_filter_that_matches_nothing_gives_one_line() {
    let report = report(&Filter { streams: vec![77], ..Filter::default() });
    let text = text(&report, 40);
    assert_eq!(text.lines().count(), 1, "{text}");
    for part in
        ["no I/O passes the filter", "streams 0, 1,", ", ...", "sectors 0 to 109007", "repeats 1, 2, 3"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn any_number_and_any_name_is_shown() {
    let mut report = report(&Filter::default());
    let evil = "\u{1b}]0;title\u{7}\n\u{202e}";
    for name in [&mut report.log.target, &mut report.log.elevator, &mut report.log.clock] {
        evil.clone_into(name);
    }
    let change = |queue| ElevatorChange { at_ns: u64::MAX, queue, elevator: evil.to_owned() };
    report.elevators = (0..64).map(change).collect();
    for edge in [0, 1, u64::MAX] {
        for field in [
            &mut report.records,
            &mut report.missed,
            &mut report.over_limit,
            &mut report.selected,
            &mut report.span_ns,
            &mut report.unjoined,
            &mut report.out_of_order,
            &mut report.events.elevator,
            &mut report.repeats[0].first_ns,
            &mut report.seeks.requests,
            &mut report.seeks.max_bytes,
            &mut report.depth.span_ns,
            &mut report.flow.pieces,
            &mut report.ops[0].requests,
            &mut report.sizes[0].bios,
            &mut report.plug.unplugs,
            &mut report.streams[0].max_q2c_ns,
            &mut report.slowest[0].sector,
        ] {
            *field = edge;
        }
        for text in [text(&report, 80), text::render(&report.sections(Medium::Markdown), View::plain(None))] {
            assert!(text.starts_with("log of \\u{1b}]0;title\\u{7}\\n"), "{text}");
            assert!(text.chars().all(|char| char == '\n' || !char.is_control()), "{text:?}");
            assert!(!text.contains('\u{202e}') && text.lines().count() < 200, "{text}");
        }
    }
}
