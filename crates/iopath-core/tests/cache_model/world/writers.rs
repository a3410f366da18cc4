//! Callers that write: they take pages, fill them and release them, one step at a time.

use super::{Call, Stage, Task, World};
use iopath_core::buffered::{TakeStep, WritePiece};

impl World {
    pub(super) fn take_pages(&mut self, index: usize) {
        let write = self.tasks[index].write.as_mut().expect("only writes take pages");
        match self.path.take_pages(write, index as u64) {
            Ok(TakeStep::Fill) => self.start_copying(index),
            Ok(TakeStep::Wait) => self.tasks[index].stage = Stage::Waiting,
            Ok(TakeStep::Done { .. }) => self.tasks[index].stage = Stage::Done,
            Err(_) => {
                self.failed += 1;
                self.tasks[index].stage = Stage::Done;
            }
        }
    }

    /// A writer holds pages.
    fn start_copying(&mut self, index: usize) {
        for (page, piece) in self.pieces(index) {
            assert!(!self.is_under_direct(page), "a writer in page {page} under direct I/O");
            if let Some(from) = piece.copy_from {
                self.arena[piece.frame.0 as usize] = self.arena[from.0 as usize];
                self.unpin(from);
            }
        }
        self.tasks[index].stage = Stage::Copying;
    }

    /// The pages that a writer holds.
    pub(super) fn pieces(&mut self, index: usize) -> Vec<(u64, WritePiece)> {
        let Task { call, write, .. } = &mut self.tasks[index];
        let (Call::Write(first, _) | Call::WriteRun(first, _)) = *call else { return Vec::new() };
        let write = write.as_mut().expect("a write");
        write.pieces().iter().map(|piece| (first + piece.start as u64 / 4096, *piece)).collect()
    }

    /// A writer has filled its pages.
    pub(super) fn end_pages(&mut self, index: usize) {
        for (page, piece) in self.pieces(index) {
            self.writes += 1;
            let bytes = &mut self.arena[piece.frame.0 as usize];
            let half = page as usize * 2;
            if piece.end - piece.start < 4096 {
                self.contents.observe(half, bytes[0]);
                self.contents.observe(half + 1, bytes[1]);
                bytes[0] = self.writes;
            } else {
                *bytes = [self.writes; 2];
                self.contents.write(half + 1, self.writes);
            }
            self.contents.write(half, self.writes);
        }
        let task = &mut self.tasks[index];
        let write = task.write.as_mut().expect("a write");
        self.path.release_pages(write, self.now);
        task.stage = Stage::New;
        if write.is_waiting() {
            self.take_pages(index);
        }
    }

    pub(super) fn is_written(&self, page: u64) -> bool {
        let holds = |task: &Task| match (&task.write, task.call) {
            (Some(write), Call::Write(first, _) | Call::WriteRun(first, _)) => {
                write.pieces().iter().any(|piece| first + piece.start as u64 / 4096 == page)
            }
            _ => false,
        };
        self.tasks.iter().any(|task| task.stage == Stage::Copying && holds(task))
    }
}
