//! Shows and sets the settings of a block device. Does not measure: see `trial.rs`.

use std::fmt::Write as _;
use std::path::Path;

use comfy_table::{ColumnConstraint, ContentArrangement};
use iopath_report::table::{ruled, wrapped};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::device_settings::{Change, Session, Setting, SettingsDevice, Until, pending};
use crate::settings_error::SettingsError;

/// The name and version of the schema.
pub const SCHEMA: &str = "iopath.tune/1";

/// The least width of the table.
const WIDTH_MIN: u16 = 60;

/// The settings of a device: the output of `--json`.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
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
    /// The settings of a device.
    pub fn of(device: &SettingsDevice) -> Self {
        let pending = pending(device);
        let facts = |Setting { name, value, range }: Setting| SettingFacts {
            before: pending.iter().find(|(known, _)| *known == name).map(|(_, before)| before.clone()),
            unit: name.unit().to_owned(),
            about: name.about().to_owned(),
            name: name.to_string(),
            value,
            range,
        };
        Self {
            schema: SCHEMA.to_owned(),
            device: device.name().to_owned(),
            description: device.description(),
            settings: device.settings().into_iter().map(facts).collect(),
            changed: Vec::new(),
            kept: false,
        }
    }

    /// The report as indented JSON, with a newline at the end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("JSON can represent all fields") + "\n"
    }

    /// The report as text for `width` columns; of any width if none is given.
    pub fn text(&self, width: Option<u16>) -> String {
        if self.changed.is_empty() { self.table(width) } else { wrapped(&self.changes(), width) }
    }

    fn table(&self, width: Option<u16>) -> String {
        let has_before = self.settings.iter().any(|setting| setting.before.is_some());
        let mut table = ruled();
        if let Some(width) = width {
            table.set_width(width.max(WIDTH_MIN)).set_content_arrangement(ContentArrangement::Dynamic);
        }
        let mut header = vec!["setting", "value", "unit", "valid", "meaning"];
        if has_before {
            header.insert(2, "before");
        }
        table.set_header(header);
        for SettingFacts { name, value, unit, range, about, before } in &self.settings {
            let mut row = vec![name.clone(), value.clone(), unit.clone(), range.clone(), about.clone()];
            if has_before {
                row.insert(2, before.clone().unwrap_or_default());
            }
            table.add_row(row);
        }
        // A name that is broken in two cannot be copied.
        if let Some(names) = table.column_mut(0) {
            names.set_constraint(ColumnConstraint::ContentWidth);
        }
        let heading = wrapped(&format!("Settings of {}\n\n", self.description), width);
        let note = has_before.then(|| {
            format!("\n\n`before`: the value that iopath tune {} --restore sets again", self.device)
        });
        heading + &table.trim_fmt() + &wrapped(&note.unwrap_or_default(), width)
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

/// Changes settings until `iopath tune --restore`, or with `keep` without an end. Messages about earlier journals are
/// added to `notes`.
///
/// # Errors
/// [`SettingsError`]: the settings are as before.
pub fn set(
    device: &Path,
    changes: &[Change],
    keep: bool,
    notes: &mut Vec<String>,
) -> Result<TuneReport, SettingsError> {
    let mut session = Session::begin(SettingsDevice::find(device)?, Until::Restore)?;
    notes.extend(session.take_leftovers().iter().map(ToString::to_string));
    let before = session.settings();
    session.set(changes)?;
    session.leave(keep.then_some(changes))?;
    let device = SettingsDevice::find(device)?;
    let altered = device.settings().into_iter().filter_map(|Setting { name, value, .. }| {
        let requested = changes.iter().any(|change| change.name == name);
        let was = before.iter().find(|setting| setting.name == name);
        let from = was.map_or_else(|| "-".to_owned(), |setting| setting.value.clone());
        // A tunable of a new scheduler has no previous value.
        let is_shown = requested || (was.is_some() && from != value);
        is_shown.then(|| ChangedSetting { name: name.to_string(), from, to: value, requested })
    });
    Ok(TuneReport { changed: altered.collect(), kept: keep, ..TuneReport::of(&device) })
}
