//! Schedules the turns of a survey, so that it ends in time even on slow storage. Time is an argument. Does not
//! measure.

use std::time::Duration;

/// Cells that take turns, round after round, so that drift affects all of them alike. A turn starts only if it is
/// expected to end before the deadline. Otherwise, the first round skips the cell; a later round ends the schedule.
#[derive(Debug)]
pub(crate) struct Schedule {
    cells: Vec<CellState>,
    /// On the same clock as `now`.
    deadline: Duration,
    rounds: u32,
    round: u32,
    next: usize,
}

/// The state of one cell.
#[derive(Debug)]
struct CellState {
    /// The expected time of its next turn.
    cost: Duration,
    /// The cell gets no further turn.
    is_excluded: bool,
}

/// The cell to measure now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) cell: usize,
    /// From 1.
    pub(crate) round: u32,
}

impl Schedule {
    /// `costs` are the expected times of a turn of each cell.
    pub(crate) fn new(costs: &[Duration], rounds: u32, deadline: Duration) -> Self {
        let cells = costs.iter().map(|&cost| CellState { cost, is_excluded: false }).collect();
        Self { cells, deadline, rounds, round: 1, next: 0 }
    }

    /// The next turn; none after the last round and when no time is left.
    pub(crate) fn poll_turn(&mut self, now: Duration) -> Option<Turn> {
        while self.round <= self.rounds {
            while let Some(state) = self.cells.get_mut(self.next) {
                let cell = self.next;
                self.next += 1;
                if state.is_excluded {
                    continue;
                }
                if now.saturating_add(state.cost) <= self.deadline {
                    return Some(Turn { cell, round: self.round });
                }
                if self.round > 1 {
                    self.round = self.rounds + 1;
                    return None;
                }
                state.is_excluded = true;
            }
            if self.cells.iter().all(|state| state.is_excluded) {
                return None;
            }
            self.round += 1;
            self.next = 0;
        }
        None
    }

    /// Records the duration of a turn, which is the expected time of the cell's next one.
    pub(crate) fn handle_measured(&mut self, turn: Turn, took: Duration) {
        self.cells[turn.cell].cost = took;
    }

    /// Excludes a cell that cannot be measured here.
    pub(crate) fn handle_refused(&mut self, cell: usize) {
        self.cells[cell].is_excluded = true;
    }

    /// The expected remaining time.
    pub(crate) fn left(&self, now: Duration) -> Duration {
        if self.round > self.rounds {
            return Duration::ZERO;
        }
        let costs = |from: usize| -> Duration {
            self.cells.iter().skip(from).filter(|state| !state.is_excluded).map(|state| state.cost).sum()
        };
        let wanted = costs(self.next) + costs(0) * (self.rounds - self.round);
        wanted.min(self.deadline.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Runs a schedule on a simulated clock. `took` returns the duration of a turn. Returns the number of turns of each
    /// cell, and the time at the end.
    fn simulate(
        costs: &[u32],
        rounds: u32,
        deadline: u32,
        took: impl Fn(usize, u32) -> u32,
    ) -> (Vec<u32>, u32) {
        let costs: Vec<Duration> = costs.iter().map(|&cost| MS * cost).collect();
        let mut schedule = Schedule::new(&costs, rounds, MS * deadline);
        let (mut now, mut had) = (0, vec![0; costs.len()]);
        while let Some(turn) = schedule.poll_turn(MS * now) {
            let took = took(turn.cell, turn.round);
            assert_eq!(turn.round, had[turn.cell] + 1, "rounds of a cell come one after another");
            had[turn.cell] += 1;
            now += took;
            schedule.handle_measured(turn, MS * took);
        }
        (had, now)
    }

    #[test]
    fn on_a_disk_as_fast_as_planned_every_cell_has_every_turn() {
        let (had, end) = simulate(&[10; 7], 5, 350, |_, _| 10);
        assert_eq!((had, end), (vec![5; 7], 350));
    }

    #[test]
    fn on_a_slower_disk_the_last_round_is_cut_short_and_the_time_kept() {
        let (had, end) = simulate(&[10; 4], 5, 200, |_, _| 15);
        assert!(end <= 200, "{end}");
        assert_eq!(had, [4, 3, 3, 3]);
    }

    #[test]
    fn on_a_disk_far_slower_than_planned_the_first_cells_are_measured() {
        let (had, end) = simulate(&[10; 6], 3, 100, |_, _| 45);
        assert_eq!(had, [1, 1, 1, 0, 0, 0]);
        assert!(end <= 100 + 45, "only the last turn exceeds the deadline: {end}");
    }

    #[test]
    fn a_cell_that_takes_too_long_leaves_room_for_others() {
        let (had, _) = simulate(&[10, 1000, 10], 2, 100, |_, _| 10);
        assert_eq!(had, [2, 0, 2]);
    }

    #[test]
    fn a_stall_costs_rounds_not_the_deadline() {
        let (had, end) =
            simulate(&[10; 4], 5, 200, |cell, round| if (cell, round) == (2, 2) { 90 } else { 10 });
        assert!(end <= 200, "{end}");
        assert!(had.iter().all(|&had| had >= 2), "{had:?}");
    }

    #[test]
    fn a_refused_cell_gets_no_turn_and_without_cells_the_schedule_ends() {
        let mut schedule = Schedule::new(&[MS; 2], 3, MS * 100);
        let turn = schedule.poll_turn(MS).unwrap();
        schedule.handle_refused(turn.cell);
        assert_eq!(schedule.poll_turn(MS), Some(Turn { cell: 1, round: 1 }));
        assert_eq!(schedule.poll_turn(MS), Some(Turn { cell: 1, round: 2 }));
        schedule.handle_refused(1);
        assert_eq!(schedule.poll_turn(MS), None);
    }

    #[test]
    fn time_left_shrinks_to_nothing() {
        let mut schedule = Schedule::new(&[MS * 10; 3], 2, MS * 100);
        assert_eq!(schedule.left(Duration::ZERO), MS * 60);
        while schedule.poll_turn(Duration::ZERO).is_some() {}
        assert_eq!(schedule.left(MS * 60), Duration::ZERO);
    }
}
