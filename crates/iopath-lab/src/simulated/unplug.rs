//! When the queue of a modelled buffered volume starts its plugged requests.

/// The condition to start plugged requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Unplug {
    /// At once, after the submission of all bios that are due.
    #[default]
    AtOnce,
}
