//! A modelled disk in real time, for servers and replays: its data is in memory, and each request completes at the time
//! at which the modelled disk would complete it. A caller cannot distinguish it from that disk by its speed.

use iopath::buffers::NoMemory;
use iopath::testing::{MemoryConfig, MemoryDisk, Timing};
use iopath::{OpenError, Options, Volume};
use iopath_core::LengthOnly;
use iopath_model::ModelDevice;

use iopath_bench::model::ModelTarget;

/// The seed of random choices of the model.
const SEED: u64 = 1;

/// The reason why a modelled disk cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ModelledError {
    /// The address space is too small for the disk.
    #[error(transparent)]
    Memory(#[from] NoMemory),
    /// An option does not fit the model.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// A disk of zeroes. It is empty again when the volume is dropped.
pub(crate) fn open(model: &ModelTarget, options: Options) -> Result<Volume, ModelledError> {
    let disk = MemoryDisk::new(&MemoryConfig {
        block_bytes: model.align_bytes(),
        is_sparse: true,
        ..MemoryConfig::of_bytes(model.size_bytes())
    })?;
    let timing = Timing::new(Box::new(ModelDevice::<LengthOnly>::new(model.model(), SEED)));
    Ok(Volume::memory(&disk, &options.timing(&timing))?)
}
