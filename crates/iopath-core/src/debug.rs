//! Output of `{:?}` with a bound, so that a log of a program stays readable: a list as its length and first items, a
//! text without its middle. For output of [`fmt::Debug`] only: the message of an error has the whole path.

use std::error::Error;
use std::fmt;

/// The printed items of a list.
const ITEMS_MAX: usize = 4;

/// The bytes of a text, such as a path.
const TEXT_BYTES_MAX: usize = 120;

/// The bytes of the message of an error: two texts, and the reason.
const MESSAGE_BYTES_MAX: usize = 480;

/// A list as its first items, each of which must be short. The length precedes a list of which some are not printed.
///
/// ```
/// use iopath_core::debug::List;
///
/// assert_eq!(format!("{:?}", List(&[1, 2])), "[1, 2]");
/// assert_eq!(format!("{:?}", List(&[0; 1000])), "1000 × [0, 0, 0, 0, ..]");
/// ```
pub struct List<I>(pub I);

impl<I> fmt::Debug for List<I>
where
    I: Copy + IntoIterator<Item: fmt::Debug, IntoIter: ExactSizeIterator>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items = self.0.into_iter();
        if items.len() <= ITEMS_MAX {
            return f.debug_list().entries(items).finish();
        }
        write!(f, "{} × ", items.len())?;
        f.debug_list().entries(items.take(ITEMS_MAX)).finish_non_exhaustive()
    }
}

/// A text or path in quotation marks. A long one has `…` for its middle.
///
/// ```
/// use iopath_core::debug::Text;
///
/// assert_eq!(format!("{:?}", Text("/data")), "\"/data\"");
/// assert!(format!("{:?}", Text("/long".repeat(1000))).len() < 200);
/// ```
#[derive(Clone)]
pub struct Text<T>(pub T);

impl<T: fmt::Debug> fmt::Debug for Text<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        cut(&format!("{:?}", self.0), TEXT_BYTES_MAX, f)
    }
}

/// The message of an error in quotation marks, with those of its sources that it does not contain. A long one has `…`
/// for its middle.
pub struct Message<'a>(pub &'a dyn Error);

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut next = self.0.source();
        while let Some(source) = next {
            let message = source.to_string();
            if !text.contains(&message) {
                text = format!("{text}: {message}");
            }
            next = source.source();
        }
        cut(&format!("{text:?}"), MESSAGE_BYTES_MAX, f)
    }
}

/// Prints an error as its type and its [`Message`].
///
/// # Errors
/// The error of the formatter.
pub fn error(name: &str, error: &dyn Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.debug_tuple(name).field(&Message(error)).finish()
}

/// Prints `…` for the middle of a text of more than `bytes_max` bytes.
fn cut(text: &str, bytes_max: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if text.len() <= bytes_max {
        return f.write_str(text);
    }
    let is_end = |at: &usize| text.is_char_boundary(*at);
    let start = (0..=bytes_max / 2).rev().find(is_end).unwrap_or(0);
    let rest = (text.len() - bytes_max / 2..text.len()).find(is_end).unwrap_or(text.len());
    write!(f, "{}…{}", &text[..start], &text[rest..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_its_start_and_its_end() {
        let path = format!("/{}/volume", "ä\n".repeat(1000));
        let short = format!("{:?}", Text(&path));
        assert!(short.starts_with("\"/ä\\nä") && short.ends_with("/volume\""), "{short}");
        assert!(short.len() <= TEXT_BYTES_MAX + "…".len(), "{short}");
    }

    #[test]
    fn the_message_of_an_error_is_cut_and_has_the_name_of_its_type() {
        #[derive(thiserror::Error)]
        #[error("{text}")]
        struct Refused {
            text: String,
            source: std::io::Error,
        }
        impl fmt::Debug for Refused {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                error("Refused", self, f)
            }
        }
        let refused = |text: &str| {
            format!(
                "{:?}",
                Refused { text: text.to_owned(), source: std::io::Error::other("the disk is gone") }
            )
        };
        assert_eq!(refused("no I/O"), "Refused(\"no I/O: the disk is gone\")");
        assert_eq!(refused("no I/O: the disk is gone"), "Refused(\"no I/O: the disk is gone\")");
        let short = refused(&"x".repeat(5000));
        assert!(short.starts_with("Refused(\"xxx") && short.ends_with("xxx: the disk is gone\")"), "{short}");
        assert!(short.len() < MESSAGE_BYTES_MAX + 20);
    }
}
