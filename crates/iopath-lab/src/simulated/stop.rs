//! Handles signals during a run in virtual time that writes a log. The first signal ends the run early. The run completes
//! the log, and then the signal ends the process. A second signal ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::low_level::{emulate_default_handler, unregister};
use signal_hook::{SigId, flag};

use crate::signals::ending_signals;

/// While this value exists, it catches the signals that end the process.
#[derive(Debug)]
pub(crate) struct StopOnSignal {
    ids: Vec<SigId>,
    /// The signal that was received; 0 for none.
    received: Arc<AtomicUsize>,
}

impl StopOnSignal {
    /// Sets `stop` on a signal. A signal that cannot be caught ends the process at once.
    pub(crate) fn new(stop: &Arc<AtomicBool>) -> Self {
        let received = Arc::new(AtomicUsize::new(0));
        let mut ids = Vec::new();
        for signal in ending_signals() {
            // The order matters: the first action ends the process if an earlier signal has already set `stop`.
            ids.extend(flag::register_conditional_default(signal, Arc::clone(stop)));
            ids.extend(flag::register_usize(signal, Arc::clone(&received), signal as usize));
            ids.extend(flag::register(signal, Arc::clone(stop)));
        }
        Self { ids, received }
    }
}

impl Drop for StopOnSignal {
    fn drop(&mut self) {
        self.ids.drain(..).for_each(|id| {
            unregister(id);
        });
        if let Ok(signal @ 1..) = i32::try_from(self.received.load(Ordering::SeqCst)) {
            let _ = emulate_default_handler(signal);
        }
    }
}
