//! The writable volumes of a context on each regular file. Pages that one of them leaves after a write are those of the
//! file only if no other could write.

use super::Context;
use iopath_os::target::FileId;
use std::collections::HashMap;

/// A writable volume on regular files, in any mode. Drop removes it.
#[derive(Debug)]
pub(crate) struct Writer {
    context: Context,
    files: Vec<FileId>,
}

/// The writers of each file.
#[derive(Debug, Default)]
pub(super) struct Writers(HashMap<FileId, Writing>);

#[derive(Debug, Default)]
struct Writing {
    count: usize,
    /// There were several at some time since the count was zero. Each may have written.
    were_several: bool,
}

impl Writer {
    /// Adds a volume, before it can do I/O.
    pub(crate) fn new(context: &Context, files: Vec<FileId>) -> Self {
        context.lock().writers.add(&files);
        Self { context: context.clone(), files }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.context.lock().writers.remove(&self.files);
    }
}

impl Writers {
    /// Whether the file has one writer, and has had no other since that one was opened.
    pub(super) fn is_alone(&self, file: FileId) -> bool {
        self.0.get(&file).is_some_and(|writing| !writing.were_several)
    }

    fn add(&mut self, files: &[FileId]) {
        for file in files {
            let writing = self.0.entry(*file).or_default();
            writing.count += 1;
            writing.were_several |= writing.count > 1;
        }
    }

    fn remove(&mut self, files: &[FileId]) {
        for file in files {
            if let Some(writing) = self.0.get_mut(file) {
                writing.count -= 1;
                if writing.count == 0 {
                    self.0.remove(file);
                }
            }
        }
    }
}
