//! The threads that may use a batch, as its type parameter: a batch that may move is `Send`.

use super::io::BatchIo;
use crate::storage::threading::{AnyThread, OneThread, sealed};
use iopath_os::IoBuf;

/// The threads that may use a batch. Sealed: [`AnyThread`] and [`OneThread`].
pub trait Threading: Objects {}

impl Threading for AnyThread {}
impl Threading for OneThread {}

/// The objects that execute the requests of such a batch.
pub trait Objects: sealed::Open {
    type Io<B: IoBuf>: ?Sized + BatchIo<B>;
}

impl Objects for AnyThread {
    type Io<B: IoBuf> = dyn BatchIo<B> + Send;
}

impl Objects for OneThread {
    type Io<B: IoBuf> = dyn BatchIo<B>;
}
