//! NBD URIs, as `doc/uri.md` of the NBD project defines them. It opens nothing.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use thiserror::Error;

use crate::protocol::{DEFAULT_PORT, STRING_MAX};

/// The place of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A TCP port.
    Tcp {
        /// A name, or an address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A unix socket.
    Unix(PathBuf),
}

/// The place of an export.
///
/// `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`, and the same with `nbds` for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUri {
    /// The server.
    pub place: Place,
    /// Whether the connection is encrypted.
    pub is_tls: bool,
    /// Name of the export; empty for the default of the server.
    pub export: String,
}

/// A text that is not an NBD URI.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum UriError {
    /// Another scheme.
    #[error("{0:?} is not an NBD URI; the schemes are nbd, nbds, nbd+unix and nbds+unix")]
    Scheme(String),
    /// No socket.
    #[error("{0:?} names no socket; for example: nbd+unix:///EXPORT?socket=PATH")]
    NoSocket(String),
    /// A host in a URI of a unix socket, or none in one of TCP.
    #[error(
        "{0:?}: expected nbd://HOST[:PORT]/EXPORT, with an IPv6 address in brackets, or nbd+unix:///EXPORT?socket=PATH"
    )]
    Authority(String),
    /// Not a port.
    #[error("{0:?} is not a port from 1 to 65535")]
    Port(String),
    /// Not UTF-8, or with NUL.
    #[error("the export of {0:?} is not valid UTF-8, or has a NUL byte, or more than 4096 bytes")]
    Export(String),
    /// A parameter of TLS that would have no effect.
    #[error("{0:?} has a parameter of TLS, but its scheme has none; use nbds or nbds+unix")]
    NoTls(String),
    /// A parameter that would be ignored.
    #[error(
        "{parameter:?} in {uri:?} is not a parameter of an NBD URI; iopath knows socket, connections, \
         connect-time, silence-time, reconnect-time and reconnect-attempts, each with a number, and tls-certificates, \
         tls-verify-peer, tls-hostname and tls-type=x509; pre-shared keys and anonymous TLS are not supported"
    )]
    Parameter {
        /// The URI.
        uri: String,
        /// The parameter.
        parameter: String,
    },
}

impl NbdUri {
    /// Whether `text` starts with a scheme of NBD, so that it is not a file name.
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        ["nbd://", "nbds://", "nbd+unix://", "nbds+unix://"].iter().any(|scheme| text.starts_with(scheme))
    }
}

impl std::str::FromStr for NbdUri {
    type Err = UriError;

    fn from_str(uri: &str) -> Result<Self, UriError> {
        let refused = || uri.to_owned();
        let (scheme, rest) = uri.split_once("://").ok_or_else(|| UriError::Scheme(refused()))?;
        let (is_tls, is_unix) = match scheme {
            "nbd" => (false, false),
            "nbds" => (true, false),
            "nbd+unix" => (false, true),
            "nbds+unix" => (true, true),
            _ => return Err(UriError::Scheme(refused())),
        };
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut socket = None;
        for parameter in query.into_iter().flat_map(|query| query.split('&')) {
            match parameter.split_once('=') {
                Some(("socket", path)) if is_unix => socket = Some(path),
                _ => return Err(UriError::Parameter { uri: refused(), parameter: parameter.to_owned() }),
            }
        }
        let export = percent_decode_str(path).decode_utf8().ok().filter(|name| !name.contains('\0'));
        let export =
            export.filter(|name| name.len() <= STRING_MAX).ok_or_else(|| UriError::Export(refused()))?;
        let place = if is_unix {
            let path = socket.filter(|path| !path.is_empty()).ok_or_else(|| UriError::NoSocket(refused()))?;
            if !authority.is_empty() {
                return Err(UriError::Authority(refused()));
            }
            let path = percent_decode_str(path).decode_utf8().map_err(|_| UriError::NoSocket(refused()))?;
            Place::Unix(PathBuf::from(path.into_owned()))
        } else {
            let (host, port) = split_port(authority);
            if host.is_empty() || host.contains('@') {
                return Err(UriError::Authority(refused()));
            }
            let port = port.map_or(Ok(DEFAULT_PORT), |port| {
                port.parse().ok().filter(|port| *port != 0).ok_or_else(|| UriError::Port(port.to_owned()))
            })?;
            Place::Tcp { host: host.to_owned(), port }
        };
        Ok(Self { place, is_tls, export: export.into_owned() })
    }
}

/// Host and port. An IPv6 address is in brackets.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    if let Some((host, rest)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => ("", None),
        };
    }
    let (host, port) =
        authority.rsplit_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    // A bracket without its partner, or an IPv6 address without brackets.
    if host.contains(['[', ']', ':']) { ("", None) } else { (host, port) }
}

/// Characters of a path or query that need no escape.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "nbds" } else { "nbd" };
        let export = utf8_percent_encode(&self.export, ESCAPED);
        match &self.place {
            Place::Tcp { host, port } => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                let port = if *port == DEFAULT_PORT { String::new() } else { format!(":{port}") };
                write!(f, "{scheme}://{host}{port}/{export}")
            }
            Place::Unix(path) => {
                let path = path.to_string_lossy();
                write!(f, "{scheme}+unix:///{export}?socket={}", utf8_percent_encode(&path, ESCAPED))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_each_form() {
        for text in [
            "nbd://server/",
            "nbd://server/disk%20one",
            "nbds://server:10810/a/b",
            "nbd://[fe80::1]:1234/x",
            "nbd+unix:///?socket=/run/nbd.sock",
            "nbds+unix:///disk?socket=/a%20b",
        ] {
            let uri: NbdUri = text.parse().unwrap();
            assert_eq!(uri.to_string(), text);
            assert!(NbdUri::is_one(text));
        }
        let uri: NbdUri = "nbd://server".parse().unwrap();
        assert_eq!(
            (uri.place, uri.export),
            (Place::Tcp { host: "server".into(), port: 10809 }, String::new())
        );
    }

    #[test]
    fn refuses_texts_that_are_no_uri() {
        for text in [
            "/dev/sda",
            "http://a/",
            "nbd+vsock://1/",
            "nbd:///x",
            "nbd://a:0/",
            "nbd://a:99999/x",
            "nbd+unix:///x",
            "nbd+unix://host/x?socket=/s",
            "nbd://a/x?sockets=/s",
            "nbd://a/%00",
            "nbd://[::1]x/",
            "nbd://[::1",
            "nbd://::1/x",
            "nbd://a]:1/x",
            "nbd://u@h/",
            "nbd://a/%ff",
        ] {
            assert!(text.parse::<NbdUri>().is_err(), "{text}");
        }
    }
}
