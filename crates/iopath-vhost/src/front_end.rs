//! Finds the channel for messages to the front end.
//!
//! The crate `vhost` decodes the message that passes the channel, and keeps its descriptor to itself: it has no method
//! to send that the configuration has changed. So the message is looked at before `vhost` reads it. The descriptors
//! of a message that is only looked at are duplicates.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// The number of the message that passes the channel.
const SET_BACKEND_REQ_FD: u32 = 21;

/// The size of the header of a message.
const HEADER_BYTES: usize = 12;

/// A connection whose next message can be looked at.
#[derive(Debug)]
pub(crate) struct Peeked {
    stream: UnixStream,
}

impl Peeked {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream }
    }

    /// Waits for the next message. The channel, if it passes one.
    pub(crate) fn channel(&mut self) -> Option<UnixStream> {
        let mut number = [0; 4];
        // Without room for descriptors, none is duplicated.
        let mut none = RecvAncillaryBuffer::default();
        let flags = RecvFlags::PEEK;
        let received = recvmsg(&self.stream, &mut [IoSliceMut::new(&mut number)], &mut none, flags).ok()?;
        if received.bytes < number.len() || u32::from_ne_bytes(number) != SET_BACKEND_REQ_FD {
            return None;
        }
        let mut header = [0; HEADER_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut descriptors = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC;
        recvmsg(&self.stream, &mut [IoSliceMut::new(&mut header)], &mut descriptors, flags).ok()?;
        let passed = descriptors.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut passed) => passed.next(),
            _ => None,
        });
        Some(UnixStream::from(passed?))
    }
}
