//! Mount points: tests whether FUSE can mount, lists mount points, and unmounts. `server.rs` mounts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::workspace;

/// The reason why FUSE cannot mount on this machine; none if it can.
pub(crate) fn missing() -> Option<&'static str> {
    if !Path::new("/dev/fuse").exists() {
        return Some("/dev/fuse does not exist: run `modprobe fuse`, or allow the device in the container");
    }
    let can_mount = workspace::is_root() || fusermount().is_some();
    (!can_mount).then_some("mounting needs root or fusermount3 (package fuse3)")
}

fn fusermount() -> Option<PathBuf> {
    ["fusermount3", "fusermount"].into_iter().find_map(workspace::find_program)
}

/// Unmounts. With `lazily`, also if a process has a file open. Returns whether it succeeded.
pub(crate) fn unmount(directory: &Path, lazily: bool) -> bool {
    let mut command = match fusermount() {
        Some(program) if !workspace::is_root() => {
            let mut command = Command::new(program);
            command.arg(if lazily { "-uz" } else { "-u" });
            command
        }
        _ => {
            let mut command = Command::new("umount");
            command.args(lazily.then_some("-l"));
            command
        }
    };
    let status = command.arg(directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    status.status().is_ok_and(|status| status.success())
}

/// Whether `directory` is a mount point. Does not access the directory: a stat would wait for the server.
pub(super) fn is_mounted(directory: &Path) -> bool {
    mounted_below(directory).iter().any(|mounted| mounted == directory)
}

/// The mount points at and below `directory`.
pub(super) fn mounted_below(directory: &Path) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mount_points(&mounts).filter(|mounted| mounted.starts_with(directory)).collect()
}

/// The second column of `proc_mounts(5)`, with octal escapes of some characters.
fn mount_points(mounts: &str) -> impl Iterator<Item = PathBuf> {
    let column = |line: &str| line.split(' ').nth(1).map(str::to_owned);
    mounts.lines().filter_map(column).map(|path| path.replace("\\040", " ").replace("\\134", "\\").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_mount_points_with_spaces() {
        let mounts = "proc /proc proc rw 0 0\niopath /a/b\\040c fuse rw 0 0\n";
        let points: Vec<_> = mount_points(mounts).collect();
        assert_eq!(points, [Path::new("/proc"), Path::new("/a/b c")]);
        assert!(!is_mounted(Path::new("/no/such/directory")));
    }
}
