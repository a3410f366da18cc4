//! Fragments of a page: charts with legend and figures, bars, heat maps, statements, tables. Does not know results.

use std::fmt::Write as _;

use maud::{Markup, PreEscaped, html};

use super::chart::{COLOURS, Chart, Series};
use super::facts::Tone;
use super::number::{Quantity, Scale};
use super::{script, svg};
use crate::format::page;
use crate::section::{Columns, Section};
use crate::value::Value;

/// Charts with more points have no table of figures.
const FIGURES_MAX: usize = 120;

/// The colour of each name: the same in all charts of a page.
#[derive(Debug, Default)]
pub(super) struct Palette {
    names: Vec<String>,
}

impl Palette {
    pub(super) fn colour(&mut self, name: &str) -> usize {
        let known = self.names.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        }) % COLOURS
    }
}

/// A chart with its title, its legend and its figures; nothing if it has no points.
pub(super) fn figure(chart: Chart) -> Markup {
    let chart = chart.cleaned();
    if chart.is_empty() {
        return Markup::default();
    }
    html! {
        figure class="card" {
            figcaption {
                h4 { (chart.title) }
                @if !chart.note.is_empty() { p class="note" { (chart.note) } }
            }
            div class="plot" { (svg::draw(&chart)) }
            ul class="legend" {
                @for series in &chart.series {
                    li class=(format!("s{} {}", series.colour, series.kind.name())) { span class="swatch" {} (series.name) }
                }
            }
            (figures(&chart))
            script type="application/json" { (PreEscaped(script::data(&chart))) }
        }
    }
}

/// The values of a chart as a table: x down, series across.
fn figures(chart: &Chart) -> Markup {
    let count: usize = chart.series.iter().map(|series| series.points.len()).sum();
    if count > FIGURES_MAX {
        return Markup::default();
    }
    let mut xs: Vec<f64> =
        chart.series.iter().flat_map(|series| &series.points).map(|point| point.x).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let label = |x: f64| {
        let named = chart.x.ticks.iter().flatten().find(|(at, _)| at.total_cmp(&x).is_eq());
        named.map_or_else(|| chart.x.quantity.text(x), |(_, label)| label.clone())
    };
    let value = |series: &Series, x: f64| {
        let Some(point) = series.points.iter().find(|point| point.x.total_cmp(&x).is_eq()) else {
            return Value::Unknown;
        };
        let mut text = chart.y.quantity.text(point.y);
        if let Some([low, high]) = point.ends {
            let _ = write!(text, " ({} to {})", chart.y.quantity.text(low), chart.y.quantity.text(high));
        }
        text.into()
    };
    let columns = Columns::of(xs).text(&chart.x.label, label);
    let columns = chart
        .series
        .iter()
        .fold(columns, |columns, series| columns.number(&series.name, |x| value(series, x)));
    html! {
        details { summary { "Figures, " (chart.y.label) } (page::sections(&[Section::of(columns)])) }
    }
}

/// One horizontal bar.
#[derive(Debug)]
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) value: f64,
    /// The interval of the value.
    pub(super) ends: Option<[f64; 2]>,
    /// The value in words.
    pub(super) text: String,
    pub(super) colour: usize,
}

/// Horizontal bars from 0, with intervals; nothing without a positive value.
pub(super) fn bars(title: &str, note: &str, bars: &[Bar]) -> Markup {
    let high = |bar: &Bar| bar.ends.map_or(bar.value, |ends| ends[1].max(bar.value));
    let most = bars.iter().map(high).filter(|value| value.is_finite()).fold(0.0, f64::max);
    if most <= 0.0 {
        return Markup::default();
    }
    let percent = |value: f64| format!("{:.2}%", (value / most * 100.0).clamp(0.0, 100.0));
    html! {
        figure class="card" {
            figcaption { h4 { (title) } @if !note.is_empty() { p class="note" { (note) } } }
            div class="bars" {
                @for bar in bars { div class="row" {
                    div class="bar-name" { (bar.name) }
                    div class=(format!("bar s{}", bar.colour)) {
                        div class="fill" style=(format!("width:{}", percent(bar.value))) {}
                        @if let Some([low, high]) = bar.ends {
                            @let style = format!("left:{};right:calc(100% - {})", percent(low), percent(high));
                            div class="whisker" style=(style) {}
                        }
                    }
                    div class="bar-value" { (bar.text) }
                } }
            }
        }
    }
}

/// A table of coloured cells.
#[derive(Debug)]
pub(super) struct Heat {
    pub(super) title: String,
    pub(super) note: String,
    /// The head of the first column, and of the others.
    pub(super) corner: String,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<(String, Vec<Option<f64>>)>,
    pub(super) quantity: Quantity,
    pub(super) scale: Scale,
    /// Whether low values are good.
    pub(super) low_is_good: bool,
}

/// A heat map. The best cell has a frame; the shade follows the scale.
pub(super) fn heat(map: &Heat) -> Markup {
    let values: Vec<f64> = map.rows.iter().flat_map(|(_, cells)| cells).flatten().copied().collect();
    let ends = values
        .iter()
        .copied()
        .filter(|value| value.is_finite() && (map.scale == Scale::Linear || *value > 0.0));
    let (low, high) =
        ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if values.len() < 2 || low > high {
        return Markup::default();
    }
    // The lowest value has a light shade, not none.
    let low = if map.scale == Scale::Linear { low - (high - low) * 0.15 } else { low };
    let best = if map.low_is_good { values.iter().copied().fold(f64::INFINITY, f64::min) } else { high };
    html! {
        figure class="card wide" {
            figcaption { h4 { (map.title) } @if !map.note.is_empty() { p class="note" { (map.note) } } }
            div class="scroll" tabindex="0" role="region" aria-label=(map.title) {
                table class="heat" {
                    thead { tr { th scope="col" { (map.corner) } @for column in &map.columns { th scope="col" { (column) } } } }
                    tbody {
                        @for (name, cells) in &map.rows {
                            tr {
                                th scope="row" { (name) }
                                @for cell in cells {
                                    @if let Some(value) = cell {
                                        @let shade = map.scale.position(*value, [low, high]).clamp(0.0, 1.0);
                                        @let shade = if map.low_is_good { 1.0 - shade } else { shade };
                                        @let class = match (value.total_cmp(&best).is_eq(), shade > 0.55) {
                                            (true, _) => "best deep",
                                            (false, true) => "deep",
                                            (false, false) => "",
                                        };
                                        td class=(class) style=(format!("--v:{shade:.3}")) { (map.quantity.text(*value)) }
                                    } @else { td class="none" { "–" } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A finding, a verdict or a warning.
#[derive(Debug, Clone)]
pub(super) struct Statement {
    pub(super) tone: Tone,
    /// A word above the text; may be empty.
    pub(super) tag: String,
    pub(super) text: String,
    /// The figures that show it; may be empty.
    pub(super) evidence: String,
}

impl Statement {
    pub(super) fn new(tone: Tone, tag: &str, text: impl Into<String>, evidence: impl Into<String>) -> Self {
        Self { tone, tag: tag.to_owned(), text: text.into(), evidence: evidence.into() }
    }
}

/// A numbered list of statements.
pub(super) fn statements(list: &[Statement]) -> Markup {
    html! {
        ol class="findings" {
            @for statement in list {
                li class=(statement.tone.class()) {
                    @if !statement.tag.is_empty() { span class="tag" { (statement.tag) } }
                    p class="text" { (statement.text) }
                    @if !statement.evidence.is_empty() { p class="evidence" { (statement.evidence) } }
                }
            }
        }
    }
}

/// Names and values; rows without a value are left out.
pub(super) fn facts(rows: &[(&str, String)]) -> Markup {
    html! {
        dl class="facts" {
            @for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
                div { dt { (name) } dd { (value) } }
            }
        }
    }
}

/// A command line.
pub(super) fn command(line: &str) -> Markup {
    html! { pre class="command" tabindex="0" { code { (line) } } }
}

#[cfg(test)]
mod tests {
    use super::super::chart::sample;
    use super::*;

    const BAD: &str = "</script><script>alert(1)</script>\"'<img src=x onerror=alert(1)>";

    #[test]
    fn no_fragment_contains_markup_of_the_data() {
        let mut chart = sample();
        chart.title = BAD.to_owned();
        chart.note = BAD.to_owned();
        chart.x.label = BAD.to_owned();
        chart.series[0].name = BAD.to_owned();
        let bar =
            Bar { name: BAD.to_owned(), value: 1.0, ends: Some([0.5, 2.0]), text: BAD.to_owned(), colour: 0 };
        let map = Heat {
            title: BAD.to_owned(),
            note: BAD.to_owned(),
            corner: BAD.to_owned(),
            columns: vec![BAD.to_owned(), BAD.to_owned()],
            rows: vec![(BAD.to_owned(), vec![Some(1.0), Some(2.0), None])],
            quantity: Quantity::Number,
            scale: Scale::Linear,
            low_is_good: false,
        };
        let all = [
            figure(chart),
            bars(BAD, BAD, &[bar]),
            heat(&map),
            statements(&[Statement::new(Tone::Warn, BAD, BAD, BAD)]),
            facts(&[("file", BAD.to_owned())]),
            command(BAD),
        ];
        for part in all {
            let part = part.into_string();
            assert!(part.contains("&lt;img"), "{part}");
            let script = part.matches("<script type=\"application/json\">").count();
            assert_eq!(part.matches("<script").count(), script, "{part}");
            assert_eq!(part.matches("</script").count(), script, "{part}");
            assert!(!part.contains("<img"), "{part}");
        }
    }

    #[test]
    fn a_name_keeps_its_colour() {
        let mut palette = Palette::default();
        assert_eq!([palette.colour("a"), palette.colour("b"), palette.colour("a")], [0, 1, 0]);
        for index in 0..20 {
            assert!(palette.colour(&index.to_string()) < COLOURS);
        }
    }

    #[test]
    fn values_without_a_bar_have_no_figure() {
        let bar = |value| Bar { name: "a".to_owned(), value, ends: None, text: String::new(), colour: 0 };
        assert!(bars("t", "", &[bar(0.0)]).into_string().is_empty());
        assert!(bars("t", "", &[bar(f64::NAN)]).into_string().is_empty());
        assert!(bars("t", "", &[bar(2.0)]).into_string().contains("width:100.00%"));
    }

    #[test]
    fn the_best_cell_of_a_heat_map_is_marked() {
        let map = |low_is_good| Heat {
            title: "t".to_owned(),
            note: String::new(),
            corner: String::new(),
            columns: vec!["a".to_owned(), "b".to_owned()],
            rows: vec![("r".to_owned(), vec![Some(1.0), Some(9.0)])],
            quantity: Quantity::Number,
            scale: Scale::Log(10),
            low_is_good,
        };
        let best = |map: &Heat| {
            let html = heat(map).into_string();
            html.split("<td").find(|cell| cell.contains("best")).unwrap().to_owned()
        };
        assert!(best(&map(false)).contains(">9.00<"));
        assert!(best(&map(true)).contains(">1.00<"));
    }
}
