//! Settings of a device, and trials of them, for the general formats.

use super::{Document, Records, Section, View, names, number};
use crate::tune::{CandidateFacts, ChangedSetting, SettingFacts, TrialReport, TuneReport};

impl Document for TuneReport {
    fn text(&self, view: View) -> String {
        Self::text(self, view.width)
    }

    fn json(&self) -> String {
        self.to_json()
    }

    /// A record is a setting. `before` is the value before this command, or the one that `--restore` sets again.
    fn records(&self) -> Records {
        let head = ["device", "setting", "value", "before", "changed", "unit", "valid", "about"];
        let row = |setting: &SettingFacts| {
            let SettingFacts { name, value, unit, range, about, before } = setting;
            let changed = self.changed.iter().find(|one| one.name == *name);
            let before = changed.map(|one| &one.from).or(before.as_ref());
            vec![
                self.device.clone(),
                name.clone(),
                value.clone(),
                number(before),
                changed.is_some().to_string(),
                unit.clone(),
                range.clone(),
                about.clone(),
            ]
        };
        Records::new(&head, self.settings.iter().map(row))
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections = Vec::new();
        if !self.changed.is_empty() {
            let row = |change: &ChangedSetting| {
                let cause = if change.requested { "this command" } else { "the kernel" };
                vec![change.name.clone(), change.from.clone(), change.to.clone(), cause.to_owned()]
            };
            let end = if self.kept { "Kept until the next boot." } else { "Until iopath tune --restore." };
            sections.push(Section {
                title: "Changed".to_owned(),
                head: names(&["setting", "from", "to", "by"]),
                rows: self.changed.iter().map(row).collect(),
                texts: 4,
                paragraphs: vec![end.to_owned()],
            });
        }
        let row = |setting: &SettingFacts| {
            let SettingFacts { name, value, unit, range, about, before } = setting;
            vec![
                name.clone(),
                value.clone(),
                number(before.as_ref()),
                unit.clone(),
                range.clone(),
                about.clone(),
            ]
        };
        sections.push(Section {
            title: format!("Settings of {}", self.description),
            head: names(&["setting", "value", "before", "unit", "valid", "meaning"]),
            rows: self.settings.iter().map(row).collect(),
            texts: 6,
            paragraphs: Vec::new(),
        });
        sections
    }
}

impl Document for TrialReport {
    fn text(&self, view: View) -> String {
        Self::text(self, view.width)
    }

    fn json(&self) -> String {
        self.to_json()
    }

    /// A record is a candidate. The record of the winner has the verdict of the confirmation.
    fn records(&self) -> Records {
        let head = [
            "device",
            "settings",
            "unit",
            "mean",
            "repetitions",
            "removed_in_round",
            "of_present",
            "kept_from",
            "verdict",
            "difference",
            "difference_low",
            "difference_high",
            "pairs",
        ];
        let row = |candidate: &CandidateFacts| {
            let CandidateFacts { settings, mean, repetitions, removed, of_present, kept_from } = candidate;
            let is_winner = self.winner.as_ref() == Some(settings);
            let of_winner = |text: String| if is_winner { text } else { String::new() };
            let end = |index: usize| of_winner(number(self.ci95.map(|ends| ends[index])));
            vec![
                self.device.clone(),
                settings.clone(),
                self.unit.clone(),
                number(*mean),
                repetitions.to_string(),
                number(*removed),
                number(*of_present),
                number(*kept_from),
                of_winner(self.verdict.name().to_owned()),
                of_winner(self.difference.to_string()),
                end(0),
                end(1),
                of_winner(self.pairs.to_string()),
            ]
        };
        Records::new(&head, self.candidates.iter().map(row))
    }

    fn sections(&self) -> Vec<Section> {
        let row = |candidate: &CandidateFacts| {
            let [share, removed] = candidate.in_its_rounds();
            vec![candidate.settings.clone(), share, candidate.repetitions.to_string(), removed]
        };
        let head = names(&["candidate", "of the present", "measured", "removed"]);
        vec![Section {
            title: format!("Candidates for {}", self.device),
            head,
            rows: self.candidates.iter().map(row).collect(),
            texts: 1,
            paragraphs: [self.rounds(), self.outcome()]
                .into_iter()
                .chain(self.notes.iter().cloned())
                .collect(),
        }]
    }
}
