//! A remote block target: a device behind the CPUs of another host and a link. The target has no cache, queue or
//! elevator. To model a target with a queue, put a `QueuedDevice` in front of its device.

use crate::document::Section;
use crate::error::ModelError;
use crate::host::HostModel;
use crate::link::LinkModel;

/// The checked parameters of a target. Its device is the layer below.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) link: LinkModel,
    pub(crate) host: HostModel,
}

impl Spec {
    /// Reads the tables `link` and `host`.
    pub(crate) fn read(section: &Section<'_>, others: &[&str]) -> Result<Self, ModelError> {
        section.read(&[], others)?;
        let table = |name: &str| {
            section.table(name)?.ok_or_else(|| section.conflict(name, "a target has this table"))
        };
        Ok(Self { link: LinkModel::read(&table("link")?)?, host: HostModel::read(&table("host")?)? })
    }
}
