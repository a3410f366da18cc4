//! The published table (`crates/iopath-experiments/published/readahead.csv`), and ours beside it.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result};

use crate::workspace;

/// Queue (`unpatched` or `patched`), readahead and longest request in KiB, block in bytes.
type Key = (String, u32, u32, u64);

/// Our rates of a block size in MiB/s.
pub(super) struct Row {
    /// In bytes.
    pub(super) block: u64,
    /// The client of iopath, for each setting.
    pub(super) ours: Vec<f64>,
    /// The client of the kernel, for each setting. Empty: not measured.
    pub(super) kernel: Vec<f64>,
    /// The client of iopath with the readahead `auto`.
    pub(super) auto: f64,
}

/// The mean rates in MiB/s.
pub(super) struct Published(BTreeMap<Key, f64>);

impl Published {
    pub(super) fn read() -> Result<Self> {
        let file = workspace::root().join("crates/iopath-experiments/published/readahead.csv");
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        Self::parse(&text).with_context(|| format!("{} has other columns", file.display()))
    }

    fn parse(text: &str) -> Option<Self> {
        let rows = text.lines().skip(1).map(|line| {
            let cells: Vec<_> = line.split(',').collect();
            let [queue, readahead, request, block, _, _, _, mean, ..] = cells[..] else { return None };
            let key = (queue.to_owned(), readahead.parse().ok()?, request.parse().ok()?, block.parse().ok()?);
            Some((key, mean.parse().ok()?))
        });
        rows.collect::<Option<_>>().map(Self)
    }

    /// All block sizes, the smallest first.
    pub(super) fn blocks(&self) -> Vec<u64> {
        let mut blocks: Vec<_> = self.0.keys().map(|key| key.3).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// The rate without and with the patch.
    fn cell(&self, (readahead, request): (u32, u32), block: u64) -> String {
        let rate = |queue: &str| {
            let found = self.0.get(&(queue.to_owned(), readahead, request, block));
            found.map_or("–".to_owned(), |rate| format!("{rate:.0}"))
        };
        format!("{} / {}", rate("unpatched"), rate("patched"))
    }
}

/// A row for each block size: published and our rates of each setting, then the rate of `auto`.
pub(super) fn table(published: &Published, settings: &[(u32, u32)], rows: &[Row]) -> String {
    let has_kernel = rows.iter().any(|row| !row.kernel.is_empty());
    let mut text = String::from("| block |");
    for (readahead, request) in settings {
        let _ = write!(text, " {readahead}, {request}: published | ours |");
        text.push_str(if has_kernel { " kernel |" } else { "" });
    }
    text.push_str(" auto, 512: ours |\n|---|");
    text.push_str(&"---:|".repeat(settings.len() * if has_kernel { 3 } else { 2 } + 1));
    for row in rows {
        let size = match row.block {
            block if block < 1 << 20 => format!("{} KiB", block >> 10),
            block => format!("{} MiB", block >> 20),
        };
        let _ = write!(text, "\n| {size} |");
        for (index, (setting, rate)) in settings.iter().zip(&row.ours).enumerate() {
            let _ = write!(text, " {} | {rate:.1} |", published.cell(*setting, row.block));
            if let Some(kernel) = row.kernel.get(index) {
                let _ = write!(text, " {kernel:.1} |");
            }
        }
        let _ = write!(text, " {:.1} |", row.auto);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_rates_stand_beside_the_published_ones() {
        let published = Published::read().expect("the file of the experiment");
        assert_eq!(published.blocks().len(), 13);
        let mut row = Row { block: 1 << 26, ours: vec![111.04, 112.0], kernel: Vec::new(), auto: 113.0 };
        let last = |row: &Row| {
            let text = table(&published, &[(512, 512), (512, 64)], std::slice::from_ref(row));
            let columns: Vec<_> = text.lines().map(|line| line.matches('|').count()).collect();
            assert!(columns.iter().all(|count| *count == columns[0]), "{text}");
            text.lines().last().expect("a row").to_owned()
        };
        assert_eq!(last(&row), "| 64 MiB | 204 / 201 | 111.0 | 254 / – | 112.0 | 113.0 |");
        row.kernel = vec![40.0, 30.0];
        assert_eq!(last(&row), "| 64 MiB | 204 / 201 | 111.0 | 40.0 | 254 / – | 112.0 | 30.0 | 113.0 |");
        assert!(Published::parse("queue\nunpatched,1").is_none());
    }
}
