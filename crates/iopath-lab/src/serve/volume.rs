//! The volume of a target that is served or attached: its options, and how it is opened. The text of the options is
//! that of the command line, also in the record of a device.

use std::path::Path;

use iopath::{IoMode, OpenError, Options, Unaligned, Volume};
use iopath_core::elevator::ElevatorSpec;
use iopath_os::target::Refusal;
use serde::{Deserialize, Serialize};

use super::ServeError;
use crate::modelled;
use iopath_bench::export::RemoteTarget;
use iopath_bench::model::ModelTarget;

/// Requests in flight at the device, for each worker.
const DEPTH: u32 = 256;

/// A path of `PATHS` that can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServeMode(pub(super) IoMode);

impl ServeMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self(IoMode::Direct), Self(IoMode::Buffered), Self(IoMode::Raw)];

    /// The name of the path.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            IoMode::Buffered => "iopath-buffered",
            IoMode::Raw => "iopath-raw",
            // `ALL` has no other.
            _ => "iopath-direct",
        }
    }
}

impl std::str::FromStr for ServeMode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| format!("{name} is not a path that can serve"))
    }
}

impl TryFrom<String> for ServeMode {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl From<ServeMode> for String {
    fn from(mode: ServeMode) -> Self {
        mode.name().to_owned()
    }
}

/// How targets are opened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeRequest {
    /// The path of the I/O.
    pub mode: ServeMode,
    /// The elevator.
    #[serde(with = "text")]
    pub elevator: Option<ElevatorSpec>,
    /// Bytes of the page cache.
    pub cache_bytes: Option<u64>,
    /// Clients may write.
    pub is_writable: bool,
    /// Clients may write to a device with a signature.
    pub overwrite: bool,
    /// Accepts a target that another program has locked, and does not lock it.
    pub is_shared: bool,
}

impl VolumeRequest {
    fn options(&self) -> Options {
        let mut options = Options::new()
            .mode(self.mode.0)
            .write(self.is_writable)
            .overwrite(self.overwrite)
            .lock(!self.is_shared)
            .unaligned(Unaligned::Bounce)
            .depth(DEPTH);
        if let Some(elevator) = &self.elevator {
            options = options.elevator(elevator.to_string());
        }
        if let Some(bytes) = self.cache_bytes {
            options = options.cache_bytes(bytes);
        }
        options
    }
}

/// The model that a target names, if it does.
pub(super) fn model_of(target: &Path) -> Result<Option<ModelTarget>, ServeError> {
    ModelTarget::find(target).map_err(|error| ServeError::Model(Box::new(error)))
}

/// Opens a file, a device, an export of another server, or the model that the target names.
pub(super) fn volume_of(
    target: &Path,
    model: Option<&ModelTarget>,
    request: &VolumeRequest,
) -> Result<Volume, ServeError> {
    let options = request.options();
    if let Some(model) = model {
        return Ok(modelled::open(model, options)?);
    }
    // Only one program has a device open for writing.
    let can_share = !request.is_writable || target.is_file();
    match RemoteTarget::find(target).map_err(|error| ServeError::Model(Box::new(error)))? {
        Some(remote) => Ok(remote.volume(&options)?),
        None => Volume::open(target, &options).map_err(|error| match error {
            OpenError::Refused(locked @ Refusal::Locked { .. }) if can_share => ServeError::Locked(locked),
            error => ServeError::Open(error),
        }),
    }
}

/// An elevator as its text.
mod text {
    use super::ElevatorSpec;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
    pub(super) fn serialize<S: Serializer>(
        elevator: &Option<ElevatorSpec>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        elevator.as_ref().map(ToString::to_string).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<ElevatorSpec>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}
