//! Messages of the negotiation: the options of the client and the replies of the server. It keeps no state.

use crate::protocol::{OPTION_MAGIC, OPTION_REPLY_MAGIC, STRING_MAX};
use crate::wire::{Append, Fields};

/// Bytes before the data of an option.
pub(crate) const OPTION_HEAD: usize = 16;
/// Bytes before the data of a reply to an option.
pub(crate) const REPLY_HEAD: usize = 20;

/// The head of an option: its code and the length of its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionHead {
    pub(crate) code: u32,
    pub(crate) length: u32,
}

impl OptionHead {
    /// The head at the start of `input`: `None` if it is incomplete, an error if the magic number is wrong.
    pub(crate) fn decode(input: &[u8]) -> Result<Option<Self>, u64> {
        let mut fields = Fields::new(input);
        let Some(magic) = fields.u64() else { return Ok(None) };
        if magic != OPTION_MAGIC {
            return Err(magic);
        }
        let (Some(code), Some(length)) = (fields.u32(), fields.u32()) else { return Ok(None) };
        Ok(Some(Self { code, length }))
    }
}

/// Appends an option. `data` is at most a few strings long.
pub(crate) fn append_option(output: &mut Vec<u8>, code: u32, data: &[u8]) {
    output.append_u64(OPTION_MAGIC);
    output.append_u32(code);
    output.append_u32(u32::try_from(data.len()).expect("data of an option is short"));
    Append::append(output, data);
}

/// The head of a reply to an option.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionReplyHead {
    pub(crate) code: u32,
    pub(crate) reply: u32,
    pub(crate) length: u32,
}

impl OptionReplyHead {
    /// The head at the start of `input`: `None` if it is incomplete, an error if the magic number is wrong.
    pub(crate) fn decode(input: &[u8]) -> Result<Option<Self>, u64> {
        let mut fields = Fields::new(input);
        let Some(magic) = fields.u64() else { return Ok(None) };
        if magic != OPTION_REPLY_MAGIC {
            return Err(magic);
        }
        let (Some(code), Some(reply), Some(length)) = (fields.u32(), fields.u32(), fields.u32()) else {
            return Ok(None);
        };
        Ok(Some(Self { code, reply, length }))
    }
}

/// Appends a reply to option `code`.
pub(crate) fn append_reply(output: &mut Vec<u8>, code: u32, reply: u32, data: &[u8]) {
    output.append_u64(OPTION_REPLY_MAGIC);
    output.append_u32(code);
    output.append_u32(reply);
    output.append_u32(u32::try_from(data.len()).expect("data of a reply is short"));
    Append::append(output, data);
}

/// A string of at most [`STRING_MAX`] bytes of UTF-8 without NUL.
pub(crate) fn string(bytes: &[u8]) -> Option<&str> {
    if bytes.len() > STRING_MAX || bytes.contains(&0) {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}

/// Data of the options `INFO` and `GO`.
#[derive(Debug)]
pub(crate) struct InfoRequest<'a> {
    pub(crate) name: &'a str,
    /// Types of information, two bytes each.
    pub(crate) wanted: &'a [u8],
}

impl<'a> InfoRequest<'a> {
    /// `None` if the data does not have this form.
    pub(crate) fn decode(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields::new(data);
        let name = string(fields.string()?)?;
        let count = usize::from(fields.u16()?);
        let wanted = fields.bytes(2 * count)?;
        fields.is_empty().then_some(Self { name, wanted })
    }

    pub(crate) fn wants(&self, info: u16) -> bool {
        self.wanted.chunks_exact(2).any(|wanted| wanted == info.to_be_bytes())
    }

    pub(crate) fn encode(name: &str, wanted: &[u16]) -> Vec<u8> {
        let mut data = Vec::new();
        append_string(&mut data, name);
        data.append_u16(u16::try_from(wanted.len()).expect("there are few types of information"));
        for info in wanted {
            data.append_u16(*info);
        }
        data
    }
}

/// Data of the options `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
#[derive(Debug)]
pub(crate) struct MetaRequest<'a> {
    pub(crate) name: &'a str,
    pub(crate) queries: Vec<&'a [u8]>,
}

impl<'a> MetaRequest<'a> {
    /// `None` if the data does not have this form, or has more than `queries_max` queries.
    pub(crate) fn decode(data: &'a [u8], queries_max: u32) -> Option<Self> {
        let mut fields = Fields::new(data);
        let name = string(fields.string()?)?;
        let count = fields.u32().filter(|count| *count <= queries_max)?;
        let queries = (0..count).map(|_| fields.string()).collect::<Option<Vec<_>>>()?;
        if queries.iter().any(|query| string(query).is_none()) {
            return None;
        }
        fields.is_empty().then_some(Self { name, queries })
    }

    pub(crate) fn encode(name: &str, queries: &[&str]) -> Vec<u8> {
        let mut data = Vec::new();
        append_string(&mut data, name);
        data.append_u32(u32::try_from(queries.len()).expect("there are few queries"));
        for query in queries {
            append_string(&mut data, query);
        }
        data
    }
}

/// Appends a string after its length.
pub(crate) fn append_string(data: &mut Vec<u8>, text: &str) {
    data.append_u32(u32::try_from(text.len()).expect("strings are short"));
    Append::append(data, text.as_bytes());
}
