//! The bytes of a write: a function of its token and the place of each byte. So a stale byte differs from the byte of
//! another place, and both differ from damage, except for one in 256 single bytes.

/// An odd number, so the multiplication can be undone.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// `FACTOR` times this is 1: Newton's iteration doubles the number of right bits.
const INVERSE: u64 = {
    let mut inverse = FACTOR;
    let mut rounds = 0;
    while rounds < 5 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(FACTOR.wrapping_mul(inverse)));
        rounds += 1;
    }
    inverse
};

/// The eight bytes of a write at this multiple of eight bytes. The write with token 0 is zeroes.
const fn word(token: u64, index: u64) -> u64 {
    if token == 0 {
        return 0;
    }
    let product = (token ^ index.rotate_left(32)).wrapping_mul(FACTOR);
    // The low half of a product depends only on the low bits of its factors.
    product ^ product >> 32
}

/// The token whose pattern has these eight bytes at this place.
const fn token_of(word: u64, index: u64) -> u64 {
    if word == 0 {
        return 0;
    }
    (word ^ word >> 32).wrapping_mul(INVERSE) ^ index.rotate_left(32)
}

/// The words of a range of bytes: the position of each word, the part of it in the range, and the place of this part.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let from = (at % 8) as usize;
        let bytes = (8 - from).min(len - done);
        let part = (at / 8, from..from + bytes, done);
        done += bytes;
        (bytes > 0).then_some(part)
    })
}

/// Fills bytes with the pattern of a write.
pub(crate) fn fill(offset: u64, bytes: &mut [u8], token: u64) {
    if token == 0 {
        return bytes.fill(0);
    }
    if offset.is_multiple_of(8) && bytes.len().is_multiple_of(8) {
        for (index, bytes) in (offset / 8..).zip(bytes.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word(token, index).to_le_bytes());
        }
        return;
    }
    for (index, part, place) in parts(offset, bytes.len()) {
        let len = part.len();
        bytes[place..place + len].copy_from_slice(&word(token, index).to_le_bytes()[part]);
    }
}

/// Whether bytes have the pattern of a write.
pub(super) fn is_filled(offset: u64, bytes: &[u8], token: u64) -> bool {
    if token == 0 {
        return bytes.chunks(64).all(|bytes| *bytes == [0; 64][..bytes.len()]);
    }
    if offset.is_multiple_of(8) && bytes.len().is_multiple_of(8) {
        let (words, _) = bytes.as_chunks();
        return (offset / 8..)
            .zip(words)
            .all(|(index, bytes)| u64::from_le_bytes(*bytes) == word(token, index));
    }
    let is_right = |(index, part, place): (u64, std::ops::Range<usize>, usize)| {
        let len = part.len();
        bytes[place..place + len] == word(token, index).to_le_bytes()[part]
    };
    parts(offset, bytes.len()).all(is_right)
}

/// The token of the write that has these bytes, if they begin at a multiple of eight bytes.
pub(super) fn find(offset: u64, bytes: &[u8]) -> Option<u64> {
    let first: [u8; 8] = bytes.get(..8).filter(|_| offset.is_multiple_of(8))?.try_into().ok()?;
    let token = token_of(u64::from_le_bytes(first), offset / 8);
    is_filled(offset, bytes, token).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_a_pattern_is_that_part_of_the_whole() {
        let mut whole = vec![0; 256];
        fill(1024, &mut whole, 77);
        for (start, end) in [(0, 1), (3, 5), (7, 9), (1, 200), (8, 64), (63, 129)] {
            let mut part = vec![0; end - start];
            fill(1024 + start as u64, &mut part, 77);
            assert_eq!(part, whole[start..end]);
            assert!(is_filled(1024 + start as u64, &part, 77));
            let other = if end - start > 1 { 78 } else { 0 };
            assert!(!is_filled(1024 + start as u64, &part, other), "{start}..{end}");
        }
    }

    #[test]
    fn the_token_of_whole_words_is_found() {
        let mut bytes = vec![0; 64];
        for token in [0, 1, 2, 1 << 20] {
            fill(1 << 62, &mut bytes, token);
            assert_eq!(find(1 << 62, &bytes), Some(token));
        }
        bytes[20] ^= 1;
        assert_eq!(find(1 << 62, &bytes), None);
    }
}
