//! `iopath elevators`: the I/O schedulers (elevators) with their settings.

use crate::args::ElevatorsArgs;
use crate::output::Output;
use iopath_report::elevators::ElevatorList;

pub(crate) fn list(args: &ElevatorsArgs) -> anyhow::Result<()> {
    Output::plain(&args.json, &[])?.in_format(args.format.format)?.present(&ElevatorList::all())
}
