//! The list of elevators for the general formats.

use iopath_report::elevators::{ElevatorFacts, ElevatorList, SettingFacts};

use super::{Document, Records, Section, View, names};

impl Document for ElevatorList {
    fn text(&self, view: View) -> String {
        Self::text(self, view.width)
    }

    fn json(&self) -> String {
        self.to_json()
    }

    /// A record is a setting, or an elevator without settings.
    fn records(&self) -> Records {
        let head = ["elevator", "elevator_about", "setting", "unit", "default", "min", "max", "about"];
        let of = |elevator: &ElevatorFacts| -> Vec<Vec<String>> {
            let first = [elevator.name.clone(), elevator.about.clone()];
            if elevator.settings.is_empty() {
                return vec![[&first[..], &vec![String::new(); head.len() - first.len()]].concat()];
            }
            let of_setting = |setting: &SettingFacts| {
                let SettingFacts { name, unit, default, min, max, about } = setting;
                let numbers = [default, min, max].map(ToString::to_string);
                [&first[..], &[name.clone(), unit.clone()], &numbers, std::slice::from_ref(about)].concat()
            };
            elevator.settings.iter().map(of_setting).collect()
        };
        Records::new(&head, self.elevators.iter().flat_map(of))
    }

    fn sections(&self) -> Vec<Section> {
        let of = |elevator: &ElevatorFacts| {
            let row = |setting: &SettingFacts| {
                let SettingFacts { name, unit, default, min, max, about } = setting;
                let [default, min, max] = [default, min, max].map(ToString::to_string);
                vec![name.clone(), about.clone(), unit.clone(), default, min, max]
            };
            let has_settings = !elevator.settings.is_empty();
            Section {
                title: elevator.name.clone(),
                head: if has_settings {
                    names(&["setting", "effect", "unit", "default", "min", "max"])
                } else {
                    Vec::new()
                },
                rows: elevator.settings.iter().map(row).collect(),
                texts: 3,
                paragraphs: vec![elevator.about.clone()],
            }
        };
        self.elevators.iter().map(of).collect()
    }
}
