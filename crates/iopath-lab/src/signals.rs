//! Actions before a signal ends the process: scratch files are removed, settings of devices are restored. Does not know these
//! actions; `scratch.rs` and `device_settings/session.rs` register them.
//!
//! A thread waits for the signals through `signal-hook`, so that none of our code runs in a signal handler.

use std::fs;
use std::sync::{Mutex, Once, PoisonError};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The registered actions, in the order of their execution.
static ACTIONS: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

/// Signals that end the process. An ignored signal stays ignored: `nohup` ignores SIGHUP, and a shell ignores SIGINT for its
/// background jobs.
pub(crate) fn ending_signals() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0).collect()
}

/// Registers an action that the thread executes on a signal, before that signal ends the process. Starts the thread once per
/// process. An action that is already registered is not added again.
pub fn before_end(action: fn()) {
    static STARTED: Once = Once::new();
    let mut actions = ACTIONS.lock().unwrap_or_else(PoisonError::into_inner);
    if !actions.iter().any(|known| std::ptr::fn_addr_eq(*known, action)) {
        actions.push(action);
    }
    drop(actions);
    STARTED.call_once(|| {
        let Ok(mut signals) = Signals::new(ending_signals()) else { return };
        let wait = move || {
            for signal in signals.forever() {
                for action in ACTIONS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                    action();
                }
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        };
        let _ = thread::Builder::new().name("iopath-signals".to_owned()).spawn(wait);
    });
}
