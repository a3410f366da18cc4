//! The name of a stripe (RAID 0) as a target: `stripe:CHUNK:MEMBER,MEMBER,…`. Opens no member: `target.rs` does, and
//! `model.rs` for members that are models.

use std::path::{Path, PathBuf};

use iopath_report::size::parse_size;

use crate::refusal::WorkloadError;

/// The prefix of a target that is a stripe. Write a file with such a name as `./stripe:NAME`.
const PREFIX: &str = "stripe:";

/// The chunk and the members of a stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripeName {
    /// Consecutive bytes on one member.
    pub(crate) chunk_bytes: u64,
    /// Files, devices, directories or models: two at least.
    pub(crate) members: Vec<PathBuf>,
}

impl StripeName {
    /// The stripe of these members.
    pub const fn of(chunk_bytes: u64, members: Vec<PathBuf>) -> Self {
        Self { chunk_bytes, members }
    }

    /// The chunk and the members as text; none if the target names something else.
    pub fn parts(target: &Path) -> Option<&str> {
        target.to_str()?.strip_prefix(PREFIX)
    }

    /// The stripe that a target names; none if it names something else.
    ///
    /// # Errors
    /// [`WorkloadError::Stripe`]: the chunk or the members are malformed.
    pub fn find(target: &Path) -> Result<Option<Self>, WorkloadError> {
        let Some(text) = Self::parts(target) else { return Ok(None) };
        let refused = |reason| WorkloadError::Stripe { target: target.to_owned(), reason };
        let (chunk, members) = text.split_once(':').ok_or(refused("use stripe:CHUNK:MEMBER,MEMBER"))?;
        let chunk_bytes = parse_size(chunk).ok().filter(|bytes| *bytes > 0);
        let chunk_bytes = chunk_bytes.ok_or(refused("the chunk is a size, as in stripe:128k:A,B"))?;
        let members: Vec<PathBuf> = members.split(',').map(PathBuf::from).collect();
        if members.len() < 2 || members.iter().any(|member| member.as_os_str().is_empty()) {
            return Err(refused("it has two members or more, separated by commas"));
        }
        if members.iter().any(|member| Self::parts(member).is_some()) {
            return Err(refused("a member of a stripe is no stripe"));
        }
        Ok(Some(Self { chunk_bytes, members }))
    }

    /// The name of the stripe, in which each member has its own name.
    pub fn target(&self) -> PathBuf {
        let members: Vec<_> = self.members.iter().map(|member| member.to_string_lossy()).collect();
        format!("{PREFIX}{}:{}", self.chunk_bytes, members.join(",")).into()
    }

    /// The bytes of the stripe, of members that have `member_bytes` each.
    pub fn size_bytes(&self, member_bytes: u64) -> u64 {
        let chunks = member_bytes / self.chunk_bytes;
        chunks.saturating_mul(self.chunk_bytes).saturating_mul(self.members.len() as u64)
    }

    /// The bytes of each member, for a stripe of `size_bytes`.
    pub fn member_bytes(&self, size_bytes: u64) -> u64 {
        let row_bytes = self.chunk_bytes.saturating_mul(self.members.len() as u64);
        size_bytes.div_ceil(row_bytes.max(1)).saturating_mul(self.chunk_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(target: &str) -> Result<Option<StripeName>, WorkloadError> {
        StripeName::find(Path::new(target))
    }

    #[test]
    fn a_name_has_a_chunk_and_members_and_prints_as_it_parses() {
        let stripe = find("stripe:128k:/dev/sda,b,model:cloud").unwrap().unwrap();
        assert_eq!(stripe.chunk_bytes, 128 << 10);
        assert_eq!(stripe.members, ["/dev/sda", "b", "model:cloud"].map(PathBuf::from));
        assert_eq!(StripeName::find(&stripe.target()).unwrap(), Some(stripe));
        for other in ["model:cloud", "./stripe:4k:a,b", "striped", "/dev/sda"] {
            assert_eq!(find(other).unwrap(), None, "{other}");
        }
        for bad in [
            "stripe:",
            "stripe:4k",
            "stripe:x:a,b",
            "stripe:0:a,b",
            "stripe:4k:a",
            "stripe:4k:a,",
            "stripe:4k:a,stripe:4k:b",
        ] {
            let error = find(bad).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(bad), "{bad}: {error}");
        }
    }

    #[test]
    fn whole_chunks_of_the_members_count() {
        let stripe = find("stripe:64k:a,b,c").unwrap().unwrap();
        assert_eq!(stripe.size_bytes(100 << 10), 192 << 10);
        assert_eq!((stripe.member_bytes(1), stripe.member_bytes(193 << 10)), (64 << 10, 128 << 10));
        assert!(stripe.size_bytes(stripe.member_bytes(1 << 20)) >= 1 << 20);
    }
}
