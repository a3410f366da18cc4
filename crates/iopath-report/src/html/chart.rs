//! A chart as data: axes, series, intervals. `svg.rs` draws it, `script.rs` writes it for the script.

use super::number::{Quantity, Scale, Tick};

/// The hues, and the shades of each.
pub(super) const HUES: usize = 8;
/// See [`HUES`].
pub(super) const SHADES: usize = 3;

/// The number of colours: the hues, then their further shades. Further series repeat them.
pub(super) const COLOURS: usize = HUES * SHADES;

/// A chart of lines or points.
#[derive(Debug, Clone)]
pub(super) struct Chart {
    pub(super) title: String,
    /// The meaning of the marks, in a sentence; may be empty.
    pub(super) note: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
    /// Vertical lines with a label: the begin of a repetition.
    pub(super) marks: Vec<Tick>,
    /// Charts of one group show the cursor at the same position.
    pub(super) group: Option<String>,
}

/// An axis.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) quantity: Quantity,
    pub(super) scale: Scale,
    /// Ticks to show instead of computed ones.
    pub(super) ticks: Option<Vec<Tick>>,
}

/// A line or a set of points.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub(super) name: String,
    /// The number of the colour, below [`COLOURS`].
    pub(super) colour: usize,
    pub(super) kind: Kind,
    /// The points, sorted by x.
    pub(super) points: Vec<Point>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A line with a mark at each point.
    Line,
    /// A dashed line with a mark at each point.
    Dashed,
    /// A line without marks, for many points.
    Trace,
    /// Points only.
    Dots,
}

impl Kind {
    /// The name in the data for the script, and the class in SVG.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Dashed => "dashed",
            Self::Trace => "trace",
            Self::Dots => "dots",
        }
    }

    /// Whether each point has a mark.
    pub(super) const fn has_marks(self) -> bool {
        !matches!(self, Self::Trace)
    }
}

/// A point with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// The low and the high end of the interval.
    pub(super) ends: Option<[f64; 2]>,
}

impl Point {
    pub(super) const fn new(x: f64, y: f64) -> Self {
        Self { x, y, ends: None }
    }
}

impl Axis {
    pub(super) fn new(label: &str, quantity: Quantity, scale: Scale) -> Self {
        Self { label: label.to_owned(), quantity, scale, ticks: None }
    }

    pub(super) fn with_ticks(mut self, ticks: Vec<Tick>) -> Self {
        self.ticks = Some(ticks);
        self
    }

    fn ticks(&self, range: [f64; 2]) -> Vec<Tick> {
        self.ticks.clone().unwrap_or_else(|| self.scale.ticks(range, self.quantity))
    }
}

/// The ranges and ticks of both axes.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) x: [f64; 2],
    pub(super) y: [f64; 2],
    pub(super) x_ticks: Vec<Tick>,
    pub(super) y_ticks: Vec<Tick>,
}

impl Chart {
    /// The chart without points that its scales cannot show, and without series that have no point.
    pub(super) fn cleaned(mut self) -> Self {
        let fits =
            |axis: &Axis, value: f64| value.is_finite() && (axis.scale == Scale::Linear || value > 0.0);
        let Self { x, y, series, .. } = &mut self;
        for series in series.iter_mut() {
            series.points.retain(|point| fits(x, point.x) && fits(y, point.y));
            for point in &mut series.points {
                point.ends = point.ends.filter(|ends| ends.iter().all(|end| end.is_finite()));
            }
            series.points.sort_by(|a, b| a.x.total_cmp(&b.x));
            series.colour %= COLOURS;
        }
        series.retain(|series| !series.points.is_empty());
        self
    }

    /// Whether there is nothing to draw.
    pub(super) fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// The ranges and ticks. The interval of a point that a logarithmic scale cannot show does not extend the range.
    pub(super) fn frame(&self) -> Frame {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let y = self.y.scale.range(points().flat_map(|point| {
            let [low, high] = point.ends.unwrap_or([point.y; 2]);
            [low.max(if self.y.scale == Scale::Linear { 0.0_f64.min(point.y) } else { low }), point.y, high]
        }));
        let x_values = || points().map(|point| point.x);
        let (low, high) =
            x_values().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        // Room beside the first and the last mark.
        let x = match self.x.scale {
            _ if low >= high => {
                let room = if self.x.scale == Scale::Linear { low.abs().max(1.0) * 0.5 } else { low * 0.5 };
                [low - room, high + room]
            }
            Scale::Linear if self.series.iter().all(|series| !series.kind.has_marks()) => [low, high],
            Scale::Linear => [low - (high - low) * 0.03, high + (high - low) * 0.03],
            Scale::Log(_) => {
                let room = (high / low).powf(0.03);
                [low / room, high * room]
            }
        };
        Frame { x, y, x_ticks: self.x.ticks(x), y_ticks: self.y.ticks(y) }
    }
}

#[cfg(test)]
pub(super) fn sample() -> Chart {
    let line = |name: &str, colour, values: &[f64]| Series {
        name: name.to_owned(),
        colour,
        kind: Kind::Line,
        points: (12..)
            .zip(values)
            .map(|(power, y)| {
                let ends = Some([y * 0.9, y * 1.1]);
                Point { x: 2_f64.powi(power), y: *y, ends }
            })
            .collect(),
    };
    Chart {
        title: "Throughput".to_owned(),
        note: "Bars: 95% interval.".to_owned(),
        x: Axis::new("block size", Quantity::Bytes, Scale::Log(2)),
        y: Axis::new("MB/s", Quantity::Number, Scale::Linear),
        series: vec![line("a", 0, &[1.0, 2.0, 4.0]), line("b", 25, &[3.0, f64::NAN, 5.0])],
        marks: Vec::new(),
        group: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_that_no_scale_can_show_are_removed() {
        let chart = sample().cleaned();
        assert_eq!(chart.series.iter().map(|series| series.points.len()).collect::<Vec<_>>(), [3, 2]);
        assert_eq!(chart.series[1].colour, 1);
        let logarithmic = Chart { y: Axis::new("s", Quantity::Number, Scale::Log(10)), ..sample() };
        let mut empty = logarithmic;
        for point in empty.series.iter_mut().flat_map(|series| &mut series.points) {
            point.y = 0.0;
        }
        assert!(empty.cleaned().is_empty());
    }

    #[test]
    fn the_frame_contains_points_and_intervals() {
        let Frame { x, y, .. } = sample().cleaned().frame();
        assert!(x[0] < 4096.0 && x[1] > 16384.0, "{x:?}");
        assert!(y[0] <= 0.9 && y[1] >= 5.5, "{y:?}");
        let mut one = sample();
        one.series[0].points.truncate(1);
        one.series.truncate(1);
        let Frame { x, .. } = one.cleaned().frame();
        assert!(x[0] < 4096.0 && x[1] > 4096.0, "{x:?}");
    }
}
