//! A handle of a source is a source, so that the program can keep one, or does not know its type.

use super::{DeviceSetup, Limits, OpenedDevice, RealDevice, Source, SourceError, Tail, Target};
use crate::error::OpenError;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Forwards every method, so that no default replaces that of the source.
macro_rules! forward {
    ($($method:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        impl<S: ?Sized + Source> Source for Arc<S> {
            $(fn $method(&self $(, $argument: $type)*) -> $result {
                (**self).$method($($argument),*)
            })*
        }

        impl<S: ?Sized + Source> Source for Box<S> {
            $(fn $method(&self $(, $argument: $type)*) -> $result {
                (**self).$method($($argument),*)
            })*
        }
    };
}

forward! {
    limits() -> Limits;
    open(setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice + Send>, OpenError>;
    open_local(setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice>, OpenError>;
    name() -> PathBuf;
    size_bytes() -> u64;
    can_resize() -> bool;
    resize(size_bytes: u64) -> Result<(), SourceError>;
    length_now() -> Option<u64>;
    writes_last_block() -> bool;
    tail() -> Result<Option<Box<dyn Tail>>, OpenError>;
    write_unit_bytes() -> u64;
    discard_zeroes() -> bool;
    allocate(offset: u64, bytes: u64) -> Result<(), SourceError>;
    data_ranges(range: Range<u64>, ranges_max: usize) -> Result<Vec<Range<u64>>, SourceError>;
    file() -> Option<&Arc<File>>;
    files() -> Vec<Arc<File>>;
    has_whole_files() -> bool;
    target() -> Arc<Target>;
    device_depth() -> u32;
    shares_engine() -> bool;
    failure() -> Option<String>;
}
