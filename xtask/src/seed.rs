//! The first seed of a command with random operations.

use anyhow::{Context, Result};

/// The seed that the user gave, or the current time in seconds.
pub(crate) fn or_time(seed: Option<u64>) -> Result<u64> {
    match seed {
        Some(seed) => Ok(seed),
        None => Ok(std::time::UNIX_EPOCH.elapsed().context("the clock is before 1970")?.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_seed_is_the_time() {
        assert_eq!(or_time(Some(7)).expect("it is given"), 7);
        assert!(or_time(None).expect("the clock is right") > 1_700_000_000);
    }
}
