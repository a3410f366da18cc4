//! What the tests share: a guest, a front end, and servers on files.

pub(crate) mod front_end;
pub(crate) mod guest;
pub(crate) mod server;
