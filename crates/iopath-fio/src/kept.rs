//! Files that iopath creates and keeps, as fio does: their sizes, their creation, and their marks at the end.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::error::JobFileError;
use super::job::Job;
use super::place::{Access, Place, new_content, scratch_bytes};
use iopath_bench::error::BenchError;
use iopath_bench::kept_file::{Identity, is_kept};
use iopath_bench::progress::Progress;
use iopath_bench::target::{NewContent, Target};

/// A target with its place.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) place: Place,
    pub(super) target: Target,
    /// The files that iopath has created and that stay; none for one that is removed, because its filesystem stores no
    /// marks.
    kept: Vec<(PathBuf, Option<Identity>)>,
}

impl Prepared {
    /// A place with its target. `scratch`: whether each of its files is a scratch file, if they were created now.
    pub(super) fn new(
        place: Place,
        target: Target,
        scratch: &[bool],
        keeps_files: bool,
    ) -> Result<Self, JobFileError> {
        let files: &[PathBuf] = match &place {
            Place::Named(file) | Place::Kept(file) if keeps_files => std::slice::from_ref(file),
            Place::SeveralKept(_, files) => files,
            _ => &[],
        };
        let mut kept = Vec::new();
        for (number, file) in files.iter().enumerate() {
            if scratch.get(number) == Some(&true) {
                kept.push((file.clone(), None));
            } else if is_kept(file) {
                // Other files of a stripe belong to the user.
                let identity = Identity::of(file).map_err(BenchError::io("examine", file))?;
                kept.push((file.clone(), Some(identity)));
            }
        }
        Ok(Self { place, target, kept })
    }
}

/// The files that are kept. Marks those that the jobs have written again at the end, or removes them. A file that
/// another program has put in the place of one of them is neither.
pub(super) struct KeptFiles<'a> {
    prepared: &'a [Prepared],
    accesses: &'a [Access<'a>],
    /// Whether files are kept.
    keeps: bool,
    /// The files that jobs have written to.
    written: Vec<&'a Path>,
}

impl<'a> KeptFiles<'a> {
    /// The files to keep, if `keeps`.
    ///
    /// # Errors
    /// A file that is only created cannot be kept.
    pub(super) fn of(
        prepared: &'a [Prepared],
        accesses: &'a [Access<'a>],
        keeps: bool,
    ) -> Result<Self, JobFileError> {
        let kept = Self { prepared, accesses, keeps, written: Vec::new() };
        for (place, file, identity) in kept.files() {
            let mut of_file = accesses.iter().filter(|access| access.place == *place);
            if let Some(Access { job, .. }) = of_file.find(|access| access.job.create_only)
                && identity.is_none()
            {
                return Err(job.problem(format!(
                    "create_only creates {}, whose filesystem has no extended attributes: a later run could not tell it from \
                     a file of yours, so it would not stay; use another directory",
                    file.display()
                )));
            }
        }
        Ok(kept)
    }

    /// The files to keep, with their places.
    fn files(&self) -> impl Iterator<Item = (&'a Place, &'a Path, Option<Identity>)> + use<'a> {
        let keeps = self.keeps;
        self.prepared.iter().filter(move |_| keeps).flat_map(|Prepared { place, kept, .. }| {
            kept.iter().map(move |(file, identity)| (place, file.as_path(), *identity))
        })
    }

    /// A line for each file that cannot be kept.
    pub(super) fn warnings(&self) -> Vec<String> {
        let removed = self.files().filter(|(_, _, identity)| identity.is_none());
        removed
            .map(|(_, file, _)| {
                format!(
                    "{} is removed at the end: its filesystem has no extended attributes, so a later run could not tell it \
                     from a file of yours",
                    file.display()
                )
            })
            .collect()
    }

    /// A group of jobs begins, with writes of `job` to this place.
    ///
    /// # Errors
    /// The file has changed, or another one has its name: its content is not that of iopath.
    pub(super) fn handle_writes(&mut self, place: &'a Place, job: &Job) -> Result<(), JobFileError> {
        for (_, file, identity) in self.files().filter(|(known, ..)| *known == place) {
            let Some(identity) = identity else { continue };
            let is_written = self.written.contains(&file);
            // Own writes of the jobs before have changed it, too.
            let is_same = Identity::of(file).is_ok_and(|now| now == identity);
            if !is_same || !(is_written || is_kept(file)) {
                return Err(job.problem(format!(
                    "{} has changed since iopath created it, and a write would destroy its content; use another file",
                    file.display()
                )));
            }
            if !is_written {
                self.written.push(file);
            }
        }
        Ok(())
    }
}

impl Drop for KeptFiles<'_> {
    fn drop(&mut self) {
        for (place, file, identity) in self.files() {
            let Some(identity) = identity else { continue };
            let is_unlinked = |access: &Access| access.place == *place && access.job.unlink;
            // Without its mark, the next run takes the file for one of the user, which is safe.
            let _ = if self.accesses.iter().any(is_unlinked) {
                identity.remove(file)
            } else if self.written.contains(&file) {
                identity.mark(file)
            } else {
                Ok(())
            };
        }
    }
}

/// The bytes of each file that is created and kept, so that it holds the ranges of all places with it.
pub(super) fn needed(places: &[Vec<&Access>], repetitions: u64) -> HashMap<PathBuf, Needed> {
    let mut needed: HashMap<PathBuf, Needed> = HashMap::new();
    for of_place in places {
        // Without a size, a file that exists is accessed as it is; for another one, its place is refused.
        let bytes = scratch_bytes(of_place).unwrap_or(0);
        let (files, bytes): (&[PathBuf], _) = match &of_place[0].place {
            Place::Named(file) | Place::Kept(file) => (std::slice::from_ref(file), bytes),
            place @ Place::SeveralKept(_, files) => (files, place.member_bytes(bytes)),
            Place::None(_) | Place::Present(_) | Place::Several(..) | Place::Own(..) => continue,
        };
        for file in files {
            let content = new_content(of_place, repetitions);
            let of_file = needed.entry(file.clone()).or_insert(Needed { bytes, content });
            *of_file = Needed { bytes: bytes.max(of_file.bytes), content: content.max(of_file.content) };
        }
    }
    needed
}

/// What all places with a file need.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needed {
    pub(super) bytes: u64,
    content: NewContent,
}

/// The files that are created and kept: each once, for all places with it.
pub(super) struct NewFiles {
    needed: HashMap<PathBuf, Needed>,
    /// The files that were created, and whether each is a scratch file.
    made: HashMap<PathBuf, bool>,
    seed: u64,
}

impl NewFiles {
    pub(super) fn new(needed: HashMap<PathBuf, Needed>, seed: u64) -> Self {
        Self { needed, made: HashMap::new(), seed }
    }

    /// The first `size_bytes` of a file, which is created unless another place has it, too.
    pub(super) fn target(
        &mut self,
        file: &Path,
        size_bytes: u64,
        progress: &mut dyn Progress,
    ) -> Result<Target, JobFileError> {
        // A scratch file has another name.
        if self.made.get(file) == Some(&false) {
            return Ok(Target::made(file, size_bytes)?);
        }
        let directory = file.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory).map_err(BenchError::io("create", directory))?;
        let Needed { bytes, content } = self.needed[file];
        let target = Target::kept(file, bytes.max(size_bytes), content, self.seed, progress)?;
        self.made.insert(file.to_owned(), target.is_scratch());
        Ok(target)
    }
}
