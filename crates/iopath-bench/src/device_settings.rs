//! Settings of block devices in sysfs: a table of settings, changes with a journal, and their restore. Does not
//! measure: `tune` and `sweep` do.
//!
//! | file | content |
//! |---|---|
//! | `table.rs` | the settings: names, ranges, units, side effects |
//! | `device.rs` | a device: its identity and its attributes in sysfs |
//! | `journal.rs` | the values before a change, on disk, and the lock of a device |
//! | `session.rs` | changes for a time; restores at the end, on a panic and on a signal |
//! | `restore.rs` | the order of a restore, and its verification |
//! | `leftovers.rs` | journals of processes that were killed |

mod device;
mod error;
mod journal;
mod leftovers;
mod restore;
mod session;
mod table;

pub use device::{Setting, SettingsDevice};
pub use error::SettingsError;
pub use journal::Until;
pub use leftovers::{Leftover, pending, restore_all, restore_killed};
pub use session::{Drift, Session};
pub use table::{Change, IOSCHED, SETTINGS, SettingName, SettingRow, SettingValues};
