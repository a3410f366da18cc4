//! The result of an experiment: rows of published and modelled figures, directions, and the verdict. Formats nothing:
//! see `view.rs`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The tolerance of a row: 25% of the published figure.
const TOLERANCE: f64 = 0.25;

/// The result of one experiment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// Published and modelled figures.
    pub rows: Vec<Row>,
    /// The directions of the effect.
    pub directions: Vec<Direction>,
    /// Lines of the request log that show the mechanism.
    pub evidence: Vec<String>,
    /// The hypothesis if the source does not state the cause, and the missing parts if the effect is not reproduced.
    pub notes: Vec<String>,
}

/// A figure as published and as modelled.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Row {
    /// The quantity and its condition.
    pub what: String,
    /// The unit.
    pub unit: Cow<'static, str>,
    /// The published figure; none where the source has none.
    pub published: Option<f64>,
    /// The figure of the model.
    pub ours: f64,
    /// The largest deviation that counts as reproduced, as a share of the published figure.
    pub tolerance: f64,
    /// The published spread, from the lowest to the highest figure. A value in it is within the tolerance, too.
    #[serde(default)]
    pub range: Option<[f64; 2]>,
    /// Whether a constant of the model was calibrated on this row. Such a row does not count.
    #[serde(default)]
    pub calibrated: bool,
    /// Whether the figure is beside the effect: it counts as a prediction, but it does not show the effect.
    #[serde(default)]
    pub secondary: bool,
}

impl Row {
    /// A row that counts as a prediction.
    pub fn predicted(what: impl Into<String>, unit: &'static str, published: f64, ours: f64) -> Self {
        Self { published: Some(published), ..Self::unpublished(what, unit, ours) }
    }

    /// The row on which a constant of the model was calibrated.
    pub fn calibrated(what: impl Into<String>, unit: &'static str, published: f64, ours: f64) -> Self {
        Self { calibrated: true, ..Self::predicted(what, unit, published, ours) }
    }

    /// A figure of the model without a published figure.
    pub fn unpublished(what: impl Into<String>, unit: &'static str, ours: f64) -> Self {
        Self {
            what: what.into(),
            unit: unit.into(),
            published: None,
            ours,
            tolerance: TOLERANCE,
            range: None,
            calibrated: false,
            secondary: false,
        }
    }

    /// Marks the row as beside the effect.
    #[must_use]
    pub fn beside_the_effect(mut self) -> Self {
        self.secondary = true;
        self
    }

    /// Makes the row accept values in the published spread, from `low` to `high`, too. On the side where it is narrower
    /// than 25%, the tolerance stays 25%. A row without a published figure, or with a published zero, has no spread.
    #[must_use]
    pub fn within(mut self, low: f64, high: f64) -> Self {
        self.range = self.published.filter(|published| *published != 0.0).map(|_| [low, high]);
        self
    }

    /// (ours − published) / published; none without a published figure, or if that is zero.
    pub fn deviation(&self) -> Option<f64> {
        let published = self.published.filter(|published| *published != 0.0)?;
        Some((self.ours - published) / published.abs())
    }

    /// Whether the row counts: it has a published figure and was not calibrated on it.
    pub fn is_prediction(&self) -> bool {
        self.published.is_some() && !self.calibrated
    }

    /// Whether the deviation is at most the tolerance, or the value is in the published spread. A published zero allows
    /// zero only.
    pub fn is_within(&self) -> bool {
        match self.deviation() {
            Some(_) if self.range.is_some_and(|[low, high]| (low..=high).contains(&self.ours)) => true,
            Some(deviation) => deviation.abs() <= self.tolerance,
            None => self.published.is_none() || self.ours == 0.0,
        }
    }
}

/// A direction of the effect: a comparison that the source makes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Direction {
    /// The comparison.
    pub text: String,
    /// Whether it holds in the model.
    pub holds: bool,
}

impl Direction {
    /// A direction, and whether it holds.
    pub fn new(text: impl Into<String>, holds: bool) -> Self {
        Self { text: text.into(), holds }
    }
}

/// Whether the model has the published effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every direction holds, and each prediction is within its tolerance. If the source has figures of the effect, at
    /// least one of them is predicted.
    Reproduced,
    /// All other cases. For example, a direction does not hold, a prediction is outside its tolerance, or all published
    /// figures of the effect are calibrated.
    Partly,
    /// No direction holds. If there are no directions: no prediction is within its tolerance.
    #[serde(rename = "not reproduced")]
    NotReproduced,
}

impl Verdict {
    /// The name in texts and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Partly => "partly",
            Self::NotReproduced => "not reproduced",
        }
    }
}

impl Report {
    /// The verdict; `None` if the report has neither directions nor predictions, for example for a setting that the
    /// source did not measure.
    pub fn verdict(&self) -> Option<Verdict> {
        let directions: Vec<bool> = self.directions.iter().map(|direction| direction.holds).collect();
        let predictions: Vec<bool> = self.predictions().map(Row::is_within).collect();
        let decisive = if directions.is_empty() { &predictions } else { &directions };
        if decisive.is_empty() {
            return None;
        }
        let is_right = directions.iter().chain(&predictions).all(|holds| *holds);
        Some(if is_right && self.predicts_the_effect() {
            Verdict::Reproduced
        } else if decisive.iter().any(|holds| *holds) {
            Verdict::Partly
        } else {
            Verdict::NotReproduced
        })
    }

    /// Whether a published figure of the effect is predicted, or the source has none.
    fn predicts_the_effect(&self) -> bool {
        let mut of_the_effect =
            self.rows.iter().filter(|row| row.published.is_some() && !row.secondary).peekable();
        of_the_effect.peek().is_none() || of_the_effect.any(Row::is_prediction)
    }

    /// The rows that count.
    pub fn predictions(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.is_prediction())
    }

    /// The largest deviation of a prediction, with its sign.
    pub fn worst(&self) -> Option<f64> {
        let deviations = self.predictions().filter_map(Row::deviation);
        deviations.max_by(|a, b| a.abs().total_cmp(&b.abs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(directions: &[bool], ours: &[f64]) -> Report {
        Report {
            directions: directions.iter().map(|holds| Direction::new("a > b", *holds)).collect(),
            rows: ours.iter().map(|ours| Row::predicted("rate", "MB/s", 100.0, *ours)).collect(),
            ..Report::default()
        }
    }

    #[test]
    fn reproduced_needs_every_direction_and_every_prediction() {
        assert_eq!(report(&[true, true], &[75.0, 125.0]).verdict(), Some(Verdict::Reproduced));
        assert_eq!(report(&[true], &[]).verdict(), Some(Verdict::Reproduced));
        assert_eq!(report(&[], &[100.0]).verdict(), Some(Verdict::Reproduced));
        assert_eq!(report(&[true, false], &[100.0]).verdict(), Some(Verdict::Partly));
        assert_eq!(report(&[true], &[100.0, 125.1]).verdict(), Some(Verdict::Partly));
        assert_eq!(report(&[], &[74.9, 100.0]).verdict(), Some(Verdict::Partly));
    }

    #[test]
    fn without_a_direction_that_holds_the_effect_is_not_reproduced() {
        assert_eq!(report(&[false], &[100.0]).verdict(), Some(Verdict::NotReproduced));
        assert_eq!(report(&[], &[10.0]).verdict(), Some(Verdict::NotReproduced));
        assert_eq!(report(&[], &[]).verdict(), None);
    }

    #[test]
    fn calibrated_and_unpublished_rows_do_not_count() {
        let rows = vec![Row::calibrated("rate", "MB/s", 100.0, 1.0), Row::unpublished("rate", "MB/s", 1.0)];
        let only = Report { rows: rows.clone(), ..Report::default() };
        assert_eq!((only.verdict(), only.worst()), (None, None));
        let held = Report { directions: vec![Direction::new("a > b", true)], ..only };
        assert_eq!(held.verdict(), Some(Verdict::Partly));
    }

    #[test]
    fn reproduced_needs_a_predicted_figure_of_the_effect_unless_the_source_has_none() {
        let calibrated = Row::calibrated("gain", "×", 1.2, 1.2);
        let predicted = |what| Row::predicted(what, "×", 1.0, 1.0);
        let verdict = |rows: &[Row]| {
            let directions = vec![Direction::new("a > b", true)];
            Report { rows: rows.to_vec(), directions, ..Report::default() }.verdict()
        };
        let beside = predicted("rate").beside_the_effect();
        assert_eq!(verdict(&[calibrated.clone(), beside.clone()]), Some(Verdict::Partly));
        assert_eq!(verdict(&[calibrated, beside.clone(), predicted("gain")]), Some(Verdict::Reproduced));
        assert_eq!(verdict(&[beside, Row::unpublished("gain", "×", 1.2)]), Some(Verdict::Reproduced));
    }

    #[test]
    fn the_published_spread_widens_the_tolerance_and_never_narrows_it() {
        let row = |ours| Row::predicted("idle", "%", 50.0, ours);
        assert!(!row(66.0).is_within());
        assert!(row(66.0).within(45.0, 70.0).is_within());
        assert!(row(60.0).within(49.0, 51.0).is_within());
        // The spread below the published figure does not widen the tolerance above it.
        assert!(row(20.0).within(20.0, 50.0).is_within());
        assert!(!row(63.0).within(20.0, 50.0).is_within() && !row(19.0).within(20.0, 50.0).is_within());
        assert_eq!(row(60.0).deviation(), Some(0.2));
    }

    #[test]
    fn a_published_zero_has_no_deviation_and_allows_zero_only() {
        let zero = |ours| Row::predicted("idle", "%", 0.0, ours).within(0.0, 1.0);
        assert_eq!(zero(1.0).deviation(), None);
        assert!(zero(0.0).is_within() && !zero(1.0).is_within());
    }

    #[test]
    fn the_worst_prediction_keeps_its_sign() {
        assert_eq!(report(&[], &[110.0, 60.0, 120.0]).worst(), Some(-0.4));
    }
}
