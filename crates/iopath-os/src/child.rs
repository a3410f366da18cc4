//! Child processes: what this process must do so that it learns how they ended.

/// Lets the kernel keep the status of ended child processes. It keeps none if `SIGCHLD` is ignored, which a process
/// inherits from its parent.
pub fn keep_child_status() {
    // SAFETY: the default action runs no code of this process.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}
