//! The table of experiments.

use iopath_report::UnknownName;

use super::row::Experiment;
use super::{
    bigbio, bomb, boundary, closest, copy, cpu, dip, extent, freelist, link, log, merge, skew, unplug,
};

/// The experiments, in the order of the final table.
pub static EXPERIMENTS: &[Experiment] = &[
    link::ROW,
    cpu::ROW,
    skew::ROW,
    bigbio::ROW,
    boundary::ROW,
    extent::ROW,
    unplug::ROW,
    dip::ROW,
    copy::ROW,
    merge::ROW,
    bomb::ROW,
    closest::ROW,
    freelist::ROW,
    log::ROW,
];

impl Experiment {
    /// The experiment with this id.
    ///
    /// # Errors
    /// [`UnknownName`] with the known ids.
    pub fn find(id: &str) -> Result<&'static Self, UnknownName> {
        EXPERIMENTS.iter().find(|experiment| experiment.id == id).ok_or_else(|| UnknownName {
            kind: "experiment",
            name: id.to_owned(),
            known: EXPERIMENTS.iter().map(|experiment| experiment.id).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use iopath_report::experiment::Settings;

    const DOCUMENTATION: &str = include_str!("../../../docs/experiments.md");
    const README: &str = include_str!("../../../README.md");

    #[test]
    fn ids_are_unique_and_found() {
        let mut seen = BTreeSet::new();
        for experiment in EXPERIMENTS {
            assert!(seen.insert(experiment.id), "{} occurs twice", experiment.id);
            assert_eq!(Experiment::find(experiment.id).unwrap().id, experiment.id);
        }
        let text = Experiment::find("none-such").unwrap_err().to_string();
        assert!(text.contains("`none-such`") && text.contains(EXPERIMENTS[0].id), "{text}");
    }

    #[test]
    fn published_text_names_its_source_with_a_year() {
        for Experiment { id, published, title, .. } in EXPERIMENTS {
            let years = published.split(|c: char| !c.is_ascii_digit()).filter(|word| word.len() == 4);
            assert!(years.into_iter().any(|year| year.starts_with("19") || year.starts_with("20")), "{id}");
            assert!(!title.is_empty() && !title.ends_with('.'), "{id}");
        }
    }

    #[test]
    fn parameters_have_unique_names_a_source_and_a_default_in_their_range() {
        for Experiment { id, parameters, .. } in EXPERIMENTS {
            let mut seen = BTreeSet::new();
            for parameter in *parameters {
                let name = parameter.name;
                assert!(seen.insert(name), "{id}: {name} occurs twice");
                assert!(parameter.source.len() > 3, "{id}: {name} has no source");
                assert!(parameter.is_consistent(), "{id}: {name}");
            }
            Settings::new(parameters, &[]).unwrap();
        }
    }

    #[test]
    fn a_constant_is_calibrated_on_one_figure_and_the_figure_on_one_constant() {
        for Experiment { id, parameters, .. } in EXPERIMENTS {
            let calibrated = parameters.iter().filter(|parameter| parameter.is_calibrated());
            let mut seen = BTreeSet::new();
            for parameter in calibrated {
                assert!(seen.insert(parameter.source), "{id}: two constants are {}", parameter.source);
            }
        }
    }

    /// The row of an experiment in the table of verdicts, the first table of a page with such rows.
    fn verdict_row<'a>(page: &'a str, id: &str) -> Option<&'a str> {
        page.lines().find(|line| line.starts_with(&format!("| `{id}` |")) && line.matches(" | ").count() == 5)
    }

    #[test]
    fn the_readme_has_the_verdicts_of_the_documentation() {
        for Experiment { id, .. } in EXPERIMENTS {
            let row = verdict_row(DOCUMENTATION, id);
            assert!(row.is_some(), "docs/experiments.md has no verdict of {id}");
            assert_eq!(verdict_row(README, id), row, "README.md");
        }
    }

    #[test]
    fn the_documentation_has_a_heading_for_each_experiment() {
        let headings: Vec<&str> = DOCUMENTATION.lines().filter(|line| line.starts_with("## ")).collect();
        for Experiment { id, .. } in EXPERIMENTS {
            let heading = format!("## {id}");
            let found = headings
                .iter()
                .filter(|line| **line == heading || line.starts_with(&(heading.clone() + ":")));
            assert_eq!(found.count(), 1, "docs/experiments.md: `{heading}: …`");
        }
    }
}
