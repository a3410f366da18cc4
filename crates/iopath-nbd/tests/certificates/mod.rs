//! Certificates for tests: an authority, a server and a client, in files with the names that libnbd and QEMU expect.

use std::path::{Path, PathBuf};

use iopath_nbd::{TlsClient, TlsFiles, TlsServer};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

/// A folder with certificates.
pub(crate) struct Certificates {
    folder: tempfile::TempDir,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificates = Self { folder };
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "authority of a test");
        let key = KeyPair::generate().unwrap();
        certificates.write("ca-cert.pem", &authority.self_signed(&key).unwrap().pem());
        let issuer = Issuer::new(authority, key);
        for (name, usage) in
            [("server", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)]
        {
            let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
            let mut params = CertificateParams::new(names).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages.push(usage);
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &issuer).unwrap();
            certificates.write(&format!("{name}-cert.pem"), &certificate.pem());
            certificates.write(&format!("{name}-key.pem"), &key.serialize_pem());
        }
        certificates
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn files(&self, end: &str) -> TlsFiles {
        TlsFiles {
            certificate: self.path(&format!("{end}-cert.pem")),
            key: self.path(&format!("{end}-key.pem")),
        }
    }

    /// A server that asks for certificates of clients or not.
    pub(crate) fn server(&self, asks: bool) -> TlsServer {
        let ca = self.path("ca-cert.pem");
        TlsServer::load(&self.files("server"), asks.then_some(ca.as_path())).unwrap()
    }

    /// A client with a certificate or without.
    pub(crate) fn client(&self, has_certificate: bool) -> TlsClient {
        let files = self.files("client");
        TlsClient::load(&self.path("ca-cert.pem"), has_certificate.then_some(&files)).unwrap()
    }
}
