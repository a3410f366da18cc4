//! A model: the checked parameters of a file, and the device limits derived from them. The file of each kind has its
//! mechanism.

use iopath_core::Limits;

use crate::cloud;
use crate::disk;
use crate::document::{Document, Section};
use crate::error::ModelError;
use crate::flash;
use crate::host::HostModel;
use crate::link::LinkModel;
use crate::parameter::{Parameter, Setting};
use crate::target;

/// A kind of model.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Its name: `kind` in the file.
    pub name: &'static str,
    /// What it models, in one line.
    pub about: &'static str,
    /// The tables of its file, each with its parameters; the first is the file itself, without a name.
    pub tables: &'static [(&'static str, &'static [Parameter])],
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
            read: |section, others| {
                let (spec, limits) = disk::Spec::read(section, others)?;
                Ok((Spec::Disk(Box::new(spec)), limits))
            },
        },
        Self {
            name: "flash",
            about: "a solid-state disk: channels, dies, write buffer and garbage collection",
            tables: &[("", flash::PARAMETERS)],
            read: |section, others| {
                let (spec, limits) = flash::Spec::read(section, others)?;
                Ok((Spec::Flash(Box::new(spec)), limits))
            },
        },
        Self {
            name: "cloud",
            about: "a virtual disk: latency, and caps on I/Os and bytes a second with burst credits",
            tables: &[("", cloud::PARAMETERS)],
            read: |section, others| {
                let (spec, limits) = cloud::Spec::read(section, others)?;
                Ok((Spec::Cloud(spec), limits))
            },
        },
        Self {
            name: "target",
            about: "a remote block target: table `device`, a model of any kind, behind a host and a link",
            tables: &[("link", LinkModel::PARAMETERS), ("host", HostModel::PARAMETERS), ("device", &[])],
            read: |section, others| {
                let (spec, limits) = target::Spec::read(section, others, read_device)?;
                Ok((Spec::Target(Box::new(spec)), limits))
            },
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
        let others: Vec<_> = ["kind", "base", "about"].into_iter().chain(tables).collect();
        (self.read)(section, &others)
    }
}

/// The device of a target: any kind but a target.
fn read_device(section: &Section<'_>) -> Checked {
    let kind = Kind::of(section)?;
    if kind.name == "target" {
        return Err(section.conflict("kind", "the device of a target is no target itself"));
    }
    kind.read(section)
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
    Cloud(cloud::Spec),
    Target(Box<target::Spec<Self>>),
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
    /// As for [`Model::preset`] and [`Model::parse_with`].
    pub fn preset_with(name: &str, overrides: &[(&str, &str)]) -> Result<Self, ModelError> {
        let preset = Preset::find(name)?;
        Self::parse_with(preset.name, preset.text, overrides)
    }

    /// The model of a file. `file_name` is for messages and for the name of the model.
    ///
    /// # Errors
    /// A name, value or relation that the model does not allow, with file, line, parameter, range and unit.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, ModelError> {
        Self::parse_with(file_name, text, &[])
    }

    /// The model of a file, with other values for some parameters: their paths (`seek_average_ms`, `zone.0.cylinders`) and
    /// the numbers as text.
    ///
    /// # Errors
    /// As for [`Model::parse`], also for the values of `overrides`.
    pub fn parse_with(file_name: &str, text: &str, overrides: &[(&str, &str)]) -> Result<Self, ModelError> {
        let mut document = Document::parse(file_name, text, overrides)?;
        add_bases(&mut document)?;
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

/// Adds the presets that a file names as `base` below the file: its own, and those of its tables `device` and `link`.
fn add_bases(document: &mut Document<'_>) -> Result<(), ModelError> {
    for (name, path) in [("", ""), ("device", "device."), ("link", "link.")] {
        let root = document.root();
        let section = if name.is_empty() { Some(root) } else { root.table(name)? };
        let Some(section) = section else { continue };
        let Some(wanted) = section.string("base")? else { continue };
        let found = if name == "link" {
            let known = || LinkModel::PRESETS.iter().map(|preset| preset.0).collect::<Vec<_>>().join(", ");
            let preset = LinkModel::PRESETS.iter().find(|preset| preset.0 == wanted);
            preset.copied().ok_or_else(|| {
                section.conflict("base", format!("there is no link `{wanted}`; links: {}", known()))
            })?
        } else {
            let preset = Preset::find(wanted).map_err(|error| section.conflict("base", error.to_string()))?;
            (preset.name, preset.text)
        };
        document.add_layer(found.0, found.1, path)?;
    }
    Ok(())
}
