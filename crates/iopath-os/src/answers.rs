//! Answers that a mounted filesystem gives for each of its regular files. They are kept, because a program may open
//! thousands of files, and a question has a cost or changes the times of a file.

use std::fs::File;
use std::sync::{Mutex, PoisonError};

use rustix::fs::fstatfs;

use crate::target::{DeviceNumber, FileStat};

/// The number of filesystems whose answers are kept.
const FILESYSTEMS_MAX: usize = 64;

/// The answers to one question.
#[derive(Debug)]
pub(crate) struct Answers {
    known: Mutex<Vec<(Filesystem, bool)>>,
}

/// An answer of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    /// All files of its filesystem give it.
    OfFilesystem(bool),
    /// Another file, or the same one later, may give another.
    OfFile(bool),
}

/// Identifies a mounted filesystem. The number of its device alone can be that of another one later.
#[derive(Debug, PartialEq, Eq)]
struct Filesystem {
    device: DeviceNumber,
    magic: i64,
    blocks: u64,
}

impl Answers {
    pub(crate) const fn new() -> Self {
        Self { known: Mutex::new(Vec::new()) }
    }

    /// The answer for the filesystem of `file`, from `ask` if it is not known. A block device is asked each time: its
    /// driver decides.
    pub(crate) fn of(&self, file: &File, stat: &FileStat, ask: impl FnOnce() -> Answer) -> bool {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(filesystem) = Filesystem::of(file, stat) else { return ask().is_yes() };
        if let Some((_, answer)) = known().iter().find(|(known, _)| *known == filesystem) {
            return *answer;
        }
        let answer = match ask() {
            Answer::OfFilesystem(answer) => answer,
            Answer::OfFile(answer) => return answer,
        };
        let mut known = known();
        if known.len() == FILESYSTEMS_MAX {
            known.clear();
        }
        known.push((filesystem, answer));
        answer
    }
}

impl Answer {
    pub(crate) const fn is_yes(self) -> bool {
        matches!(self, Self::OfFilesystem(true) | Self::OfFile(true))
    }
}

impl Filesystem {
    /// That of a regular file.
    fn of(file: &File, stat: &FileStat) -> Option<Self> {
        stat.file_bytes()?;
        let facts = fstatfs(file).ok()?;
        Some(Self { device: stat.id().device, magic: facts.f_type as i64, blocks: facts.f_blocks as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_filesystem_have_one_answer_and_a_device_has_its_own() {
        let [first, second] = [(), ()].map(|()| tempfile::tempfile().unwrap());
        let known = Answers::new();
        let ask =
            |file: &File, answer: &dyn Fn() -> Answer| known.of(file, &FileStat::of(file).unwrap(), answer);
        assert!(!ask(&first, &|| Answer::OfFile(false)), "that of the file alone");
        let answer: fn(bool) -> Answer = Answer::OfFilesystem;
        let is_known: &dyn Fn() -> Answer = &|| unreachable!("it is known");
        assert!(ask(&first, &|| answer(true)) && ask(&second, is_known));
        let device = File::open("/dev/null").unwrap();
        assert!(ask(&device, &|| answer(true)) && !ask(&device, &|| answer(false)));
    }
}
