//! The file of a fitted model: its parameters, each with the source of its value. Computes no value.

use std::fmt::Write as _;

use iopath_model::Model;

use super::error::FitError;
use iopath_bench::model::ModelTarget;

/// The first characters of the file of a fitted model.
pub const FILE_START: &str = "# Fitted by iopath";

/// The parameters of a model.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) kind: &'static str,
    pub(crate) lines: Vec<Line>,
    /// Cylinders and sectors per track of each zone of a rotating disk.
    pub(crate) zones: Vec<[u64; 2]>,
}

/// One parameter.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) source: String,
}

/// The name that messages about the file of a draft use.
const NAME: &str = "fitted";

impl Draft {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self { kind, lines: Vec::new(), zones: Vec::new() }
    }

    /// Adds a parameter. Its value is rounded to four digits before the simulation, so the file has the simulated
    /// value.
    pub(crate) fn with(mut self, name: &'static str, value: f64, source: &str) -> Self {
        self.lines.push(Line { name, value: four_digits(value), source: source.to_owned() });
        self
    }

    /// Adds a parameter that has no error. The value is not rounded: a model has the size of the measured target.
    pub(crate) fn with_exact(mut self, name: &'static str, value: f64, source: &str) -> Self {
        self.lines.push(Line { name, value, source: source.to_owned() });
        self
    }

    /// Adds a parameter that is a whole number.
    pub(crate) fn with_count(mut self, name: &'static str, value: f64, source: &str) -> Self {
        self.lines.push(Line { name, value: value.round(), source: source.to_owned() });
        self
    }

    /// The text of the file. `comment` has the lines of its comment after the first line.
    pub(crate) fn text(&self, about: &str, comment: &[String]) -> String {
        let mut text = String::new();
        for line in comment {
            let _ = writeln!(text, "# {}", printable(line));
        }
        let _ = writeln!(text, "kind = {}\nabout = {}\n", quoted(self.kind), quoted(about));
        for Line { name, value, .. } in &self.lines {
            let _ = writeln!(text, "{name} = {value}");
        }
        text.push_str("\n[source]\n");
        for Line { name, source, .. } in &self.lines {
            let _ = writeln!(text, "{name} = {}", quoted(source));
        }
        for [cylinders, sectors] in &self.zones {
            let _ = writeln!(
                text,
                "\n[[zone]]\ncylinders = {cylinders}\nsectors_per_track = {sectors}\nsource = {}",
                quoted("measured: sequential reads at this position")
            );
        }
        text
    }

    /// The model of these parameters.
    pub(crate) fn model(&self) -> Result<ModelTarget, FitError> {
        let text = self.text("", &[]);
        Ok(ModelTarget::of(NAME, Model::parse(NAME, &text)?))
    }
}

fn four_digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10_f64.powi(3 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            control if control.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted + "\""
}

/// A comment of TOML has no control characters.
fn printable(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "the values are the same number by construction")]
    fn values_have_four_digits() {
        for (value, rounded) in
            [(0.0, 0.0), (12_345.6, 12_350.0), (0.001_234_56, 0.001_235), (1.0, 1.0), (99_999.0, 100_000.0)]
        {
            assert_eq!(four_digits(value), rounded, "{value}");
        }
    }

    #[test]
    fn any_text_fits_into_the_file() {
        let hostile = "a \"name\"\\ with\n[zone]\u{7}";
        let draft = Draft { kind: "cloud", lines: Vec::new(), zones: Vec::new() };
        let preset = iopath_model::Preset::find("cloud").unwrap();
        let lines: Vec<_> = Model::preset("cloud").unwrap().settings().to_vec();
        let draft = lines
            .iter()
            .fold(draft, |draft, setting| draft.with(setting.parameter.name, setting.value, hostile));
        let text = draft.text(hostile, &[hostile.to_owned()]);
        let model = Model::parse("f", &text).unwrap();
        assert_eq!(model.about(), hostile);
        assert!(model.settings().iter().all(|setting| setting.source.as_deref() == Some(hostile)));
        assert_eq!(model.capacity(), Model::parse(preset.name, preset.text).unwrap().capacity());
    }
}
