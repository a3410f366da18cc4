//! Output of `{:?}` with a bound, so that a log of a program stays readable: a list as its length and first items, a
//! text without its middle. For output of [`fmt::Debug`] only: the message of an error has the whole path.

use std::fmt;

/// The printed items of a list.
const ITEMS_MAX: usize = 4;

/// The bytes of a text, such as a path.
const TEXT_BYTES_MAX: usize = 120;

/// The bytes of the message of an error: two texts, and the reason.
const MESSAGE_BYTES_MAX: usize = 480;

/// A list as its first items. The length precedes a list of which some are not printed.
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

/// A text in quotation marks, such as a path. A long one has `…` for its middle.
///
/// ```
/// use iopath_core::debug::Text;
///
/// assert_eq!(format!("{:?}", Text("/data")), "\"/data\"");
/// assert!(format!("{:?}", Text("/long".repeat(1000))).len() < 200);
/// ```
#[derive(Clone)]
pub struct Text<T>(pub T);

impl<T: fmt::Display> fmt::Debug for Text<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        cut(&self.0, TEXT_BYTES_MAX, f)
    }
}

/// Prints an error as its type and its message, without the middle of a long one.
///
/// # Errors
/// The error of the formatter.
pub fn error(name: &str, error: &dyn fmt::Display, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    struct Message<'a>(&'a dyn fmt::Display);

    impl fmt::Debug for Message<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            cut(self.0, MESSAGE_BYTES_MAX, f)
        }
    }

    f.debug_tuple(name).field(&Message(error)).finish()
}

/// Prints a text in quotation marks. One of more than `bytes_max` bytes has `…` for its middle.
fn cut(text: &dyn fmt::Display, bytes_max: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    // Escapes count, too.
    let text = format!("{:?}", text.to_string());
    if text.len() <= bytes_max {
        return f.write_str(&text);
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
        struct Refused;
        impl fmt::Debug for Refused {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                error("Refused", &"x".repeat(5000), f)
            }
        }
        let short = format!("{Refused:?}");
        assert!(short.starts_with("Refused(\"xxx") && short.ends_with("xxx\")"), "{short}");
        assert!(short.len() < MESSAGE_BYTES_MAX + 20);
    }
}
