//! The tests of the crate in one test program, a module for each subject. A test that needs a process of its own is not
//! here.

mod certificates;
mod pair;
mod servers;
mod sockets;
#[path = "../../iopath-os/tests/support/mod.rs"]
mod support;

mod bad_servers;
mod floods;
mod hostile;
mod killed;
mod peers;
mod programs;
mod serve;
mod served_files;
mod session;
mod simulated;
mod stalled;
mod tls;
mod volume;
mod volume_tls;
