//! The files of a job with several: iopath accesses them as a stripe, whose chunks give the order of the files that fio
//! has. Does not prepare them.

use std::fs;
use std::path::PathBuf;

use super::error::JobFileError;
use super::job::Job;
use super::names::find;
use iopath_bench::error::BenchError;
use iopath_bench::export::is_remote;
use iopath_bench::model::is_model;
use iopath_bench::options::{Amount, FileOrder};

impl Job {
    /// Whether it has several files.
    pub(super) fn has_several_files(&self) -> bool {
        self.several().is_some()
    }

    /// The number of its files; none for one.
    pub(super) fn several(&self) -> Option<u64> {
        let count = if self.files.is_empty() { self.file_count } else { self.files.len() as u64 };
        Some(count).filter(|count| *count > 1)
    }
}

/// Adds the files of `opendir` to those of a job, in the order of their names.
pub(super) fn open_directories(job: &mut Job) -> Result<(), JobFileError> {
    let mut rest: Vec<PathBuf> = job.open_directories.iter().map(PathBuf::from).collect();
    let mut files = Vec::new();
    while let Some(directory) = rest.pop() {
        let failed = BenchError::io("read the directory", &directory);
        let entries = fs::read_dir(&directory).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        for entry in entries.map_err(failed)? {
            let kind = entry.file_type().map_err(BenchError::io("examine", &entry.path()))?;
            if kind.is_dir() {
                rest.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path().display().to_string());
            }
        }
    }
    if files.is_empty() && !job.open_directories.is_empty() {
        return Err(job.problem("opendir names no directory with files"));
    }
    files.sort_unstable();
    job.files.extend(files);
    Ok(())
}

/// To whom several files belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// All of them exist.
    User,
    /// Scratch files, which all jobs that name them share.
    Jobs,
    /// Scratch files of one clone.
    Clone,
}

/// The stripe of a clone with several files: files that exist, or scratch files in the directories of the others.
pub(super) fn stripe(job: &Job, clone: u64) -> Result<(PathBuf, Owner), JobFileError> {
    check_names(job)?;
    let mut members = Vec::new();
    let mut sizes = Vec::new();
    for file in &job.files {
        let file = job.file(file, 0);
        if let Ok(found) = fs::metadata(&file) {
            sizes.push(found.len());
            members.push(file.canonicalize().map_err(BenchError::io("open", &file))?);
        } else {
            let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
            members.push(parent.map_or_else(|| PathBuf::from("."), PathBuf::from));
        }
    }
    check_sizes(job, &sizes)?;
    let is_own = job.files.is_empty();
    members.extend((0..job.file_count).filter(|_| is_own).map(|_| job.directory(clone)));
    check_commas(job, &members)?;
    let all_exist = sizes.len() == members.len();
    let chunk_bytes = chunk_bytes(job, members.len() as u64, sizes.into_iter().min().filter(|_| all_exist))?;
    let names: Vec<_> = members.iter().map(|member| member.to_string_lossy()).collect();
    let name = format!("stripe:{chunk_bytes}:{}", names.join(","));
    // Clones share files that have names.
    let owner = match (all_exist, is_own) {
        (true, _) => Owner::User,
        (false, false) => Owner::Jobs,
        (false, true) => Owner::Clone,
    };
    Ok((name.into(), owner))
}

/// The bytes of one file before the next one, and the files of a clone with several, of which those that do not exist
/// are created and kept.
pub(super) fn kept(job: &Job, clone: u64) -> Result<(u64, Vec<PathBuf>), JobFileError> {
    check_names(job)?;
    // Clones share files that have names.
    let (names, clone): (Vec<String>, u64) = if job.files.is_empty() {
        ((0..job.file_count).map(|number| job.own_file_name(clone, number)).collect(), clone)
    } else {
        (job.files.clone(), 0)
    };
    let mut files: Vec<PathBuf> = Vec::with_capacity(names.len());
    let mut sizes = Vec::new();
    for name in &names {
        let (file, exists) = find(job, name, clone, true)?;
        if files.contains(&file) {
            return Err(job.problem(format!(
                "two of its files are {}; use $filenum in filename_format, or name each file once",
                file.display()
            )));
        }
        sizes.extend(exists.then(|| fs::metadata(&file).map_or(0, |found| found.len())));
        files.push(file);
    }
    check_sizes(job, &sizes)?;
    check_commas(job, &files)?;
    let least = sizes.iter().copied().min().filter(|_| sizes.len() == files.len());
    Ok((chunk_bytes(job, files.len() as u64, least)?, files))
}

fn check_names(job: &Job) -> Result<(), JobFileError> {
    let whole = job.files.join(":");
    if job.files.len() > 1 && fs::metadata(&whole).is_ok() {
        return Err(job.problem(format!(
            "filename names several files, and {whole} is one; write `\\:` for a colon in a name"
        )));
    }
    let mut files = job.files.iter().map(|file| job.file(file, 0));
    match files.find(|file| is_model(file) || is_remote(file)) {
        None => Ok(()),
        Some(file) => Err(job.problem(format!(
            "{} is one of several files, and no file of this machine; use one job for each",
            file.display()
        ))),
    }
}

/// The stripe would end with the smallest.
fn check_sizes(job: &Job, sizes: &[u64]) -> Result<(), JobFileError> {
    if job.size.is_none() && sizes.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err(job.problem("its files have different sizes; add size, or use one job for each"));
    }
    Ok(())
}

/// The name of a stripe has commas.
fn check_commas(job: &Job, files: &[PathBuf]) -> Result<(), JobFileError> {
    match files.iter().find(|file| file.to_string_lossy().contains(',')) {
        None => Ok(()),
        Some(file) => {
            Err(job
                .problem(format!("{} has a comma in its name, and is one of several files", file.display())))
        }
    }
}

/// The bytes of one file before the next one.
fn chunk_bytes(job: &Job, count: u64, least_bytes: Option<u64>) -> Result<u64, JobFileError> {
    let block_bytes = job.block_bytes();
    let transfers = match job.file_order {
        FileOrder::InTurn(transfers) => return Ok(block_bytes.saturating_mul(transfers)),
        FileOrder::OneAfterAnother => {
            let of_each = match (job.size, job.file_bytes, least_bytes) {
                (_, Some(whole), _) => Some(whole / count),
                (Some(Amount::Bytes(bytes)), ..) => Some(bytes / count),
                (_, _, least) => least,
            };
            of_each.map(|bytes| bytes / block_bytes).filter(|blocks| *blocks > 0)
        }
    };
    let transfers = transfers.ok_or_else(|| {
        job.problem("file_service_type=sequential needs files of one block or more; add size or filesize")
    })?;
    Ok(transfers * block_bytes)
}
