//! The initial file system of the guest: a cpio archive in the `newc` format (kernel documentation,
//! `early-userspace/buffer-format.rst`). Contains programs with their libraries, and kernel modules. Does not run them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// An archive in construction.
#[derive(Debug, Default)]
pub(super) struct Image {
    bytes: Vec<u8>,
    names: BTreeSet<String>,
}

impl Image {
    /// Adds a file with the folders above it.
    pub(super) fn add(&mut self, name: &str, content: &[u8]) {
        let name = name.trim_start_matches('/');
        for (end, _) in name.match_indices('/') {
            self.entry(&name[..end], FOLDER, &[]);
        }
        self.entry(name, PROGRAM, content);
    }

    /// Adds an empty folder.
    pub(super) fn add_folder(&mut self, name: &str) {
        self.entry(name, FOLDER, &[]);
    }

    /// Adds a file of the host as `name`, and the libraries that it is linked with at their paths.
    pub(super) fn add_program(&mut self, file: &Path, name: &str) -> Result<()> {
        let output = Command::new("ldd").arg(file).output().context("cannot run ldd")?;
        for library in libraries(&String::from_utf8_lossy(&output.stdout)) {
            let path = library.to_str().context("a path of a library is not UTF-8")?;
            self.add(path, &read(&library)?);
        }
        self.add(name, &read(file)?);
        Ok(())
    }

    /// The archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        if !self.names.insert(name.to_owned()) {
            return;
        }
        let inode = self.names.len() as u32;
        let lengths = (content.len() as u32, name.len() as u32 + 1);
        let fields = [inode, mode, 0, 0, 1, 0, lengths.0, 0, 0, 0, 0, lengths.1, 0];
        self.bytes.extend(b"070701");
        self.bytes.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// The paths in the output of `ldd`: `name => /path (address)`, or `/path (address)` for the loader.
fn libraries(output: &str) -> Vec<PathBuf> {
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    output.lines().filter_map(path).collect()
}

/// A kernel module of the package, decompressed.
pub(super) fn module(kernel: &Path, name: &str) -> Result<Vec<u8>> {
    let output = Command::new("find").arg(kernel).args(["-name", &format!("{name}.ko*")]).output()?;
    let found = String::from_utf8(output.stdout)?;
    let file = Path::new(found.lines().next().with_context(|| format!("the kernel has no module {name}"))?);
    if file.extension().is_none_or(|extension| extension != "xz") {
        return read(file);
    }
    let output = Command::new("xz").arg("-dc").arg(file).output().context("cannot run xz")?;
    ensure!(output.status.success(), "xz -dc {}: {}", file.display(), output.status);
    Ok(output.stdout)
}

fn read(file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_a_head_in_hexadecimal_and_is_padded() {
        let mut image = Image::default();
        image.add("/bin/x", b"hello");
        image.add("bin/x", b"ignored: it exists");
        let bytes = image.finish();
        assert!(bytes.starts_with(b"07070100000001000041ed"));
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.matches("070701").count(), 3, "the folder, the file and the end");
        let content = text.find("hello").expect("the content");
        assert_eq!(content % 4, 0);
        assert!(!text.contains("ignored"));
    }

    #[test]
    fn libraries_are_read_from_the_output_of_ldd() {
        let output = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\t/lib64/ld.so (0x3)\n";
        assert_eq!(libraries(output), [Path::new("/lib/libc.so.6"), Path::new("/lib64/ld.so")]);
        assert!(libraries("\tnot a dynamic executable\n").is_empty());
    }
}
