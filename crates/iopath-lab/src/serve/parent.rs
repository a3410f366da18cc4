//! The parent of a server that was started for it: the server ends when the parent has ended. Does not end the server.

use std::fs;

use rustix::process::{Pid, getpid, getppid};

/// The parent of this process at the time of its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parent(Pid);

impl Parent {
    /// The present parent; `None` if it is outside of the namespace of this process.
    pub(super) fn current() -> Option<Self> {
        getppid().map(Self)
    }

    /// Whether it has ended: the system has given this process another parent. (A signal at the end of the parent,
    /// `PR_SET_PDEATHSIG`, would come at the end of the thread that started this process, and never for a parent that
    /// ended before the request.)
    pub(super) fn has_ended(self) -> bool {
        getppid() != Some(self.0)
    }

    /// Whether it is a service manager, which outlives the client, and whose services go on without it.
    pub(super) fn is_service_manager(self) -> bool {
        // systemd sets the variable for the process that it starts; the children of that process inherit it.
        match std::env::var("SYSTEMD_EXEC_PID") {
            Ok(pid) => pid.parse() == Ok(getpid().as_raw_nonzero().get()),
            Err(_) => self.0 == Pid::INIT || self.name().is_some_and(|name| name.trim_end() == "systemd"),
        }
    }

    fn name(self) -> Option<String> {
        fs::read_to_string(format!("/proc/{}/comm", self.0.as_raw_nonzero())).ok()
    }
}
