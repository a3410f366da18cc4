//! `iopath elevators`: the I/O schedulers (elevators) with their settings.

use crate::args::JsonArgs;
use crate::output::Json;
use iopath_lab::elevators::ElevatorList;

pub(crate) fn list(args: &JsonArgs) -> anyhow::Result<()> {
    let list = ElevatorList::all();
    Json::new(args, &[], None)?.show(|| list.to_json(), list.text().trim_end())
}
