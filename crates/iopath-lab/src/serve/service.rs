//! The interface of a service manager such as systemd: sockets that it opened (`LISTEN_FDS`), and messages to it
//! (`NOTIFY_SOCKET`). Without a service manager, there are no sockets and the messages go nowhere.

use std::io;

use iopath_nbd::Listener;
use listenfd::ListenFd;
use sd_notify::NotifyState;

/// The sockets that the service manager opened for this process. libnbd starts servers in the same way.
///
/// # Errors
/// A descriptor that is not a socket which accepts connections.
pub(super) fn sockets() -> io::Result<Vec<Listener>> {
    let mut inherited = ListenFd::from_env();
    (0..inherited.len())
        .filter_map(|index| match inherited.take_unix_listener(index) {
            Ok(unix) => unix.map(|listener| Ok(Listener::Unix(listener, None))),
            // Not a unix socket.
            Err(_) => inherited.take_tcp_listener(index).map(|tcp| tcp.map(Listener::Tcp)).transpose(),
        })
        .collect()
}

/// The server accepts connections.
pub(super) fn is_ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The state of the server in one line, for `systemctl status`.
pub(super) fn status(status: &str) {
    notify(&[NotifyState::Status(status)]);
}

/// The server ends.
pub(super) fn is_stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("completing requests in flight")]);
}

/// The flush at the end makes progress: the service manager waits longer. Without progress, the server ends by itself
/// before this time.
pub(super) fn extends_stop() {
    notify(&[NotifyState::ExtendTimeoutUsec(60_000_000), NotifyState::Status("flushing")]);
}

/// A service manager that does not listen is no reason to end.
fn notify(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(false, states);
}
