//! One operation in flight on the file: its plan, its issued steps, and its end. `world.rs` has the possible values of
//! bytes.

use super::disk::Stamp;
use iopath_core::Limits;
use iopath_core::mapper::{FileRange, Mapper, PunchPlan, ReadPlan, Step, Ticket, WritePlan, ZeroPlan};
use std::collections::BTreeSet;

/// The possible values of each cell of a range.
pub(crate) type Allowed = Vec<BTreeSet<Stamp>>;

#[derive(Debug)]
pub(crate) enum Plan {
    /// A read, and the values that it may return, including those of concurrent operations.
    Read(ReadPlan, Allowed),
    Write(WritePlan, Stamp),
    Punch(PunchPlan),
    Grow(ZeroPlan, u64),
}

#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) plan: Plan,
    pub(crate) file: FileRange,
    /// Other operations that change this range must wait.
    pub(crate) lock: FileRange,
    /// Steps issued and not yet executed.
    pub(crate) issued: Vec<Step>,
    pub(crate) is_planned: bool,
    pub(crate) has_failed: bool,
    pub(crate) ticket: Option<Ticket>,
}

impl Task {
    pub(crate) fn new(plan: Plan, file: FileRange, lock: FileRange, ticket: Ticket) -> Self {
        Self {
            plan,
            file,
            lock,
            issued: Vec::new(),
            is_planned: false,
            has_failed: false,
            ticket: Some(ticket),
        }
    }

    pub(crate) fn poll_step(&mut self, mapper: &dyn Mapper, limits: &Limits) -> Option<Step> {
        match &mut self.plan {
            Plan::Read(plan, _) => plan.poll_step(mapper, limits),
            Plan::Write(plan, _) => plan.poll_step(mapper, limits),
            Plan::Punch(plan) => plan.poll_step(mapper, limits),
            Plan::Grow(plan, _) => plan.poll_step(mapper, limits),
        }
    }

    /// Ends polling of the plan.
    pub(crate) fn stop(&mut self) {
        (self.is_planned, self.has_failed) = (true, true);
    }

    /// Records a failed step.
    pub(crate) fn fail(&mut self, file: FileRange) {
        self.has_failed = true;
        if let Plan::Write(plan, _) = &mut self.plan {
            plan.handle_error(file);
        }
    }

    pub(crate) fn is_read(&self) -> bool {
        matches!(self.plan, Plan::Read(..))
    }

    pub(crate) fn is_completed(&self) -> bool {
        self.is_planned && self.issued.is_empty()
    }
}
