//! The entry point of the loadable extension: the only unsafe code of this crate.

use crate::{Files, IopathVfs};
use sqlite_plugin::vfs::{RegisterOpts, register_dynamic};
use sqlite_plugin::{sqlite3_api_routines, vars};
use std::ffi::{c_char, c_int, c_void};

/// The name of the VFS, as in `file:data.db?vfs=iopath`.
pub const NAME: &std::ffi::CStr = c"iopath";

/// Registers the VFS as the default of this process. SQLite calls it when it loads the extension, and keeps the
/// extension until the process ends.
///
/// # Safety
/// `api` is the table of functions that SQLite passes to extensions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_iopathvfs_init(
    _database: *mut c_void,
    _message: *mut *mut c_char,
    api: *mut sqlite3_api_routines,
) -> c_int {
    let vfs = IopathVfs::new(Files::from_env());
    // SAFETY: the caller passes SQLite's own table.
    match unsafe { register_dynamic(api, NAME.to_owned(), vfs, RegisterOpts { make_default: true }) } {
        Ok(_logger) => vars::SQLITE_OK_LOAD_PERMANENTLY,
        Err(code) => code,
    }
}
