//! Reads tables of the classic block-size test (`blockdev-perftest`): block size, seconds of each repetition, mean
//! MB/s, standard deviation, IOPS. The same columns as CSV may have further columns, which become facts.

use super::data::{IOPS, Run, THROUGHPUT, TIME};
use super::error::CompareError;

/// The unit of the rates in these tables: 2^20 bytes per second, printed as MB/s.
const MIB: f64 = (1u64 << 20) as f64;

/// The runs of a text table; none if the text has no such table.
pub(super) fn read_text(file: &str, text: &str) -> Result<Option<Vec<Run>>, CompareError> {
    let (mut runs, mut head, mut tables) = (Vec::new(), None, 0u32);
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first() == Some(&"blocksize") {
            let units = lines.next().map_or("", |(_, line)| line);
            let at = format!("line {}", number + 1);
            head = Some(Head::parse(&words, units).ok_or_else(|| {
                let problem = "expected a head of two lines: R or W above (s), MB/s) and (IOPS)".to_owned();
                CompareError::Key { file: file.to_owned(), key: at, problem }
            })?);
            tables += 1;
            continue;
        }
        let (Some(columns), Some(Ok(block))) = (&head, words.first().map(|word| word.parse::<u64>())) else {
            continue;
        };
        let bad = |problem: String| CompareError::Key {
            file: file.to_owned(),
            key: format!("line {}", number + 1),
            problem,
        };
        if words.len() != columns.0.len() + 1 {
            return Err(bad(format!("expected {} columns, found {}", columns.0.len() + 1, words.len())));
        }
        let numbers: Vec<f64> =
            words[1..].iter().map(|word| number_of(word).map_err(&bad)).collect::<Result<_, _>>()?;
        for (letter, direction) in [('R', "read"), ('W', "write")] {
            let of = |unit: Unit| -> Vec<f64> {
                let columns = columns.0.iter().zip(&numbers);
                columns.filter(|(column, _)| **column == (letter, unit)).map(|(_, number)| *number).collect()
            };
            let (seconds, means) = (of(Unit::Seconds), of(Unit::Rate));
            if !seconds.is_empty() {
                let mut run = Run::default();
                run.identity("table", u64::from(tables));
                fill(&mut run, direction, block, seconds, means.first().copied());
                runs.push(run);
            }
        }
    }
    Ok((!runs.is_empty()).then_some(runs))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Seconds,
    Rate,
    Iops,
}

/// The columns after the block size: the letter of the direction and the unit.
struct Head(Vec<(char, Unit)>);

impl Head {
    fn parse(names: &[&str], units: &str) -> Option<Self> {
        let units: Vec<&str> = units.split_whitespace().collect();
        if names.len() != units.len() {
            return None;
        }
        let column = |(name, unit): (&&str, &&str)| {
            let letter = name.chars().next().filter(|letter| ['R', 'W'].contains(letter))?;
            let unit = match *unit {
                "(s)" => Unit::Seconds,
                "MB/s)" | "MiB/s)" => Unit::Rate,
                "(IOPS)" => Unit::Iops,
                _ => return None,
            };
            Some((letter, unit))
        };
        names[1..].iter().zip(&units[1..]).map(column).collect::<Option<_>>().map(Self)
    }
}

/// The runs of a CSV table; none if its head has no `block_bytes` or no seconds of repetitions (`read1_s`, `write1_s`).
pub(super) fn read_csv(file: &str, text: &str) -> Result<Option<Vec<Run>>, CompareError> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let Ok(head) = reader.headers().cloned() else { return Ok(None) };
    let directions = ["read", "write"];
    let is_repetition = |name: &str, direction: &str| {
        let digits = name.strip_prefix(direction).and_then(|rest| rest.strip_suffix("_s"));
        digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let any_repetition = |name: &str| directions.iter().any(|direction| is_repetition(name, direction));
    if !head.iter().any(|name| name == "block_bytes") || !head.iter().any(any_repetition) {
        return Ok(None);
    }
    let mut runs = Vec::new();
    for (row, record) in reader.records().enumerate() {
        let bad = |key: String, problem: String| CompareError::Key { file: file.to_owned(), key, problem };
        let record = record.map_err(|error| bad(format!("row {}", row + 1), error.to_string()))?;
        let number = |name: &str, value: &str| {
            number_of(value).map_err(|problem| bad(format!("row {}, {name}", row + 1), problem))
        };
        for direction in directions {
            let (mut run, mut seconds, mut mean, mut block) = (Run::default(), Vec::new(), None, 0);
            for (name, value) in head.iter().zip(&record) {
                match name {
                    "block_bytes" => block = number(name, value)? as u64,
                    "mean_mib_per_s" => mean = Some(number(name, value)?),
                    "stddev_mib_per_s" | "iops" => {}
                    // A table with reads and writes has rows of one direction.
                    _ if value.is_empty() && any_repetition(name) => {}
                    _ if is_repetition(name, direction) => seconds.push(number(name, value)?),
                    _ if any_repetition(name) => {}
                    fact => run.identity(fact, value),
                }
            }
            if !seconds.is_empty() {
                fill(&mut run, direction, block, seconds, mean);
                runs.push(run);
            }
        }
    }
    Ok((!runs.is_empty()).then_some(runs))
}

/// A number of a table; a measured one is positive.
fn number_of(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| format!("`{text}` is not a measured value: expected a number that is not negative"))
}

/// Adds the facts and samples of a row. The table does not state the bytes of a repetition; its mean rate determines
/// them.
fn fill(run: &mut Run, direction: &str, block: u64, seconds: Vec<f64>, mean_mib: Option<f64>) {
    run.identity("tool", "table");
    run.identity("direction", direction);
    run.identity("bs", block);
    let inverse = seconds.iter().map(|seconds| seconds.recip()).sum::<f64>() / seconds.len() as f64;
    let bytes = mean_mib.map(|mean| mean * MIB / inverse).filter(|bytes| bytes.is_finite() && *bytes > 0.0);
    let Some(bytes) = bytes else {
        run.sample(TIME, Some(seconds));
        return;
    };
    run.sample(THROUGHPUT, Some(seconds.iter().map(|seconds| bytes / seconds).collect()));
    if block > 0 {
        run.sample(IOPS, Some(seconds.iter().map(|seconds| bytes / seconds / block as f64).collect()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
some words of a mail
blocksize       R        R        R   R(avg,    R(std        R
  (bytes)     (s)      (s)      (s)    MB/s)     MB/s)   (IOPS)
 67108864   5.621    5.503    5.419  185.744    2.780    2.902
 33554432   6.628    5.897    6.242  164.068    7.827    5.127
";

    #[test]
    fn a_classic_table_gives_the_rates_of_each_repetition() {
        let runs = read_text("t", TABLE).unwrap().unwrap();
        assert_eq!(
            (runs.len(), runs[0].fact("bs"), runs[0].fact("direction")),
            (2, Some("67108864"), Some("read"))
        );
        let rates = runs[0].values(THROUGHPUT).unwrap();
        // 1 GiB in 5.621 s.
        assert!((rates[0] / MIB - 1024.0 / 5.621).abs() < 0.01, "{rates:?}");
        assert_eq!(read_text("t", "nothing here\n1 2 3\n").unwrap(), None);
    }

    #[test]
    fn both_directions_of_one_table_are_runs_of_their_own() {
        let table = "\
blocksize W W W(avg, W(std W R R R(avg, R(std R
(bytes) (s) (s) MB/s) MB/s) (IOPS) (s) (s) MB/s) MB/s) (IOPS)
4096 10 11 97.7 4.7 25000 5 5 204.8 0 52428
";
        let runs = read_text("t", table).unwrap().unwrap();
        let directions: Vec<_> = runs.iter().map(|run| run.fact("direction").unwrap()).collect();
        assert_eq!(directions, ["read", "write"]);
        assert_eq!(runs[1].values(THROUGHPUT).unwrap().len(), 2);
    }

    #[test]
    fn a_damaged_row_is_an_error_with_its_line() {
        for (from, to, message) in [
            ("5.897", "5.8x7", "t: line 5: `5.8x7` is not a measured value"),
            ("5.897", "-1", "t: line 5: `-1`"),
            ("   7.827    5.127", "", "t: line 5: expected 7 columns, found 5"),
            ("(bytes)", "(bytes) (s)", "t: line 2: expected a head of two lines"),
        ] {
            let text = read_text("t", &TABLE.replace(from, to)).unwrap_err().to_string();
            assert!(text.starts_with(message), "{text}");
        }
    }

    #[test]
    fn a_csv_table_has_its_further_columns_as_facts() {
        let csv = "queue,block_bytes,read1_s,read2_s,mean_mib_per_s,iops\nold,4096,2,4,384,1\nnew,4096,1,1,1024,1\n";
        let runs = read_csv("t", csv).unwrap().unwrap();
        assert_eq!(runs[0].fact("queue"), Some("old"));
        assert_eq!(runs[0].values(THROUGHPUT).unwrap(), [512.0 * MIB, 256.0 * MIB]);
        assert_eq!(read_csv("t", "a,b\n1,2\n").unwrap(), None);
        let error = read_csv("t", &csv.replace(",1,1,", ",x,1,")).unwrap_err().to_string();
        assert!(error.starts_with("t: row 2, read1_s: `x`"), "{error}");
    }
}
