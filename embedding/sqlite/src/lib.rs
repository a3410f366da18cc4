//! A VFS of SQLite over volumes of iopath: `.load ./libiopath_vfs` in the shell of SQLite registers it as `iopath` and
//! makes it the default. [`IopathVfs`] is the VFS, for programs that link SQLite.
//!
//! Its page cache is private to the process, so a database is open in one process at a time, as with SQLite's own VFS
//! `unix-excl`. Connections of one process share a database as usual, also in WAL mode.

mod extension;
mod lock;
mod open_file;
mod shm;
mod store;
mod vfs;

pub use extension::NAME;
pub use store::{Files, Opening, Role, Store};
pub use vfs::{Handle, IopathVfs};
