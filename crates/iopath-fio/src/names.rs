//! The files that jobs name: which of them exist, and the only name of each. Creates none.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::error::JobFileError;
use super::job::Job;
use iopath_bench::error::BenchError;

/// The most symbolic links from a name to its file, as in Linux.
const LINKS_MAX: u32 = 40;

/// The only name of a file of a clone, and whether the file exists.
pub(super) fn find(
    job: &Job,
    name: &str,
    clone: u64,
    keeps_files: bool,
) -> Result<(PathBuf, bool), JobFileError> {
    let file = job.file(name, clone);
    match fs::metadata(&file) {
        Ok(found) if found.is_dir() => {
            let problem = format!("{} is a directory; name it with directory=", file.display());
            Err(job.problem(problem))
        }
        Ok(found) if found.file_type().is_char_device() => Err(job.problem(format!(
            "{} is a character device, which stores no data; name a file or a block device, or use ioengine=null, which \
             measures the path without storage",
            file.display()
        ))),
        Ok(_) => Ok((file.canonicalize().map_err(BenchError::io("open", &file))?, true)),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(BenchError::io("open", &file)(error).into())
        }
        Err(_) => {
            if !job.directories.is_empty() {
                let directory = job.directory(clone);
                directory.canonicalize().map_err(BenchError::open(&directory, false))?;
            }
            let file = resolved(&file, keeps_files)?;
            if file.starts_with("/dev") && !file.starts_with("/dev/shm") {
                let problem =
                    format!("{} does not exist; a scratch file in /dev would lie in memory", file.display());
                return Err(job.problem(problem));
            }
            Ok((file, false))
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
