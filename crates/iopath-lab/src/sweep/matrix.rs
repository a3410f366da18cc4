//! The axes of a sweep, and the product of their values. Does not know the meaning of a value.

use iopath_report::size::parse_size;
use iopath_report::sweep::Axis;

use super::error::SweepError;

/// The maximum number of cells.
pub const CELLS_MAX: usize = 10_000;

/// The values of a list with ranges. `A..B` doubles from A up to B: sizes and counts of benchmarks grow by powers
/// of two.
///
/// # Errors
/// [`SweepError::List`].
pub fn parse_axis(name: &str, text: &str) -> Result<Axis, SweepError> {
    let bad = |problem: String| SweepError::List { axis: name.to_owned(), text: text.to_owned(), problem };
    let mut values = Vec::new();
    for part in text.split(',').map(str::trim) {
        match part.split_once("..") {
            Some((from, to)) => values.extend(doubled(from, to).map_err(&bad)?),
            None if part.is_empty() => return Err(bad("a value is empty".to_owned())),
            None => values.push(part.to_owned()),
        }
    }
    for (index, value) in values.iter().enumerate() {
        if values[..index].contains(value) {
            return Err(bad(format!("`{value}` is listed twice")));
        }
    }
    Ok(Axis { name: name.to_owned(), values })
}

/// The sizes from one to another, each twice the previous one, and the last one.
fn doubled(from: &str, to: &str) -> Result<Vec<String>, String> {
    let size = |text: &str| parse_size(text).map_err(|error| error.to_string());
    let (first, last) = (size(from)?, size(to)?);
    if first == 0 || first > last {
        return Err(format!("`{from}..{to}` is no range; write the smaller value first, such as 4k..64m"));
    }
    let mut values: Vec<u64> = std::iter::successors(Some(first), |size| size.checked_mul(2))
        .take_while(|size| *size <= last)
        .collect();
    if values.last() != Some(&last) {
        values.push(last);
    }
    // Plain numbers stay plain: counts have no suffix.
    let is_plain = [from, to].iter().all(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    Ok(values.into_iter().map(|value| if is_plain { value.to_string() } else { short(value) }).collect())
}

/// A size in its shortest form: `64k`.
fn short(bytes: u64) -> String {
    let units = [("g", 30), ("m", 20), ("k", 10)];
    let unit = units.iter().find(|(_, power)| bytes >> power > 0 && bytes.trailing_zeros() >= *power);
    unit.map_or_else(|| bytes.to_string(), |(suffix, power)| format!("{}{suffix}", bytes >> power))
}

/// All combinations of the values, as indices into the axes. The last axis varies fastest.
///
/// # Errors
/// [`SweepError::TooLarge`].
pub fn product(axes: &[Axis]) -> Result<Vec<Vec<usize>>, SweepError> {
    let cells = axes.iter().fold(1u128, |cells, axis| cells.saturating_mul(axis.values.len() as u128));
    if cells > CELLS_MAX as u128 {
        return Err(SweepError::TooLarge { cells, max: CELLS_MAX });
    }
    let mut product = vec![Vec::new()];
    for axis in axes {
        let longer = |cell: &Vec<usize>| {
            let cell = cell.clone();
            (0..axis.values.len()).map(move |index| [&cell[..], &[index]].concat()).collect::<Vec<_>>()
        };
        product = product.iter().flat_map(longer).collect();
    }
    Ok(product)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        parse_axis("bs", text).unwrap().values
    }

    #[test]
    fn lists_and_ranges_become_values() {
        assert_eq!(values("4k..64k"), ["4k", "8k", "16k", "32k", "64k"]);
        assert_eq!(values("512..2k,3000, 1m"), ["512", "1k", "2k", "3000", "1m"]);
        assert_eq!(values("3..10"), ["3", "6", "10"]);
        assert_eq!(values("512..2048"), ["512", "1024", "2048"]);
        assert_eq!(values("4k..64m").len(), 15);
        for (bad, named) in [
            ("", "empty"),
            ("4k,,8k", "empty"),
            ("64k..4k", "no range"),
            ("0..4k", "no range"),
            ("4k..x", "`x` is not a size"),
            ("4k..16k,8k", "`8k` is listed twice"),
        ] {
            let text = parse_axis("bs", bad).unwrap_err().to_string();
            assert!(text.starts_with("--bs ") && text.contains(named), "{text}");
        }
    }

    #[test]
    fn every_combination_is_a_cell_and_their_number_is_limited() {
        let axes = [parse_axis("a", "1,2").unwrap(), parse_axis("b", "x,y,z").unwrap()];
        let cells = product(&axes).unwrap();
        assert_eq!(cells, [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]);
        assert_eq!(product(&[]).unwrap().len(), 1);
        let many = Axis { name: "a".to_owned(), values: vec![String::new(); 1000] };
        let text = product(&[many.clone(), many]).unwrap_err().to_string();
        assert!(text.contains("1000000 cells"), "{text}");
    }
}
