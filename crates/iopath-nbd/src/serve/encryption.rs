//! Whether connections are encrypted, and with which certificate.

use crate::server::ServerTls;
use crate::tls::TlsServer;

/// The encryption of connections.
#[derive(Clone, Debug)]
pub struct ServeTls {
    /// The certificate of the server.
    pub server: TlsServer,
    /// Refuses clients without TLS. Otherwise the client chooses.
    pub is_required: bool,
}

impl ServeTls {
    /// The rule for the negotiation.
    pub(super) fn rule(tls: Option<&Self>) -> ServerTls {
        match tls {
            None => ServerTls::Off,
            Some(Self { is_required: false, .. }) => ServerTls::Offered,
            Some(Self { is_required: true, .. }) => ServerTls::Required,
        }
    }
}
