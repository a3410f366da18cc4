//! The table of block device settings: names, ranges, units, meaning. Does not read or write them: see `device.rs`.
//!
//! The meaning follows `Documentation/ABI/stable/sysfs-block` of Linux, the side effects follow `block/blk-sysfs.c`,
//! `block/elevator.c` and `blk_apply_bdi_limits` in `block/blk-settings.c`.

use iopath_report::size::parse_size;

use super::error::SettingsError;

/// The prefix of the scheduler's own tunables.
pub const IOSCHED: &str = "iosched/";

/// A setting of block devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingRow {
    /// The name, as in sysfs.
    pub name: &'static str,
    /// A second name; empty for none.
    pub alias: &'static str,
    /// The file, relative to the directory of the disk in sysfs.
    pub file: &'static str,
    /// The valid values.
    pub values: SettingValues,
    /// Settings that the kernel resets when this one changes. `iosched/` stands for all tunables of the scheduler.
    pub resets: &'static [&'static str],
    /// The meaning, in a few words.
    pub about: &'static str,
}

/// The valid values of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingValues {
    /// One of the names that the file lists; the current one is in brackets.
    Listed,
    /// 0 or 1.
    Flag,
    /// A whole number: minimum, maximum and unit.
    Number(i64, i64, &'static str),
    /// KiB, from a minimum up to the value of another file. Accepts suffixes: `128`, `128k`, `2m`.
    Kib(u64, Option<&'static str>),
}

/// All settings, in the order in which they are written: a setting follows those that reset it.
pub static SETTINGS: &[SettingRow] = &[
    SettingRow {
        name: "scheduler",
        alias: "elevator",
        file: "queue/scheduler",
        values: SettingValues::Listed,
        resets: &["nr_requests", IOSCHED, "wbt_lat_usec"],
        about: "I/O scheduler (elevator): the order of requests",
    },
    SettingRow {
        name: "queue_depth",
        alias: "",
        file: "device/queue_depth",
        values: SettingValues::Number(1, 65_535, "requests"),
        resets: &[],
        about: "requests in flight at a SCSI or ATA device",
    },
    SettingRow {
        name: "nr_requests",
        alias: "",
        file: "queue/nr_requests",
        values: SettingValues::Number(4, 65_535, "requests"),
        resets: &[IOSCHED],
        about: "requests that the queue can hold",
    },
    SettingRow {
        name: "rotational",
        alias: "",
        file: "queue/rotational",
        values: SettingValues::Flag,
        resets: &["read_ahead_kb"],
        about: "whether schedulers and filesystems assume seeks",
    },
    SettingRow {
        name: "max_sectors_kb",
        alias: "max_sectors",
        file: "queue/max_sectors_kb",
        values: SettingValues::Kib(4, Some("queue/max_hw_sectors_kb")),
        resets: &["read_ahead_kb"],
        about: "largest request of a filesystem",
    },
    SettingRow {
        name: "wbt_lat_usec",
        alias: "",
        file: "queue/wbt_lat_usec",
        values: SettingValues::Number(-1, 60_000_000, "µs"),
        resets: &[],
        about: "read latency that throttles write-back; 0 off, -1 default",
    },
    SettingRow {
        name: "nomerges",
        alias: "",
        file: "queue/nomerges",
        values: SettingValues::Number(0, 2, ""),
        resets: &[],
        about: "merges: 0 all, 1 only simple ones, 2 none",
    },
    SettingRow {
        name: "rq_affinity",
        alias: "",
        file: "queue/rq_affinity",
        values: SettingValues::Number(0, 2, ""),
        resets: &[],
        about: "CPU of a completion: 0 any, 1 group, 2 the submitter",
    },
    SettingRow {
        name: "add_random",
        alias: "",
        file: "queue/add_random",
        values: SettingValues::Flag,
        resets: &["read_ahead_kb"],
        about: "whether completions feed the entropy pool",
    },
    SettingRow {
        name: "iostats",
        alias: "",
        file: "queue/iostats",
        values: SettingValues::Flag,
        resets: &["read_ahead_kb"],
        about: "whether the kernel counts I/O of the device",
    },
    SettingRow {
        name: "read_ahead_kb",
        alias: "readahead",
        file: "queue/read_ahead_kb",
        values: SettingValues::Kib(0, None),
        resets: &[],
        about: "readahead of sequential buffered reads",
    },
];

/// The largest readahead that is accepted: 4 GiB. The kernel has no limit of its own.
const KIB_MAX: u64 = 4 << 20;

/// A tunable of a scheduler of Linux: scheduler, name, unit, meaning.
type Tunable = (&'static str, &'static str, &'static str, &'static str);

/// Tunables with a known meaning. A tunable of another scheduler is set without one.
static TUNABLES: &[Tunable] = &[
    ("mq-deadline", "async_depth", "requests", "asynchronous requests at a time"),
    ("mq-deadline", "fifo_batch", "requests", "requests in a batch of one direction"),
    ("mq-deadline", "front_merges", "", "whether a bio may join the front of a request"),
    ("mq-deadline", "prio_aging_expire", "ms", "time after which a low priority is served"),
    ("mq-deadline", "read_expire", "ms", "deadline of reads"),
    ("mq-deadline", "write_expire", "ms", "deadline of writes"),
    ("mq-deadline", "writes_starved", "batches", "read batches before a write batch"),
    ("kyber", "read_lat_nsec", "ns", "target latency of reads"),
    ("kyber", "write_lat_nsec", "ns", "target latency of synchronous writes"),
    ("bfq", "back_seek_max", "KiB", "largest backward seek that counts as near"),
    ("bfq", "back_seek_penalty", "", "factor on the distance of a backward seek"),
    ("bfq", "fifo_expire_async", "ms", "deadline of asynchronous requests"),
    ("bfq", "fifo_expire_sync", "ms", "deadline of synchronous requests"),
    ("bfq", "low_latency", "", "whether interactive programs get more weight"),
    ("bfq", "max_budget", "sectors", "service of a stream at a time; 0 automatic"),
    ("bfq", "slice_idle", "ms", "wait for the next request of a stream"),
    ("bfq", "slice_idle_us", "µs", "the same in microseconds"),
    ("bfq", "strict_guarantees", "", "whether weights hold at the price of throughput"),
    ("bfq", "timeout_sync", "ms", "time of a stream at a time"),
];

/// The name of a setting in its only form: a name of the table, or `iosched/` and the name of a tunable.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SettingName(String);

impl SettingName {
    /// Finds a setting by its name, its alias, or the name of a tunable with or without `iosched/`.
    ///
    /// # Errors
    /// [`SettingsError::Unknown`].
    pub fn find(text: &str) -> Result<Self, SettingsError> {
        let text = text.trim();
        let row = SETTINGS.iter().find(|row| row.name == text || (!text.is_empty() && row.alias == text));
        if let Some(row) = row {
            return Ok(Self(row.name.to_owned()));
        }
        let tunable = text.strip_prefix(IOSCHED).filter(|name| is_plain(name));
        if let Some(name) = tunable.or_else(|| TUNABLES.iter().map(|row| row.1).find(|name| *name == text)) {
            return Ok(Self::tunable(name));
        }
        let known = SETTINGS.iter().map(|row| row.name).collect();
        Err(SettingsError::Unknown { name: text.to_owned(), known })
    }

    /// The tunable of a scheduler.
    pub(super) fn tunable(name: &str) -> Self {
        Self(format!("{IOSCHED}{name}"))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The row of the table; none for a tunable of a scheduler.
    pub fn row(&self) -> Option<&'static SettingRow> {
        SETTINGS.iter().find(|row| row.name == self.0)
    }

    /// The file, relative to the directory of the disk in sysfs.
    pub(super) fn file(&self) -> String {
        self.row().map_or_else(|| format!("queue/{}", self.0), |row| row.file.to_owned())
    }

    /// The place in the order of writes. Tunables follow the settings that reset them.
    pub(super) fn rank(&self) -> usize {
        let place = |name: &str| SETTINGS.iter().position(|row| row.name == name).unwrap_or(SETTINGS.len());
        if self.row().is_some() { place(&self.0) * 2 } else { place("nr_requests") * 2 + 1 }
    }

    /// Whether the kernel may reset this setting when `other` changes, or whether it is the same.
    pub(super) fn follows(&self, other: &Self) -> bool {
        let resets = other.row().map_or(&[IOSCHED][..], |row| row.resets);
        self == other
            || resets.iter().any(|reset| *reset == self.0 || (*reset == IOSCHED && self.row().is_none()))
    }

    /// The unit; empty for none.
    pub fn unit(&self) -> &'static str {
        match self.row().map(|row| row.values) {
            Some(SettingValues::Kib(..)) => "KiB",
            Some(SettingValues::Number(_, _, unit)) => unit,
            Some(_) => "",
            None => self.known_tunable().map_or("", |row| row.2),
        }
    }

    /// The meaning; empty for a tunable of an unknown scheduler.
    pub fn about(&self) -> &'static str {
        self.row().map_or_else(|| self.known_tunable().map_or("", |row| row.3), |row| row.about)
    }

    fn known_tunable(&self) -> Option<&'static Tunable> {
        let name = self.0.strip_prefix(IOSCHED)?;
        TUNABLES.iter().find(|row| row.1 == name)
    }

    /// A value in the form that the kernel shows. The device checks values that depend on it.
    ///
    /// # Errors
    /// [`SettingsError::Value`].
    pub fn parse(&self, text: &str) -> Result<String, SettingsError> {
        let text = text.trim();
        let bad =
            |values: String| SettingsError::Value { name: self.0.clone(), value: text.to_owned(), values };
        let in_range = |min: i64, max: i64| {
            let number = text.parse::<i64>().ok().filter(|number| (min..=max).contains(number));
            number.map(|number| number.to_string())
        };
        match self.row().map(|row| row.values) {
            Some(SettingValues::Listed) if is_plain(text) => Ok(text.to_owned()),
            Some(SettingValues::Listed) => Err(bad("the name of a scheduler, such as none".to_owned())),
            Some(SettingValues::Flag) => in_range(0, 1).ok_or_else(|| bad("0 or 1".to_owned())),
            Some(SettingValues::Number(min, max, unit)) => {
                let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
                in_range(min, max).ok_or_else(|| bad(format!("a whole number from {min} to {max}{unit}")))
            }
            Some(SettingValues::Kib(min, _)) => {
                let kib = kib(text).filter(|kib| (min..=KIB_MAX).contains(kib));
                let range = || format!("a size from {min}k to {}g; a plain number is KiB", KIB_MAX >> 20);
                kib.map(|kib| kib.to_string()).ok_or_else(|| bad(range()))
            }
            None => in_range(0, i64::from(u32::MAX))
                .ok_or_else(|| bad(format!("a whole number from 0 to {}", u32::MAX))),
        }
    }
}

impl std::fmt::Display for SettingName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A setting with its new value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The setting.
    pub name: SettingName,
    /// The value, as the kernel shows it.
    pub value: String,
}

impl Change {
    /// Parses `NAME=VALUE`.
    ///
    /// # Errors
    /// [`SettingsError`]: the form, the name or the value is wrong.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let (name, value) = text.split_once('=').ok_or_else(|| SettingsError::Form(text.to_owned()))?;
        let name = SettingName::find(name)?;
        let value = name.parse(value)?;
        Ok(Self { name, value })
    }

    /// Parses several, each of another setting.
    ///
    /// # Errors
    /// As [`Change::parse`], and for a setting that is named twice.
    pub fn parse_all(texts: &[String]) -> Result<Vec<Self>, SettingsError> {
        let mut changes: Vec<Self> = Vec::new();
        for text in texts {
            let change = Self::parse(text)?;
            if changes.iter().any(|known| known.name == change.name) {
                return Err(SettingsError::Twice(change.name.to_string()));
            }
            changes.push(change);
        }
        Ok(changes)
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

/// KiB: a plain number, or a size with a suffix that is a multiple of a KiB.
fn kib(text: &str) -> Option<u64> {
    if let Ok(kib) = text.parse() {
        return Some(kib);
    }
    let bytes = parse_size(text).ok()?;
    bytes.is_multiple_of(1024).then_some(bytes / 1024)
}

/// Whether a text is a plain name: it becomes part of a file name or is written to sysfs.
fn is_plain(text: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !text.is_empty() && text.len() <= 64 && text.bytes().all(is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_written_after_all_settings_that_reset_it() {
        for row in SETTINGS {
            let name = SettingName::find(row.name).unwrap();
            for reset in row.resets {
                let reset = if *reset == IOSCHED { "read_expire" } else { reset };
                let later = SettingName::find(reset).unwrap();
                assert!(later.rank() > name.rank() && later.follows(&name), "{name} resets {later}");
            }
            assert!(name.row() == Some(row) && !row.about.is_empty());
            assert!(row.alias.is_empty() || SettingName::find(row.alias).unwrap() == name);
        }
    }

    #[test]
    fn names_are_found_by_alias_and_tunables_with_and_without_their_directory() {
        let name = |text: &str| SettingName::find(text).map(|name| name.0);
        assert_eq!(name("readahead").unwrap(), "read_ahead_kb");
        assert_eq!(name("read_expire").unwrap(), "iosched/read_expire");
        assert_eq!(name("iosched/new_one").unwrap(), "iosched/new_one");
        for bad in
            ["", "depth", "iosched/", "iosched/../../x", "iosched/a/b", "scheduler/", "queue/scheduler"]
        {
            let text = name(bad).unwrap_err().to_string();
            assert!(text.contains(&format!("`{bad}`")) && text.contains("read_ahead_kb"), "{text}");
        }
    }

    #[test]
    fn values_have_ranges_and_units() {
        let change = |text: &str| Change::parse(text).map(|change| change.to_string());
        assert_eq!(change("readahead=2m").unwrap(), "read_ahead_kb=2048");
        assert_eq!(change("max_sectors = 64k").unwrap(), "max_sectors_kb=64");
        assert_eq!(change("wbt_lat_usec=-1").unwrap(), "wbt_lat_usec=-1");
        assert_eq!(change("nr_requests=064").unwrap(), "nr_requests=64");
        for (bad, range) in [
            ("readahead=1b", "from 0k to 4g"),
            ("readahead=99999999999999999999", "from 0k to 4g"),
            ("max_sectors=3", "from 4k to 4g"),
            ("iostats=2", "0 or 1"),
            ("nomerges=-1", "from 0 to 2"),
            ("nr_requests=3", "from 4 to 65535 requests"),
            ("nr_requests=", "from 4 to 65535 requests"),
            ("scheduler=a b", "the name of a scheduler"),
            ("scheduler=", "the name of a scheduler"),
            ("read_expire=x", "from 0 to 4294967295"),
        ] {
            let text = change(bad).unwrap_err().to_string();
            assert!(text.contains(range) && text.contains(bad.split_once('=').unwrap().1), "{text}");
        }
        let twice = Change::parse_all(&["readahead=1m".to_owned(), "read_ahead_kb=4".to_owned()]);
        assert!(matches!(twice, Err(SettingsError::Twice(name)) if name == "read_ahead_kb"));
        assert!(matches!(Change::parse("scheduler"), Err(SettingsError::Form(_))));
    }
}
