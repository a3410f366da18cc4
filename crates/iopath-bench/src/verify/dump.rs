//! Blocks with faults as files, for analysis with other programs: fio's `verify_dump`.

use std::io;
use std::path::{Path, PathBuf};

use crate::own_file;

/// The most blocks of a job that are kept.
pub(super) const BLOCKS_MAX: usize = 20;

/// The content of a block with a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dump {
    /// The block, in bytes from the start of the target.
    pub(super) offset: u64,
    pub(super) received: Vec<u8>,
    /// The content of its last write; none of a run that only reads.
    pub(super) expected: Option<Vec<u8>>,
}

impl Dump {
    /// Writes the files `NAME.OFFSET.received` and `NAME.OFFSET.expected` in a directory, with the name of the target's
    /// file. Replaces files of the user only if `overwrite`.
    ///
    /// # Errors
    /// The error of the system, with the name of the file.
    pub(crate) fn write(
        &self,
        directory: &Path,
        target: &Path,
        overwrite: bool,
    ) -> Result<(), (PathBuf, io::Error)> {
        let name = target.file_name().unwrap_or(target.as_os_str()).to_string_lossy();
        let contents = [("received", Some(&self.received)), ("expected", self.expected.as_ref())];
        for (kind, content) in contents {
            let Some(content) = content else { continue };
            let file = directory.join(format!("{name}.{}.{kind}", self.offset));
            own_file::replace_own(&file, content, overwrite).map_err(|error| (file, error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_block_has_a_file_for_each_content() {
        let directory = tempfile::tempdir().unwrap();
        let dump = Dump { offset: 4096, received: vec![1; 512], expected: Some(vec![2; 512]) };
        dump.write(directory.path(), Path::new("/dev/sdx"), false).unwrap();
        let content = |kind| fs::read(directory.path().join(format!("sdx.4096.{kind}"))).unwrap();
        assert_eq!((content("received"), content("expected")), (vec![1; 512], vec![2; 512]));
        // A file of the user stays; with permission, a link that waits under the expected name is replaced.
        let victim = directory.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        fs::remove_file(directory.path().join("sdx.4096.received")).unwrap();
        std::os::unix::fs::symlink(&victim, directory.path().join("sdx.4096.received")).unwrap();
        let error = dump.write(directory.path(), Path::new("/dev/sdx"), false).unwrap_err();
        assert_eq!(error.1.kind(), io::ErrorKind::AlreadyExists);
        dump.write(directory.path(), Path::new("/dev/sdx"), true).unwrap();
        assert_eq!((content("received"), fs::read(&victim).unwrap()), (vec![1; 512], b"mine".to_vec()));
        let error = dump.write(&directory.path().join("missing"), Path::new("f"), false).unwrap_err();
        assert!(error.0.ends_with("missing/f.4096.received"));
    }
}
