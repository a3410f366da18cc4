//! Changes settings of a device for a time: a journal first, then sysfs, and the previous values at the end. The end is
//! a drop, a panic, or a signal; after SIGKILL, `leftovers.rs` restores them. Changes that stay are those of
//! [`Session::leave`].

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iopath_os::target::Roots;

use super::device::SettingsDevice;
use super::error::SettingsError;
use super::journal::{self, Content, Lock, Until};
use super::leftovers::{Leftover, names, restore_journal};
use super::restore::{affected, restore};
use super::table::{Change, IOSCHED, SettingName};
use crate::signals::{before_end, is_ending};

/// The sessions of this process whose settings a signal restores.
static ACTIVE: Mutex<Vec<Arc<Mutex<State>>>> = Mutex::new(Vec::new());

/// A setting that another program changed during a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// The setting.
    pub name: SettingName,
    /// The value after the last change of the session.
    pub expected: String,
    /// The value now; none if it cannot be read any more.
    pub found: Option<String>,
}

impl std::fmt::Display for Drift {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let found = self.found.as_deref().unwrap_or("unreadable");
        write!(f, "another program changed {} from {} to {found}", self.name, self.expected)
    }
}

/// The exclusive right to change the settings of a device, and the duty to restore them.
#[derive(Debug)]
pub struct Session {
    state: Arc<Mutex<State>>,
    /// Outcomes of an earlier journal of this device, if there was one.
    leftovers: Vec<Leftover>,
}

#[derive(Debug)]
struct State {
    device: SettingsDevice,
    lock: Lock,
    until: Until,
    content: Content,
    /// The journal at the start: with [`Until::Restore`], it may list changes of earlier sessions.
    content_before: Content,
    /// The values at the start, in the order of writes.
    before: Vec<(SettingName, String)>,
    /// The settings that this session may have changed, and has to restore.
    changed: Vec<SettingName>,
    /// All values after the last change.
    expected: Vec<(SettingName, String)>,
    has_ended: bool,
}

impl Session {
    /// Locks a device. Restores the settings that a killed process left changed first.
    ///
    /// # Errors
    /// [`SettingsError`]: another process changes settings of the device, or the journal is not writable.
    pub fn begin(device: SettingsDevice, until: Until) -> Result<Self, SettingsError> {
        Self::begin_in(&Roots::live(), &journal::directory(), device, until)
    }

    /// [`Session::begin`] with another directory of journals.
    ///
    /// # Errors
    /// As [`Session::begin`].
    pub fn begin_in_directory(
        directory: &Path,
        device: SettingsDevice,
        until: Until,
    ) -> Result<Self, SettingsError> {
        Self::begin_in(&Roots::live(), directory, device, until)
    }

    pub(super) fn begin_in(
        roots: &Roots,
        directory: &Path,
        device: SettingsDevice,
        until: Until,
    ) -> Result<Self, SettingsError> {
        let lock = Lock::take(directory, &device.identity().number, device.name())?;
        let mut leftovers = Vec::new();
        let mut earlier = |kind| {
            let path = lock.journal(kind);
            match path.exists().then(|| journal::read(&path)) {
                Some(Ok(content)) => Some(content),
                Some(Err(reason)) => {
                    leftovers.push(Leftover::Damaged { path: journal::set_aside(&path), reason });
                    None
                }
                None => None,
            }
        };
        let (killed, kept) = (earlier(Until::Exit), earlier(Until::Restore));
        if let Some(killed) = killed {
            match restore_journal(roots, &lock, Until::Exit, &killed) {
                Leftover::Failed(error) => return Err(error),
                outcome => leftovers.push(outcome),
            }
        }
        let values = device.values();
        let texts = values.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        let mut content = Content::new(device.identity().clone(), texts);
        // Values of another boot or device cannot be restored, so a new journal may replace them.
        let is_same =
            |kept: &Content| kept.boot == content.boot && kept.device.difference(device.identity()).is_none();
        if until == Until::Restore {
            content = kept.filter(is_same).unwrap_or(content);
        }
        journaled(&content)?;
        let state = Arc::new(Mutex::new(State {
            device,
            lock,
            until,
            content_before: content.clone(),
            content,
            before: values.clone(),
            changed: Vec::new(),
            expected: values,
            has_ended: false,
        }));
        before_end(restore_active);
        ACTIVE.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&state));
        let session = Self { state, leftovers };
        // After the registration: the end restores either this session too, or is seen here.
        if is_ending() { Err(SettingsError::Interrupted) } else { Ok(session) }
    }

    /// The outcomes of journals that earlier processes left, once.
    pub fn take_leftovers(&mut self) -> Vec<Leftover> {
        std::mem::take(&mut self.leftovers)
    }

    /// The settings of the device now.
    pub fn settings(&self) -> Vec<super::device::Setting> {
        self.locked().device.settings()
    }

    /// Changes settings. With [`Until::Exit`], all other settings have the values of the start of the session. On an
    /// error, the settings are as at the start of the session.
    ///
    /// # Errors
    /// [`SettingsError`]: the device does not have a setting or a value, or the journal is not writable.
    pub fn set(&self, changes: &[Change]) -> Result<(), SettingsError> {
        self.locked().set(changes)
    }

    /// The settings that differ from their values after the last change: another program, such as udev, changed them.
    pub fn drift(&self) -> Vec<Drift> {
        let state = self.locked();
        let differs = |(name, expected): &(SettingName, String)| {
            let found = state.device.value(name).ok();
            let (name, expected) = (name.clone(), expected.clone());
            (found.as_ref() != Some(&expected)).then_some(Drift { name, expected, found })
        };
        state.expected.iter().filter_map(differs).collect()
    }

    /// Restores the values of the start, and the journal.
    ///
    /// # Errors
    /// [`SettingsError::NotRestored`]: the journal stays.
    pub fn end(self) -> Result<(), SettingsError> {
        self.locked().end()
    }

    /// Ends the session without a restore: the journal stays until `iopath tune --restore`. With `keep`, the settings
    /// of these changes are not restored at all.
    ///
    /// # Errors
    /// [`SettingsError`]: the journal is not writable, or a signal ends the process. The values of the start are
    /// restored.
    pub fn leave(self, keep: Option<&[Change]>) -> Result<(), SettingsError> {
        let mut state = self.locked();
        if state.has_ended {
            return Err(SettingsError::Interrupted);
        }
        keep.map_or(Ok(()), |changes| state.keep(changes))?;
        state.has_ended = true;
        state.changed.clear();
        Ok(())
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // On an error the journal stays, and the next start tries again.
        let _ = self.locked().end();
        ACTIVE
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|known| !Arc::ptr_eq(known, &self.state));
    }
}

/// The settings of a journal with their previous values.
fn journaled(content: &Content) -> Result<Vec<(SettingName, String)>, SettingsError> {
    let found = names(content).map(|(before, _)| before);
    found.map_err(|reason| SettingsError::NoDevice {
        device: content.device.name.clone(),
        reason: format!("its settings are not in a known form: {reason}"),
    })
}

/// Restores the settings of all sessions of this process, before a signal ends it.
fn restore_active() {
    for state in ACTIVE.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let _ = state.lock().unwrap_or_else(PoisonError::into_inner).end();
    }
}

impl State {
    fn set(&mut self, changes: &[Change]) -> Result<(), SettingsError> {
        if self.has_ended {
            return Err(SettingsError::Interrupted);
        }
        if self.device.is_gone() {
            let reason = "the device is gone".to_owned();
            return Err(SettingsError::NoDevice { device: self.device.name().to_owned(), reason });
        }
        for Change { name, value } in changes {
            let is_tunable = name.as_str().starts_with(IOSCHED);
            if !is_tunable && !self.before.iter().any(|(known, _)| known == name) {
                let (device, name) = (self.device.name().to_owned(), name.to_string());
                return Err(SettingsError::Missing { device, name });
            }
            self.device.check(name, value)?;
        }
        self.note(changes)?;
        if self.until == Until::Exit {
            self.restore()?;
        }
        let applied = self.apply(changes);
        let undone = if applied.is_err() { self.undo() } else { Ok(()) };
        self.expected = self.device.values();
        undone.and(applied)
    }

    /// Adds settings to the journal before they change.
    fn note(&mut self, changes: &[Change]) -> Result<(), SettingsError> {
        let new = changes.iter().map(|change| &change.name).filter(|name| !self.changed.contains(name));
        let new: Vec<SettingName> = new.cloned().collect();
        let listed = self.content.changed.len();
        for name in new.iter().map(SettingName::to_string) {
            if !self.content.changed.contains(&name) {
                self.content.changed.push(name);
            }
        }
        if self.content.changed.len() > listed {
            self.write_journal().inspect_err(|_| self.content.changed.truncate(listed))?;
        }
        self.changed.extend(new);
        Ok(())
    }

    fn apply(&self, changes: &[Change]) -> Result<(), SettingsError> {
        let mut ordered: Vec<&Change> = changes.iter().collect();
        ordered.sort_by_key(|change| change.name.rank());
        for Change { name, value } in &ordered {
            let value_now = self.device.value(name).unwrap_or_default();
            if value_now != *value {
                self.device.write(name, value)?;
            }
        }
        for Change { name, value } in ordered {
            let found = self.device.value(name).unwrap_or_else(|error| error.to_string());
            // A negative number requests the kernel's default.
            if found != *value && !value.starts_with('-') {
                let (device, name) = (self.device.name().to_owned(), name.to_string());
                return Err(SettingsError::Rounded { device, name, value: value.clone(), found });
            }
        }
        Ok(())
    }

    fn restore(&self) -> Result<(), SettingsError> {
        restore(&self.device, &self.before, &self.changed).map_err(|details| self.not_restored(details))
    }

    fn not_restored(&self, details: String) -> SettingsError {
        let (device, journal) = (self.device.name().to_owned(), self.lock.journal(self.until));
        SettingsError::NotRestored { device, details, journal }
    }

    /// May be repeated: on an error, the next call tries again.
    fn end(&mut self) -> Result<(), SettingsError> {
        self.has_ended = true;
        if self.changed.is_empty() { Ok(()) } else { self.undo() }
    }

    /// Restores the values and the journal of the start.
    fn undo(&mut self) -> Result<(), SettingsError> {
        // The settings of a device that is gone are gone, too.
        if !self.device.is_gone() {
            self.restore()?;
        }
        self.content.clone_from(&self.content_before);
        self.write_journal()?;
        self.changed.clear();
        Ok(())
    }

    /// Removes settings from the journal: their present values are the ones to restore later.
    fn keep(&mut self, changes: &[Change]) -> Result<(), SettingsError> {
        let names: Vec<SettingName> = changes.iter().map(|change| change.name.clone()).collect();
        let before = journaled(&self.content)?;
        let kept: Vec<SettingName> =
            affected(&before, &names).into_iter().map(|(name, _)| name.clone()).collect();
        let now = self.device.values();
        for (name, value) in &mut self.content.before {
            let is_kept = kept.iter().any(|kept| kept.as_str() == name);
            let current = now.iter().find(|(known, _)| known.as_str() == name);
            if let (true, Some((_, current))) = (is_kept, current) {
                value.clone_from(current);
            }
        }
        self.content.changed.retain(|name| names.iter().all(|kept| kept.as_str() != name));
        self.write_journal()
    }

    /// Writes the journal as its content is now; removes it if it has no change.
    fn write_journal(&self) -> Result<(), SettingsError> {
        let path = self.lock.journal(self.until);
        if self.content.changed.is_empty() {
            journal::remove(&path)
        } else {
            journal::write(&path, &self.content)
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
