//! Programs of other projects that tests and benches need, and their installation with apt.

use std::process::Command;

use super::Outcome;
use super::logged::Logged;
use crate::workspace;

/// A program, its Debian package, and the tests that need it.
struct Peer {
    program: &'static str,
    package: &'static str,
    needed_by: &'static str,
}

const PEERS: &[Peer] = &[
    Peer { program: "chromium", package: "chromium", needed_by: "pages of report in a browser" },
    Peer { program: "cc", package: "gcc", needed_by: "building" },
    Peer { program: "fio", package: "fio", needed_by: "agreement with fio, bench" },
    Peer { program: "mkfs.ext4", package: "e2fsprogs", needed_by: "filesystems on loop devices" },
    Peer { program: "mkfs.xfs", package: "xfsprogs", needed_by: "predictions of map on xfs" },
    Peer { program: "mkfs.btrfs", package: "btrfs-progs", needed_by: "guards of btrfs members" },
    Peer { program: "losetup", package: "mount", needed_by: "tests on loop devices" },
    Peer { program: "mount", package: "mount", needed_by: "refusal of mounted devices" },
    Peer { program: "mkswap", package: "util-linux", needed_by: "refusal of swap areas" },
    Peer { program: "sfdisk", package: "fdisk", needed_by: "refusal of disks with mounted partitions" },
    Peer { program: "nbdinfo", package: "libnbd-bin", needed_by: "NBD with the programs of libnbd" },
    Peer { program: "nbdkit", package: "nbdkit", needed_by: "NBD with the server nbdkit" },
    Peer { program: "qemu-nbd", package: "qemu-utils", needed_by: "NBD with qemu-img and qemu-nbd" },
    Peer { program: "valgrind", package: "valgrind", needed_by: "memory errors of the C interface" },
    Peer { program: "dmsetup", package: "dmsetup", needed_by: "refusal of devices with holders" },
];

/// The time for which apt waits for another program that installs packages, in seconds.
const LOCK_TIMEOUT_S: u32 = 300;

/// Installs missing programs, as root and with apt. Otherwise lists the tests that will be skipped.
pub(super) fn install_missing() -> Outcome {
    let missing = missing(PEERS, is_installed);
    if missing.is_empty() {
        return Outcome::Passed(format!("all {} programs are installed", PEERS.len()));
    }
    if !workspace::is_root() || workspace::find_program("apt-get").is_none() {
        let reason = "programs are missing; their installation needs root and apt-get";
        return Outcome::Skipped(format!("{reason}{}", left_out(&missing)));
    }
    // The package lists may be recent enough even if the update fails.
    let updated = apt("update-peers", &["update", "--quiet"]).run();
    let packages = packages(&missing);
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(&packages);
    let result = apt("install-peers", &arguments).run().or_else(|error| updated.and(Err(error)));
    // A package may lack its program, and apt may succeed in part.
    let missing = self::missing(PEERS, is_installed);
    match result {
        Ok(_) if missing.is_empty() => Outcome::Passed(format!("installed {}", packages.join(", "))),
        Ok(_) => Outcome::Skipped(format!("the packages lack programs{}", left_out(&missing))),
        Err(error) => Outcome::Skipped(format!("apt-get failed: {error}{}", left_out(&missing))),
    }
}

fn is_installed(program: &str) -> bool {
    workspace::find_program(program).is_some()
}

fn apt(name: &'static str, arguments: &[&str]) -> Logged {
    let timeout = format!("DPkg::Lock::Timeout={LOCK_TIMEOUT_S}");
    Logged::new(name, Command::new("apt-get"))
        .args(["-o", &timeout])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
}

fn missing(peers: &'static [Peer], is_here: impl Fn(&str) -> bool) -> Vec<&'static Peer> {
    peers.iter().filter(|peer| !is_here(peer.program)).collect()
}

/// The packages of `peers`, each once.
fn packages(peers: &[&Peer]) -> Vec<&'static str> {
    let mut packages: Vec<_> = peers.iter().map(|peer| peer.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// One line for each missing program, with the tests that need it.
fn left_out(missing: &[&Peer]) -> String {
    let line = |peer: &&Peer| {
        format!("\n    without {} (package {}): no {}", peer.program, peer.package, peer.needed_by)
    };
    missing.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_package_is_installed_once() {
        let missing = missing(PEERS, |program| !["losetup", "mount", "fio"].contains(&program));
        assert_eq!(packages(&missing), ["fio", "mount"]);
    }

    #[test]
    fn skipped_tests_are_listed() {
        let missing = missing(PEERS, |program| program != "mkswap");
        assert_eq!(left_out(&missing), "\n    without mkswap (package util-linux): no refusal of swap areas");
    }
}
