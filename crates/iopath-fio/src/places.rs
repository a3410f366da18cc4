//! Where the bytes of jobs are: files and devices of the user, models, and scratch files for names that do not exist.
//! Prepares the targets of a whole job file. Does not run the jobs.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use iopath_report::Rw;

use super::error::JobFileError;
use super::job::Job;
use super::range::{Range, file_bytes_of};
use super::several::{self, Owner};
use iopath_bench::error::BenchError;
use iopath_bench::export::is_remote;
use iopath_bench::kept_file::{Identity, is_kept};
use iopath_bench::model::ModelTarget;
use iopath_bench::path::PathRow;
use iopath_bench::progress::Progress;
use iopath_bench::stripe_name::StripeName;
use iopath_bench::target::Target;
use iopath_bench::workload::{BlockSize, Workload};

/// The most symbolic links from a name to its file, as in Linux.
const LINKS_MAX: u32 = 40;

/// The target of a clone, before it is prepared. Clones with equal places share a target.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// No target: a path without a device, with this size in bytes.
    None(u64),
    /// A file or device that exists, a model, or a stripe.
    Present(PathBuf),
    /// A name that does not exist: a scratch file in its directory, or a file that is created and kept.
    Named(PathBuf),
    /// A file that iopath has created and kept, and that it may write and replace.
    Kept(PathBuf),
    /// Several files as one, by the name of their stripe; scratch files of a clone have its job and its number.
    Several(PathBuf, Option<[u64; 2]>),
    /// A scratch file of one clone in a directory: the number of the job and of the clone.
    Own(PathBuf, usize, u64),
}

impl Place {
    /// Whether its files are created, at the latest when the place is planned.
    pub(super) const fn is_new(&self) -> bool {
        matches!(self, Self::Named(_) | Self::Own(..) | Self::Several(_, Some(_)))
    }

    /// The place of a clone of job `number`. Files that are created have names if they are kept.
    pub(super) fn of(
        job: &Job,
        path: &PathRow,
        [number, clone]: [u64; 2],
        keeps_files: bool,
    ) -> Result<Self, JobFileError> {
        if !path.capabilities.needs_target {
            let bytes = file_bytes_of(job)?;
            return Ok(Self::None(bytes));
        }
        if job.has_several_files() {
            let (name, owner) = several::stripe(job, clone)?;
            return Ok(Self::Several(
                name,
                match owner {
                    Owner::User => None,
                    Owner::Jobs => Some([0, 0]),
                    Owner::Clone => Some([number, clone]),
                },
            ));
        }
        let own = job.own_file_name(clone);
        let file = match &job.files[..] {
            [] if !keeps_files => return Ok(Self::Own(job.directory(clone), number as usize, clone)),
            [] => &*own,
            [file, ..] => &**file,
        };
        let name = Path::new(file);
        let is_named = || -> Result<bool, BenchError> {
            Ok(ModelTarget::find(name)?.is_some() || StripeName::find(name)?.is_some())
        };
        if is_remote(name) || is_named()? {
            return Ok(Self::Present(name.to_owned()));
        }
        let of_clone = if job.files.is_empty() { clone } else { 0 };
        let file = job.file(file, of_clone);
        match fs::metadata(&file) {
            Ok(found) if found.is_dir() => {
                let problem = format!("{} is a directory; name it with directory=", file.display());
                Err(job.problem(problem))
            }
            Ok(_) => {
                let file = file.canonicalize().map_err(BenchError::io("open", &file))?;
                Ok(if keeps_files && is_kept(&file) { Self::Kept(file) } else { Self::Present(file) })
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(BenchError::io("open", &file)(error).into())
            }
            Err(_) => {
                if !job.directories.is_empty() {
                    let directory = job.directory(of_clone);
                    directory.canonicalize().map_err(BenchError::open(&directory, false))?;
                }
                let file = resolved(&file, keeps_files)?;
                if file.starts_with("/dev") && !file.starts_with("/dev/shm") {
                    let problem = format!(
                        "{} does not exist; a scratch file in /dev would lie in memory",
                        file.display()
                    );
                    return Err(job.problem(problem));
                }
                Ok(Self::Named(file))
            }
        }
    }

    /// The directory of the scratch file; none for other places.
    fn directory(&self) -> Option<&Path> {
        match self {
            Self::None(_) | Self::Present(_) | Self::Several(..) => None,
            Self::Named(file) | Self::Kept(file) => file.parent(),
            Self::Own(directory, ..) => Some(directory),
        }
    }
}

/// The only name of a file that does not exist: in its directory, with symbolic links resolved. `creates`: the
/// directory need not exist, as in fio.
fn resolved(file: &Path, creates: bool) -> Result<PathBuf, BenchError> {
    let mut file = file.to_owned();
    for _ in 0..LINKS_MAX {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = if creates { future(parent) } else { parent.canonicalize() };
        let directory = directory.map_err(BenchError::open(parent, false))?;
        let Some(name) = file.file_name() else { break };
        let named = directory.join(name);
        match fs::read_link(&named) {
            Ok(link) => file = directory.join(link),
            Err(_) => return Ok(named),
        }
    }
    Err(BenchError::Missing { target: file })
}

/// The only name of a directory whose last parts need not exist.
fn future(directory: &Path) -> io::Result<PathBuf> {
    match directory.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
                return Err(error);
            };
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(future(parent)?.join(name))
        }
        found => found,
    }
}

/// A target with its place.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) place: Place,
    pub(super) target: Target,
    /// The file, if it is one that iopath has created and that stays.
    kept: Option<Identity>,
}

/// The files that are kept. Marks those that the jobs have written again at the end, or removes them. A file that
/// another program has put in the place of one of them is neither.
pub(super) struct KeptFiles<'a> {
    prepared: &'a [Prepared],
    accesses: &'a [Access<'a>],
    /// Whether files are kept.
    keeps: bool,
    /// The places that jobs have written to.
    written: Vec<&'a Place>,
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
        for (prepared, file) in kept.files() {
            let mut of_file = accesses.iter().filter(|access| access.place == prepared.place);
            if let Some(Access { job, .. }) = of_file.find(|access| access.job.create_only)
                && prepared.target.is_scratch()
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

    /// The files to keep.
    fn files(&self) -> impl Iterator<Item = (&'a Prepared, &'a Path)> + use<'a> {
        let keeps = self.keeps;
        self.prepared.iter().filter(move |_| keeps).filter_map(|prepared| match &prepared.place {
            Place::Named(file) | Place::Kept(file) => Some((prepared, file.as_path())),
            Place::None(_) | Place::Present(_) | Place::Several(..) | Place::Own(..) => None,
        })
    }

    /// A line for each file that cannot be kept.
    pub(super) fn warnings(&self) -> Vec<String> {
        let removed = self.files().filter(|(prepared, _)| prepared.target.is_scratch());
        removed
            .map(|(_, file)| {
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
        let kept = self.files().find(|(prepared, _)| prepared.place == *place);
        let Some((file, identity)) = kept.and_then(|(prepared, file)| Some((file, prepared.kept?))) else {
            return Ok(());
        };
        let is_written = self.written.contains(&place);
        // Own writes of the jobs before have changed it, too.
        let is_same = Identity::of(file).is_ok_and(|now| now == identity);
        if !is_same || !(is_written || is_kept(file)) {
            return Err(job.problem(format!(
                "{} has changed since iopath created it, and a write would destroy its content; use another file",
                file.display()
            )));
        }
        if !is_written {
            self.written.push(place);
        }
        Ok(())
    }
}

impl Drop for KeptFiles<'_> {
    fn drop(&mut self) {
        for (Prepared { place, kept, .. }, file) in self.files() {
            let Some(identity) = kept else { continue };
            let is_unlinked = |access: &Access| access.place == *place && access.job.unlink;
            // Without its mark, the next run takes the file for one of the user, which is safe.
            let _ = if self.accesses.iter().any(is_unlinked) {
                identity.remove(file)
            } else if self.written.contains(&place) {
                identity.mark(file)
            } else {
                Ok(())
            };
        }
    }
}

/// A clone that accesses a place.
#[derive(Debug, Clone)]
pub(super) struct Access<'a> {
    pub(super) job: &'a Job,
    pub(super) path: &'static PathRow,
    pub(super) clone: u64,
    pub(super) place: Place,
}

/// A place, with the target unless it is a scratch file that does not exist yet.
#[derive(Debug)]
pub(super) struct Planned {
    place: Place,
    /// The size of the target.
    pub(super) size_bytes: u64,
    target: Option<Target>,
}

/// The plans of all places.
#[derive(Debug)]
pub(super) struct Plans {
    list: Vec<Planned>,
    /// The number of each place in the list.
    numbers: HashMap<Place, usize>,
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
    overwrite: bool,
    progress: &mut dyn Progress,
) -> Result<Plans, JobFileError> {
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
    for of_place in places {
        let place = of_place[0].place.clone();
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
                Ok(bytes) if bytes > file_bytes(file)? => (bytes, None),
                _ => {
                    let target = present(file, None, &of_place, true, progress)?;
                    (target.size_bytes(), Some(target))
                }
            },
        };
        list.push(Planned { place, size_bytes, target });
    }
    Ok(Plans { list, numbers })
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
    let made = |Planned { place, size_bytes, target }| {
        let target = match (target, place.directory(), &place) {
            (None, Some(directory), Place::Named(file) | Place::Kept(file)) if keeps_files => {
                fs::create_dir_all(directory).map_err(BenchError::io("create", directory))?;
                Target::kept(file, size_bytes, seed, progress)?
            }
            (None, Some(directory), _) => Target::scratch(directory, size_bytes, seed, progress)?,
            (target, ..) => target.expect("only a scratch file has no target"),
        };
        let kept = match &place {
            Place::Named(file) | Place::Kept(file) if keeps_files && !target.is_scratch() => {
                Some(Identity::of(file).map_err(BenchError::io("examine", file))?)
            }
            _ => None,
        };
        Ok(Prepared { place, target, kept })
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

/// The size of a scratch file that holds the ranges of all accesses.
fn scratch_bytes(accesses: &[&Access]) -> Result<u64, JobFileError> {
    let mut bytes = 0;
    for access in accesses {
        let known = access.job.file_bytes;
        let range = Range::of(access.job, access.clone, known)?;
        bytes = bytes.max(known.unwrap_or(0)).max(range.end_bytes);
    }
    Ok(bytes)
}
