//! Turso over volumes of iopath: [`VolumeIo`] replaces Turso's own I/O.
//!
//! ```no_run
//! use iopath_turso::VolumeIo;
//! use std::sync::Arc;
//! use turso_core::{ConnectOpts, Database, SqliteDialect};
//!
//! let io = Arc::new(VolumeIo::of_files(64 << 20));
//! let database = Database::open_file(io, "data.db", Arc::new(SqliteDialect))?;
//! let connection = database.connect(ConnectOpts::new())?;
//! connection.execute("create table t (a)")?;
//! # Ok::<(), turso_core::LimboError>(())
//! ```
//!
//! Each call ends before it returns, as in Turso's own `UnixIO`. Its page cache is private to the process: as with
//! `UnixIO`, a database is open in one process at a time.

mod file;
mod io;

pub use io::{Open, VolumeIo};
