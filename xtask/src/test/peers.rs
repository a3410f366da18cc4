//! The programs that tests and benches use beside our own, and how to get them. Downloads nothing but through apt.

use std::process::Command;

use super::Outcome;
use super::logged::Logged;
use crate::workspace;

/// A program of someone else's, the Debian package that has it, and what is left out without it.
struct Peer {
    program: &'static str,
    package: &'static str,
    needed_by: &'static str,
}

const PEERS: &[Peer] = &[
    Peer { program: "cc", package: "gcc", needed_by: "building" },
    Peer { program: "fio", package: "fio", needed_by: "agreement with fio, bench" },
    Peer { program: "mkfs.ext4", package: "e2fsprogs", needed_by: "filesystems on loop devices" },
    Peer { program: "losetup", package: "mount", needed_by: "tests on loop devices" },
    Peer { program: "mount", package: "mount", needed_by: "refusal of mounted devices" },
    Peer { program: "mkswap", package: "util-linux", needed_by: "refusal of swap areas" },
    Peer { program: "sfdisk", package: "fdisk", needed_by: "refusal of disks with mounted partitions" },
    Peer { program: "dmsetup", package: "dmsetup", needed_by: "refusal of devices with holders" },
];

/// Installs what is missing where this may be done (root, apt); says what tests will skip where it may not.
pub(super) fn install_missing() -> Outcome {
    let missing = missing(PEERS, |program| workspace::find_program(program).is_some());
    if missing.is_empty() {
        return Outcome::Passed(format!("all {} here", PEERS.len()));
    }
    if !workspace::is_root() || workspace::find_program("apt-get").is_none() {
        let reason = "not installed: only root may, and only through apt-get";
        return Outcome::Skipped(format!("{reason}{}", left_out(&missing)));
    }
    // A failed update is no failure yet: the lists may be good enough, and the install says what is not there.
    let updated = apt("update-peers", &["update", "--quiet"]).run();
    let packages = packages(&missing);
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(&packages);
    match apt("install-peers", &arguments).run().or_else(|error| updated.and(Err(error))) {
        Ok(_) => Outcome::Passed(format!("installed {}", packages.join(", "))),
        Err(error) => Outcome::Skipped(format!("apt-get failed: {error}{}", left_out(&missing))),
    }
}

fn apt(name: &'static str, arguments: &[&str]) -> Logged {
    Logged::new(name, Command::new("apt-get")).args(arguments).env("DEBIAN_FRONTEND", "noninteractive")
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

/// One line for each missing program: what goes untested without it.
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
    fn asks_for_each_package_once_and_only_for_what_is_missing() {
        let missing = missing(PEERS, |program| !["losetup", "mount", "fio"].contains(&program));
        assert_eq!(packages(&missing), ["fio", "mount"]);
    }

    #[test]
    fn says_what_goes_untested() {
        let missing = missing(PEERS, |program| program != "mkswap");
        assert_eq!(left_out(&missing), "\n    without mkswap (package util-linux): no refusal of swap areas");
    }
}
