//! Negotiation of a client: from the greeting of the server to the transmission phase, or to a list of exports.

use crate::client::ClientError;
use crate::export::BlockSizes;
use crate::meta::BASE_ALLOCATION;
use crate::option::{self, InfoRequest, MetaRequest, OptionReplyHead, REPLY_HEAD};
use crate::protocol::{
    EXPORT_NAME_ZEROES, FIXED_NEWSTYLE, NO_ZEROES, OLDSTYLE_MAGIC, OPTION_MAGIC, SERVER_MAGIC, STRING_MAX,
    TransmissionFlags, info, option as code, option_reply,
};
use crate::reply::ReplyFormat;
use crate::wire::{Append, Fields};

/// Longest data of a reply, in bytes: two strings and their lengths.
const DATA_MAX: u32 = 2 * STRING_MAX as u32 + 64;

/// Accepted replies of one negotiation, so that a server cannot fill the memory with names.
const REPLIES_MAX: u32 = 100_000;

/// Whether the client encrypts the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientTls {
    /// No TLS. A server that requires it is an error.
    #[default]
    Off,
    /// TLS. A server without it is an error: an attacker could have removed the offer.
    Required,
}

/// The wishes of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Name of the export; empty for the default of the server.
    pub export: String,
    /// List the exports instead of a connection to one.
    pub is_list: bool,
    /// Encryption.
    pub tls: ClientTls,
    /// The best format to ask for. The server may lack it; the next simpler one is then used.
    pub format: ReplyFormat,
    /// Ask for the allocation of ranges (`base:allocation`).
    pub wants_allocation: bool,
}

impl ClientOptions {
    /// A connection to an export, with every feature that the server has and without TLS.
    #[must_use]
    pub fn export(name: impl Into<String>) -> Self {
        Self {
            export: name.into(),
            is_list: false,
            tls: ClientTls::Off,
            format: ReplyFormat::Extended,
            wants_allocation: true,
        }
    }

    /// A list of the exports.
    #[must_use]
    pub fn list() -> Self {
        Self { is_list: true, ..Self::export("") }
    }
}

/// An agreement of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Size of the export in bytes.
    pub size: u64,
    /// Accepted commands.
    pub flags: TransmissionFlags,
    /// Sizes of requests; those of the protocol if the server states none.
    pub block_sizes: BlockSizes,
    /// Whether the server stated the block sizes.
    pub has_block_sizes: bool,
    /// Format of requests and replies.
    pub format: ReplyFormat,
    /// The server's number of the context `base:allocation`.
    pub allocation: Option<u32>,
}

/// The next action of the caller, after it has sent the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientProgress {
    /// Receive more bytes.
    NeedInput,
    /// Start TLS as the client, then call [`ClientHandshake::tls_started`].
    StartTls,
    /// The negotiation is complete. The remaining input belongs to the transmission phase.
    Transmission(Negotiated),
    /// Names and descriptions of the exports. Close the connection after the output is sent.
    Listed(Vec<(String, String)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Greeting,
    /// The replies to this option are awaited.
    Option(u32),
    /// The reply to `EXPORT_NAME`, which has no head, is awaited.
    ExportName,
    Tls,
    Ended,
}

/// The negotiation of one connection.
#[derive(Debug)]
pub struct ClientHandshake {
    options: ClientOptions,
    state: State,
    output: Vec<u8>,
    no_zeroes: bool,
    format: ReplyFormat,
    size_and_flags: Option<(u64, TransmissionFlags)>,
    block_sizes: Option<BlockSizes>,
    allocation: Option<u32>,
    listed: Vec<(String, String)>,
    replies: u32,
}

impl ClientHandshake {
    /// A negotiation on a new connection.
    ///
    /// # Panics
    ///
    /// If the name of the export is longer than 4096 bytes.
    #[must_use]
    pub fn new(options: ClientOptions) -> Self {
        assert!(options.export.len() <= STRING_MAX, "names of exports have at most 4096 bytes");
        Self {
            options,
            state: State::Greeting,
            output: Vec::new(),
            no_zeroes: false,
            format: ReplyFormat::Simple,
            size_and_flags: None,
            block_sizes: None,
            allocation: None,
            listed: Vec::new(),
            replies: 0,
        }
    }

    /// Takes the bytes that must be sent before any further action.
    #[must_use]
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Handles the messages in `input` and removes them. At most 9 KiB of an incomplete message remain.
    ///
    /// # Errors
    ///
    /// The server refuses the connection or violates the protocol. Send the output, then close the connection.
    pub fn handle_input(&mut self, input: &mut Vec<u8>) -> Result<ClientProgress, ClientError> {
        let mut used = 0;
        let progress = self.advance(input, &mut used);
        input.drain(..used);
        match progress {
            Ok(ClientProgress::StartTls) if !input.is_empty() => {
                Err(ClientError::InputBeforeTls(input.len()))
            }
            other => other,
        }
    }

    /// Continues after the TLS handshake.
    ///
    /// # Panics
    ///
    /// Unless [`ClientProgress::StartTls`] was the last progress.
    pub fn tls_started(&mut self) {
        assert_eq!(self.state, State::Tls, "TLS starts when the server consents");
        self.start_options();
    }

    fn advance(&mut self, input: &[u8], used: &mut usize) -> Result<ClientProgress, ClientError> {
        loop {
            let rest = &input[*used..];
            let step = match self.state {
                State::Greeting => self.poll_greeting(rest, used)?,
                State::ExportName => self.poll_export_name(rest, used)?,
                State::Option(option) => self.poll_reply(option, rest, used)?,
                State::Tls | State::Ended => return Err(ClientError::Ended),
            };
            match step {
                Step::Incomplete => return Ok(ClientProgress::NeedInput),
                Step::Continue => {}
                Step::Progress(progress) => return Ok(progress),
            }
        }
    }

    fn poll_greeting(&mut self, input: &[u8], used: &mut usize) -> Result<Step, ClientError> {
        let mut fields = Fields::new(input);
        let Some(first) = fields.u64() else { return Ok(Step::Incomplete) };
        if first != SERVER_MAGIC {
            return Err(self.end(ClientError::NotNbd(first)));
        }
        let Some(second) = fields.u64() else { return Ok(Step::Incomplete) };
        if second != OPTION_MAGIC {
            let error = match second {
                OLDSTYLE_MAGIC => ClientError::OldStyle,
                found => ClientError::Magic { message: "the negotiation", found },
            };
            return Err(self.end(error));
        }
        let Some(flags) = fields.u16() else { return Ok(Step::Incomplete) };
        *used += 18;
        let accepted = flags & (FIXED_NEWSTYLE | NO_ZEROES);
        self.no_zeroes = accepted & NO_ZEROES != 0;
        self.output.append_u32(accepted.into());
        if accepted & FIXED_NEWSTYLE != 0 {
            match self.options.tls {
                ClientTls::Off => self.start_options(),
                ClientTls::Required => self.send(code::START_TLS, &[]),
            }
        } else if self.options.tls == ClientTls::Required {
            return Err(self.end(ClientError::NoTls));
        } else if self.options.is_list {
            let reason = "it does not speak fixed newstyle".to_owned();
            return Err(self.end(ClientError::Refused { option: "LIST", reason }));
        } else {
            self.send_export_name();
        }
        Ok(Step::Continue)
    }

    /// Sends the first option after the greeting or TLS. Each reply then starts the next.
    fn start_options(&mut self) {
        match self.options.format {
            _ if self.options.is_list => self.send(code::LIST, &[]),
            ReplyFormat::Extended => self.send(code::EXTENDED_HEADERS, &[]),
            ReplyFormat::Structured => self.send(code::STRUCTURED_REPLY, &[]),
            ReplyFormat::Simple => self.send_go(),
        }
    }

    fn send(&mut self, option: u32, data: &[u8]) {
        option::append_option(&mut self.output, option, data);
        self.state = State::Option(option);
    }

    fn send_export_name(&mut self) {
        option::append_option(&mut self.output, code::EXPORT_NAME, self.options.export.as_bytes());
        self.state = State::ExportName;
    }

    fn send_go(&mut self) {
        let data = InfoRequest::encode(&self.options.export, &[info::BLOCK_SIZE]);
        self.send(code::GO, &data);
    }

    /// After the format is known: contexts if the format permits them, then the export.
    fn send_contexts(&mut self) {
        if self.options.wants_allocation && self.format != ReplyFormat::Simple {
            let data = MetaRequest::encode(&self.options.export, &[BASE_ALLOCATION]);
            self.send(code::SET_META_CONTEXT, &data);
        } else {
            self.send_go();
        }
    }

    fn poll_export_name(&mut self, input: &[u8], used: &mut usize) -> Result<Step, ClientError> {
        let mut fields = Fields::new(input);
        let zeroes = if self.no_zeroes { 0 } else { EXPORT_NAME_ZEROES };
        let (Some(size), Some(flags), Some(_)) = (fields.u64(), fields.u16(), fields.bytes(zeroes)) else {
            return Ok(Step::Incomplete);
        };
        *used += 10 + zeroes;
        self.size_and_flags = Some((size, TransmissionFlags::from_bits_retain(flags)));
        self.transmission()
    }

    fn poll_reply(&mut self, option: u32, input: &[u8], used: &mut usize) -> Result<Step, ClientError> {
        let message = name_of(option);
        let head = OptionReplyHead::decode(input)
            .map_err(|found| self.end(ClientError::Magic { message: "a reply to an option", found }))?;
        let Some(head) = head else { return Ok(Step::Incomplete) };
        if head.code != option {
            return Err(self.end(ClientError::Malformed(message)));
        }
        if head.length > DATA_MAX {
            let length = head.length.into();
            let max = DATA_MAX.into();
            return Err(self.end(ClientError::TooLong { message, length, max }));
        }
        let length = head.length as usize;
        let Some(data) = input[REPLY_HEAD..].get(..length) else { return Ok(Step::Incomplete) };
        *used += REPLY_HEAD + length;
        self.replies += 1;
        if self.replies > REPLIES_MAX {
            return Err(self.end(ClientError::Malformed(message)));
        }
        let result = if head.reply & option_reply::ERROR == 0 {
            self.handle_reply(option, head.reply, data)
        } else {
            self.handle_refusal(option, head.reply, data)
        };
        result.map_err(|error| self.end(error))
    }

    fn handle_reply(&mut self, option: u32, reply: u32, data: &[u8]) -> Result<Step, ClientError> {
        let malformed = ClientError::Malformed(name_of(option));
        match (option, reply) {
            (code::GO, option_reply::INFO) => self.handle_info(data)?,
            (code::LIST, option_reply::SERVER) => {
                let mut fields = Fields::new(data);
                let name = fields.string().and_then(option::string).ok_or(malformed)?;
                let description = String::from_utf8_lossy(fields.rest()).into_owned();
                self.listed.push((name.to_owned(), description));
            }
            (code::SET_META_CONTEXT, option_reply::META_CONTEXT) => {
                let mut fields = Fields::new(data);
                let context = fields.u32().ok_or(malformed)?;
                if fields.rest() == BASE_ALLOCATION.as_bytes() {
                    self.allocation = Some(context);
                }
            }
            (_, option_reply::ACK) => return self.handle_acknowledged(option),
            _ => return Err(malformed),
        }
        Ok(Step::Continue)
    }

    fn handle_acknowledged(&mut self, option: u32) -> Result<Step, ClientError> {
        match option {
            code::START_TLS => {
                self.state = State::Tls;
                return Ok(Step::Progress(ClientProgress::StartTls));
            }
            code::EXTENDED_HEADERS | code::STRUCTURED_REPLY => {
                self.format = match option {
                    code::EXTENDED_HEADERS => ReplyFormat::Extended,
                    _ => ReplyFormat::Structured,
                };
                self.send_contexts();
            }
            code::SET_META_CONTEXT => self.send_go(),
            code::LIST => {
                option::append_option(&mut self.output, code::ABORT, &[]);
                self.state = State::Ended;
                return Ok(Step::Progress(ClientProgress::Listed(std::mem::take(&mut self.listed))));
            }
            _ => return self.transmission(),
        }
        Ok(Step::Continue)
    }

    /// Continues without the refused option where the protocol has an older way.
    fn handle_refusal(&mut self, option: u32, reply: u32, data: &[u8]) -> Result<Step, ClientError> {
        if reply == option_reply::TLS_REQUIRED {
            return Err(ClientError::TlsRequired);
        }
        match option {
            code::EXTENDED_HEADERS => self.send(code::STRUCTURED_REPLY, &[]),
            code::STRUCTURED_REPLY | code::SET_META_CONTEXT => self.send_go(),
            code::GO if reply == option_reply::UNSUPPORTED => self.send_export_name(),
            code::START_TLS => return Err(ClientError::NoTls),
            _ => {
                return Err(ClientError::Refused { option: name_of(option), reason: reason_of(reply, data) });
            }
        }
        Ok(Step::Continue)
    }

    fn handle_info(&mut self, data: &[u8]) -> Result<(), ClientError> {
        let malformed = ClientError::Malformed(name_of(code::GO));
        let mut fields = Fields::new(data);
        match fields.u16() {
            Some(info::EXPORT) => {
                let (Some(size), Some(flags)) = (fields.u64(), fields.u16()) else { return Err(malformed) };
                self.size_and_flags = Some((size, TransmissionFlags::from_bits_retain(flags)));
            }
            Some(info::BLOCK_SIZE) => {
                let (Some(min), Some(preferred), Some(max)) = (fields.u32(), fields.u32(), fields.u32())
                else {
                    return Err(malformed);
                };
                let sizes = BlockSizes { min, preferred, max };
                if !sizes.is_valid() {
                    return Err(ClientError::BlockSizes { min, preferred, max });
                }
                self.block_sizes = Some(sizes);
            }
            Some(_) => {}
            None => return Err(malformed),
        }
        Ok(())
    }

    fn transmission(&mut self) -> Result<Step, ClientError> {
        self.state = State::Ended;
        let (size, flags) = self.size_and_flags.ok_or(ClientError::Malformed(name_of(code::GO)))?;
        // Offsets of files are signed, and ends of ranges rounded up to a block must not overflow.
        if i64::try_from(size).is_err() {
            return Err(ClientError::Size(size));
        }
        Ok(Step::Progress(ClientProgress::Transmission(Negotiated {
            size,
            flags,
            block_sizes: self.block_sizes.unwrap_or_default(),
            has_block_sizes: self.block_sizes.is_some(),
            format: self.format,
            allocation: self.allocation,
        })))
    }

    fn end(&mut self, error: ClientError) -> ClientError {
        self.state = State::Ended;
        error
    }
}

/// A result of handling one message.
enum Step {
    Incomplete,
    Continue,
    Progress(ClientProgress),
}

fn name_of(option: u32) -> &'static str {
    match option {
        code::LIST => "LIST",
        code::START_TLS => "STARTTLS",
        code::GO => "GO",
        code::STRUCTURED_REPLY => "STRUCTURED_REPLY",
        code::SET_META_CONTEXT => "SET_META_CONTEXT",
        code::EXTENDED_HEADERS => "EXTENDED_HEADERS",
        _ => "an option",
    }
}

/// The meaning of an error reply, with the text of the server. Control characters of that text are removed.
fn reason_of(reply: u32, data: &[u8]) -> String {
    let meaning = match reply {
        option_reply::UNSUPPORTED => "not supported",
        option_reply::POLICY => "refused by its policy",
        option_reply::INVALID => "invalid request",
        option_reply::UNKNOWN_EXPORT => "no export has this name",
        option_reply::SHUTDOWN => "it shuts down",
        option_reply::BLOCK_SIZE_REQUIRED => "the client must ask for block sizes",
        option_reply::TOO_BIG => "the request is too long",
        _ => "unknown error",
    };
    let text: String = String::from_utf8_lossy(data).chars().filter(|c| !c.is_control()).take(256).collect();
    match text.as_str() {
        "" => format!("{meaning} (reply {reply:#x})"),
        // The text often says it.
        _ if text.contains(meaning) => text,
        _ => format!("{meaning}: {text}"),
    }
}
