//! Negotiation of the server: from the first byte to the transmission phase. It has no timeouts: see the caller.

use std::sync::Arc;

use thiserror::Error;

use crate::export::Export;
use crate::meta::{BASE_ALLOCATION, BASE_ALLOCATION_ID, QUERIES_MAX, selects_base_allocation};
use crate::option::{self, InfoRequest, MetaRequest, OPTION_HEAD, OptionHead};
use crate::protocol::{
    EXPORT_NAME_ZEROES, FIXED_NEWSTYLE, NO_ZEROES, OPTION_MAGIC, SERVER_MAGIC, TransmissionFlags, info,
    option as code, option_reply,
};
use crate::reply::ReplyFormat;
use crate::wire::{Append, Fields};

/// Longest accepted data of an option, in bytes. Longer data is skipped and the option refused.
const OPTION_DATA_MAX: u32 = 32 << 10;

/// Accepted options of one connection. A client needs fewer than ten.
const OPTIONS_MAX: u32 = 256;

/// Output at which the server handles no further option before it is sent.
const OUTPUT_MAX: usize = 64 << 10;

/// Whether the server encrypts connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerTls {
    /// The server refuses TLS.
    Off,
    /// The client chooses.
    Offered,
    /// The server refuses all other options before TLS.
    Required,
}

/// An agreement of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Index of the export.
    pub export: usize,
    /// Format of requests and replies.
    pub format: ReplyFormat,
    /// The client may ask for the allocation of ranges.
    pub has_allocation: bool,
    /// The flags that the client received.
    pub flags: TransmissionFlags,
}

/// The next action of the caller, after it has sent the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerProgress {
    /// Receive more bytes.
    NeedInput,
    /// Send the output and call again: the input may hold further options.
    SendOutput,
    /// Start TLS as the server, then call [`ServerHandshake::tls_started`].
    StartTls,
    /// The negotiation is complete. The remaining input belongs to the transmission phase.
    Transmission(Session),
    /// The client ended the negotiation. Close the connection.
    Disconnect,
}

/// A violation of the protocol, or a request that can be refused only by closing the connection.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeError {
    /// Unknown flags: no common protocol.
    #[error("the client sent flags {0:#x}; known flags are 0x3 (fixed newstyle, no zeroes)")]
    ClientFlags(u32),
    /// The client does not speak newstyle, or is not in step.
    #[error("the client sent {0:#018x} at the start of an option; expected {OPTION_MAGIC:#018x} (IHAVEOPT)")]
    Magic(u64),
    /// The option `EXPORT_NAME` has no error reply.
    #[error("the client asked for export {0:?}, which does not exist")]
    UnknownExport(String),
    /// The option `EXPORT_NAME` has no error reply.
    #[error("the client asked for an export without TLS; the server requires TLS")]
    TlsRequired,
    /// An attacker between the ends may have sent the bytes.
    #[error("the client sent {0} bytes between its request for TLS and the reply")]
    InputBeforeTls(usize),
    /// A client that negotiates without end.
    #[error("the client sent more than {OPTIONS_MAX} options")]
    TooManyOptions,
    /// A caller passed input after the negotiation had ended.
    #[error("the negotiation has ended")]
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    ClientFlags,
    Options,
    /// The caller starts TLS.
    Tls,
    Ended,
}

/// The negotiation of one connection.
#[derive(Debug)]
pub struct ServerHandshake {
    exports: Arc<[Export]>,
    tls: ServerTls,
    is_encrypted: bool,
    state: State,
    output: Vec<u8>,
    no_zeroes: bool,
    format: ReplyFormat,
    /// The export for which the client selected [`BASE_ALLOCATION`].
    allocation: Option<usize>,
    options: u32,
    /// Bytes of a refused option that are still to arrive.
    skipped: u32,
}

impl ServerHandshake {
    /// A negotiation of `exports` on a new connection. The output starts with the greeting.
    #[must_use]
    pub fn new(exports: Arc<[Export]>, tls: ServerTls) -> Self {
        let mut output = Vec::new();
        output.append_u64(SERVER_MAGIC);
        output.append_u64(OPTION_MAGIC);
        output.append_u16(FIXED_NEWSTYLE | NO_ZEROES);
        Self {
            exports,
            tls,
            is_encrypted: false,
            state: State::ClientFlags,
            output,
            no_zeroes: false,
            format: ReplyFormat::Simple,
            allocation: None,
            options: 0,
            skipped: 0,
        }
    }

    /// Takes the bytes that must be sent before any further action.
    #[must_use]
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Handles the messages in `input` and removes them. At most 32 KiB + 16 bytes of an incomplete message remain.
    ///
    /// # Errors
    ///
    /// The client violates the protocol, or asks for an export in a way that cannot be refused. Close the connection.
    pub fn handle_input(&mut self, input: &mut Vec<u8>) -> Result<ServerProgress, HandshakeError> {
        let mut used = 0;
        let progress = self.advance(input, &mut used);
        input.drain(..used);
        if progress == Ok(ServerProgress::StartTls) && !input.is_empty() {
            self.state = State::Ended;
            return Err(HandshakeError::InputBeforeTls(input.len()));
        }
        progress
    }

    /// Continues after the TLS handshake. The options so far do not count: they arrived in plain text.
    ///
    /// # Panics
    ///
    /// Unless [`ServerProgress::StartTls`] was the last progress.
    pub fn tls_started(&mut self) {
        assert_eq!(self.state, State::Tls, "TLS starts when the client asks for it");
        self.is_encrypted = true;
        self.state = State::Options;
        self.format = ReplyFormat::Simple;
        self.allocation = None;
    }

    fn advance(&mut self, input: &[u8], used: &mut usize) -> Result<ServerProgress, HandshakeError> {
        loop {
            let rest = &input[*used..];
            match self.state {
                State::ClientFlags => {
                    let Some(flags) = Fields::new(rest).u32() else { return Ok(ServerProgress::NeedInput) };
                    *used += 4;
                    self.handle_client_flags(flags)?;
                }
                State::Options => {
                    let skipped = rest.len().min(self.skipped as usize);
                    *used += skipped;
                    self.skipped -= skipped as u32;
                    if self.output.len() > OUTPUT_MAX {
                        return Ok(ServerProgress::SendOutput);
                    }
                    match self.poll_option(&rest[skipped..], used)? {
                        Some(ServerProgress::SendOutput) => {}
                        Some(progress) => return Ok(progress),
                        None => return Ok(ServerProgress::NeedInput),
                    }
                }
                State::Tls | State::Ended => return Err(HandshakeError::Ended),
            }
        }
    }

    fn handle_client_flags(&mut self, flags: u32) -> Result<(), HandshakeError> {
        if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
            self.state = State::Ended;
            return Err(HandshakeError::ClientFlags(flags));
        }
        self.no_zeroes = flags & u32::from(NO_ZEROES) != 0;
        self.state = State::Options;
        Ok(())
    }

    /// Handles one option. `None` if it is incomplete; [`ServerProgress::SendOutput`] if the next can follow.
    fn poll_option(
        &mut self,
        input: &[u8],
        used: &mut usize,
    ) -> Result<Option<ServerProgress>, HandshakeError> {
        let head = OptionHead::decode(input).map_err(|magic| self.end(HandshakeError::Magic(magic)))?;
        let Some(head) = head else { return Ok(None) };
        let is_export_name = head.code == code::EXPORT_NAME;
        if head.length > OPTION_DATA_MAX && !is_export_name {
            *used += OPTION_HEAD;
            self.skipped = head.length;
            self.count_option()?;
            self.refuse(head.code, option_reply::TOO_BIG, "the data of the option is longer than 32 KiB");
            return Ok(Some(ServerProgress::SendOutput));
        }
        if head.length > OPTION_DATA_MAX {
            return Err(self.end(HandshakeError::UnknownExport(format!("<name of {} bytes>", head.length))));
        }
        let length = head.length as usize;
        let Some(data) = input[OPTION_HEAD..].get(..length) else { return Ok(None) };
        *used += OPTION_HEAD + length;
        self.count_option()?;
        self.handle_option(head.code, data).map(Some)
    }

    fn count_option(&mut self) -> Result<(), HandshakeError> {
        self.options += 1;
        if self.options > OPTIONS_MAX { Err(self.end(HandshakeError::TooManyOptions)) } else { Ok(()) }
    }

    fn handle_option(&mut self, option: u32, data: &[u8]) -> Result<ServerProgress, HandshakeError> {
        if option == code::ABORT {
            self.acknowledge(option);
            self.state = State::Ended;
            return Ok(ServerProgress::Disconnect);
        }
        let needs_tls = self.tls == ServerTls::Required && !self.is_encrypted;
        match option {
            code::START_TLS => return Ok(self.handle_start_tls(data)),
            code::EXPORT_NAME if needs_tls => return Err(self.end(HandshakeError::TlsRequired)),
            code::EXPORT_NAME => return self.handle_export_name(data),
            _ if needs_tls => self.refuse(option, option_reply::TLS_REQUIRED, "the server requires TLS"),
            code::GO | code::INFO => return Ok(self.handle_info(option, data)),
            code::LIST if data.is_empty() => self.handle_list(),
            code::STRUCTURED_REPLY if data.is_empty() => {
                if self.format == ReplyFormat::Simple {
                    self.format = ReplyFormat::Structured;
                }
                self.acknowledge(option);
            }
            code::EXTENDED_HEADERS if data.is_empty() => {
                self.format = ReplyFormat::Extended;
                self.acknowledge(option);
            }
            code::LIST_META_CONTEXT | code::SET_META_CONTEXT => self.handle_meta(option, data),
            code::LIST | code::STRUCTURED_REPLY | code::EXTENDED_HEADERS => {
                self.refuse(option, option_reply::INVALID, "the option has no data");
            }
            _ => self.refuse(option, option_reply::UNSUPPORTED, "unknown option"),
        }
        Ok(ServerProgress::SendOutput)
    }

    fn handle_start_tls(&mut self, data: &[u8]) -> ServerProgress {
        let refusal = match self.tls {
            _ if !data.is_empty() => Some((option_reply::INVALID, "the option has no data")),
            _ if self.is_encrypted => Some((option_reply::INVALID, "the connection uses TLS already")),
            ServerTls::Off => Some((option_reply::POLICY, "the server has no certificate")),
            ServerTls::Offered | ServerTls::Required => None,
        };
        if let Some((reply, message)) = refusal {
            self.refuse(code::START_TLS, reply, message);
            return ServerProgress::SendOutput;
        }
        self.acknowledge(code::START_TLS);
        self.state = State::Tls;
        ServerProgress::StartTls
    }

    fn handle_export_name(&mut self, name: &[u8]) -> Result<ServerProgress, HandshakeError> {
        let found = option::string(name).and_then(|name| self.find(name));
        let Some(export) = found else {
            let name = String::from_utf8_lossy(name).chars().take(256).collect();
            return Err(self.end(HandshakeError::UnknownExport(name)));
        };
        let session = self.session(export);
        self.output.append_u64(self.exports[export].size);
        self.output.append_u16(session.flags.bits());
        if !self.no_zeroes {
            Append::append(&mut self.output, &[0; EXPORT_NAME_ZEROES]);
        }
        self.state = State::Ended;
        Ok(ServerProgress::Transmission(session))
    }

    fn handle_info(&mut self, option: u32, data: &[u8]) -> ServerProgress {
        let Some(request) = InfoRequest::decode(data) else {
            self.refuse(option, option_reply::INVALID, "malformed data of the option");
            return ServerProgress::SendOutput;
        };
        let Some(export) = self.find(request.name) else {
            self.refuse(option, option_reply::UNKNOWN_EXPORT, "no export has this name");
            return ServerProgress::SendOutput;
        };
        let session = self.session(export);
        self.append_info(option, &request, export, session.flags);
        self.acknowledge(option);
        if option == code::INFO {
            return ServerProgress::SendOutput;
        }
        self.state = State::Ended;
        ServerProgress::Transmission(session)
    }

    /// The size and flags, the block sizes, and the texts that the client asked for.
    fn append_info(
        &mut self,
        option: u32,
        request: &InfoRequest<'_>,
        export: usize,
        flags: TransmissionFlags,
    ) {
        let export = &self.exports[export];
        let mut reply =
            |data: Vec<u8>| option::append_reply(&mut self.output, option, option_reply::INFO, &data);

        let mut data = info::EXPORT.to_be_bytes().to_vec();
        data.append_u64(export.size);
        data.append_u16(flags.bits());
        reply(data);

        let mut data = info::BLOCK_SIZE.to_be_bytes().to_vec();
        let sizes = export.block_sizes;
        for size in [sizes.min, sizes.preferred, sizes.max] {
            data.append_u32(size);
        }
        reply(data);

        for (info, text) in [(info::NAME, &export.name), (info::DESCRIPTION, &export.description)] {
            if request.wants(info) && (info == info::NAME || !text.is_empty()) {
                reply([&info.to_be_bytes(), text.as_bytes()].concat());
            }
        }
    }

    fn handle_list(&mut self) {
        for export in self.exports.iter() {
            let mut data = Vec::new();
            option::append_string(&mut data, &export.name);
            Append::append(&mut data, export.description.as_bytes());
            option::append_reply(&mut self.output, code::LIST, option_reply::SERVER, &data);
        }
        self.acknowledge(code::LIST);
    }

    fn handle_meta(&mut self, option: u32, data: &[u8]) {
        let is_list = option == code::LIST_META_CONTEXT;
        if !is_list {
            self.allocation = None;
        }
        if self.format == ReplyFormat::Simple {
            return self.refuse(option, option_reply::INVALID, "metadata contexts need structured replies");
        }
        let Some(request) = MetaRequest::decode(data, QUERIES_MAX) else {
            return self.refuse(
                option,
                option_reply::INVALID,
                "malformed data of the option, or over 32 queries",
            );
        };
        let Some(export) = self.find(request.name) else {
            return self.refuse(option, option_reply::UNKNOWN_EXPORT, "no export has this name");
        };
        let wants_all = is_list && request.queries.is_empty();
        let is_selected =
            wants_all || request.queries.iter().any(|query| selects_base_allocation(query, is_list));
        if is_selected && self.exports[export].has_allocation {
            let mut data = if is_list { 0 } else { BASE_ALLOCATION_ID }.to_be_bytes().to_vec();
            Append::append(&mut data, BASE_ALLOCATION.as_bytes());
            option::append_reply(&mut self.output, option, option_reply::META_CONTEXT, &data);
            if !is_list {
                self.allocation = Some(export);
            }
        }
        self.acknowledge(option);
    }

    /// The index of the export with this name. The empty name is that of the first export, unless another has it.
    fn find(&self, name: &str) -> Option<usize> {
        let found = self.exports.iter().position(|export| export.name == name);
        found.or((name.is_empty() && !self.exports.is_empty()).then_some(0))
    }

    fn session(&self, export: usize) -> Session {
        let offered = self.exports[export].flags | TransmissionFlags::HAS_FLAGS;
        // These flags depend on the negotiation, not on the export.
        let mut flags = offered - TransmissionFlags::SEND_DF - TransmissionFlags::BLOCK_STATUS_PAYLOAD;
        flags -= TransmissionFlags::SEND_RESIZE;
        flags.set(TransmissionFlags::SEND_DF, self.format != ReplyFormat::Simple);
        Session { export, format: self.format, has_allocation: self.allocation == Some(export), flags }
    }

    fn acknowledge(&mut self, option: u32) {
        option::append_reply(&mut self.output, option, option_reply::ACK, &[]);
    }

    fn refuse(&mut self, option: u32, reply: u32, message: &str) {
        option::append_reply(&mut self.output, option, reply, message.as_bytes());
    }

    fn end(&mut self, error: HandshakeError) -> HandshakeError {
        self.state = State::Ended;
        error
    }
}
