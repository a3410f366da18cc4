//! The present users of a block device, in words for a message: mounts, swap areas, devices on it, processes. Opens
//! nothing, so it does not wait for the device. The decision about a target is in `target/guard.rs`.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::mounts::Mounts;
use super::roots::{DeviceNumber, Roots};
use super::{swaps, usage};

/// Processes that a message names.
const NAMED_MAX: usize = 4;

/// The users of a block device and of its partitions.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Users {
    lasting: Vec<String>,
    processes: Vec<String>,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users")
            .field("lasting", &self.lasting.len())
            .field("processes", &self.processes.len())
            .finish_non_exhaustive()
    }
}

impl Users {
    /// The users of the device at this path, such as `/dev/sda`. They may have it open after its node is removed.
    pub fn of(device: &str) -> Self {
        let device = Path::new(device);
        let roots = &Roots::live();
        Self { lasting: lasting_users(roots, device), processes: processes_with(roots, device) }
    }

    /// Whether the use ends with a command of the user only: a mount, a swap area, or a device on this one.
    pub fn are_lasting(device: &str) -> bool {
        !lasting_users(&Roots::live(), Path::new(device)).is_empty()
    }
}

impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all: Vec<_> = self.lasting.clone();
        all.extend(self.processes.iter().take(NAMED_MAX).map(|process| format!("open in {process}")));
        let more = self.processes.len().saturating_sub(NAMED_MAX);
        if more > 0 {
            all.push(format!("{more} more processes"));
        }
        if all.is_empty() {
            return f.write_str("a process or mount that is not visible from here");
        }
        f.write_str(&all.join(", "))
    }
}

fn lasting_users(roots: &Roots, device: &Path) -> Vec<String> {
    let number = DeviceNumber::of_block_device(device);
    let family = number.map_or_else(Vec::new, |number| usage::family(roots, number));
    let is_of_family = |number: DeviceNumber| family.iter().any(|relative| relative.device == number);
    let mounts = Mounts::load(roots).unwrap_or_default();
    let by_number = usage::mounted_devices(roots, &mounts).into_iter().filter(|m| is_of_family(m.device));
    // The number of a removed device is not known any more.
    let by_name = mounts.iter().filter(|mount| is_node_of(device, &mount.source));
    let mut points: Vec<PathBuf> =
        by_number.map(|mount| mount.at).chain(by_name.map(|mount| mount.mount_point.clone())).collect();
    points.sort();
    points.dedup();
    let mut found: Vec<_> = points.iter().map(|point| format!("mounted on {}", point.display())).collect();
    let is_ours = |area: &PathBuf| {
        is_node_of(device, area) || DeviceNumber::of_block_device(area).is_some_and(is_of_family)
    };
    let areas = swaps::load(roots).unwrap_or_default();
    found.extend(
        areas.iter().filter(|area| is_ours(area)).map(|area| format!("swap area {}", area.display())),
    );
    found.extend(family.iter().flat_map(|relative| &relative.holders).map(|name| format!("part of {name}")));
    found
}

/// The processes with an open descriptor of the device, as far as this one may examine them: `name (number)`.
fn processes_with(roots: &Roots, device: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(&roots.proc).into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let descriptors = fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        // The link alone: a stat of the file behind it may wait for another device.
        let mut links = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
        if links.any(|link| is_node_of(device, &link)) {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push((pid, name.trim_end().to_owned()));
        }
    }
    found.sort();
    found.into_iter().map(|(pid, name)| format!("{name} ({pid})")).collect()
}

/// Whether a path names the device or a partition of it (`/dev/ublkb0p1`), with the mark of a removed node.
fn is_node_of(device: &Path, path: &Path) -> bool {
    let (device, path) = (device.as_os_str().as_encoded_bytes(), path.as_os_str().as_encoded_bytes());
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let Some(rest) = path.strip_prefix(device) else { return false };
    rest.is_empty()
        || rest
            .strip_prefix(b"p")
            .is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_an_open_descriptor_is_named_also_after_the_removal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("disk");
        let name = path.to_str().unwrap();
        assert_eq!(Users::of(name).to_string(), "a process or mount that is not visible from here");
        let file = fs::File::create(&path).unwrap();
        let own = format!("({})", std::process::id());
        let users = Users::of(name).to_string();
        assert!(users.starts_with("open in ") && users.contains(&own), "{users}");
        fs::remove_file(&path).unwrap();
        assert!(Users::of(name).to_string().contains(&own));
        drop(file);
        assert_eq!(Users::of(name), Users::default());
        assert!(!Users::are_lasting(name));
    }

    #[test]
    fn partitions_belong_to_the_device_and_other_devices_do_not() {
        let is_node = |path: &str| is_node_of(Path::new("/dev/ublkb1"), Path::new(path));
        for path in ["/dev/ublkb1", "/dev/ublkb1p2", "/dev/ublkb1 (deleted)", "/dev/ublkb1p12 (deleted)"] {
            assert!(is_node(path), "{path}");
        }
        for path in ["/dev/ublkb12", "/dev/ublkb1p", "/dev/ublkb1x", "/dev/ublkb", "/mnt/dev/ublkb1", ""] {
            assert!(!is_node(path), "{path}");
        }
    }

    #[test]
    fn mounts_and_swap_areas_of_the_tables_are_lasting_users() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("self")).unwrap();
        let mounts = "36 1 259:3 / /mnt rw shared:1 - ext4 /dev/ublkb1p1 rw\n\
                      37 1 259:9 / /other rw shared:1 - ext4 /dev/ublkb12 rw\n";
        fs::write(folder.path().join("self/mountinfo"), mounts).unwrap();
        let areas = "Filename Type Size Used Priority\n/dev/ublkb1p2 partition 1024 0 -2\n";
        fs::write(folder.path().join("swaps"), areas).unwrap();
        let roots = Roots { proc: folder.path().into(), ..Roots::live() };
        let found = lasting_users(&roots, Path::new("/dev/ublkb1"));
        assert_eq!(found, ["mounted on /mnt", "swap area /dev/ublkb1p2"]);
        let many = (0..6).map(|number| format!("dd ({number})")).collect();
        let users = Users { lasting: found, processes: many };
        assert_eq!(
            users.to_string(),
            "mounted on /mnt, swap area /dev/ublkb1p2, open in dd (0), open in dd (1), open in dd (2), \
             open in dd (3), 2 more processes"
        );
    }
}
