//! Signals that end the process. Before the end, registered actions remove scratch files and restore settings of
//! devices. While an [`Interruption`] exists, the first signal only requests the end of the measurement. Does not know
//! the actions; `own_file.rs`, `device_settings/session.rs`, `export.rs` and commands of the program register them.
//!
//! A thread waits for the signals through `signal-hook`, so that none of our code runs in a signal handler.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The registered actions.
static ACTIONS: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

/// The actions that end waits of a measurement.
static ENDS_OF_WAITS: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

/// The time between the request to end a measurement and the end of its waits: transfers in flight complete meanwhile.
const GRACE: Duration = Duration::from_secs(1);

/// Signals that end the process. An ignored signal stays ignored: `nohup` ignores SIGHUP, and a shell ignores SIGINT
/// for its background jobs.
pub fn ending_signals() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0).collect()
}

/// Whether the end of the measurement is requested.
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Whether SIGCONT has requested the end: a launcher ends the process.
static WAS_WARNED: AtomicBool = AtomicBool::new(false);

/// Whether SIGCONT requested it: then SIGTERM follows, and does not end the process at once.
static IS_WARNED: AtomicBool = AtomicBool::new(false);

/// The signal that requested it; 0 for none.
static RECEIVED: AtomicI32 = AtomicI32::new(0);

/// Whether the process ends: its actions are executed now, or were.
static ENDING: AtomicBool = AtomicBool::new(false);

/// A server handles the first signal.
static IS_SERVING: AtomicBool = AtomicBool::new(false);

/// The existing values of [`Interruption`].
static CATCHING: AtomicUsize = AtomicUsize::new(0);

/// While a value exists, the first SIGINT, SIGTERM or SIGHUP ends the measurement early, with the repetitions so far. A
/// second one ends the process at once. When the last value is dropped after a signal, that signal ends the process.
#[derive(Debug)]
pub struct Interruption(());

impl Interruption {
    /// Catches the first signal.
    pub fn catch() -> Self {
        start();
        CATCHING.fetch_add(1, Ordering::SeqCst);
        Self(())
    }

    /// Whether a value exists: then [`Interruption::request`] ends the measurement with its results.
    pub fn is_caught() -> bool {
        CATCHING.load(Ordering::SeqCst) > 0
    }

    /// Requests the end of the measurement, as the first signal does. The process does not end. A signal after it ends
    /// the process at once.
    pub fn request() {
        if !REQUESTED.swap(true, Ordering::SeqCst) {
            // Without the thread, a second signal ends the process.
            let _ = thread::Builder::new().name("iopath-interrupt".to_owned()).spawn(end_waits);
        }
    }

    /// Also SIGCONT requests the end of the measurement from now on. Launchers of MPI send it before SIGTERM and
    /// SIGKILL, which follow soon. A measurement that was stopped in between has no valid figures anyway.
    pub fn request_on_continue() {
        let Ok(mut signals) = Signals::new([SIGCONT]) else { return };
        let wait = move || {
            for _ in signals.forever() {
                WAS_WARNED.store(true, Ordering::SeqCst);
                IS_WARNED.store(true, Ordering::SeqCst);
                Self::request();
            }
        };
        let _ = thread::Builder::new().name("iopath-continue".to_owned()).spawn(wait);
    }

    /// Whether a launcher ends this process, and has warned it by SIGCONT.
    pub fn was_warned() -> bool {
        WAS_WARNED.load(Ordering::SeqCst)
    }

    /// Whether the end of the measurement is requested.
    pub fn is_requested() -> bool {
        REQUESTED.load(Ordering::Relaxed)
    }

    /// Set when the end of the measurement is requested.
    pub(crate) fn flag() -> &'static AtomicBool {
        &REQUESTED
    }
}

impl Drop for Interruption {
    fn drop(&mut self) {
        if CATCHING.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        REQUESTED.store(false, Ordering::SeqCst);
        let signal = RECEIVED.swap(0, Ordering::SeqCst);
        if signal != 0 {
            end(signal);
        }
    }
}

/// Leaves the first signal to a server, which registers a handler of its own and ends in order. A second signal ends
/// the process.
pub fn leave_first_to_server() {
    IS_SERVING.store(true, Ordering::SeqCst);
}

/// Registers an action that the thread executes on a signal, before that signal ends the process. The last registered
/// action is the first to be executed. An action that is already registered is not added again.
pub fn before_end(action: fn()) {
    register(&ACTIONS, action);
    start();
}

/// Whether the actions of [`before_end`] are executed now, or were. A caller that registers its action first, and then
/// finds false, can rely on the action.
pub(crate) fn is_ending() -> bool {
    ENDING.load(Ordering::SeqCst)
}

/// Registers an action that ends waits of a measurement: it is executed after the request for the end of the
/// measurement, if the measurement has not ended within [`GRACE`].
pub(crate) fn to_end_waits(action: fn()) {
    register(&ENDS_OF_WAITS, action);
}

fn register(actions: &Mutex<Vec<fn()>>, action: fn()) {
    let mut actions = actions.lock().unwrap_or_else(PoisonError::into_inner);
    if !actions.iter().any(|known| std::ptr::fn_addr_eq(*known, action)) {
        actions.push(action);
    }
}

fn end_waits() {
    thread::sleep(GRACE);
    if Interruption::is_requested() {
        execute(&ENDS_OF_WAITS);
    }
}

fn execute(actions: &Mutex<Vec<fn()>>) {
    // Without the lock: an action may wait for a thread that registers one.
    let actions = actions.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for action in actions.into_iter().rev() {
        action();
    }
}

/// Lets a write beyond the limit of file sizes (`ulimit -f`) fail with `EFBIG`. Without this, SIGXFSZ ends the process,
/// and its files stay. A handler, because programs that this process starts would inherit an ignored signal.
pub fn survive_file_size_limit() {
    let _ = signal_hook::flag::register(Signal::XFSZ.as_raw(), Arc::default());
}

/// Starts the thread that waits for signals, once per process.
fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let Ok(mut signals) = Signals::new(ending_signals()) else { return };
        let wait = move || {
            for signal in signals.forever() {
                if IS_SERVING.swap(false, Ordering::SeqCst) {
                    continue;
                }
                let is_caught = CATCHING.load(Ordering::SeqCst) > 0;
                let is_first = is_caught
                    && (!Interruption::is_requested() || IS_WARNED.swap(false, Ordering::SeqCst))
                    && RECEIVED.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst).is_ok();
                if is_first {
                    Interruption::request();
                } else {
                    end(signal);
                }
            }
        };
        let _ = thread::Builder::new().name("iopath-signals".to_owned()).spawn(wait);
    });
}

/// Executes the actions, and ends the process by the signal.
fn end(signal: i32) {
    ENDING.store(true, Ordering::SeqCst);
    execute(&ACTIONS);
    let _ = signal_hook::low_level::emulate_default_handler(signal);
}
