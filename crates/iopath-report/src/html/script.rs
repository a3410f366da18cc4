//! Writes a chart as JSON for the script of the page. The JSON lies in a `script` element, so no text in it may end
//! that element. Does not draw.

use serde::Serialize;

use super::chart::{Axis, Chart};
use super::number::{Scale, Tick};

#[derive(Serialize)]
struct ChartJson<'a> {
    title: &'a str,
    x: AxisJson<'a>,
    y: AxisJson<'a>,
    series: Vec<SeriesJson<'a>>,
    marks: &'a [Tick],
    group: Option<&'a str>,
}

#[derive(Serialize)]
struct AxisJson<'a> {
    label: &'a str,
    quantity: &'static str,
    /// 0 is a linear scale.
    log: u32,
    range: [f64; 2],
    ticks: Vec<Tick>,
    /// Whether the ticks do not depend on the zoom.
    fixed: bool,
}

#[derive(Serialize)]
struct SeriesJson<'a> {
    name: &'a str,
    colour: usize,
    kind: &'static str,
    x: Vec<f64>,
    y: Vec<f64>,
    /// Empty without intervals.
    low: Vec<Option<f64>>,
    high: Vec<Option<f64>>,
}

/// The data of a chart.
pub(super) fn data(chart: &Chart) -> String {
    let frame = chart.frame();
    let (x, y) = (axis(&chart.x, frame.x, frame.x_ticks), axis(&chart.y, frame.y, frame.y_ticks));
    let series = chart.series.iter().map(|series| {
        let has_ends = series.points.iter().any(|point| point.ends.is_some());
        let end = |index: usize| -> Vec<Option<f64>> {
            if !has_ends {
                return Vec::new();
            }
            series.points.iter().map(|point| point.ends.map(|ends| ends[index])).collect()
        };
        SeriesJson {
            name: &series.name,
            colour: series.colour,
            kind: series.kind.name(),
            x: series.points.iter().map(|point| point.x).collect(),
            y: series.points.iter().map(|point| digits(point.y)).collect(),
            low: end(0),
            high: end(1),
        }
    });
    let json = ChartJson {
        title: &chart.title,
        x,
        y,
        series: series.collect(),
        marks: &chart.marks,
        group: chart.group.as_deref(),
    };
    embeddable(&serde_json::to_string(&json).expect("strings and finite numbers are always JSON"))
}

fn axis(axis: &Axis, range: [f64; 2], ticks: Vec<Tick>) -> AxisJson<'_> {
    let log = match axis.scale {
        Scale::Linear => 0,
        Scale::Log(base) => base,
    };
    AxisJson {
        label: &axis.label,
        quantity: axis.quantity.name(),
        log,
        range,
        ticks,
        fixed: axis.ticks.is_some(),
    }
}

/// Six digits, to keep the page small.
fn digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// The same JSON without `<`, `>` and `&`, and without line separators, which occur in strings only.
fn embeddable(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                use std::fmt::Write as _;
                let _ = write!(safe, "\\u{:04x}", u32::from(letter));
            }
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::super::chart::sample;
    use super::*;

    #[test]
    fn the_json_cannot_end_its_element() {
        let mut chart = sample();
        let name = "</script><script>alert(\"1\")</script><!-- & \u{2028}";
        chart.series[0].name = name.to_owned();
        let json = data(&chart.cleaned());
        for letter in ['<', '>', '&', '\u{2028}'] {
            assert!(!json.contains(letter), "{json}");
        }
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["series"][0]["name"], name);
        assert_eq!(value["series"][0]["y"], serde_json::json!([1.0, 2.0, 4.0]));
        assert_eq!(value["x"]["log"], 2);
    }

    #[test]
    fn values_have_six_digits() {
        let text = |value: f64| digits(value).to_string();
        assert_eq!(text(123_456_789.0), "123457000");
        assert_eq!(text(0.001_234_567_8), "0.00123457");
        assert_eq!(text(0.0), "0");
        assert_eq!(digits(1e300).to_bits(), 1e300_f64.to_bits());
    }
}
