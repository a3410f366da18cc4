//! What every format shows of the list of elevators.

use super::{Document, Medium};
use crate::elevators::{ElevatorFacts, ElevatorList, SettingFacts};
use crate::section::{Columns, Line, Section, Table};
use crate::value::Value;

impl Document for ElevatorList {
    fn sections(&self, medium: Medium) -> Vec<Section> {
        if medium == Medium::Text {
            return vec![Section::prose(self.elevators.iter().flat_map(lines))];
        }
        let section = |elevator: &ElevatorFacts| {
            let table = columns(elevator.settings.iter().map(|setting| (elevator, Some(setting))).collect());
            Section::of(table).titled(&elevator.name).with_after([&elevator.about])
        };
        self.elevators.iter().map(section).collect()
    }

    /// A record is a setting, or an elevator without settings.
    fn records(&self) -> Table {
        let rows = self.elevators.iter().flat_map(|elevator| {
            let alone = elevator.settings.is_empty().then_some((elevator, None));
            elevator.settings.iter().map(move |setting| (elevator, Some(setting))).chain(alone)
        });
        columns(rows.collect())
    }

    fn json(&self) -> String {
        self.to_json()
    }
}

type Row<'a> = (&'a ElevatorFacts, Option<&'a SettingFacts>);

fn columns(rows: Vec<Row>) -> Table {
    fn of<V: Into<Value>>(field: impl Fn(&SettingFacts) -> V) -> impl Fn(Row) -> Value {
        move |(_, setting)| Value::known(setting, |setting| field(setting).into())
    }
    Columns::of(rows)
        .record("elevator", |(elevator, _): Row| &elevator.name)
        .record("elevator_about", |(elevator, _)| &elevator.about)
        .text("setting", of(|setting| setting.name.clone()))
        .recorded("setting")
        .text("unit", of(|setting| setting.unit.clone()))
        .recorded("unit")
        .number("default", of(|setting| setting.default))
        .recorded("default")
        .number("min", of(|setting| setting.min))
        .recorded("min")
        .number("max", of(|setting| setting.max))
        .recorded("max")
        .text("effect", of(|setting| setting.about.clone()))
        .recorded("about")
        .into()
}

/// A line for the elevator and each of its settings.
fn lines(elevator: &ElevatorFacts) -> impl Iterator<Item = Line> {
    let head = Line::new(format!("{}: {}", elevator.name, elevator.about));
    let setting = |setting: &SettingFacts| {
        let SettingFacts { name, unit, default, min, max, about } = setting;
        Line::new(format!("{name}={default} {unit} ({min}..={max}): {about}")).labelled("    ", "      ")
    };
    std::iter::once(head).chain(elevator.settings.iter().map(setting))
}
