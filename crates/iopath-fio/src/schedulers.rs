//! The I/O schedulers of the disks beneath the targets, during a run: `ioscheduler`. The journal of `device_settings`
//! restores the former ones, also after SIGKILL.

use super::error::JobFileError;
use super::kept::Prepared;
use super::place::Access;
use iopath_bench::device_settings::{Change, Session, SettingsDevice, SettingsError, Until};

/// The setting of a device.
const SETTING: &str = "scheduler";

/// The changed disks. The drop restores them.
#[derive(Debug, Default)]
pub(super) struct Schedulers {
    sessions: Vec<(String, Session)>,
}

/// Sets the schedulers that jobs ask for, and returns what restores them. A path without a target has no disk.
pub(super) fn set(accesses: &[Access], prepared: &[Prepared]) -> Result<Schedulers, JobFileError> {
    let mut schedulers = Schedulers::default();
    let mut known: Vec<(String, &str)> = Vec::new();
    for Access { job, place, .. } in accesses {
        let Some(wanted) = job.scheduler.as_deref() else { continue };
        let target = prepared.iter().find(|prepared| prepared.place == *place);
        let Some(file) = target.and_then(|prepared| prepared.target.file()) else { continue };
        let refused = |error: SettingsError| job.problem(format!("ioscheduler={wanted}: {error}"));
        let device = SettingsDevice::find(file).map_err(refused)?;
        let name = device.name().to_owned();
        match known.iter().find(|(disk, _)| *disk == name) {
            Some((_, other)) if *other != wanted => {
                return Err(job.problem(format!(
                    "ioscheduler={wanted} and ioscheduler={other} exclude each other on disk {name}; use one of them"
                )));
            }
            Some(_) => continue,
            None => known.push((name.clone(), wanted)),
        }
        let change = Change::parse(&format!("{SETTING}={wanted}")).map_err(refused)?;
        let has = |setting: &iopath_bench::device_settings::Setting| {
            setting.name == change.name && setting.value == change.value
        };
        if device.settings().iter().any(has) {
            continue;
        }
        let session = Session::begin(device, Until::Exit).map_err(refused)?;
        session.set(&[change]).map_err(refused)?;
        schedulers.sessions.push((name, session));
    }
    Ok(schedulers)
}

impl Schedulers {
    /// Restores the former schedulers. Returns a warning for each that could not be restored.
    pub(super) fn restore(self) -> Vec<String> {
        let ended = self.sessions.into_iter().map(|(disk, session)| (disk, session.end()));
        ended.filter_map(|(disk, ended)| Some(format!("the scheduler of {disk}: {}", ended.err()?))).collect()
    }
}
