//! Models that contain another model: a remote target, a stripe, a mapped file, delay, throttle and faults. Reads their
//! parameters. `layered.rs` has the devices.

use iopath_core::mapped::{KeptMetadata, MappedFile};
use iopath_core::mapper::{Boundary, FileLayout, FileRange, FreeSpace, MAPPERS, MapError, Mapper, POINTERS};
use iopath_core::{Duration, Extent, Limits, SECTOR_BYTES, SECTOR_SHIFT, StripeConfig};

use crate::document::Section;
use crate::error::ModelError;
use crate::parameter::{Choice, Parameter, Unit};
use crate::remote_target;

/// The parameters of kind `stripe`.
pub(crate) const STRIPE: &[Parameter] = &[
    Parameter::new("members", Unit::Count, (1.0, 1024.0), "members, each a device as in table `device`"),
    Parameter::new("chunk_kib", Unit::Kib, (0.5, 1_048_576.0), "consecutive data on one member").or(512.0),
];

/// The parameters of kind `mapped`.
pub(crate) const MAPPED: &[Parameter] = &[
    Parameter::new("size_mib", Unit::Mib, (1.0, 65536.0), "the size of the file"),
    Parameter::new("block_bytes", Unit::Bytes, (512.0, 65536.0), "the block of the filesystem").or(4096.0),
];

/// The choices of kind `mapped`.
pub(crate) const MAPPED_CHOICES: &[Choice] = &[
    Choice { name: "mapper", values: &["extent", "indirect"], meaning: "the format of the map" },
    Choice {
        name: "boundary",
        values: &["once", "every-block", "ignore"],
        meaning: "the effect of the boundary flag: see map.md",
    },
    Choice {
        name: "content",
        values: &["written", "empty"],
        meaning: "the file before the run: completely written, or one hole",
    },
];

/// The parameters of kind `delay`.
pub(crate) const DELAY: &[Parameter] =
    &[Parameter::new("delay_us", Unit::Microseconds, (0.0, 1e9), "added to each request")];

/// The parameters of kind `throttle`.
pub(crate) const THROTTLE: &[Parameter] = &[
    Parameter::new("cap_iops", Unit::Iops, (0.0, 1e9), "requests a second; 0: no cap").or(0.0),
    Parameter::new("cap_mib_per_s", Unit::MibPerS, (0.0, 1e6), "throughput; 0: no cap").or(0.0),
];

/// The parameters of kind `faulty`.
pub(crate) const FAULTY: &[Parameter] = &[
    Parameter::new(
        "error_one_in",
        Unit::Count,
        (0.0, 1e12),
        "one request in this many fails with a media error, on average; 0: none",
    )
    .or(0.0),
    Parameter::new(
        "short_one_in",
        Unit::Count,
        (0.0, 1e12),
        "one request in this many has a short transfer, on average; 0: none",
    )
    .or(0.0),
    Parameter::new("reorder", Unit::Count, (0.0, 1.0), "1: requests are executed in random order").or(0.0),
];

/// The deepest nesting of tables `device`.
pub(crate) const NESTED_MAX: usize = 8;

/// The maximum number of devices in a model.
const DEVICES_MAX: u64 = 4096;

/// The part of a file that `Mapped::file` allocates in one step.
const SLICE_BYTES: u64 = 4 << 20;

/// A layer and the model below it, of type `D`.
#[derive(Debug, Clone)]
pub(crate) struct Spec<D> {
    pub(crate) layer: Layer,
    pub(crate) device: D,
    pub(crate) device_limits: Limits,
    /// The number of devices in this model, the layer included.
    pub(crate) devices: u64,
}

/// The checked parameters of a layer.
#[derive(Debug, Clone)]
pub(crate) enum Layer {
    Target(remote_target::Spec),
    Stripe { members: usize, config: StripeConfig },
    Mapped(Mapped),
    Delay(Duration),
    Throttle { ios_per_s: Option<u32>, bytes_per_s: Option<u64> },
    Faulty { error_one_in: u64, short_one_in: u64, is_shuffled: bool },
}

/// The checked parameters of a mapped file.
#[derive(Debug, Clone)]
pub(crate) struct Mapped {
    mapper: &'static str,
    layout: FileLayout,
    is_written: bool,
    pub(crate) boundary: Boundary,
}

/// The model below a layer: its parameters, its limits and the number of its devices.
pub(crate) struct Below<D> {
    pub(crate) spec: D,
    pub(crate) limits: Limits,
    pub(crate) devices: u64,
}

/// Reads a layer: its own parameters with `layer`, a function of this file, and its table `device` with `read_device`.
pub(crate) fn read<D>(
    section: &Section<'_>,
    others: &[&str],
    layer: ReadLayer,
    read_device: impl FnOnce(&Section<'_>) -> Result<Below<D>, ModelError>,
) -> Result<(Spec<D>, Limits), ModelError> {
    let device = section
        .table("device")?
        .ok_or_else(|| section.conflict("device", "missing; this kind of model has a table `device`"))?;
    if device.nested("device") > NESTED_MAX {
        let message = format!("tables `device` are nested in each other at most {NESTED_MAX} times");
        return Err(section.conflict("device", message));
    }
    let first = section.settings_read();
    let Below { spec, limits: device_limits, devices } = read_device(&device)?;
    let second = section.settings_read();
    let (layer, limits) = layer(section, others, &device_limits)?;
    section.swap_settings(first, second);
    let members = if let Layer::Stripe { members, .. } = layer { members as u64 } else { 1 };
    let devices = devices * members;
    if devices > DEVICES_MAX {
        let message = format!("{devices} devices in all; at most {DEVICES_MAX}");
        return Err(section.conflict("members", message));
    }
    Ok((Spec { layer, device: spec, device_limits, devices }, limits))
}

/// Reads the parameters of a layer over a device with these limits. Returns the limits of the layer, too.
pub(crate) type ReadLayer = fn(&Section<'_>, &[&str], &Limits) -> LayerAndLimits;

type LayerAndLimits = Result<(Layer, Limits), ModelError>;

pub(crate) fn target(section: &Section<'_>, others: &[&str], below: &Limits) -> LayerAndLimits {
    Ok((Layer::Target(remote_target::Spec::read(section, others)?), below.clone()))
}

pub(crate) fn stripe(section: &Section<'_>, others: &[&str], below: &Limits) -> LayerAndLimits {
    let values = section.read(STRIPE, others)?;
    let members = values.amount("members") as usize;
    let chunk_bytes = values.amount("chunk_kib");
    if !chunk_bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(section.conflict("chunk_kib", "this must be whole sectors of 0.5 KiB"));
    }
    let config = StripeConfig { chunk_sectors: chunk_bytes >> SECTOR_SHIFT, ..StripeConfig::default() };
    let limits = config.limits(&vec![below; members]);
    let limits = limits.map_err(|error| section.conflict("chunk_kib", error.to_string()))?;
    Ok((Layer::Stripe { members, config }, limits))
}

pub(crate) fn delay(section: &Section<'_>, others: &[&str], below: &Limits) -> LayerAndLimits {
    let values = section.read(DELAY, others)?;
    Ok((Layer::Delay(Duration::from_nanos(values.amount("delay_us"))), below.clone()))
}

pub(crate) fn throttle(section: &Section<'_>, others: &[&str], below: &Limits) -> LayerAndLimits {
    let values = section.read(THROTTLE, others)?;
    let cap = |name: &str| {
        let rate = values.number(name);
        if rate > 0.0 && rate < 1.0 {
            return Err(section.conflict(name, "this must be 0, or at least one a second"));
        }
        Ok((rate > 0.0).then(|| rate.round() as u64))
    };
    let (ios_per_s, bytes_per_s) = (cap("cap_iops")?, cap("cap_mib_per_s")?);
    if ios_per_s.is_none() && bytes_per_s.is_none() {
        return Err(section.conflict("cap_iops", "a throttle needs this cap, or `cap_mib_per_s`"));
    }
    Ok((Layer::Throttle { ios_per_s: ios_per_s.map(|rate| rate as u32), bytes_per_s }, below.clone()))
}

pub(crate) fn faulty(section: &Section<'_>, others: &[&str], below: &Limits) -> LayerAndLimits {
    let values = section.read(FAULTY, others)?;
    let layer = Layer::Faulty {
        error_one_in: values.amount("error_one_in"),
        short_one_in: values.amount("short_one_in"),
        is_shuffled: values.amount("reorder") == 1,
    };
    Ok((layer, below.clone()))
}

pub(crate) fn mapped(section: &Section<'_>, others: &[&str], below: &Limits) -> LayerAndLimits {
    let values = section.read(MAPPED, others)?;
    let [mapper, boundary, content] = [0, 1, 2].map(|index| section.choice(&MAPPED_CHOICES[index]));
    let (mapper, boundary, content) = (mapper?, boundary?, content?);
    let boundary = boundary.parse().map_err(|error| section.conflict("boundary", format!("{error}")))?;
    let layout = FileLayout {
        block_bytes: values.amount("block_bytes") as u32,
        size_bytes: values.amount("size_mib"),
        capacity_bytes: below.capacity * SECTOR_BYTES,
    };
    let spec = Mapped { mapper, layout, is_written: content == "written", boundary };
    let file = MappedFile::fresh(mapper, &layout);
    let file = file.map_err(|error| section.conflict("block_bytes", error.to_string()))?;
    let limits = file.limits_on(below);
    let limits = limits.map_err(|error| section.conflict("block_bytes", error.to_string()))?;
    let needed = spec.needed_bytes();
    let capacity = layout.capacity_bytes;
    if needed > capacity {
        let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
        let message = format!(
            "the file and its map need {:.1} MiB of a device of {:.1} MiB; choose a smaller file or a larger device",
            mib(needed),
            mib(capacity)
        );
        return Err(section.conflict("size_mib", message));
    }
    Ok((Layer::Mapped(spec), limits))
}

impl Mapped {
    /// An upper bound of the space for the file, its indirect blocks and the first block, in bytes.
    fn needed_bytes(&self) -> u64 {
        let block = u64::from(self.layout.block_bytes);
        let data = self.layout.size_bytes.div_ceil(block);
        // Pointers of 4 bytes; each level is smaller than the one below it by that factor.
        let indirect = data.div_ceil(block / 4 - 1) + POINTERS as u64;
        (data + indirect + 1) * block
    }

    /// The file in its state before the run.
    pub(crate) fn file(&self) -> MappedFile {
        let Self { mapper, layout, is_written, .. } = self;
        let kind = MAPPERS.iter().find(|kind| kind.name == *mapper).expect("a choice names a mapper");
        let map = (kind.make)(layout).expect("the layout was checked");
        let mut map = KeptMetadata::new(map);
        // Block 0 stands for a hole in an indirect map.
        let first = u64::from(layout.block_bytes);
        let all = Extent::from_bytes(first, layout.capacity_bytes / SECTOR_BYTES * SECTOR_BYTES - first);
        let mut space = FreeSpace::new(all.unwrap_or_default());
        if *is_written {
            let end = layout.size_bytes.next_multiple_of(first);
            for start in (0..end).step_by(SLICE_BYTES as usize) {
                let slice = FileRange::new(start, SLICE_BYTES.min(end - start));
                until_known(&mut map, |map| map.allocate(slice, &mut space));
                until_known(&mut map, |map| map.commit(slice));
                map.store();
            }
        }
        MappedFile::new(Box::new(map), Box::new(space))
    }
}

/// Repeats a change of the map until the map has the metadata that the change needs.
fn until_known(map: &mut KeptMetadata, mut change: impl FnMut(&mut KeptMetadata) -> Result<(), MapError>) {
    loop {
        match change(map) {
            Ok(()) => return,
            Err(MapError::Metadata(extent)) => {
                map.handle_metadata(extent, &[]).expect("the map has written this block");
            }
            Err(error) => panic!("a file that fits its device cannot be laid out: {error}"),
        }
    }
}
