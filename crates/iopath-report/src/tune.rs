//! The settings of a block device, `iopath.tune/1`. Trials are in `tune/trial.rs`. Changes no setting.

mod trial;

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::format::{Document, Medium};
use crate::section::{Columns, Fit, Section, Table};
use crate::value::Value;

pub use trial::{CandidateFacts, PRESENT, SCHEMA as TRIAL_SCHEMA, TrialReport, TrialVerdict};

/// The name and version of the schema.
pub const SCHEMA: &str = "iopath.tune/1";

/// The least width of the table.
const WIDTH_MIN: u16 = 60;

/// The settings of a device: the output of `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TuneReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// The kernel's name of the disk.
    pub device: String,
    /// The device in words.
    pub description: String,
    /// The settings, in the order of writes.
    pub settings: Vec<SettingFacts>,
    /// The settings that this command changed, those that the kernel changed with them included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<ChangedSetting>,
    /// Whether `--restore` does not restore these changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
}

/// A setting of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SettingFacts {
    /// The name in sysfs.
    pub name: String,
    /// The value.
    pub value: String,
    /// The unit; empty for none.
    pub unit: String,
    /// The valid values in words; empty if they are unknown.
    pub range: String,
    /// The meaning; empty if it is unknown.
    pub about: String,
    /// The value that `iopath tune --restore` restores; none if it is unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

/// A setting that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangedSetting {
    /// The name in sysfs.
    pub name: String,
    /// The value before.
    pub from: String,
    /// The value now.
    pub to: String,
    /// Whether the command named it. If not, the kernel changed it with another one.
    pub requested: bool,
}

impl TuneReport {
    /// The report as indented JSON, with a newline at the end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("JSON can represent all fields") + "\n"
    }

    /// The table of settings. The value before is that before this command, or the one that `--restore` sets again.
    fn columns(&self) -> Columns<&SettingFacts> {
        let has_before = self.settings.iter().any(|setting| setting.before.is_some());
        let changed = |setting: &SettingFacts| self.changed.iter().find(|one| one.name == setting.name);
        Columns::of(&self.settings)
            .record("device", |_| &self.device)
            .text("setting", |setting| &setting.name)
            .recorded("setting")
            // A name that is broken in two cannot be copied.
            .whole()
            .text("value", |setting| &setting.value)
            .recorded("value")
            .text("before", |setting| {
                Value::present(has_before.then_some(setting), |setting| {
                    setting.before.clone().unwrap_or_default().into()
                })
            })
            .record("before", |setting| changed(setting).map(|one| &one.from).or(setting.before.as_ref()))
            .record("changed", |setting| changed(setting).is_some())
            .text("unit", |setting| &setting.unit)
            .recorded("unit")
            .text("valid", |setting| &setting.range)
            .recorded("valid")
            .text("meaning", |setting| &setting.about)
            .recorded("about")
            .fit(Fit::Break { width_min: WIDTH_MIN, width_max: u16::MAX })
    }

    fn changes(&self) -> String {
        let mut text = String::new();
        for ChangedSetting { name, from, to, requested } in &self.changed {
            let cause = if *requested { "" } else { " (changed by the kernel)" };
            let _ = writeln!(text, "{name}: {from} → {to}{cause}");
        }
        let device = &self.device;
        if self.kept {
            let rule =
                self.changed.iter().filter(|change| change.requested).fold(String::new(), |rule, change| {
                    let file = if change.name == "queue_depth" { "device" } else { "queue" };
                    rule + &format!(", ATTR{{{file}/{}}}=\"{}\"", change.name, change.to)
                });
            let _ = write!(
                text,
                "\nKept until the next boot; iopath tune --restore does not undo it. A rule of udev sets it at each boot:\n\
                 ACTION==\"add|change\", SUBSYSTEM==\"block\", KERNEL==\"{device}\"{rule}"
            );
        } else {
            let _ = write!(text, "\nUndo: iopath tune {device} --restore");
        }
        text
    }
}

impl Document for TuneReport {
    fn sections(&self, medium: Medium) -> Vec<Section> {
        let changes = Section::prose((!self.changed.is_empty()).then(|| self.changes()));
        let note =
            self.settings.iter().any(|setting| setting.before.is_some()).then(|| {
                format!("`before`: the value that iopath tune {} --restore sets again", self.device)
            });
        let settings = [
            Section::prose([format!("Settings of {}", self.description)]),
            Section::of(self.columns()),
            Section::prose(note),
        ];
        // A terminal has either the changes or the settings.
        let with_settings = self.changed.is_empty() || medium != Medium::Text;
        std::iter::once(changes).chain(settings.into_iter().filter(|_| with_settings)).collect()
    }

    /// A record is a setting.
    fn records(&self) -> Table {
        self.columns().into()
    }

    fn json(&self) -> String {
        self.to_json()
    }
}
