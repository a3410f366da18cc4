//! The error of a model in the comment of its file: one line, written by a fit and read by other commands.

use iopath_report::fit::ErrorSummary;
use iopath_report::numbers::percent;

/// The words around the figures.
const BEGIN: &str = "Error on ";
const HELD_BACK: &str = " figures held back from the fit: median ";

/// The line of the comment.
pub(super) fn held_back_line(figures: usize, error: &ErrorSummary) -> String {
    let ErrorSummary { median, p90, max } = *error;
    let [median, p90, max] = [median, p90, max].map(percent);
    format!("{BEGIN}{figures}{HELD_BACK}{median}, p90 {p90}, largest {max}.")
}

/// The median error that the file of a fitted model states, as a fraction; none if the file is not of a fit.
pub fn stated_error(file: &str) -> Option<f64> {
    let mut comment = file.lines().take_while(|line| line.starts_with('#'));
    let line = comment.find_map(|line| line.strip_prefix("# ")?.strip_prefix(BEGIN))?;
    let (_, figures) = line.split_once(HELD_BACK)?;
    let percent: f64 = figures.split_once('%')?.0.parse().ok()?;
    (percent.is_finite() && percent >= 0.0).then_some(percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stated_error_is_read_from_the_file() {
        let error = ErrorSummary { median: 0.0541, p90: 0.236, max: 0.573 };
        let line = held_back_line(19, &error);
        assert_eq!(
            line,
            "Error on 19 figures held back from the fit: median 5.4%, p90 23.6%, largest 57.3%."
        );
        let file = format!("# Fitted by iopath 1\n# {line}\n# more\nkind = \"cloud\"\n");
        assert!((stated_error(&file).unwrap() - 0.054).abs() < 1e-9);
        for other in ["kind = \"cloud\"\n", "", "# Error on 3 figures held back from the fit: median x%\n"] {
            assert_eq!(stated_error(other), None, "{other}");
        }
    }
}
