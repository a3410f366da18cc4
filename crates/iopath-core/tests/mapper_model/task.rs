//! One operation in flight on the file: its plan, the steps that it gave out, and how it ends. What the bytes may be is
//! the world's.

use crate::disk::Stamp;
use iopath_core::Limits;
use iopath_core::mapper::{FileRange, Mapper, PunchPlan, ReadPlan, Step, Ticket, WritePlan, ZeroPlan};
use std::collections::BTreeSet;

/// What each cell of a range may hold.
pub(crate) type Allowed = Vec<BTreeSet<Stamp>>;

#[derive(Debug)]
pub(crate) enum Plan {
    /// With what it may see, grown by whatever happens meanwhile.
    Read(ReadPlan, Allowed),
    Write(WritePlan, Stamp),
    Punch(PunchPlan),
    Grow(ZeroPlan, u64),
}

#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) plan: Plan,
    pub(crate) file: FileRange,
    /// Others that change something here have to wait.
    pub(crate) lock: FileRange,
    /// Given out, not yet carried out.
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

    /// No further step is asked for.
    pub(crate) fn give_up(&mut self) {
        (self.is_planned, self.has_failed) = (true, true);
    }

    /// A step that was carried out has failed.
    pub(crate) fn fail(&mut self, file: FileRange) {
        self.has_failed = true;
        if let Plan::Write(plan, _) = &mut self.plan {
            plan.handle_error(file);
        }
    }

    pub(crate) fn is_read(&self) -> bool {
        matches!(self.plan, Plan::Read(..))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_planned && self.issued.is_empty()
    }
}
