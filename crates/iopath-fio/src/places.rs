//! Prepares the targets of a whole job file: files and devices of the user, models, scratch files, and files that are
//! created and kept. Does not run the jobs.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use iopath_report::Rw;

use super::error::JobFileError;
use super::kept::{Needed, NewFiles, Prepared, needed};
use super::place::{Access, Place, new_content, scratch_bytes};
use iopath_bench::error::BenchError;
use iopath_bench::kept_file::is_kept;
use iopath_bench::model::ModelTarget;
use iopath_bench::progress::Progress;
use iopath_bench::target::{NewContent, Target};
use iopath_bench::workload::{BlockSize, Workload};

/// A place, with the target unless it is a scratch file that does not exist yet.
#[derive(Debug)]
pub(super) struct Planned {
    place: Place,
    /// The size of the target.
    pub(super) size_bytes: u64,
    target: Option<Target>,
    /// The content of a new file.
    content: NewContent,
    /// Of a stripe whose files are created in part: the targets of the others.
    members: Vec<Option<Target>>,
}

/// The plans of all places.
#[derive(Debug)]
pub(super) struct Plans {
    list: Vec<Planned>,
    /// The number of each place in the list.
    numbers: HashMap<Place, usize>,
    /// The bytes of each file to keep.
    needed: HashMap<PathBuf, Needed>,
}

impl Plans {
    /// The plan of a place.
    ///
    /// # Panics
    /// If the place was not planned.
    pub(super) fn of(&self, place: &Place) -> &Planned {
        &self.list[*self.numbers.get(place).expect("each place was planned")]
    }
}

impl Planned {
    /// The model; none where the target is real.
    pub(super) fn model(&self) -> Option<&ModelTarget> {
        self.target.as_ref()?.model()
    }

    /// Whether its size is fixed: a larger range ends with it.
    pub(super) fn is_device(&self) -> bool {
        self.target.as_ref().is_some_and(Target::is_device)
    }

    /// Whether its file is created or replaced.
    pub(super) const fn is_new(&self) -> bool {
        self.target.is_none()
    }

    /// The directory of a scratch file, or the one in which its directory will be created; none if the target exists.
    pub(super) fn scratch_directory(&self) -> Option<&Path> {
        let directory = self.place.directory().filter(|_| self.target.is_none())?;
        directory.ancestors().find(|directory| directory.is_dir()).or(Some(directory))
    }
}

/// Examines each place once, and creates no file. `accesses` are those of all jobs of the file: they decide the sizes
/// of scratch files, and whether a file of the user is written.
pub(super) fn plan(
    accesses: &[Access],
    base: &Workload,
    progress: &mut dyn Progress,
) -> Result<Plans, JobFileError> {
    let (overwrite, repetitions) = (base.overwrite, base.repetitions.get().into());
    let mut numbers = HashMap::new();
    let mut places: Vec<Vec<&Access>> = Vec::new();
    for access in accesses {
        let number = *numbers.entry(access.place.clone()).or_insert(places.len());
        match places.get_mut(number) {
            Some(of_place) => of_place.push(access),
            None => places.push(vec![access]),
        }
    }
    let mut list = Vec::with_capacity(places.len());
    let needed = needed(&places, repetitions);
    for of_place in places {
        let place = of_place[0].place.clone();
        let mut members = Vec::new();
        let (size_bytes, target) = match &place {
            Place::None(bytes) => (*bytes, Some(Target::none(*bytes))),
            Place::Present(file) => {
                let target = present(file, None, &of_place, overwrite, progress)?;
                (target.size_bytes(), Some(target))
            }
            Place::Several(name, owner) => {
                // Scratch files need a size; without one, the files that exist are accessed as they are.
                let bytes = match scratch_bytes(&of_place) {
                    Err(error) if owner.is_some() => return Err(error),
                    bytes => bytes.ok(),
                };
                let target = present(name, bytes, &of_place, overwrite, progress)?;
                (target.size_bytes(), Some(target))
            }
            Place::Named(_) | Place::Own(..) => (scratch_bytes(&of_place)?, None),
            // Without a size, the job accesses all of the file.
            Place::Kept(file) => match scratch_bytes(&of_place) {
                bytes if needed[file].bytes > file_bytes(file)? => {
                    (bytes.unwrap_or(needed[file].bytes), None)
                }
                _ => {
                    let target = present(file, None, &of_place, true, progress)?;
                    (target.size_bytes(), Some(target))
                }
            },
            Place::SeveralKept(chunk_bytes, _) => {
                let (bytes, targets) = several_kept(&place, &of_place, &needed, overwrite, progress)?;
                if targets.iter().all(Option::is_some) {
                    let targets = targets.into_iter().flatten().collect();
                    (bytes, Some(Target::stripe_of(targets, *chunk_bytes, bytes)))
                } else {
                    members = targets;
                    (bytes, None)
                }
            }
        };
        let content = new_content(&of_place, repetitions);
        list.push(Planned { place, size_bytes, target, content, members });
    }
    Ok(Plans { list, numbers, needed })
}

/// The files of a stripe that are not created, with their targets, and its size.
fn several_kept(
    place: &Place,
    accesses: &[&Access],
    needed: &HashMap<PathBuf, Needed>,
    overwrite: bool,
    progress: &mut dyn Progress,
) -> Result<(u64, Vec<Option<Target>>), JobFileError> {
    let Place::SeveralKept(_, files) = place else { unreachable!("the place has several files") };
    let wanted = scratch_bytes(accesses);
    let mut members = Vec::with_capacity(files.len());
    let mut least = u64::MAX;
    for file in files {
        let has = match fs::metadata(file) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(BenchError::io("open", file)(error).into()),
        };
        let bytes = wanted.as_ref().ok().map(|bytes| place.member_bytes(*bytes));
        let member = match has {
            None => None,
            Some(found) if is_kept(file) => {
                let is_whole = needed[file].bytes <= found.len();
                is_whole.then(|| Target::made(file, bytes.unwrap_or(found.len()))).transpose()?
            }
            Some(_) => Some(present(file, bytes, accesses, overwrite, progress)?),
        };
        least = least.min(member.as_ref().map_or(u64::MAX, Target::size_bytes));
        members.push(member);
    }
    // Without a size, all of the files that exist.
    let size_bytes = match wanted {
        Err(error) if members.iter().any(Option::is_none) => return Err(error),
        Err(_) => place.stripe().map_or(0, |stripe| stripe.size_bytes(least)),
        Ok(bytes) => bytes,
    };
    Ok((size_bytes, members))
}

fn file_bytes(file: &Path) -> Result<u64, BenchError> {
    Ok(fs::metadata(file).map_err(BenchError::io("examine", file))?.len())
}

/// Creates the files.
pub(super) fn prepare(
    planned: Plans,
    seed: u64,
    keeps_files: bool,
    progress: &mut dyn Progress,
) -> Result<Vec<Prepared>, JobFileError> {
    let mut files = NewFiles::new(planned.needed, seed);
    let made = |Planned { place, size_bytes, target, content, members }| {
        let (target, scratch) = match (target, place.directory(), &place) {
            (None, _, Place::SeveralKept(chunk_bytes, names)) => {
                let bytes = place.member_bytes(size_bytes);
                let target = |(file, target): (&PathBuf, Option<Target>)| match target {
                    Some(target) => Ok(target),
                    None => files.target(file, bytes, progress),
                };
                let targets = names.iter().zip(members).map(target);
                let targets = targets.collect::<Result<Vec<_>, JobFileError>>()?;
                let scratch = targets.iter().map(Target::is_scratch).collect();
                (Target::stripe_of(targets, *chunk_bytes, size_bytes), scratch)
            }
            (None, _, Place::Named(file) | Place::Kept(file)) if keeps_files => {
                let target = files.target(file, size_bytes, progress)?;
                let is_scratch = target.is_scratch();
                (target, vec![is_scratch])
            }
            (None, Some(directory), _) => {
                (Target::scratch_with(directory, size_bytes, content, seed, progress)?, Vec::new())
            }
            (target, ..) => (target.expect("only a scratch file has no target"), Vec::new()),
        };
        Prepared::new(place, target, &scratch, keeps_files)
    };
    planned.list.into_iter().map(made).collect()
}

/// A file or device of the user, or a model. Writes need permission.
fn present(
    file: &Path,
    size_bytes: Option<u64>,
    accesses: &[&Access],
    overwrite: bool,
    progress: &mut dyn Progress,
) -> Result<Target, JobFileError> {
    let writes = accesses.iter().any(|access| access.job.workload.rw.writes());
    let access =
        accesses.iter().find(|access| access.job.workload.rw.writes() == writes).unwrap_or(&accesses[0]);
    let workload = Workload {
        path: access.path,
        target: Some(file.to_owned()),
        size_bytes,
        rw: if writes { Rw::Write } else { Rw::Read },
        // The blocks of the jobs are checked later.
        block_size: BlockSize::constant(4096),
        overwrite,
        ..Workload::default()
    };
    Ok(Target::prepare(&workload, progress)?)
}
