//! Draws a chart as SVG: the picture that a page without scripts shows. The colours are classes of the style sheet.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::chart::{Chart, Frame, Kind, Point, Series};

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;

/// The largest number of points of a line or set of points.
const POINTS_MAX: usize = 600;

/// Where values lie on the picture.
struct Plane<'a> {
    chart: &'a Chart,
    frame: &'a Frame,
}

impl Plane<'_> {
    fn x(&self, value: f64) -> f64 {
        round(LEFT + self.chart.x.scale.position(value, self.frame.x) * (WIDTH - LEFT - RIGHT))
    }

    fn y(&self, value: f64) -> f64 {
        round(HEIGHT - BOTTOM - self.chart.y.scale.position(value, self.frame.y) * (HEIGHT - TOP - BOTTOM))
    }
}

/// One decimal: a tenth of a pixel.
fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// The picture.
pub(super) fn draw(chart: &Chart) -> Markup {
    let frame = chart.frame();
    let plane = Plane { chart, frame: &frame };
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    html! {
        svg class="chart" viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(chart.title) {
            @for (value, label) in &frame.y_ticks {
                @let y = plane.y(*value);
                line class="grid" x1=(LEFT) x2=(right) y1=(y) y2=(y) {}
                text class="tick" x=(LEFT - 7.0) y=(y + 4.0) text-anchor="end" { (label) }
            }
            @for (value, label) in &frame.x_ticks {
                @let x = plane.x(*value);
                line class="grid" x1=(x) x2=(x) y1=(TOP) y2=(bottom) {}
                text class="tick" x=(x) y=(bottom + 17.0) text-anchor="middle" { (label) }
            }
            @for (value, label) in &chart.marks {
                @let x = plane.x(*value);
                line class="mark" x1=(x) x2=(x) y1=(TOP) y2=(bottom) { title { (label) } }
            }
            text class="axis" x=(round(f64::midpoint(LEFT, right))) y=(HEIGHT - 6.0) text-anchor="middle" { (chart.x.label) }
            text class="axis" transform=(format!("translate(13 {}) rotate(-90)", round(f64::midpoint(TOP, bottom)))) text-anchor="middle" {
                (chart.y.label)
            }
            @for series in &chart.series { (line_of(&plane, series)) }
        }
    }
}

fn line_of(plane: &Plane, series: &Series) -> Markup {
    let every = series.points.len().div_ceil(POINTS_MAX).max(1);
    let points: Vec<&Point> = series.points.iter().step_by(every).collect();
    let mut path = String::new();
    for (index, point) in points.iter().enumerate() {
        let letter = if index == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{} {}", plane.x(point.x), plane.y(point.y));
    }
    html! {
        g class=(format!("s{} {}", series.colour, series.kind.name())) {
            @if series.kind != Kind::Dots { path d=(path) {} }
            @if series.kind.has_marks() {
                @for point in points {
                    @let (x, y) = (plane.x(point.x), plane.y(point.y));
                    @if let Some([low, high]) = point.ends {
                        @let ends = format!("M{x} {}V{}", plane.y(low), plane.y(high));
                        path class="ends" d=(ends) {}
                    }
                    circle cx=(x) cy=(y) r=(if series.kind == Kind::Dots { 1.5 } else { 3.0 }) {
                        @if series.kind != Kind::Dots {
                            title { (series.name) ": " (plane.chart.y.quantity.text(point.y)) }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::chart::sample;
    use super::*;

    #[test]
    fn each_series_is_a_path_with_its_intervals() {
        let svg = draw(&sample().cleaned()).into_string();
        assert_eq!(svg.matches("<g class=\"s").count(), 2);
        assert_eq!(svg.matches("class=\"ends\"").count(), 5);
        assert_eq!(svg.matches("<circle").count(), 5);
    }

    #[test]
    fn no_text_of_the_data_becomes_markup() {
        let mut chart = sample();
        chart.title = "<script>\"'&".to_owned();
        chart.series[0].name = "</svg><script>alert(1)</script>".to_owned();
        let svg = draw(&chart.cleaned()).into_string();
        assert!(!svg.contains("<script"), "{svg}");
        assert!(svg.contains("&lt;/svg&gt;"), "{svg}");
    }

    #[test]
    fn many_points_are_thinned() {
        let mut chart = sample();
        chart.series[0].points = (1..10_000).map(|x| Point::new(f64::from(x), 1.0)).collect();
        let svg = draw(&chart.cleaned()).into_string();
        assert!(svg.matches("<circle").count() <= POINTS_MAX + 2);
    }
}
