//! A model: the checked parameters of a file, and the device limits derived from them. The mechanism of each kind is in
//! a file of its own.

use iopath_core::Limits;

use crate::cloud;
use crate::disk;
use crate::document::{Document, Section};
use crate::error::ModelError;
use crate::flash;
use crate::host::HostModel;
use crate::layer::{self, Below};
use crate::link::LinkModel;
use crate::parameter::{Choice, Parameter, Setting};

/// A kind of model.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Its name: `kind` in the file.
    pub name: &'static str,
    /// The modelled hardware, in one line.
    pub about: &'static str,
    /// The tables of its file, each with its parameters; the first is the file itself, without a name.
    pub tables: &'static [(&'static str, &'static [Parameter])],
    /// The parameters of the file itself whose values are words.
    pub choices: &'static [Choice],
    read: fn(&Section<'_>, &[&str]) -> Checked,
}

/// The checked parameters of a section and the limits derived from them, or the first error.
type Checked = Result<(Spec, Limits), ModelError>;

impl Kind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self {
            name: "disk",
            about: "a rotating disk: zones, seeks, rotation, track buffer, write cache and command queue",
            tables: &[("", disk::PARAMETERS), ("zone", disk::ZONE)],
            choices: &[],
            read: |section, others| {
                let (spec, limits) = disk::Spec::read(section, others)?;
                Ok((Spec::Disk(Box::new(spec)), limits))
            },
        },
        Self {
            name: "flash",
            about: "a solid-state disk: channels, dies, write buffer and garbage collection",
            tables: &[("", flash::PARAMETERS)],
            choices: &[],
            read: |section, others| {
                let (spec, limits) = flash::Spec::read(section, others)?;
                Ok((Spec::Flash(Box::new(spec)), limits))
            },
        },
        Self {
            name: "cloud",
            about: "a virtual disk: latency, and caps on I/Os and bytes a second with burst credits",
            tables: &[("", cloud::PARAMETERS)],
            choices: &[],
            read: |section, others| {
                let (spec, limits) = cloud::Spec::read(section, others)?;
                Ok((Spec::Cloud(Box::new(spec)), limits))
            },
        },
        Self {
            name: "target",
            about: "a remote block target: table `device`, a model of any kind, behind a host and a link",
            tables: &[("link", LinkModel::PARAMETERS), ("host", HostModel::PARAMETERS), ("device", &[])],
            choices: &[],
            read: |section, others| layered(section, others, layer::target),
        },
        Self {
            name: "stripe",
            about: "a stripe (RAID 0) of models: each member is a device as in table `device`",
            tables: &[("", layer::STRIPE), ("device", &[])],
            choices: &[],
            read: |section, others| layered(section, others, layer::stripe),
        },
        Self {
            name: "mapped",
            about: "a file that a filesystem maps to the model in table `device`; metadata is read and written there",
            tables: &[("", layer::MAPPED), ("device", &[])],
            choices: layer::MAPPED_CHOICES,
            read: |section, others| layered(section, others, layer::mapped),
        },
        Self {
            name: "delay",
            about: "the model in table `device`; each request takes longer by a constant time",
            tables: &[("", layer::DELAY), ("device", &[])],
            choices: &[],
            read: |section, others| layered(section, others, layer::delay),
        },
        Self {
            name: "throttle",
            about: "the model in table `device` behind caps on requests and bytes a second",
            tables: &[("", layer::THROTTLE), ("device", &[])],
            choices: &[],
            read: |section, others| layered(section, others, layer::throttle),
        },
        Self {
            name: "faulty",
            about: "the model in table `device` with faults at random, from the seed of the run",
            tables: &[("", layer::FAULTY), ("device", &[])],
            choices: &[],
            read: |section, others| layered(section, others, layer::faulty),
        },
    ];

    /// The kind that a table names.
    fn of(section: &Section<'_>) -> Result<&'static Self, ModelError> {
        let known = || Self::ALL.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
        let wanted = section.string("kind")?;
        let wanted =
            wanted.ok_or_else(|| section.conflict("kind", format!("missing; one of: {}", known())))?;
        Self::ALL.iter().find(|kind| kind.name == wanted).ok_or_else(|| {
            section.conflict("kind", format!("there is no kind `{wanted}`; one of: {}", known()))
        })
    }

    fn read(&self, section: &Section<'_>) -> Checked {
        let tables = self.tables.iter().map(|(name, _)| *name).filter(|name| !name.is_empty());
        let others: Vec<_> = ["kind", "base", "about"]
            .into_iter()
            .chain(tables)
            .chain(self.choices.iter().map(|choice| choice.name))
            .collect();
        (self.read)(section, &others)
    }
}

/// Reads a kind that contains another model: its own parameters with `layer`, then the model of any kind in table
/// `device`.
fn layered(section: &Section<'_>, others: &[&str], layer: layer::ReadLayer) -> Checked {
    let (spec, limits) = layer::read(section, others, layer, |device| {
        let (spec, limits) = Kind::of(device)?.read(device)?;
        let devices = if let Spec::Layered(below) = &spec { below.devices } else { 1 };
        Ok(Below { spec, limits, devices })
    })?;
    Ok((Spec::Layered(Box::new(spec)), limits))
}

/// A model that comes with the crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// Its file.
    pub text: &'static str,
}

impl Preset {
    /// Every preset.
    pub const ALL: &'static [Self] = &[
        Self { name: "ide-2001", text: include_str!("../presets/ide-2001.toml") },
        Self { name: "fc15k-2002", text: include_str!("../presets/fc15k-2002.toml") },
        Self { name: "sata-2006", text: include_str!("../presets/sata-2006.toml") },
        Self { name: "hdd-20tb", text: include_str!("../presets/hdd-20tb.toml") },
        Self { name: "ssd-sata", text: include_str!("../presets/ssd-sata.toml") },
        Self { name: "ssd-nvme", text: include_str!("../presets/ssd-nvme.toml") },
        Self { name: "cloud", text: include_str!("../presets/cloud.toml") },
        Self { name: "iscsi-gbe", text: include_str!("../presets/iscsi-gbe.toml") },
    ];

    /// The preset of this name.
    ///
    /// # Errors
    /// [`ModelError::UnknownPreset`], with the names of all.
    pub fn find(name: &str) -> Result<Self, ModelError> {
        Self::ALL.iter().find(|preset| preset.name == name).copied().ok_or_else(|| {
            let known = Self::ALL.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ");
            ModelError::UnknownPreset { name: name.to_owned(), known }
        })
    }
}

/// The parameters of the kinds, checked.
#[derive(Debug, Clone)]
pub(crate) enum Spec {
    Disk(Box<disk::Spec>),
    Flash(Box<flash::Spec>),
    Cloud(Box<cloud::Spec>),
    Layered(Box<layer::Spec<Self>>),
}

/// The parameters of a modelled device, checked.
#[derive(Debug, Clone)]
pub struct Model {
    name: String,
    kind: &'static Kind,
    about: String,
    limits: Limits,
    settings: Vec<Setting>,
    spec: Spec,
}

impl Model {
    /// The preset of this name.
    ///
    /// # Errors
    /// [`ModelError::UnknownPreset`], with the names of all presets.
    pub fn preset(name: &str) -> Result<Self, ModelError> {
        Self::preset_with(name, &[])
    }

    /// The preset of this name, with other values for some parameters.
    ///
    /// # Errors
    /// Returns the errors of [`Model::preset`] and [`Model::parse_with`].
    pub fn preset_with(name: &str, overrides: &[(&str, &str)]) -> Result<Self, ModelError> {
        let preset = Preset::find(name)?;
        Self::parse_with(preset.name, preset.text, overrides)
    }

    /// The model of a file. `file_name` is for messages and for the name of the model.
    ///
    /// # Errors
    /// [`ModelError`]: a name, a value or a combination of values is not valid. The message has the file, line,
    /// parameter, range and unit.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, ModelError> {
        Self::parse_with(file_name, text, &[])
    }

    /// The model of a file, with other values for some parameters: their paths (`seek_average_ms`, `zone.0.cylinders`)
    /// and the numbers as text.
    ///
    /// # Errors
    /// Returns the errors of [`Model::parse`], also for the values of `overrides`.
    pub fn parse_with(file_name: &str, text: &str, overrides: &[(&str, &str)]) -> Result<Self, ModelError> {
        let mut document = Document::parse(file_name, text, overrides)?;
        add_bases(&mut document, &mut Vec::new())?;
        let root = document.root();
        let kind = Kind::of(&root)?;
        let (spec, limits) = kind.read(&root)?;
        let settings = document.settings();
        document.check_overrides()?;
        let name = file_name.rsplit('/').next().unwrap_or(file_name).trim_end_matches(".toml").to_owned();
        let about = root.string("about")?.unwrap_or(kind.about).to_owned();
        Ok(Self { name, kind, about, limits, settings, spec })
    }

    /// The name of the preset or file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind of model.
    pub const fn kind(&self) -> &'static Kind {
        self.kind
    }

    /// The modelled hardware, in one line.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// The size in sectors.
    pub const fn capacity(&self) -> u64 {
        self.limits.capacity
    }

    /// The limits of one request.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Every parameter with its value and source, in the order of the tables of [`Kind`].
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    pub(crate) const fn spec(&self) -> &Spec {
        &self.spec
    }
}

/// Adds each preset that the file names as `base`, as a layer below the file. The file may name one for itself, and one
/// for each table `device` and `link` at any depth. `names` is the path of the first table.
fn add_bases(document: &mut Document<'_>, names: &mut Vec<&'static str>) -> Result<(), ModelError> {
    let mut section = document.root();
    for name in &*names {
        let Some(table) = section.table(name)? else { return Ok(()) };
        section = table;
    }
    let is_link = names.last() == Some(&"link");
    if let Some(wanted) = section.string("base")? {
        let found = if is_link {
            let known = || LinkModel::PRESETS.iter().map(|preset| preset.0).collect::<Vec<_>>().join(", ");
            let preset = LinkModel::PRESETS.iter().find(|preset| preset.0 == wanted);
            preset.copied().ok_or_else(|| {
                section.conflict("base", format!("there is no link `{wanted}`; links: {}", known()))
            })?
        } else {
            let preset = Preset::find(wanted).map_err(|error| section.conflict("base", error.to_string()))?;
            (preset.name, preset.text)
        };
        document.add_layer(found.0, found.1, names.iter().flat_map(|name| [name, "."]).collect())?;
    }
    // `layer::read` refuses deeper tables.
    if is_link || names.len() > layer::NESTED_MAX {
        return Ok(());
    }
    for name in ["device", "link"] {
        names.push(name);
        add_bases(document, names)?;
        names.pop();
    }
    Ok(())
}
