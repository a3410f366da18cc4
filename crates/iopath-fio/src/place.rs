//! Where the bytes of a clone are: files and devices of the user, models, and files that are created. `places.rs`
//! prepares them.

use std::path::{Path, PathBuf};

use super::error::JobFileError;
use super::job::Job;
use super::names::find;
use super::range::{Range, file_bytes_of};
use super::several::{self, Owner};
use iopath_bench::error::BenchError;
use iopath_bench::export::is_remote;
use iopath_bench::kept_file::is_kept;
use iopath_bench::model::ModelTarget;
use iopath_bench::path::PathRow;
use iopath_bench::stripe_name::StripeName;
use iopath_bench::target::NewContent;
use iopath_report::Rw;

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
    /// Several files as one, with the bytes of one before the next. Those that do not exist are created and kept.
    SeveralKept(u64, Vec<PathBuf>),
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
        if job.has_several_files() && keeps_files {
            let (chunk_bytes, files) = several::kept(job, clone)?;
            return Ok(Self::SeveralKept(chunk_bytes, files));
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
        let own = job.own_file_name(clone, 0);
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
        Ok(match find(job, file, of_clone, keeps_files)? {
            (file, false) => Self::Named(file),
            (file, true) if keeps_files && is_kept(&file) => Self::Kept(file),
            (file, true) => Self::Present(file),
        })
    }

    /// The directory of the scratch file; none for other places.
    pub(super) fn directory(&self) -> Option<&Path> {
        match self {
            Self::None(_) | Self::Present(_) | Self::Several(..) => None,
            Self::Named(file) | Self::Kept(file) => file.parent(),
            Self::SeveralKept(_, files) => files.first()?.parent(),
            Self::Own(directory, ..) => Some(directory),
        }
    }

    /// The stripe of several files; none of other places.
    pub(super) fn stripe(&self) -> Option<StripeName> {
        match self {
            Self::SeveralKept(chunk_bytes, files) => Some(StripeName::of(*chunk_bytes, files.clone())),
            _ => None,
        }
    }

    /// The bytes of each of its files, for `bytes` of all of them.
    pub(super) fn member_bytes(&self, bytes: u64) -> u64 {
        self.stripe().map_or(bytes, |stripe| stripe.member_bytes(bytes))
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

/// The content of a new file for all accesses. As in fio, a file of jobs that only write is not written before, so that
/// their writes also change its metadata. Later repetitions would find it written.
pub(super) fn new_content(accesses: &[&Access], repetitions: u64) -> NewContent {
    let only_writes = |job: &Job| matches!(job.workload.rw, Rw::Write | Rw::RandWrite);
    let needs_bytes = |access: &&Access| {
        let job = access.job;
        !only_writes(job) || job.overwrites || job.create_only || job.workload.warm
    };
    if repetitions > 1 || accesses.iter().any(needs_bytes) {
        NewContent::Written
    } else if accesses.iter().all(|access| access.job.leaves_hole) {
        NewContent::Hole
    } else {
        NewContent::Allocated
    }
}

/// The size of a scratch file that holds the ranges of all accesses.
pub(super) fn scratch_bytes(accesses: &[&Access]) -> Result<u64, JobFileError> {
    let mut bytes = 0;
    for access in accesses {
        let known = access.job.file_bytes;
        let range = Range::of(access.job, access.clone, known)?;
        bytes = bytes.max(known.unwrap_or(0)).max(range.end_bytes);
    }
    Ok(bytes)
}
