//! Draws the live view: charts of throughput and IOPS, a heat strip of latencies, a row for each target, CPU, progress.
//! A small terminal gets the figures as lines. Does not sample.

use iopath_report::numbers::{digits, time};
use ratatui::Frame;
use ratatui::layout::{Constraint, Direction, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, Gauge, GraphType, Paragraph};

use super::history::{History, Point, Row};
use crate::stderr::plain;

/// A smaller terminal has no charts.
const CHARTS_FROM: (u16, u16) = (44, 14);

/// From this width on, the two charts are side by side.
const SIDE_BY_SIDE_FROM: u16 = 76;

/// The rows of targets; further targets are counted.
const ROWS_MAX: usize = 8;

/// The width of the labels of the heat strip.
const LABELS: u16 = 9;

const SHADES: [&str; 5] = [" ", "░", "▒", "▓", "█"];

const FOOTER: &str = "q: stop with the results so far";

/// Draws the state.
pub(crate) fn draw(frame: &mut Frame, history: &History) {
    let area = frame.area();
    if area.width < CHARTS_FROM.0 || area.height < CHARTS_FROM.1 {
        return small(frame, history);
    }
    let rows = table(history);
    let heights = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(5),
        Constraint::Length((area.height / 4).clamp(4, 9)),
        Constraint::Length((rows.len() as u16).min(area.height / 4)),
        Constraint::Length(1),
    ];
    let [title, gauge, charts, strip, table, footer] = Layout::vertical(heights).areas(area);
    let name = Span::styled("iopath ", Style::new().add_modifier(Modifier::BOLD));
    frame.render_widget(Line::from(vec![name, Span::raw(plain(&history.stage))]), title);
    let done = history.done.clamp(0.0, 1.0);
    let bar = Gauge::default().gauge_style(Style::new().fg(Color::Cyan)).ratio(if done.is_nan() {
        0.0
    } else {
        done
    });
    frame.render_widget(bar, gauge);
    let is_wide = area.width >= SIDE_BY_SIDE_FROM;
    let direction = if is_wide { Direction::Horizontal } else { Direction::Vertical };
    let [left, right] = Layout::new(direction, [Constraint::Fill(1), Constraint::Fill(1)]).areas(charts);
    let last = history.last();
    line(frame, left, history, &format!("{} MB/s", digits(last.bytes / 1e6)), Color::Cyan, |point| {
        point.bytes / 1e6
    });
    line(frame, right, history, &format!("{} IOPS", digits(last.ios)), Color::Yellow, |point| point.ios);
    heat(frame, strip, history);
    frame.render_widget(Paragraph::new(rows), table);
    let cpu = format!("CPU {} of {}   ", digits(last.cpus), cpus());
    frame.render_widget(
        Line::from(format!("{cpu}{FOOTER}")).style(Style::new().add_modifier(Modifier::DIM)),
        footer,
    );
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The figures as lines, most important first: a terminal shows as many as it has lines.
fn small(frame: &mut Frame, history: &History) {
    let last = history.last();
    let percent = (history.done.clamp(0.0, 1.0) * 100.0) as u32;
    let mut lines = vec![
        Line::from(format!("{percent}% {}", plain(&history.stage))),
        Line::from(format!("{} MB/s", digits(last.bytes / 1e6))),
        Line::from(format!("{} IOPS", digits(last.ios))),
    ];
    lines.extend(history.median_ns().map(|ns| Line::from(format!("latency {}", time(ns)))));
    lines.push(Line::from(format!("CPU {} of {}", digits(last.cpus), cpus())));
    lines.push(Line::from("q: stop"));
    frame.render_widget(Paragraph::new(lines), frame.area());
}

/// A line of the last points that fit, the newest at the right end.
fn line(
    frame: &mut Frame,
    area: Rect,
    history: &History,
    title: &str,
    colour: Color,
    value: fn(&Point) -> f64,
) {
    // Braille has two points in a cell.
    let count = usize::from(area.width.max(1)) * 2;
    let skipped = history.points.len().saturating_sub(count);
    let shown = history.points.iter().skip(skipped).map(value);
    let points: Vec<(f64, f64)> = (0..).map(f64::from).zip(shown).collect();
    let high = points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    let high = if high > 0.0 { high * 1.05 } else { 1.0 };
    let data = Dataset::default()
        .marker(Marker::Braille)
        .graph_type(GraphType::Line)
        .style(Style::new().fg(colour))
        .data(&points);
    let right = (points.len().max(2) - 1) as f64;
    let chart = Chart::new(vec![data])
        .block(Block::bordered().title(title.to_owned()))
        .x_axis(Axis::default().bounds([0.0, right]))
        .y_axis(Axis::default().bounds([0.0, high]).labels(["0".to_owned(), digits(high)]));
    frame.render_widget(chart, area);
}

/// Latencies over time: each column is a point, each line a range of latencies, the shade the share of transfers.
fn heat(frame: &mut Frame, area: Rect, history: &History) {
    let title = match history.median_ns() {
        Some(ns) => format!("latency, p50 of samples {}", time(ns)),
        None => "latency".to_owned(),
    };
    let block = Block::bordered().title(title);
    let inside = block.inner(area);
    frame.render_widget(block, area);
    if inside.width <= LABELS || inside.height == 0 {
        return;
    }
    let columns = usize::from(inside.width - LABELS);
    let shown: Vec<&Point> =
        history.points.iter().skip(history.points.len().saturating_sub(columns)).collect();
    let all = || shown.iter().flat_map(|point| &point.latencies).copied();
    let (Some(low), Some(high)) = (all().min(), all().max()) else { return };
    let (low, high) = ((low.max(1) as f64).ln(), (high.max(1) as f64).ln());
    let lines = usize::from(inside.height);
    let line_of = |ns: u64| {
        let share = if high > low { ((ns.max(1) as f64).ln() - low) / (high - low) } else { 0.0 };
        (share * lines as f64) as usize
    };
    let buffer = frame.buffer_mut();
    for (x, point) in shown.iter().enumerate() {
        let mut counts = vec![0_usize; lines];
        for ns in &point.latencies {
            counts[line_of(*ns).min(lines - 1)] += 1;
        }
        for (index, count) in counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            let share = count as f64 / point.latencies.len() as f64;
            let symbol = SHADES[((share * 4.0).ceil() as usize).clamp(1, 4)];
            let y = inside.bottom() - 1 - index as u16;
            buffer.set_string(inside.x + LABELS + x as u16, y, symbol, Style::new().fg(Color::Magenta));
        }
    }
    let label = |log: f64| format!("{:>8}", time(log.exp() as u64));
    buffer.set_string(inside.x, inside.bottom() - 1, label(low), Style::new());
    if lines > 1 {
        buffer.set_string(inside.x, inside.y, label(high), Style::new());
    }
}

/// A line for each target.
fn table(history: &History) -> Vec<Line<'static>> {
    let named: Vec<&Row> = history.rows.iter().filter(|row| !row.target.is_empty()).collect();
    let mut lines: Vec<Line> = named
        .iter()
        .take(ROWS_MAX)
        .map(|row| {
            let figures = format!(
                "{:>7} MB/s {:>8} IOPS {:>8}  ",
                digits(row.bytes / 1e6),
                digits(row.ios),
                time(row.latency_ns)
            );
            Line::from(format!("{figures}{}", plain(&row.target)))
        })
        .collect();
    if named.len() > ROWS_MAX {
        lines.push(Line::from(format!("and {} further targets", named.len() - ROWS_MAX)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::history::tests::sample;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::Duration;

    fn history() -> History {
        let mut history = History::default();
        history.begin("measuring, 2 of 3".to_owned());
        for step in 0..40_u64 {
            let done = step * 40_960_000 + if step % 2 == 0 { 8_192_000 } else { 0 };
            let jobs =
                [("disk-a", done, 100_000 + step * 5000), ("disk-b\u{1b}[2J\u{202e}", done / 2, 3_000_000)];
            history.add(&sample(step * 500, &jobs), Duration::from_millis(step * 250));
        }
        history
    }

    fn text(width: u16, height: u16, history: &History) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, history)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_terminal_shows_charts_latencies_targets_and_progress() {
        let text = text(100, 30, &history());
        println!("{text}");
        for part in
            ["measuring, 2 of 3", "50%", "MB/s", "IOPS", "latency, p50", "disk-a", "CPU 0.500 of", "q: stop"]
        {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        let is_braille = |letter: char| ('\u{2801}'..='\u{28ff}').contains(&letter);
        assert!(text.chars().filter(|letter| is_braille(*letter)).count() > 40, "no lines:\n{text}");
        assert!(text.chars().filter(|letter| "░▒▓█".contains(*letter)).count() > 40, "no strip:\n{text}");
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "a name controls the terminal");
    }

    #[test]
    fn twenty_columns_show_the_figures() {
        let text = text(20, 6, &history());
        for part in ["50% measuring", "MB/s", "IOPS", "latency", "CPU", "q: stop"] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn usual_terminals_show_both_charts_side_by_side() {
        for (width, height) in [(80, 24), (120, 40)] {
            let text = text(width, height, &history());
            let both = text.lines().find(|line| line.contains("MB/s") && line.contains("IOPS"));
            assert!(both.is_some_and(|line| line.contains('┌')), "{width}×{height}:\n{text}");
            for part in ["measuring, 2 of 3", "50%", "latency, p50", "disk-a", "disk-b", "CPU ", "q: stop"] {
                assert!(text.contains(part), "{width}×{height}: {part}:\n{text}");
            }
            let strip = text.lines().filter(|line| line.contains(['░', '▒', '▓', '█']) && line.contains('│'));
            assert!(strip.count() >= 2, "latencies of two targets: {width}×{height}:\n{text}");
        }
    }

    #[test]
    fn no_size_and_no_state_is_refused() {
        let empty = History::default();
        let full = history();
        for width in [1, 2, 9, 20, 43, 44, 60, 76, 200] {
            for height in [1, 2, 5, 13, 14, 15, 60] {
                text(width, height, &empty);
                text(width, height, &full);
            }
        }
    }

    #[test]
    fn many_targets_do_not_hide_the_charts() {
        let mut history = History::default();
        let names: Vec<String> = (0..100).map(|index| format!("disk-{index}")).collect();
        for step in 0..3 {
            let jobs: Vec<(&str, u64, u64)> = names.iter().map(|name| (&**name, step * 4096, 1000)).collect();
            history.add(&sample(step * 600, &jobs), Duration::ZERO);
        }
        let text = text(100, 40, &history);
        assert!(text.contains("disk-7") && text.contains("and 92 further targets"), "{text}");
    }
}
