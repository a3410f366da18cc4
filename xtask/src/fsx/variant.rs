//! The variants of `cargo xtask fsx`: path, layout, target and cache of a round. Does not start processes.

use std::fmt;

/// The backing file of a mapped volume has twice the size of the volume plus this space, as in the example server.
const MAPPED_ROOM_BYTES: u64 = 4 << 20;

/// The smallest cache of a volume with pages of 4 KiB: 16 pages.
const TINY_CACHE_BYTES: u64 = 16 * 4096;

/// One combination. Its name contains all settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Variant {
    /// A value of `--path` of the server.
    pub(super) path: &'static str,
    /// A row of `MAPPERS`, or none for a plain file.
    pub(super) mapper: Option<&'static str>,
    pub(super) layout: &'static Layout,
    pub(super) medium: Medium,
    pub(super) engine: &'static str,
    has_tiny_cache: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Medium {
    Disk,
    Tmpfs,
}

/// The processes that share a volume, and their operations.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) name: &'static str,
    pub(super) processes: u64,
    /// The size of the file of each process; its maximum size if it can be truncated.
    pub(super) file_bytes: u64,
    op_bytes_max: u64,
    can_truncate: bool,
    /// Operations of each process in one round.
    pub(super) ops: u64,
}

/// The layouts. Files and volumes do not end at boundaries of pages or blocks.
const LAYOUTS: &[Layout] = &[
    // One process; its file is truncated and extended.
    Layout {
        name: "one",
        processes: 1,
        file_bytes: 100_000,
        op_bytes_max: 10_000,
        can_truncate: true,
        ops: 5_000,
    },
    // Adjacent files share pages. The volume fits in the tiny cache, without space for the copies of pages in
    // write-back.
    Layout {
        name: "windows",
        processes: 8,
        file_bytes: 5_000,
        op_bytes_max: 2_000,
        can_truncate: false,
        ops: 5_000,
    },
    // The tiny cache evicts pages continuously.
    Layout {
        name: "wide",
        processes: 8,
        file_bytes: 25_001,
        op_bytes_max: 6_000,
        can_truncate: false,
        ops: 2_500,
    },
];

/// The medium of the backing file, and the I/O engine. `auto` uses threads on tmpfs.
const TARGETS: &[(Medium, &str)] =
    &[(Medium::Disk, "auto"), (Medium::Disk, "threads"), (Medium::Tmpfs, "auto")];

/// Path, mapper, and whether the cache is tiny.
const PATHS: &[(&str, Option<&str>, bool)] = &[
    ("buffered", None, true),
    ("buffered", None, false),
    ("bounced", None, false),
    ("buffered", Some("identity"), true),
    ("bounced", Some("identity"), false),
    ("buffered", Some("extent"), true),
    ("bounced", Some("extent"), false),
    ("buffered", Some("indirect"), true),
    ("bounced", Some("indirect"), false),
];

/// All variants.
pub(super) fn all() -> Vec<Variant> {
    let mut variants = Vec::new();
    for &(path, mapper, has_tiny_cache) in PATHS {
        for &(medium, engine) in TARGETS {
            for layout in LAYOUTS {
                // The size of an identity mapping is fixed.
                if !(layout.can_truncate && mapper == Some("identity")) {
                    variants.push(Variant { path, mapper, layout, medium, engine, has_tiny_cache });
                }
            }
        }
    }
    variants
}

/// The variant of a seed. Every second seed uses a plain file, as most programs do. Consecutive seeds visit all
/// variants in strides, so that a few seeds cover different kinds of variants.
pub(super) fn of_seed(variants: &[Variant], seed: u64) -> Variant {
    let (plain, mapped): (Vec<_>, Vec<_>) = variants.iter().partition(|variant| variant.mapper.is_none());
    let (variants, turn): (Vec<&Variant>, u64) = match (plain.is_empty(), mapped.is_empty()) {
        (false, false) => (if seed.is_multiple_of(2) { plain } else { mapped }, seed / 2),
        (false, true) => (plain, seed),
        (true, _) => (mapped, seed),
    };
    let count = variants.len() as u64;
    let stride = [37, 31, 29].into_iter().find(|stride| !count.is_multiple_of(*stride)).unwrap_or(1);
    *variants[((turn % count) * stride % count) as usize]
}

impl Variant {
    /// The size of the volume at the start, in bytes.
    pub(super) fn volume_bytes(&self) -> u64 {
        if self.layout.can_truncate { 0 } else { self.layout.processes * self.layout.file_bytes }
    }

    /// Operations of all processes in one round.
    pub(super) fn ops(&self) -> u64 {
        self.layout.processes * self.layout.ops
    }

    /// Whether the backing file has the bytes of the volume at the same offsets.
    pub(super) fn is_in_place(&self) -> bool {
        matches!(self.mapper, None | Some("identity"))
    }

    /// The number of bytes of the backing file to fill with old data, which must never appear in a file of the volume.
    pub(super) fn stale_bytes(&self) -> u64 {
        if self.mapper.is_some() { 2 * self.volume_bytes() + MAPPED_ROOM_BYTES } else { 0 }
    }

    /// The options of the server, except backing file and directory.
    pub(super) fn server_arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            format!("--path={}", self.path),
            format!("--engine={}", self.engine),
            format!("--size={}", self.volume_bytes()),
            format!("--windows={}", self.layout.processes),
        ];
        arguments.extend(self.mapper.map(|mapper| format!("--mapper={mapper}")));
        if self.has_tiny_cache {
            arguments.push(format!("--cache={TINY_CACHE_BYTES}"));
        }
        arguments
    }

    /// The configuration file of fsx. A file opened for direct I/O cannot be mapped into memory.
    pub(super) fn fsx_config(&self) -> String {
        let Layout { file_bytes, op_bytes_max, can_truncate, .. } = *self.layout;
        let resizing = if can_truncate { "close_open = 1\ntruncate = 1" } else { "truncate = 0" };
        let is_fixed = !can_truncate;
        format!(
            "flen = {file_bytes}\nblockmode = {is_fixed}\nnosizechecks = {is_fixed}\n\
             [opsize]\nmax = {op_bytes_max}\n\
             [weights]\nread = 10\nwrite = 10\nmapread = 0\nmapwrite = 0\nfsync = 0.1\nfdatasync = 0.1\n{resizing}\n"
        )
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let medium = match self.medium {
            Medium::Disk => "disk",
            Medium::Tmpfs => "tmpfs",
        };
        let Self { path, engine, layout, .. } = self;
        let mapper = self.mapper.map(|mapper| format!("-{mapper}")).unwrap_or_default();
        let cache = if self.has_tiny_cache { "-tiny" } else { "" };
        // `pad` applies a width to the whole name.
        f.pad(&format!("{path}{cache}{mapper}-{}-{medium}-{engine}", layout.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = all().iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), all().len());
        assert!(names.contains("buffered-tiny-windows-disk-auto"), "{names:?}");
        assert!(names.contains("bounced-extent-one-tmpfs-auto"), "{names:?}");
    }

    #[test]
    fn consecutive_seeds_visit_every_variant() {
        for count in 1..=all().len() {
            let variants = &all()[..count];
            let visited: BTreeSet<_> =
                (1_000..1_000 + 2 * count as u64).map(|seed| of_seed(variants, seed).to_string()).collect();
            assert_eq!(visited.len(), count);
        }
        let _ = of_seed(&all(), u64::MAX);
    }

    #[test]
    fn each_variant_syncs_and_layout_one_truncates() {
        for variant in all() {
            let config = variant.fsx_config();
            assert!(config.contains("fsync = 0.1"), "{config}");
            assert_eq!(config.contains("truncate = 1"), variant.layout.name == "one", "{config}");
        }
    }
}
