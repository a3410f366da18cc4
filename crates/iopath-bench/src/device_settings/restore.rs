//! Restores the values of settings in the order that their side effects require, and verifies them. Does not read
//! journals: see `leftovers.rs`.

use super::device::SettingsDevice;
use super::table::SettingName;

/// Passes over all settings. A driver may reset a setting that was written before, so one pass may not suffice.
const PASSES: u32 = 3;

/// The settings of `before` that may differ after a change of `changed`, with their values, in the order of writes.
/// Others keep their values: another program may have changed them meanwhile.
pub(super) fn affected<'a>(
    before: &'a [(SettingName, String)],
    changed: &[SettingName],
) -> Vec<&'a (SettingName, String)> {
    // A setting may reset another one, which resets a third one.
    let mut names: Vec<SettingName> = changed.to_vec();
    loop {
        let further = before.iter().map(|(name, _)| name).filter(|name| !names.contains(name));
        let further: Vec<SettingName> =
            further.filter(|name| names.iter().any(|known| name.follows(known))).cloned().collect();
        if further.is_empty() {
            break;
        }
        names.extend(further);
    }
    let mut affected: Vec<_> = before.iter().filter(|(name, _)| names.contains(name)).collect();
    affected.sort_by_key(|(name, _)| name.rank());
    affected
}

/// Writes the previous values of all settings that a change of `changed` may have altered, and reads them back.
///
/// # Errors
/// The settings that do not have their previous value, in words.
pub(super) fn restore(
    device: &SettingsDevice,
    before: &[(SettingName, String)],
    changed: &[SettingName],
) -> Result<(), String> {
    let affected = affected(before, changed);
    let mut problems = Vec::new();
    for _ in 0..PASSES {
        problems.clear();
        let mut causes = Vec::new();
        for (name, value) in &affected {
            if device.value(name).is_ok_and(|now| now == *value) {
                continue;
            }
            if let Err(error) = device.write(name, value) {
                causes.push((name, error.to_string()));
            }
        }
        for (name, value) in &affected {
            let problem = match device.value(name) {
                Ok(now) if now == *value => continue,
                Ok(now) => format!("is {now}"),
                Err(error) => format!("cannot be read: {error}"),
            };
            let cause = causes.iter().find(|(failed, _)| *failed == name);
            let cause = cause.map_or_else(String::new, |(_, cause)| format!(" ({cause})"));
            problems.push(format!("{name} was {value} and {problem}{cause}"));
        }
        if problems.is_empty() {
            return Ok(());
        }
    }
    Err(problems.join(", "))
}
