//! Shows and sets the settings of a block device. Does not measure: see `trial.rs`.

use std::path::Path;

use iopath_report::tune::{ChangedSetting, SCHEMA, SettingFacts, TuneReport};

use iopath_bench::device_settings::SettingsError;
use iopath_bench::device_settings::{Change, Session, Setting, SettingsDevice, Until, pending};

/// The settings of a device.
pub fn settings_report(device: &SettingsDevice) -> TuneReport {
    let pending = pending(device);
    let facts = |Setting { name, value, range }: Setting| SettingFacts {
        before: pending.iter().find(|(known, _)| *known == name).map(|(_, before)| before.clone()),
        unit: name.unit().to_owned(),
        about: name.about().to_owned(),
        name: name.to_string(),
        value,
        range,
    };
    TuneReport {
        schema: SCHEMA.to_owned(),
        device: device.name().to_owned(),
        description: device.description(),
        settings: device.settings().into_iter().map(facts).collect(),
        changed: Vec::new(),
        kept: false,
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
    Ok(TuneReport { changed: altered.collect(), kept: keep, ..settings_report(&device) })
}
