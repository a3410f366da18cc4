//! Joins the results files of the shares of a sweep. The result has the cells of one process that measured all of them.

use std::path::{Path, PathBuf};

use iopath_report::result::Host;
use iopath_report::shard::Shard;
use iopath_report::sweep::{Cell, SweepFile};

use super::error::SweepError;
use super::file::read;

/// Options that differ between the parts of a sweep, and whether a value follows. The values of `--json` and of others
/// may be absent: words that are no options do not count.
const OF_A_PART: [(&str, bool); 9] = [
    ("--shard", true),
    ("--output", true),
    ("-o", true),
    ("--json", true),
    ("--format", true),
    ("--force", false),
    ("--no-color", false),
    ("--quiet", false),
    ("-q", false),
];

/// Reads the files of all shares, and joins them. Returns notes for the user, too.
///
/// # Errors
/// [`SweepError`]: a file is no part of the same sweep, two parts have the same cell, or a cell is missing.
pub fn merge(parts: &[PathBuf]) -> Result<(SweepFile, Vec<String>), SweepError> {
    let mut merged: Option<SweepFile> = None;
    let (mut shares, mut notes) = (Vec::new(), Vec::new());
    for path in parts {
        let part = read(path)?;
        let wrong = |problem: String| SweepError::NotAPart { path: path.clone(), problem };
        let Some(shard) = part.shard else {
            return Err(wrong("it has all cells; name files of iopath sweep --shard".to_owned()));
        };
        if !part.complete {
            return Err(wrong(format!(
                "share {} of {} is not finished; continue it with --resume {}",
                shard.number,
                shard.count,
                path.display()
            )));
        }
        shares.push(shard);
        let Some(merged) = &mut merged else {
            merged = Some(SweepFile {
                arguments: study(&part.arguments),
                shard: None,
                origin: None,
                place: None,
                ..part
            });
            continue;
        };
        if study(&part.arguments) != merged.arguments
            || (&part.axes, part.seed, shard.count) != (&merged.axes, merged.seed, shares[0].count)
        {
            return Err(wrong(
                "it is of another sweep than the first part; name parts with the same options".to_owned(),
            ));
        }
        notes.extend(other_machine(merged.host.as_ref(), part.host.as_ref(), path));
        merged.host = merged.host.take().or(part.host);
        merged.target = merged.target.take().or(part.target);
        for (number, (cell, own)) in merged.cells.iter_mut().zip(part.cells).enumerate() {
            if cell.is_done() && own.is_done() {
                return Err(wrong(format!("it has cell {number}, as an earlier part; name each part once")));
            }
            if own.is_done() {
                *cell = own;
            }
        }
    }
    let merged = merged.unwrap_or_else(|| SweepFile::new(Vec::new(), 0, Vec::new(), Vec::new()));
    let missing = merged.cells.iter().filter(|cell| !Cell::is_done(cell)).count();
    if missing > 0 {
        return Err(SweepError::Missing { missing, all: merged.cells.len(), shares: without(&shares) });
    }
    Ok((merged, notes))
}

/// The arguments that all parts share.
fn study(arguments: &[String]) -> Vec<String> {
    let mut common = Vec::new();
    let mut words = arguments.iter().peekable();
    while let Some(word) = words.next() {
        let (name, value) =
            word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
        let Some((_, has_value)) = OF_A_PART.iter().find(|(known, _)| *known == name) else {
            common.push(word.clone());
            continue;
        };
        if *has_value && value.is_none() {
            words.next_if(|next| !next.starts_with("--"));
        }
    }
    common
}

/// The shares without a part.
fn without(shares: &[Shard]) -> String {
    let Some(Shard { count, .. }) = shares.first() else { return String::new() };
    let numbers = (1..=*count).filter(|number| !shares.iter().any(|share| share.number == *number));
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    format!(": those of share {} of {count}", numbers.join(", "))
}

/// Cells of different machines compare machines, too.
fn other_machine(first: Option<&Host>, host: Option<&Host>, path: &Path) -> Option<String> {
    let (first, host) = (first?, host?);
    let facts = |host: &Host| format!("{} CPUs {} with Linux {}", host.cores, host.cpu, host.kernel);
    (facts(first) != facts(host)).then(|| {
        format!(
            "{} was measured on {}, and the first part on {}: differences between their cells may be those of the machines",
            path.display(),
            facts(host),
            facts(first)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_a_part_do_not_make_another_sweep() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let common = study(&words("sweep --bs 4k,8k --target x"));
        for part in [
            "sweep --bs 4k,8k --shard=1/2 --output a.json --target x",
            "sweep --shard 2/2 --bs 4k,8k -o b --target x --json --quiet",
            "sweep --bs 4k,8k --target x -q --json=c.json --format csv",
        ] {
            assert_eq!(study(&words(part)), common, "{part}");
        }
        assert_ne!(study(&words("sweep --bs 4k,8k --target y --shard=1/2")), common);
    }
}
