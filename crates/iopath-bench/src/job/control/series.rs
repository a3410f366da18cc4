//! Records the figures of a job over time, and writes them in the format of fio's logs: fio's `write_bw_log`,
//! `write_lat_log` and `write_iops_log`. Formats nothing while the job runs.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::controls::Series;
use crate::own_file::{Kind, OwnFile, directory_of};
use crate::path::{Direction, Transfer};
use crate::thread_settings::IoPriority;
use iopath_report::result::{FIO_BINS, fio_bin_number};

/// The entries of one allocation.
const CHUNK: usize = 1 << 16;

/// One transfer, or the transfers of one direction in one interval.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// From the start of the job.
    ended_ns: u64,
    /// From the intended start and from the submission; the mean of an interval.
    latency_ns: [u64; 2],
    /// The length of the interval; 0 for one transfer.
    seconds: f64,
    ios: u64,
    bytes: u64,
    direction: u8,
    offset: u64,
}

/// docs/jobfiles.md states this size.
const _: () = assert!(size_of::<Entry>() == 64);

/// The transfers of one direction in the present interval.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    ios: u64,
    bytes: u64,
    latency_ns: [u64; 2],
}

/// The histogram of one direction in one interval.
#[derive(Debug)]
struct Row {
    /// The end of the transfer after which it ended, from the start of the job.
    ended_ns: u64,
    direction: u8,
    /// The bytes of the last transfer.
    bytes: u32,
    /// The numbers of classes, and of transfers in each that has any.
    counts: Vec<(u16, u64)>,
}

/// The histograms of one job.
#[derive(Debug)]
struct Histograms {
    interval_ns: u64,
    interval_end_ns: u64,
    coarseness: u32,
    /// The classes of each direction.
    counts: [Vec<u64>; 3],
    bytes: [u32; 3],
    rows: Vec<Row>,
}

impl Histograms {
    fn new(settings: &Series) -> Self {
        let interval_ns = u64::try_from(settings.histogram_interval.as_nanos()).unwrap_or(u64::MAX);
        let coarseness = settings.coarseness;
        let classes = || vec![0; FIO_BINS >> coarseness];
        Self {
            interval_ns,
            interval_end_ns: interval_ns,
            coarseness,
            counts: [classes(), classes(), classes()],
            bytes: [0; 3],
            rows: Vec::new(),
        }
    }

    /// A transfer has completed. As in fio, it ends an interval whose time has passed, and belongs to it.
    fn handle_done(&mut self, direction: usize, bytes: u32, latency_ns: u64, ended_ns: u64) {
        self.counts[direction][fio_bin_number(latency_ns) >> self.coarseness] += 1;
        self.bytes[direction] = bytes;
        if self.interval_ns == 0 || ended_ns < self.interval_end_ns {
            return;
        }
        self.interval_end_ns = (ended_ns / self.interval_ns + 1).saturating_mul(self.interval_ns);
        for (direction, counts) in (0..).zip(&mut self.counts) {
            let used = (0..).zip(counts.iter()).filter(|(_, count)| **count > 0);
            let used: Vec<(u16, u64)> = used.map(|(class, count)| (class, *count)).collect();
            counts.fill(0);
            if !used.is_empty() {
                let bytes = self.bytes[usize::from(direction)];
                self.rows.push(Row { ended_ns, direction, bytes, counts: used });
            }
        }
    }
}

/// The entries of one job.
#[derive(Debug)]
pub(super) struct Recorder {
    settings: Series,
    priority: IoPriority,
    started_ns: u64,
    average_ns: u64,
    /// The end of the present interval, from the start of the job.
    interval_end_ns: u64,
    sums: [Sum; 3],
    /// Chunks of equal capacity: no entry is moved while the job runs.
    chunks: Vec<Vec<Entry>>,
    /// Whether there is another file than that of histograms.
    has_entries: bool,
    histograms: Option<Box<Histograms>>,
}

impl Recorder {
    pub(super) fn new(settings: Series, priority: IoPriority, started_ns: u64) -> Self {
        let average_ns = u64::try_from(settings.average.as_nanos()).unwrap_or(u64::MAX);
        let histograms = settings.histograms.is_some().then(|| Box::new(Histograms::new(&settings)));
        let Series { throughput, latency, iops, .. } = &settings;
        let has_entries = [throughput, latency, iops].into_iter().any(Option::is_some);
        Self {
            has_entries,
            histograms,
            settings,
            priority,
            started_ns,
            average_ns,
            interval_end_ns: average_ns,
            sums: [Sum::default(); 3],
            chunks: vec![Vec::with_capacity(CHUNK)],
        }
    }

    /// A transfer has completed.
    pub(super) fn handle_done(&mut self, transfer: Transfer, from_ns: [u64; 2], now_ns: u64) {
        let latency_ns = from_ns.map(|from_ns| now_ns.saturating_sub(from_ns));
        let direction = index(transfer.direction);
        let ended_ns = now_ns.saturating_sub(self.started_ns);
        if let Some(histograms) = &mut self.histograms {
            histograms.handle_done(direction, transfer.bytes, latency_ns[1], ended_ns);
        }
        if !self.has_entries {
            return;
        }
        if self.average_ns == 0 {
            let Transfer { bytes, offset, .. } = transfer;
            self.push(Entry {
                ended_ns,
                latency_ns,
                seconds: 0.0,
                ios: 1,
                bytes: bytes.into(),
                direction: direction as u8,
                offset,
            });
            return;
        }
        // The end of an interval belongs to it, so that no interval has a length of zero.
        if ended_ns > self.interval_end_ns {
            self.end_interval(self.interval_end_ns);
            self.interval_end_ns = ended_ns.div_ceil(self.average_ns).saturating_mul(self.average_ns);
        }
        let sum = &mut self.sums[direction];
        sum.ios += 1;
        sum.bytes += u64::from(transfer.bytes);
        sum.latency_ns.iter_mut().zip(latency_ns).for_each(|(sum, one)| *sum = sum.saturating_add(one));
    }

    /// Adds an entry for each direction of the present interval, which ends at `ended_ns`.
    fn end_interval(&mut self, ended_ns: u64) {
        let interval_start_ns = self.interval_end_ns - self.average_ns;
        let seconds = ended_ns.saturating_sub(interval_start_ns) as f64 / 1e9;
        let sums = std::mem::take(&mut self.sums);
        for (direction, Sum { ios, bytes, latency_ns }) in (0..).zip(sums) {
            if ios > 0 {
                let latency_ns = latency_ns.map(|sum| sum / ios);
                self.push(Entry { ended_ns, latency_ns, seconds, ios, bytes, direction, offset: 0 });
            }
        }
    }

    fn push(&mut self, entry: Entry) {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        self.chunks.last_mut().expect("there is a chunk now").push(entry);
    }

    /// The series of a job that has ended.
    pub(super) fn finish(mut self, now_ns: u64) -> SeriesFiles {
        if self.average_ns > 0 {
            self.end_interval(now_ns.saturating_sub(self.started_ns).min(self.interval_end_ns));
        }
        let Self { settings, priority, chunks, histograms, .. } = self;
        let rows = histograms.map_or_else(Vec::new, |histograms| histograms.rows);
        SeriesFiles { settings, priority, chunks, rows }
    }
}

/// The series of a job that has ended.
#[derive(Debug)]
pub(crate) struct SeriesFiles {
    settings: Series,
    priority: IoPriority,
    chunks: Vec<Vec<Entry>>,
    rows: Vec<Row>,
}

impl SeriesFiles {
    /// Writes the files of the job with this number, from 1 on in its file.
    ///
    /// # Errors
    /// The error of the system, with the name of the file.
    pub(crate) fn write(&self, number: usize) -> Result<(), (PathBuf, io::Error)> {
        let values: [fn(&Entry) -> u64; 4] =
            [Entry::kib_per_second, |entry| entry.latency_ns[0], |entry| entry.latency_ns[1], Entry::iops];
        let [series @ .., histograms] = self.settings.files(number);
        for (file, value) in series.into_iter().zip(values) {
            let Some(file) = file else { continue };
            let written = self.write_file(&file, &mut |out| self.write_series(value, out));
            written.map_err(|error| (file, error))?;
        }
        let Some(file) = histograms else { return Ok(()) };
        self.write_file(&file, &mut |out| self.write_histograms(out)).map_err(|error| (file, error))
    }

    fn write_histograms(&self, out: &mut dyn Write) -> io::Result<()> {
        for Row { ended_ns, direction, bytes, counts } in &self.rows {
            write!(out, "{}, {direction}, {bytes}", ended_ns / 1_000_000)?;
            let mut counts = counts.iter().peekable();
            for class in 0..(FIO_BINS >> self.settings.coarseness) {
                let count =
                    counts.next_if(|(used, _)| usize::from(*used) == class).map_or(0, |(_, count)| *count);
                write!(out, ", {count}")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn write_series(&self, value: fn(&Entry) -> u64, out: &mut dyn Write) -> io::Result<()> {
        for entry in self.chunks.iter().flatten() {
            // A line of an interval has no size and no offset.
            let bytes = if self.settings.average.is_zero() { entry.bytes } else { 0 };
            let (ms, direction) = (entry.ended_ns / 1_000_000, entry.direction);
            write!(out, "{ms}, {}, {direction}, {bytes}", value(entry))?;
            if self.settings.has_offset {
                write!(out, ", {}", entry.offset)?;
            }
            if self.settings.has_priority {
                writeln!(out, ", {:#06x}", self.priority.number())?;
            } else {
                writeln!(out, ", {}", u8::from(self.priority.is_real_time()))?;
            }
        }
        Ok(())
    }

    fn write_file(
        &self,
        file: &Path,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let new = OwnFile::create(directory_of(file), Kind::New)?;
        let mut out = BufWriter::new(new.file());
        if self.settings.joined == Some(true) {
            // The series of the clones before this one.
            io::copy(&mut File::open(file)?, &mut out)?;
        }
        write(&mut out)?;
        out.into_inner()?.sync_data()?;
        // A file with the series of other clones is of this run.
        new.persist_marked(file, self.settings.overwrite || self.settings.joined == Some(true))
    }
}

impl Entry {
    /// Throughput in KiB a second: of an interval, or of one transfer during its latency.
    fn kib_per_second(&self) -> u64 {
        let seconds = if self.seconds > 0.0 { self.seconds } else { self.latency_ns[1].max(1) as f64 / 1e9 };
        (self.bytes as f64 / 1024.0 / seconds) as u64
    }

    /// Transfers a second of an interval; 1 for one transfer, as in fio.
    fn iops(&self) -> u64 {
        if self.seconds > 0.0 { (self.ios as f64 / self.seconds).round() as u64 } else { self.ios }
    }
}

/// The number of a direction in fio's files.
const fn index(direction: Direction) -> usize {
    match direction {
        Direction::Read => 0,
        Direction::Write => 1,
        Direction::Trim => 2,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    const MS: u64 = 1_000_000;

    /// The content of the files of a job with reads of 4 KiB, one each 10 ms, each of 2 ms, and of a write.
    fn written(average_ms: u64, has_offset: bool) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let name = Some(directory.path().join("j"));
        let settings = Series {
            joined: None,
            throughput: name.clone(),
            latency: name.clone(),
            iops: name.clone(),
            histograms: name,
            histogram_interval: Duration::from_millis(30),
            coarseness: 6,
            average: Duration::from_millis(average_ms),
            has_offset,
            has_priority: false,
            overwrite: false,
        };
        let mut recorder = Recorder::new(settings, IoPriority::default(), 5 * MS);
        for number in 1..=6 {
            let now_ns = (5 + number * 10) * MS;
            let read = Transfer { direction: Direction::Read, offset: number * 4096, bytes: 4096 };
            recorder.handle_done(read, [now_ns - 2 * MS, now_ns - MS], now_ns);
        }
        let write = Transfer { direction: Direction::Write, offset: 0, bytes: 8192 };
        recorder.handle_done(write, [60 * MS, 60 * MS], 70 * MS);
        recorder.finish(75 * MS).write(3).unwrap();
        let text = |kind| fs::read_to_string(directory.path().join(format!("j_{kind}.3.log"))).unwrap();
        ["bw", "lat", "clat", "iops", "clat_hist"].map(text).to_vec()
    }

    #[test]
    fn each_transfer_has_a_line() {
        let [bw, lat, clat, iops, _] = &written(0, true)[..] else { panic!("five files") };
        assert!(lat.starts_with("10, 2000000, 0, 4096, 4096, 0\n20, 2000000, 0, 4096, 8192, 0\n"), "{lat}");
        assert!(lat.ends_with("65, 10000000, 1, 8192, 0, 0\n"), "{lat}");
        assert!(clat.starts_with("10, 1000000, 0, 4096, 4096, 0\n"), "{clat}");
        assert!(bw.starts_with("10, 4000, 0, 4096, 4096, 0\n"), "4 KiB in 1 ms: {bw}");
        assert!(iops.starts_with("10, 1, 0, 4096, 4096, 0\n") && iops.lines().count() == 7);
    }

    #[test]
    fn an_interval_has_a_line_for_each_direction() {
        let [bw, lat, _, iops, histograms] = &written(30, false)[..] else { panic!("five files") };
        // Reads at 10, 20 and 30 ms, and at 40, 50 and 60 ms; the write at 65 ms; the job ends at 70 ms.
        assert_eq!(lat, "30, 2000000, 0, 0, 0\n60, 2000000, 0, 0, 0\n70, 10000000, 1, 0, 0\n");
        assert_eq!(iops, "30, 100, 0, 0, 0\n60, 100, 0, 0, 0\n70, 100, 1, 0, 0\n");
        assert_eq!(bw.lines().next(), Some("30, 400, 0, 0, 0"));
        // A class for each factor of two of 64 ns; 1 ms is in the fifteenth. The interval of the write does not end.
        let rows: Vec<Vec<u64>> = histograms
            .lines()
            .map(|line| line.split(", ").map(|field| field.parse().unwrap()).collect())
            .collect();
        let class = |ended_ms| {
            let mut row = vec![ended_ms, 0, 4096];
            row.extend((0..29).map(|class| if class == 14 { 3 } else { 0 }));
            row
        };
        assert_eq!(rows, [class(30), class(60)]);
    }

    #[test]
    fn a_job_that_ends_with_an_interval_has_no_empty_interval() {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join("j");
        let settings = Series {
            joined: None,
            throughput: None,
            latency: None,
            iops: Some(name.clone()),
            histograms: None,
            histogram_interval: Duration::ZERO,
            coarseness: 0,
            average: Duration::from_millis(30),
            has_offset: false,
            has_priority: false,
            overwrite: false,
        };
        let mut recorder = Recorder::new(settings, IoPriority::default(), 0);
        let read = Transfer { direction: Direction::Read, offset: 0, bytes: 4096 };
        for ended_ms in [20, 60] {
            recorder.handle_done(read, [0, 0], ended_ms * MS);
        }
        recorder.finish(60 * MS).write(1).unwrap();
        let iops = fs::read_to_string(directory.path().join("j_iops.1.log")).unwrap();
        assert_eq!(iops, "30, 33, 0, 0, 0\n60, 33, 0, 0, 0\n");
    }
}
