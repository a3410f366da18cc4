//! redb over a volume of iopath: [`VolumeBackend`] replaces redb's file.
//!
//! ```no_run
//! use iopath_redb::VolumeBackend;
//! use redb::Database;
//!
//! let database = Database::builder().create_with_backend(VolumeBackend::open("data.redb")?)?;
//! # let _ = database;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backend;

pub use backend::VolumeBackend;
