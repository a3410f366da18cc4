//! Memory that is locked beside a job, so that less of it is left for the page cache (`mlock(2)`).

use std::io;

use crate::AlignedBuf;

/// Memory that the system can neither evict nor use for its page cache. Drop releases it.
#[derive(Debug)]
pub struct LockedMemory(AlignedBuf);

impl LockedMemory {
    /// Allocates and locks this number of bytes.
    ///
    /// # Errors
    /// The error of the system: ENOMEM or EPERM past the limit of locked memory (`RLIMIT_MEMLOCK`).
    pub fn new(bytes: usize) -> io::Result<Self> {
        let memory = AlignedBuf::new(bytes).map_err(|error| error.source)?;
        memory.lock()?;
        Ok(Self(memory))
    }

    /// The number of bytes.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_memory_is_resident_and_counted() {
        let locked = |text: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix("VmLck:"));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        let status = || std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let before = locked(&status());
        match LockedMemory::new(64 << 10) {
            // `AddressSanitizer` replaces `mlock` by nothing.
            Ok(_) if std::env::var_os("ASAN_OPTIONS").is_some() => {}
            Ok(memory) if cfg!(not(miri)) => {
                assert_eq!(memory.bytes(), 64 << 10);
                assert!(locked(&status()) >= before + 64, "{before} KiB before");
            }
            Ok(_) => {}
            Err(error) => eprintln!("skipped: the system locks no memory here: {error}"),
        }
        assert!(LockedMemory::new(usize::MAX).is_err());
    }
}
