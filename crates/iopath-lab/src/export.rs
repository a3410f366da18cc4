//! Targets on servers: the export of an NBD URI, or a stripe of several. Opens connections; paths make volumes of them.

use std::path::{Path, PathBuf};

use iopath::remote::Remote;
use iopath::{Member, OpenError, Options, Volume};
use iopath_nbd::{ConnectOptions, NbdUri, connect};
use iopath_os::target::Target as TargetInfo;

use crate::error::LabError;
use crate::stripe_name::StripeName;

/// Open exports of servers. A clone uses the same connections.
#[derive(Debug, Clone)]
pub struct RemoteTarget {
    name: PathBuf,
    exports: Vec<Remote>,
    /// Of a stripe, in bytes.
    chunk_bytes: Option<u64>,
}

/// Whether a target is an export of a server, or a stripe of them.
pub(crate) fn is_remote(target: &Path) -> bool {
    let is_stripe_of_uris = || StripeName::parts(target).is_some_and(|parts| parts.contains("://"));
    target.to_str().is_some_and(NbdUri::is_one) || is_stripe_of_uris()
}

impl RemoteTarget {
    /// Connects to the exports of a target; none if the target is a file, directory, device or model.
    ///
    /// # Errors
    /// [`LabError`]: a URI is wrong, or a server refuses.
    pub fn find(target: &Path) -> Result<Option<Self>, LabError> {
        let Some(name) = target.to_str().filter(|_| is_remote(target)) else { return Ok(None) };
        let stripe = StripeName::find(target)?;
        let chunk_bytes = stripe.as_ref().map(|stripe| stripe.chunk_bytes);
        let uris: Vec<_> = match &stripe {
            Some(stripe) => stripe.members.iter().map(|member| member.to_string_lossy()).collect(),
            None => vec![name.into()],
        };
        let open = |text: &str| -> Result<Remote, LabError> {
            let (uri, options) = ConnectOptions::parse(text)?;
            Ok(connect(&uri, &options)?)
        };
        let exports = uris.iter().map(|uri| open(uri)).collect::<Result<_, _>>()?;
        Ok(Some(Self { name: target.to_owned(), exports, chunk_bytes }))
    }

    /// A volume on the exports.
    pub(crate) fn volume(&self, options: &Options) -> Result<Volume, OpenError> {
        match (self.chunk_bytes, self.exports.as_slice()) {
            (None, [export]) => Volume::remote(export, options),
            (chunk_bytes, exports) => {
                let members: Vec<_> = exports.iter().map(Member::Remote).collect();
                Volume::open_stripe_of(&members, chunk_bytes.unwrap_or_default(), options)
            }
        }
    }

    /// The name as given, and the size.
    pub(crate) fn info(&self) -> Result<TargetInfo, LabError> {
        let size_bytes = self.volume(&Options::new())?.size_bytes();
        Ok(TargetInfo::of_remote(&self.name.to_string_lossy(), size_bytes))
    }

    /// The alignment of offsets and lengths, in bytes.
    pub(crate) fn align_bytes(&self) -> u32 {
        let of_each = self.exports.iter().map(|export| export.facts().limits.logical_block_bytes);
        of_each.max().unwrap_or(1)
    }

    /// Whether a server refuses writes.
    pub(crate) fn is_read_only(&self) -> bool {
        self.exports.iter().any(|export| export.facts().is_read_only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_uris_and_stripes_of_uris_are_remote() {
        for name in ["nbd://host/x", "nbds://host", "nbd+unix:///x?socket=/s", "stripe:128k:nbd://a,nbd://b"]
        {
            assert!(is_remote(Path::new(name)), "{name}");
        }
        for name in ["/dev/sda", "nbd", "stripe:128k:/dev/a,/dev/b", "model:nbd", "http://host/"] {
            assert!(!is_remote(Path::new(name)), "{name}");
        }
    }
}
