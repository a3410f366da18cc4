//! Writes a table for pandas, `DuckDB` and Polars: a row for each request that was dispatched, with the time of each
//! stage, in the order of completion; last those without a completion.

use std::collections::HashMap;
use std::io::{self, Write};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use iopath_core::log::Event;
use iopath_core::{Op, SECTOR_BYTES};
use iopath_log::{Entry, Labels, LogInfo, op_name};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::StepWriter;

/// The columns. Times are nanoseconds since the log began.
const SCHEMA: &str = "message requests {
    required binary device (UTF8);
    required binary op (UTF8);
    required int64 sector (UINT_64);
    required int64 bytes (UINT_64);
    required int32 bios (UINT_32);
    required int32 stream (UINT_32);
    optional int32 pid (UINT_32);
    optional binary process (UTF8);
    optional int64 queued_ns;
    optional int64 got_ns;
    optional int64 inserted_ns;
    required int64 dispatched_ns;
    optional int64 completed_ns;
    optional int32 errno;
}";

/// The rows of a group, which are in memory together.
const ROWS: usize = 1 << 16;

/// A request from its start to its completion.
#[derive(Debug, Clone, Copy, Default)]
struct Row {
    queue: u16,
    op: Option<Op>,
    sector: u64,
    sectors: u64,
    bios: u32,
    stream: u32,
    queued_ns: Option<u64>,
    got_ns: Option<u64>,
    inserted_ns: Option<u64>,
    dispatched_ns: Option<u64>,
    completed_ns: Option<u64>,
    errno: u32,
}

/// The table of a log.
pub(super) struct Parquet {
    start_ns: u64,
    target: String,
    file: SerializedFileWriter<Shared>,
    /// What the file's writer has written and `out` has not.
    written: Shared,
    /// Requests without a completion, by queue and number.
    open: HashMap<(u16, u32), Row>,
    /// When bios without a request were queued, by queue and number.
    queued: HashMap<(u16, u32), u64>,
    rows: Vec<Row>,
}

/// The bytes between the writer of the file and the output.
#[derive(Debug, Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn take(&self) -> Vec<u8> {
        mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Parquet {
    pub(super) fn new(info: &LogInfo) -> Self {
        let schema = Arc::new(parse_message_type(SCHEMA).expect("a constant that the tests parse"));
        let facts = [
            ("target", info.target.clone()),
            ("elevator", info.elevator.clone()),
            ("clock", info.clock.clone()),
            ("started_unix_ns", info.started_unix_ns.to_string()),
        ];
        let facts = facts.map(|(key, value)| KeyValue::new(key.to_owned(), value));
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_key_value_metadata(Some(facts.to_vec()))
            .build();
        let written = Shared::default();
        let file = SerializedFileWriter::new(written.clone(), schema, Arc::new(properties));
        Self {
            start_ns: info.start_ns,
            target: info.target.clone(),
            file: file.expect("memory accepts every byte"),
            written,
            open: HashMap::new(),
            queued: HashMap::new(),
            rows: Vec::new(),
        }
    }

    fn complete(&mut self, row: Row, labels: &Labels, out: &mut dyn Write) -> io::Result<()> {
        if row.dispatched_ns.is_some() {
            self.rows.push(row);
        }
        if self.rows.len() >= ROWS { self.write_rows(labels, out) } else { Ok(()) }
    }

    fn write_rows(&mut self, labels: &Labels, out: &mut dyn Write) -> io::Result<()> {
        let rows = mem::take(&mut self.rows);
        let mut group = self.file.next_row_group()?;
        let text = |text: &str| ByteArray::from(text.as_bytes().to_vec());
        let process = |row: &Row| labels.stream(row.stream);
        let numbers = |of: fn(&Row) -> Option<u64>| {
            rows.iter().map(move |row| of(row).map(u64::cast_signed)).collect::<Vec<_>>()
        };
        let device = |row: &Row| match labels.queue(row.queue) {
            Some(label) => text(&label.name),
            None => text(&self.target),
        };
        texts(&mut group, rows.iter().map(|row| Some(device(row))), false)?;
        texts(&mut group, rows.iter().map(|row| Some(text(row.op.map_or("unknown", op_name)))), false)?;
        longs(&mut group, &numbers(|row| Some(row.sector)), false)?;
        longs(&mut group, &numbers(|row| Some(row.sectors.saturating_mul(SECTOR_BYTES))), false)?;
        ints(&mut group, rows.iter().map(|row| Some(row.bios)), false)?;
        ints(&mut group, rows.iter().map(|row| Some(row.stream)), false)?;
        ints(&mut group, rows.iter().map(|row| process(row)?.pid), true)?;
        texts(&mut group, rows.iter().map(|row| Some(text(&process(row)?.command))), true)?;
        longs(&mut group, &numbers(|row| row.queued_ns), true)?;
        longs(&mut group, &numbers(|row| row.got_ns), true)?;
        longs(&mut group, &numbers(|row| row.inserted_ns), true)?;
        longs(&mut group, &numbers(|row| row.dispatched_ns), false)?;
        longs(&mut group, &numbers(|row| row.completed_ns), true)?;
        ints(&mut group, rows.iter().map(|row| (row.errno > 0).then_some(row.errno)), true)?;
        group.close()?;
        self.rows = rows;
        self.rows.clear();
        out.write_all(&self.written.take())
    }
}

/// The values of a column, and whether each row has one.
fn present<T>(values: impl Iterator<Item = Option<T>>) -> (Vec<T>, Vec<i16>) {
    let (mut present, mut levels) = (Vec::new(), Vec::new());
    for value in values {
        levels.push(i16::from(value.is_some()));
        present.extend(value);
    }
    (present, levels)
}

type Group<'a> = SerializedRowGroupWriter<'a, Shared>;

/// Writes the next column.
fn column<T: parquet::data_type::DataType>(
    group: &mut Group<'_>,
    (values, levels): (Vec<T::T>, Vec<i16>),
    is_optional: bool,
) -> io::Result<()> {
    let mut column = group.next_column()?.expect("the schema has this column");
    column.typed::<T>().write_batch(&values, is_optional.then_some(&levels[..]), None)?;
    Ok(column.close()?)
}

fn texts(
    group: &mut Group<'_>,
    values: impl Iterator<Item = Option<ByteArray>>,
    is_optional: bool,
) -> io::Result<()> {
    column::<ByteArrayType>(group, present(values), is_optional)
}

fn longs(group: &mut Group<'_>, values: &[Option<i64>], is_optional: bool) -> io::Result<()> {
    column::<Int64Type>(group, present(values.iter().copied()), is_optional)
}

fn ints(
    group: &mut Group<'_>,
    values: impl Iterator<Item = Option<u32>>,
    is_optional: bool,
) -> io::Result<()> {
    column::<Int32Type>(group, present(values.map(|value| value.map(u32::cast_signed))), is_optional)
}

impl StepWriter for Parquet {
    fn step(&mut self, entry: &Entry, labels: &Labels, out: &mut dyn Write) -> io::Result<()> {
        let record = entry.record;
        let number = (entry.queue, record.tag());
        let now = Some(entry.time.as_nanos().saturating_sub(self.start_ns));
        match record.event() {
            Some(Event::Queue) => {
                self.queued.extend(now.map(|now| (number, now)));
            }
            Some(Event::Split) => {
                let whole = self.queued.get(&(entry.queue, record.other())).copied();
                self.queued.extend(whole.map(|queued| (number, queued)));
            }
            Some(Event::Get) => {
                let queued_ns = self.queued.remove(&(entry.queue, record.other()));
                let row = Row { queue: entry.queue, bios: 1, queued_ns, got_ns: now, ..Row::default() };
                self.open.insert(number, row);
            }
            Some(Event::BackMerge | Event::FrontMerge) if record.is_request() => {
                // The request joined another one, which completes for both.
                let joined = self.open.remove(&number).map_or(0, |row| row.bios);
                self.join(entry, joined);
            }
            Some(Event::BackMerge | Event::FrontMerge) => {
                self.queued.remove(&number);
                self.join(entry, 1);
            }
            Some(Event::Insert) => self.of(number).inserted_ns = now,
            Some(Event::Dispatch) => {
                let row = self.of(number);
                row.op = record.op();
                (row.sector, row.sectors) = (record.sector(), record.sectors());
                row.stream = record.stream().0;
                row.dispatched_ns = now;
            }
            Some(Event::Requeue) => self.of(number).dispatched_ns = None,
            Some(Event::Complete) if record.is_request() => {
                if let Some(row) = self.open.remove(&number) {
                    let row = Row { completed_ns: now, errno: record.other(), ..row };
                    return self.complete(row, labels, out);
                }
            }
            Some(Event::Complete) => {
                self.queued.remove(&number);
            }
            Some(Event::Missed) => {
                self.queued.retain(|(queue, _), _| *queue != entry.queue);
                self.open.retain(|(queue, _), _| *queue != entry.queue);
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, labels: &Labels, out: &mut dyn Write) -> io::Result<()> {
        let mut rest: Vec<Row> = self.open.drain().map(|(_, row)| row).collect();
        rest.sort_by_key(|row| (row.dispatched_ns, row.queue, row.sector));
        for row in rest {
            self.complete(row, labels, out)?;
        }
        if !self.rows.is_empty() {
            self.write_rows(labels, out)?;
        }
        self.file.finish()?;
        out.write_all(&self.written.take())
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Parquet {
    /// Bios joined the request that a merge names.
    fn join(&mut self, merge: &Entry, bios: u32) {
        if let Some(row) = self.open.get_mut(&(merge.queue, merge.record.other())) {
            row.bios += bios;
        }
    }

    /// The request of a step. It is new if the log does not have its start.
    fn of(&mut self, number: (u16, u32)) -> &mut Row {
        let new = || Row { queue: number.0, bios: 1, ..Row::default() };
        self.open.entry(number).or_insert_with(new)
    }
}
