//! The implementations behind the rows of [`crate::path::PATHS`].

pub(crate) mod buffered;
pub(crate) mod kernel;
pub(crate) mod null;
pub(crate) mod volume;
