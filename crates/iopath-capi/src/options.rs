//! The options with which a volume is opened, by name: a table of names, so that a new option does not change the
//! interface.

use std::ffi::{c_char, c_int};

use iopath::{IoMode, Options, Readahead, Unaligned};

use crate::error::{Failure, handle_mut, pointer, status, text};

/// The options of a volume: read-only and direct unless set.
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "a name of C")]
pub struct iopath_options(pub(crate) Options);

type SetNumber = fn(Options, u64) -> Option<Options>;
type SetText = fn(Options, &str) -> Result<Options, String>;

/// Options with a number; a switch is 0 or 1. The names are those of the methods of `Options`.
const NUMBERS: &[(&str, SetNumber)] = &[
    ("write", |options, value| Some(options.write(switch(value)?))),
    ("extend", |options, value| Some(options.extend(switch(value)?))),
    ("extend_step", |options, value| Some(options.extend_step(value))),
    ("overwrite", |options, value| Some(options.overwrite(switch(value)?))),
    ("claim", |options, value| Some(options.claim(switch(value)?))),
    ("lock", |options, value| Some(options.lock(switch(value)?))),
    ("second_cache", |options, value| Some(options.second_cache(switch(value)?))),
    ("create", |options, value| Some(options.create(value))),
    ("create_new", |options, value| Some(options.create_new(value))),
    ("file_mode", |options, value| Some(options.file_mode(narrow(value)?))),
    ("depth", |options, value| Some(options.depth(narrow(value)?))),
    ("device_depth", |options, value| Some(options.device_depth(narrow(value)?))),
    ("request_bytes_max", |options, value| Some(options.request_bytes_max(value))),
    ("cache_bytes", |options, value| Some(options.cache_bytes(value))),
    ("page_bytes", |options, value| Some(options.page_bytes(narrow(value)?))),
    ("readahead_bytes", |options, value| {
        Some(options.readahead(if value == 0 { Readahead::Off } else { Readahead::Bytes(value) }))
    }),
];

/// Options with a text.
const TEXTS: &[(&str, SetText)] = &[
    ("mode", |options, value| {
        let modes = [("direct", IoMode::Direct), ("raw", IoMode::Raw), ("buffered", IoMode::Buffered)];
        choose(value, &modes).map(|mode| options.mode(mode))
    }),
    ("unaligned", |options, value| {
        let treatments =
            [("refuse", Unaligned::Refuse), ("bounce", Unaligned::Bounce), ("buffered", Unaligned::Buffered)];
        choose(value, &treatments).map(|unaligned| options.unaligned(unaligned))
    }),
    ("engine", |options, value| {
        value.parse().map(|engine| options.engine(engine)).map_err(|error| format!("{error}"))
    }),
    // Its name and settings are checked when the volume is opened.
    ("elevator", |options, value| Ok(options.elevator(value))),
];

const fn switch(value: u64) -> Option<bool> {
    match value {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn narrow(value: u64) -> Option<u32> {
    u32::try_from(value).ok()
}

fn choose<T: Copy>(value: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let chosen = choices.iter().find(|(name, _)| *name == value).map(|(_, chosen)| *chosen);
    chosen.ok_or_else(|| format!("choose one of: {}", names(choices)))
}

fn names<T>(rows: &[(&str, T)]) -> String {
    rows.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// The row of an option. The error names those of the table.
fn row<T: Copy>(rows: &[(&str, T)], name: &str, other: &str) -> Result<T, Failure> {
    let found = rows.iter().find(|(row, _)| *row == name).map(|(_, set)| *set);
    let names = names(rows);
    found.ok_or_else(|| Failure::invalid(format!("no option {name:?} here; choose one of: {names}{other}")))
}

/// Options with their defaults, for iopath_options_free.
#[unsafe(no_mangle)]
pub extern "C" fn iopath_options_new() -> *mut iopath_options {
    pointer(|| Ok(Box::into_raw(Box::new(iopath_options(Options::new())))))
}

/// Frees options; NULL is allowed. Volumes that were opened with them stay as they are.
///
/// # Safety
/// The options are NULL or from iopath_options_new, and are not used any longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_options_free(options: *mut iopath_options) {
    if !options.is_null() {
        // SAFETY: made by `Box::into_raw`, and the caller's promise.
        drop(unsafe { Box::from_raw(options) });
    }
}

/// Sets an option with a number. Switches, 0 or 1: "write", "extend" (a write past the end extends the file),
/// "overwrite" (a block device with a filesystem or another signature), "claim" (1 unless set: no other program mounts
/// the device meanwhile), "lock" (other programs that lock the file), "second_cache" (of a file that another volume of
/// the process writes through a page cache). In bytes: "create" (the file, extended to this size), "create_new",
/// "extend_step", "request_bytes_max", "cache_bytes" (256 MiB unless set), "page_bytes", "readahead_bytes" (0: none;
/// adaptive unless set). Others: "depth" (requests in flight of a thread at the device, 32 unless set), "device_depth"
/// (the same of a shared queue), "file_mode" (0666 unless set).
///
/// Returns 0, or -EINVAL: no such option, or the value is out of range.
///
/// # Safety
/// The options are NULL or from iopath_options_new, and no other thread uses them. The name is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_options_set_number(
    options: *mut iopath_options,
    name: *const c_char,
    value: u64,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (options, name) = unsafe { (handle_mut(options, "options")?, text(name, "name")?) };
        let name = name.to_string_lossy();
        let set = row(NUMBERS, &name, "; or a text: iopath_options_set_text")?;
        let changed = set(options.0.clone(), value);
        options.0 =
            changed.ok_or_else(|| Failure::invalid(format!("{value} is no value for option {name}")))?;
        Ok(())
    })
}

/// Sets an option with a text: "mode" ("direct", "raw" or "buffered"), "unaligned" ("refuse", "bounce" or "buffered"),
/// "engine" ("auto", "uring" or "threads"), "elevator" ("none", "deadline", "fair:quantum_bytes=65536", …).
///
/// Returns 0, or -EINVAL: no such option or value. iopath_open checks the elevator.
///
/// # Safety
/// As iopath_options_set_number. The value is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iopath_options_set_text(
    options: *mut iopath_options,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (options, name, value) =
            unsafe { (handle_mut(options, "options")?, text(name, "name")?, text(value, "value")?) };
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        let set = row(TEXTS, &name, "; or a number: iopath_options_set_number")?;
        let wrong = |reason| Failure::invalid(format!("{value:?} is no value for option {name}: {reason}"));
        options.0 = set(options.0.clone(), &value).map_err(wrong)?;
        Ok(())
    })
}
