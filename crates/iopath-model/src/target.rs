//! A remote block target: a device behind the CPUs of another host and a link. The target has no cache, queue or
//! elevator. To model a target with a queue, put a `QueuedDevice` in front of its device.

use iopath_core::Limits;

use crate::document::Section;
use crate::error::ModelError;
use crate::host::HostModel;
use crate::link::LinkModel;

/// The checked parameters of a target; `D` is the device behind it.
#[derive(Debug, Clone)]
pub(crate) struct Spec<D> {
    pub(crate) link: LinkModel,
    pub(crate) host: HostModel,
    pub(crate) device: D,
    pub(crate) device_limits: Limits,
}

impl<D> Spec<D> {
    /// Reads the tables `link`, `host` and `device`, the last by `read_device`.
    pub(crate) fn read(
        section: &Section<'_>,
        others: &[&str],
        read_device: impl FnOnce(&Section<'_>) -> Result<(D, Limits), ModelError>,
    ) -> Result<(Self, Limits), ModelError> {
        section.read(&[], others)?;
        let table = |name: &str| {
            section.table(name)?.ok_or_else(|| section.conflict(name, "a target has this table"))
        };
        let link = LinkModel::read(&table("link")?)?;
        let host = HostModel::read(&table("host")?)?;
        let (device, device_limits) = read_device(&table("device")?)?;
        let limits = device_limits.clone();
        Ok((Self { link, host, device, device_limits }, limits))
    }
}
