//! The limit of open files, which limits the connections of a server.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open files of this process to the hard limit. For programs that serve: the soft limit is
/// 1,024 on most systems, for programs that use `select(2)`, and lower than the number of connections that a server
/// accepts.
pub fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // A process may always do this. If the system refuses it, the server accepts fewer connections, and says so.
    let _ = setrlimit(Resource::Nofile, limit);
}
