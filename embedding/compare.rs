//! Compares the storage of a program with that over iopath: each measurement is a process of its own, the sides
//! alternate, and a row has the medians. Included by the examples `compare` of both embeddings.

use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A side of the comparison: its name, the first is the program's own storage.
pub type Side = &'static str;

/// A workload.
pub struct Row {
    pub name: &'static str,
    /// The content of the database before. None of it is in the kernel's page cache.
    pub on: Content,
    pub run: fn(&mut Meter, &Path, Side),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Content {
    Empty,
    /// A copy of the loaded database for each measurement.
    Loaded,
    /// The loaded database: the workload only reads.
    ReadOnly,
}

/// Measures from its start, or from the last call of `start`.
pub struct Meter {
    wall: Instant,
    cpu: Duration,
}

impl Meter {
    pub fn start(&mut self) {
        *self = Self { wall: Instant::now(), cpu: process_cpu() };
    }
}

/// The CPU time of all threads of this process.
fn process_cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.try_into().unwrap_or_default(), now.tv_nsec.try_into().unwrap_or_default())
}

const CHILD: &str = "COMPARE_CHILD";

/// Measures `rows` on all sides, or, in a child, one row. Arguments: a directory, the number of repetitions, and parts
/// of the names of rows.
pub fn main(sides: &[Side], rows: &[Row], load: fn(&Path)) {
    if let Ok(child) = std::env::var(CHILD) {
        let mut words = child.split('\t');
        let mut next = || words.next().expect("the parent passes all words");
        let (row, side, path) = (next(), next(), next());
        let row = rows.iter().find(|known| known.name == row).expect("the parent names a row");
        let side = sides.iter().find(|known| **known == side).expect("the parent names a side");
        let mut meter = Meter { wall: Instant::now(), cpu: process_cpu() };
        (row.run)(&mut meter, Path::new(path), side);
        println!("{} {}", meter.wall.elapsed().as_nanos(), (process_cpu() - meter.cpu).as_nanos());
        return;
    }
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().expect("usage: compare DIRECTORY [REPETITIONS] [ROW]..."));
    let repetitions = arguments.next().map_or(5, |number| number.parse().expect("a number of repetitions"));
    let only: Vec<String> = arguments.collect();
    std::fs::create_dir_all(&directory).expect("the directory can be created");
    let loaded = directory.join("loaded");
    if rows.iter().any(|row| row.on != Content::Empty) && !loaded.exists() {
        let _ = std::fs::remove_file(&loaded);
        load(&loaded);
    }
    print_head(sides);
    for row in
        rows.iter().filter(|row| only.is_empty() || only.iter().any(|part| row.name.contains(part.as_str())))
    {
        let mut found = vec![Vec::new(); sides.len()];
        for repetition in 0..repetitions {
            for index in 0..sides.len() {
                // The first side of a round differs, so that a trend of the machine favours none.
                let index = (index + repetition) % sides.len();
                found[index].push(measure(row, sides[index], &directory, &loaded));
            }
        }
        print_row(row, &found);
    }
    for name in ["data", "data-journal", "data-wal", "data-shm"] {
        let _ = std::fs::remove_file(directory.join(name));
    }
}

/// Wall and CPU time in seconds.
fn measure(row: &Row, side: Side, directory: &Path, loaded: &Path) -> (f64, f64) {
    let is_read_only = row.on == Content::ReadOnly;
    let path = if is_read_only { loaded.to_owned() } else { directory.join("data") };
    for suffix in ["", "-journal", "-wal", "-shm"] {
        let _ = std::fs::remove_file(directory.join(format!("data{suffix}")));
    }
    if row.on == Content::Loaded {
        std::fs::copy(loaded, &path).expect("the loaded database can be copied");
    }
    if row.on != Content::Empty {
        let file = std::fs::File::open(&path).expect("the database is there");
        // The kernel drops only clean pages.
        file.sync_all().expect("the database can be synced");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
            .expect("the kernel drops its pages");
    }
    let program = std::env::current_exe().expect("the program has a path");
    let words = format!("{}\t{side}\t{}", row.name, path.display());
    let output =
        Command::new(program).env(CHILD, words).stderr(Stdio::inherit()).output().expect("the child starts");
    assert!(output.status.success(), "{} failed with {side}", row.name);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text.split_whitespace().map(|number| number.parse::<f64>().expect("nanoseconds") / 1e9);
    (numbers.next().expect("wall time"), numbers.next().expect("CPU time"))
}

fn print_head(sides: &[Side]) {
    let (mut head, mut line) = ("| workload |".to_owned(), "|---|".to_owned());
    for side in sides {
        let _ = write!(head, " {side}: wall, CPU ms |");
        line.push_str("---|");
    }
    for side in &sides[1..] {
        let _ = write!(head, " {side} / {}: wall, CPU |", sides[0]);
        line.push_str("---|");
    }
    println!("{head}\n{line}");
}

fn print_row(row: &Row, found: &[Vec<(f64, f64)>]) {
    let medians: Vec<(f64, f64)> = found
        .iter()
        .map(|runs| (median(runs.iter().map(|run| run.0)), median(runs.iter().map(|run| run.1))))
        .collect();
    let mut line = format!("| {} |", row.name);
    for (wall, cpu) in &medians {
        let _ = write!(line, " {:.1}, {:.1} |", wall * 1e3, cpu * 1e3);
    }
    for (wall, cpu) in &medians[1..] {
        let _ = write!(line, " {:.2}×, {:.2}× |", wall / medians[0].0, cpu / medians[0].1);
    }
    println!("{line}");
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
