//! Decodes the events of the block layer's tracepoints, by the offsets that the kernel states.

use iopath_core::Instant;
use iopath_log::kernel::{DeviceNumber, KernelEvent, KernelIo, What};
use iopath_os::trace::{Field, TraceError, TraceRecord, Traced, Tracefs, Tracepoint};

use super::devices::Selected;

/// The kinds of events, by the names of their tracepoints.
const KINDS: [(&str, Kind); 14] = [
    ("block_bio_queue", Kind::Queue),
    ("block_bio_remap", Kind::Remap),
    ("block_split", Kind::Split),
    ("block_getrq", Kind::Get),
    ("block_plug", Kind::Plug),
    ("block_unplug", Kind::Unplug),
    ("block_bio_backmerge", Kind::BackMerge),
    ("block_bio_frontmerge", Kind::FrontMerge),
    ("block_rq_merge", Kind::MergeRequest),
    ("block_rq_insert", Kind::Insert),
    ("block_rq_issue", Kind::Issue),
    ("block_rq_requeue", Kind::Requeue),
    ("block_rq_complete", Kind::Complete),
    ("block_bio_complete", Kind::BioComplete),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Queue,
    Remap,
    Split,
    Get,
    Plug,
    Unplug,
    BackMerge,
    FrontMerge,
    MergeRequest,
    Insert,
    Issue,
    Requeue,
    Complete,
    BioComplete,
}

/// Where the values of a tracepoint's events are. A field that its events do not have is empty and is never read.
#[derive(Debug, Clone, Copy)]
struct Layout {
    kind: Kind,
    dev: Field,
    sector: Field,
    nr_sector: Field,
    rwbs: Field,
    command: Option<Field>,
    error: Field,
    /// The second device of a remap, the number of requests of an unplug.
    other: Field,
    /// The second sector of a remap or split.
    other_sector: Field,
}

/// Decodes events of all tracepoints.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The number of the tracepoint.
    common_type: Field,
    /// The index of the tracepoint's layout, by its number; 255 for none.
    by_id: Vec<u8>,
    layouts: Vec<Layout>,
    /// The names of the tracepoints, in the order in which they are opened.
    pub(super) names: Vec<&'static str>,
}

impl Decoder {
    /// The tracepoints to open, with filters for the selected devices, and a decoder of their events.
    pub(super) fn new(tracefs: &Tracefs, selected: &[Selected]) -> Result<(Self, Vec<Traced>), TraceError> {
        let mut decoder = Self {
            common_type: Field { offset: 0, size: 0 },
            by_id: Vec::new(),
            layouts: Vec::new(),
            names: Vec::new(),
        };
        let mut traced = Vec::new();
        for (name, kind) in KINDS {
            let tracepoint = tracefs.tracepoint(&format!("block/{name}"))?;
            decoder.common_type = tracepoint.field("common_type")?;
            let layout = Layout::new(kind, &tracepoint)?;
            let id = usize::from(tracepoint.id);
            if decoder.by_id.len() <= id {
                decoder.by_id.resize(id + 1, u8::MAX);
            }
            decoder.by_id[id] = decoder.layouts.len() as u8;
            decoder.layouts.push(layout);
            decoder.names.push(name);
            traced.push(Traced { id: tracepoint.id, filter: layout.filter(selected) });
        }
        Ok((decoder, traced))
    }

    /// The event of a record; `None` for records that are not about I/O, or too short.
    pub(super) fn decode(&self, record: &TraceRecord<'_>) -> Option<KernelEvent> {
        match *record {
            TraceRecord::Event { time_ns, pid, tid, data } => {
                let id = self.common_type.number(data)? as usize;
                let layout = self.layouts.get(usize::from(*self.by_id.get(id)?))?;
                let mut command = [0; 16];
                if let Some(field) = layout.command {
                    let text = field.bytes(data)?;
                    let len = text.len().min(command.len());
                    command[..len].copy_from_slice(&text[..len]);
                    let end = command.iter().position(|byte| *byte == 0).unwrap_or(command.len());
                    // The kernel does not clear the bytes after a name.
                    command[end..].fill(0);
                }
                let at = Instant::from_nanos(time_ns);
                Some(KernelEvent { at, pid, tid, command, what: layout.what(data)? })
            }
            TraceRecord::Fork { time_ns, pid, parent } => {
                Some(without_task(time_ns, What::Fork { child: pid, parent }))
            }
            TraceRecord::Exit { .. } => None,
            TraceRecord::Lost { time_ns, events } => Some(without_task(time_ns, What::Lost { events })),
        }
    }
}

const fn without_task(time_ns: u64, what: What) -> KernelEvent {
    KernelEvent { at: Instant::from_nanos(time_ns), pid: 0, tid: 0, command: [0; 16], what }
}

impl Layout {
    fn new(kind: Kind, tracepoint: &Tracepoint) -> Result<Self, TraceError> {
        let none = Field { offset: 0, size: 0 };
        let when = |is_used: bool, name: &str| if is_used { tracepoint.field(name) } else { Ok(none) };
        let has_device = !matches!(kind, Kind::Plug | Kind::Unplug);
        let has_length = has_device && kind != Kind::Split;
        let (other, other_sector) = match kind {
            Kind::Remap => (tracepoint.field("old_dev")?, tracepoint.field("old_sector")?),
            Kind::Split => (none, tracepoint.field("new_sector")?),
            Kind::Unplug => (tracepoint.field("nr_rq")?, none),
            _ => (none, none),
        };
        Ok(Self {
            kind,
            dev: when(has_device, "dev")?,
            sector: when(has_device, "sector")?,
            nr_sector: when(has_length, "nr_sector")?,
            rwbs: when(has_length, "rwbs")?,
            command: tracepoint.format.field("comm"),
            error: when(matches!(kind, Kind::Complete | Kind::BioComplete), "error")?,
            other,
            other_sector,
        })
    }

    /// The kernel's filter for these devices; none for all. Events without a device pass.
    fn filter(&self, selected: &[Selected]) -> Option<String> {
        if selected.is_empty() || self.dev.size == 0 {
            return None;
        }
        let condition = |device: &Selected| {
            device.condition(self.sector.size > 0, self.nr_sector.size > 0, self.kind == Kind::Remap)
        };
        Some(selected.iter().map(condition).collect::<Vec<_>>().join(" || "))
    }

    fn what(&self, data: &[u8]) -> Option<What> {
        match self.kind {
            Kind::Plug => return Some(What::Plug),
            Kind::Unplug => return Some(What::Unplug { requests: self.other.number(data)? as u32 }),
            Kind::Split => {
                let device = DeviceNumber(self.dev.number(data)? as u32);
                return Some(What::split(device, self.sector.number(data)?, self.other_sector.number(data)?));
            }
            _ => {}
        }
        let device = DeviceNumber(self.dev.number(data)? as u32);
        let sectors = self.nr_sector.number(data)? as u32;
        let io = KernelIo::new(device, self.sector.number(data)?, sectors, self.rwbs.bytes(data)?);
        Some(match self.kind {
            Kind::Queue => What::Queue(io),
            Kind::Remap => What::Remap {
                to: io,
                from: DeviceNumber(self.other.number(data)? as u32),
                from_sector: self.other_sector.number(data)?,
            },
            Kind::Get => What::Get(io),
            Kind::BackMerge => What::BackMerge(io),
            Kind::FrontMerge => What::FrontMerge(io),
            Kind::MergeRequest => What::MergeRequest(io),
            Kind::Insert => What::Insert(io),
            Kind::Issue => What::Issue(io),
            Kind::Requeue => What::Requeue(io),
            Kind::Complete => What::Complete(io, self.errno(data)?),
            Kind::BioComplete => What::BioComplete(io, self.errno(data)?),
            Kind::Plug | Kind::Unplug | Kind::Split => return None,
        })
    }

    /// The errno, 0 for success. The event has it as a negative number.
    fn errno(&self, data: &[u8]) -> Option<u32> {
        Some((self.error.number(data)? as u32).cast_signed().unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_core::Op;
    use iopath_os::trace::Format;

    fn decoder(kind: Kind, format: &str) -> Decoder {
        let text = format.lines().map(|line| {
            let (declaration, place) = line.split_once('@').unwrap();
            let (offset, size) = place.split_once('+').unwrap();
            format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:0;\n")
        });
        let format = Format::parse(&text.collect::<String>());
        let tracepoint = Tracepoint { name: "block/test".to_owned(), id: 3, format };
        Decoder {
            common_type: tracepoint.field("common_type").unwrap(),
            by_id: vec![u8::MAX, u8::MAX, u8::MAX, 0],
            layouts: vec![Layout::new(kind, &tracepoint).unwrap()],
            names: vec!["test"],
        }
    }

    const COMPLETE: &str = "unsigned short common_type@0+2\ndev_t dev@8+4\nsector_t sector@16+8\n\
        unsigned int nr_sector@24+4\nint error@28+4\nchar rwbs[10]@32+10";

    fn completion() -> Vec<u8> {
        let mut data = vec![0; 44];
        data[0] = 3;
        data[8..12].copy_from_slice(&(8_u32 << 20).to_ne_bytes());
        data[16..24].copy_from_slice(&100_u64.to_ne_bytes());
        data[24..28].copy_from_slice(&8_u32.to_ne_bytes());
        data[28..32].copy_from_slice(&(-5_i32).to_ne_bytes());
        data[32..34].copy_from_slice(b"WS");
        data
    }

    #[test]
    fn values_are_read_from_the_offsets_of_the_format() {
        let decoder = decoder(Kind::Complete, COMPLETE);
        let data = completion();
        let record = TraceRecord::Event { time_ns: 9, pid: 1, tid: 2, data: &data };
        let event = decoder.decode(&record).unwrap();
        let What::Complete(io, errno) = event.what else { panic!("{event:?}") };
        assert_eq!((io.device.to_string().as_str(), io.sector, io.sectors, errno), ("8:0", 100, 8, 5));
        assert_eq!((io.op, event.tid, event.at), (Some(Op::Write), 2, Instant::from_nanos(9)));
    }

    #[test]
    fn short_events_and_unknown_tracepoints_are_no_events() {
        let decoder = decoder(Kind::Complete, COMPLETE);
        let data = completion();
        for len in 0..42 {
            let record = TraceRecord::Event { time_ns: 9, pid: 1, tid: 2, data: &data[..len] };
            assert!(decoder.decode(&record).is_none(), "{len} bytes");
        }
        for id in [2, 4, 200] {
            let mut other = data.clone();
            other[0] = id;
            let record = TraceRecord::Event { time_ns: 9, pid: 1, tid: 2, data: &other };
            assert!(decoder.decode(&record).is_none(), "tracepoint {id}");
        }
    }
}
