//! Writes a trace for Perfetto: a track for each device, below it a track for each request number, with a slice from
//! dispatch to completion, and counters of depth and throughput. Slices of one track never overlap.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};

use iopath_core::log::Event;
use iopath_core::{Op, SECTOR_BYTES};
use iopath_log::{Entry, Labels, LogInfo, Plain, op_name};
use prost::Message;

use super::StepWriter;
use super::proto::{
    COUNTER, CounterDescriptor, DebugAnnotation, INCREMENTAL_STATE_CLEARED, Interned, InternedData,
    NEEDS_INCREMENTAL_STATE, SLICE_BEGIN, SLICE_END, TracePacket, TrackDescriptor, TrackEvent,
};

/// The interval of the counter of throughput.
const INTERVAL_NS: u64 = 10_000_000;

/// The sequence of all packets.
const SEQUENCE: u32 = 1;

/// The tag of a packet in the file: field 1, with a length.
const PACKET: u8 = 1 << 3 | 2;

const OPS: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];

/// The values of a slice, by number.
const VALUES: [&str; 4] = ["sector", "bytes", "process", "errno"];

/// The tracks of a device below its own, before those of its requests.
#[derive(Debug, Clone, Copy)]
enum Track {
    Device = 1,
    Depth = 2,
    Throughput = 3,
    Requests = 4,
}

/// A device.
#[derive(Debug, Default)]
struct Device {
    /// Requests at the device, by number, with their bytes: their slices are open.
    in_flight: HashMap<u32, u64>,
    /// Request numbers with a track.
    tracks: HashSet<u32>,
    /// The interval of throughput, and the bytes completed in it.
    interval: Option<u64>,
    bytes: u64,
}

/// The packets of a log.
pub(super) struct Perfetto {
    target: String,
    devices: BTreeMap<u16, Device>,
    has_names: bool,
    packet: Vec<u8>,
}

impl Perfetto {
    pub(super) fn new(info: &LogInfo) -> Self {
        Self { target: info.target.clone(), devices: BTreeMap::new(), has_names: false, packet: Vec::new() }
    }

    fn write(&mut self, packet: &TracePacket, out: &mut dyn Write) -> io::Result<()> {
        self.packet.clear();
        self.packet.push(PACKET);
        // Memory is the only limit of a vector.
        packet.encode_length_delimited(&mut self.packet).map_err(io::Error::other)?;
        out.write_all(&self.packet)
    }

    /// Writes the names of operations and values once.
    fn write_names(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let interned = |names: &[&str]| {
            let one = |(index, name): (usize, &&str)| Interned {
                iid: Some(index as u64 + 1),
                name: Some((*name).to_owned()),
            };
            names.iter().enumerate().map(one).collect()
        };
        let names = InternedData {
            event_names: interned(&OPS.map(op_name)),
            debug_annotation_names: interned(&VALUES),
        };
        let packet = TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            interned_data: Some(names),
            sequence_flags: Some(INCREMENTAL_STATE_CLEARED),
            ..TracePacket::default()
        };
        self.write(&packet, out)
    }

    fn write_track(&mut self, track: TrackDescriptor, out: &mut dyn Write) -> io::Result<()> {
        let packet = TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_descriptor: Some(track),
            ..TracePacket::default()
        };
        self.write(&packet, out)
    }

    /// The device of a queue, whose tracks are written before its first event.
    fn begin_device(&mut self, queue: u16, labels: &Labels, out: &mut dyn Write) -> io::Result<()> {
        if self.devices.contains_key(&queue) {
            return Ok(());
        }
        self.devices.insert(queue, Device::default());
        let name = labels.queue(queue).map(|label| Plain(&label.name).to_string());
        let name = name.unwrap_or_else(|| format!("{} queue {queue}", Plain(&self.target)));
        let parent = uuid(queue, Track::Device, 0);
        let device = TrackDescriptor { uuid: Some(parent), name: Some(name), ..TrackDescriptor::default() };
        self.write_track(device, out)?;
        for (track, name, unit) in
            [(Track::Depth, "depth", "requests"), (Track::Throughput, "throughput", "bytes/s")]
        {
            let counter = CounterDescriptor { unit_name: Some(unit.to_owned()) };
            let track = TrackDescriptor {
                uuid: Some(uuid(queue, track, 0)),
                name: Some(name.to_owned()),
                parent_uuid: Some(parent),
                counter: Some(counter),
            };
            self.write_track(track, out)?;
        }
        Ok(())
    }

    fn write_event(&mut self, at_ns: u64, event: TrackEvent, out: &mut dyn Write) -> io::Result<()> {
        let packet = TracePacket {
            timestamp: Some(at_ns),
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_event: Some(event),
            sequence_flags: Some(NEEDS_INCREMENTAL_STATE),
            ..TracePacket::default()
        };
        self.write(&packet, out)
    }

    fn write_depth(&mut self, queue: u16, at_ns: u64, out: &mut dyn Write) -> io::Result<()> {
        let depth = self.devices.get(&queue).map_or(0, |device| device.in_flight.len());
        let event = TrackEvent {
            kind: Some(COUNTER),
            track_uuid: Some(uuid(queue, Track::Depth, 0)),
            counter_value: i64::try_from(depth).ok(),
            ..TrackEvent::default()
        };
        self.write_event(at_ns, event, out)
    }

    fn dispatch(&mut self, entry: &Entry, labels: &Labels, out: &mut dyn Write) -> io::Result<()> {
        let (queue, record, at_ns) = (entry.queue, entry.record, entry.time.as_nanos());
        let number = record.tag();
        let Some(device) = self.devices.get_mut(&queue) else { return Ok(()) };
        let bytes = record.sectors() * SECTOR_BYTES;
        if device.in_flight.insert(number, bytes).is_some() {
            // The completion is missing.
            self.end_slice(queue, number, at_ns, 0, out)?;
        }
        let is_new = self.devices.get_mut(&queue).is_some_and(|device| device.tracks.insert(number));
        let track = uuid(queue, Track::Requests, number);
        if is_new {
            let descriptor = TrackDescriptor {
                uuid: Some(track),
                name: Some(format!("request {number}")),
                parent_uuid: Some(uuid(queue, Track::Device, 0)),
                counter: None,
            };
            self.write_track(descriptor, out)?;
        }
        let op = OPS.iter().position(|op| Some(*op) == record.op()).unwrap_or(0);
        let process = labels.stream(record.stream().0).map(|label| Plain(&label.to_string()).to_string());
        let process = process.unwrap_or_else(|| format!("stream {}", record.stream().0));
        let event = TrackEvent {
            kind: Some(SLICE_BEGIN),
            name_iid: Some(op as u64 + 1),
            track_uuid: Some(track),
            debug_annotations: vec![
                number_value(1, record.sector()),
                number_value(2, bytes),
                text_value(3, process),
            ],
            ..TrackEvent::default()
        };
        self.write_event(at_ns, event, out)?;
        self.write_depth(queue, at_ns, out)
    }

    fn end_slice(
        &mut self,
        queue: u16,
        number: u32,
        at_ns: u64,
        errno: u32,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let event = TrackEvent {
            kind: Some(SLICE_END),
            track_uuid: Some(uuid(queue, Track::Requests, number)),
            debug_annotations: if errno == 0 { Vec::new() } else { vec![number_value(4, errno.into())] },
            ..TrackEvent::default()
        };
        self.write_event(at_ns, event, out)
    }

    /// The request has left the device: `errno` is that of its completion; a refused request has none.
    fn leave(&mut self, entry: &Entry, errno: Option<u32>, out: &mut dyn Write) -> io::Result<()> {
        let (queue, number, at_ns) = (entry.queue, entry.record.tag(), entry.time.as_nanos());
        let Some(device) = self.devices.get_mut(&queue) else { return Ok(()) };
        let Some(bytes) = device.in_flight.remove(&number) else { return Ok(()) };
        self.end_slice(queue, number, at_ns, errno.unwrap_or(0), out)?;
        self.write_depth(queue, at_ns, out)?;
        match errno {
            Some(_) => self.add_throughput(queue, bytes, at_ns, out),
            None => Ok(()),
        }
    }

    /// Steps of the queue are missing: the requests at the device are unknown.
    fn forget(&mut self, entry: &Entry, out: &mut dyn Write) -> io::Result<()> {
        let (queue, at_ns) = (entry.queue, entry.time.as_nanos());
        let Some(device) = self.devices.get_mut(&queue) else { return Ok(()) };
        let mut numbers: Vec<u32> = device.in_flight.drain().map(|(number, _)| number).collect();
        numbers.sort_unstable();
        for number in numbers {
            self.end_slice(queue, number, at_ns, 0, out)?;
        }
        self.write_depth(queue, at_ns, out)
    }

    /// Counts completed bytes. Each interval has the throughput of its end.
    fn add_throughput(&mut self, queue: u16, bytes: u64, at_ns: u64, out: &mut dyn Write) -> io::Result<()> {
        let interval = at_ns / INTERVAL_NS;
        let Some(device) = self.devices.get_mut(&queue) else { return Ok(()) };
        if device.interval == Some(interval) {
            device.bytes += bytes;
            return Ok(());
        }
        let (before, sum) = (device.interval, device.bytes);
        (device.interval, device.bytes) = (Some(interval), bytes);
        if let Some(before) = before {
            self.write_throughput(queue, before, sum, out)?;
            if before + 1 < interval {
                self.write_throughput(queue, before + 1, 0, out)?;
            }
        }
        Ok(())
    }

    fn write_throughput(
        &mut self,
        queue: u16,
        interval: u64,
        bytes: u64,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let event = TrackEvent {
            kind: Some(COUNTER),
            track_uuid: Some(uuid(queue, Track::Throughput, 0)),
            double_counter_value: Some(bytes as f64 * 1e9 / INTERVAL_NS as f64),
            ..TrackEvent::default()
        };
        self.write_event(interval.saturating_mul(INTERVAL_NS), event, out)
    }
}

/// The number of a track.
const fn uuid(queue: u16, track: Track, number: u32) -> u64 {
    (queue as u64 + 1) << 40 | (track as u64) << 32 | number as u64
}

fn number_value(name: u64, value: u64) -> DebugAnnotation {
    DebugAnnotation { name_iid: Some(name), uint_value: Some(value), string_value: None }
}

fn text_value(name: u64, value: String) -> DebugAnnotation {
    DebugAnnotation { name_iid: Some(name), uint_value: None, string_value: Some(value) }
}

impl StepWriter for Perfetto {
    fn step(&mut self, entry: &Entry, labels: &Labels, out: &mut dyn Write) -> io::Result<()> {
        if !std::mem::replace(&mut self.has_names, true) {
            self.write_names(out)?;
        }
        match entry.record.event() {
            Some(Event::Dispatch) => {
                self.begin_device(entry.queue, labels, out)?;
                self.dispatch(entry, labels, out)
            }
            Some(Event::Requeue) => self.leave(entry, None, out),
            Some(Event::Complete) if entry.record.is_request() => {
                self.leave(entry, Some(entry.record.other()), out)
            }
            Some(Event::Missed) => self.forget(entry, out),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, _: &Labels, out: &mut dyn Write) -> io::Result<()> {
        let last: Vec<_> =
            self.devices.iter().map(|(queue, device)| (*queue, device.interval, device.bytes)).collect();
        for (queue, interval, bytes) in last {
            if let Some(interval) = interval {
                self.write_throughput(queue, interval, bytes, out)?;
            }
        }
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::sync::{Arc, Mutex};

    use iopath_core::log::{Step, Subject};
    use iopath_core::{Instant, Record};

    use super::super::proto::Trace;
    use super::super::{Output, convert};
    use super::*;

    #[derive(Debug, Clone, Default)]
    struct Memory(Arc<Mutex<Cursor<Vec<u8>>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn packets(csv: &str) -> Vec<TracePacket> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), csv).unwrap();
        let memory = Memory::default();
        let log = crate::open(file.path()).unwrap();
        convert(log, Output::named("perfetto").unwrap(), Box::new(memory.clone())).unwrap();
        let bytes = memory.0.lock().unwrap().get_ref().clone();
        Trace::decode(bytes.as_slice()).unwrap().packet
    }

    #[test]
    fn slices_of_a_track_do_not_overlap_and_depth_ends_at_zero() {
        let lines: String = (0..400)
            .map(|at| {
                [at * 100, 90 + at * 37 % 900].map(|number| number.to_string()).join(",read,0,8,") + "\n"
            })
            .collect();
        let packets = packets(&format!("time_ns,op,sector,sectors,latency_ns\n{lines}"));
        let (mut open, mut depth, mut described) = (HashSet::new(), 0, HashSet::new());
        let (mut slices, mut at) = (0, 0);
        for packet in &packets {
            if let Some(track) = &packet.track_descriptor {
                described.insert(track.uuid.unwrap());
            }
            let Some(event) = &packet.track_event else { continue };
            let track = event.track_uuid.unwrap();
            assert!(described.contains(&track), "a track is described before its events");
            match event.kind.unwrap() {
                SLICE_BEGIN => {
                    assert!(open.insert(track), "a slice of the track is open");
                    assert_eq!(
                        (event.name_iid, event.debug_annotations[1].uint_value),
                        (Some(1), Some(4096))
                    );
                    slices += 1;
                }
                SLICE_END => assert!(open.remove(&track)),
                _ => {
                    if let Some(value) = event.counter_value {
                        assert_eq!(value as usize, open.len());
                        depth = value;
                    }
                    continue;
                }
            }
            assert!(packet.timestamp.unwrap() >= at);
            at = packet.timestamp.unwrap();
        }
        assert_eq!((slices, depth, open.len()), (400, 0, 0));
        let interned = packets[0].interned_data.as_ref().unwrap();
        assert_eq!(interned.event_names[0].name.as_deref(), Some("read"));
    }

    #[test]
    fn requests_at_the_device_end_where_steps_are_missing() {
        let (mut perfetto, mut out) = (Perfetto::new(&LogInfo::default()), Vec::new());
        let steps = [
            (Event::Dispatch, Subject::Request(0)),
            (Event::Dispatch, Subject::Request(1)),
            (Event::Missed, Subject::Queue),
            (Event::Dispatch, Subject::Request(2)),
        ];
        for (event, subject) in steps {
            let time = Instant::from_nanos(out.len() as u64);
            let entry = Entry {
                number: 0,
                queue: 0,
                repeat: 0,
                time,
                record: Record::new(&Step::new(event, subject), time),
            };
            perfetto.step(&entry, &Labels::default(), &mut out).unwrap();
        }
        let packets = Trace::decode(out.as_slice()).unwrap().packet;
        let events = packets.iter().filter_map(|packet| packet.track_event.as_ref());
        let (mut open, mut depths) = (0, Vec::new());
        for event in events {
            match event.kind.unwrap() {
                SLICE_BEGIN => open += 1,
                SLICE_END => open -= 1,
                _ => depths.extend(event.counter_value),
            }
        }
        assert_eq!((open, depths), (1, vec![1, 2, 0, 1]));
    }

    #[test]
    fn throughput_is_that_of_each_interval() {
        // 10 MB in the first interval with I/O, then a pause.
        let lines: String =
            (0..20).map(|at| (20_000_000 + at * 100).to_string() + ",write,0,1024,1\n").collect();
        let packets = packets(&format!("time_ns,op,sector,sectors,latency_ns\n{lines}90000000,read,0,1,1\n"));
        let events =
            packets.iter().filter_map(|packet| Some((packet.timestamp?, packet.track_event.as_ref()?)));
        let values: Vec<(u64, f64)> =
            events.filter_map(|(at, event)| Some((at / INTERVAL_NS, event.double_counter_value?))).collect();
        assert_eq!(values, [(2, 20.0 * 524_288.0 * 100.0), (3, 0.0), (9, 51_200.0)]);
    }
}
