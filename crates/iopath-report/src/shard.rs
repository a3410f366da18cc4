//! Shares of independent work: the cells of one of several processes, for `whatif --shard` and `sweep --shard`. The
//! launchers of clusters name the share in the environment.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One of several equal shares of the cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Shard {
    /// The number of the share, from 1.
    pub number: u64,
    /// The number of shares.
    pub count: u64,
}

/// A share that cannot be used. The message has the remedy.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is no shard; {problem}")]
pub struct ShardError {
    /// The share as given.
    pub text: String,
    /// The problem and the remedy.
    pub problem: String,
}

/// A launcher, and the variables in which it numbers its processes.
struct Launcher {
    rank: &'static str,
    count: &'static str,
    first: Option<&'static str>,
    step: Option<&'static str>,
    level: Level,
}

/// What a launcher numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// The processes of a job, each of which starts `iopath` once. The launcher that comes first has started the
    /// process: `mpirun` within a step of Slurm numbers its own processes.
    Processes,
    /// The jobs of an array, each of which may have several processes.
    Jobs,
}

/// The launchers. Of those of one level, the first counts.
const LAUNCHERS: [Launcher; 5] = [
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        count: "OMPI_COMM_WORLD_SIZE",
        first: None,
        step: None,
        level: Level::Processes,
    },
    Launcher { rank: "PMI_RANK", count: "PMI_SIZE", first: None, step: None, level: Level::Processes },
    Launcher {
        rank: "SLURM_PROCID",
        count: "SLURM_NTASKS",
        first: None,
        step: None,
        level: Level::Processes,
    },
    Launcher {
        rank: "SLURM_ARRAY_TASK_ID",
        count: "SLURM_ARRAY_TASK_COUNT",
        first: Some("SLURM_ARRAY_TASK_MIN"),
        step: Some("SLURM_ARRAY_TASK_STEP"),
        level: Level::Jobs,
    },
    // Kubernetes numbers the pods of an Indexed Job, and the manifest states their count.
    Launcher {
        rank: "JOB_COMPLETION_INDEX",
        count: "JOB_COMPLETIONS",
        first: None,
        step: None,
        level: Level::Jobs,
    },
];

/// The advice of each message.
const ADVICE: &str = "write the share as 1/4";

impl Shard {
    /// The share that the launcher of this process names in its environment.
    ///
    /// # Errors
    /// [`ShardError`]: no launcher is known, its numbers are no share, or two launchers number different things.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ShardError> {
        let error = |problem: String| ShardError { text: "auto".to_owned(), problem };
        let of_level = |level: Level| {
            let mut known = LAUNCHERS.iter().filter(|launcher| launcher.level == level);
            let launcher = known.find(|launcher| is_present(launcher, &variable));
            launcher.map(|launcher| Ok((launcher, share(launcher, &variable).map_err(error)?))).transpose()
        };
        match (of_level(Level::Processes)?, of_level(Level::Jobs)?) {
            (None, None) if variable(BATCH[0]).is_some() => Err(error(format!(
                "{} is that of a batch script, which runs once; start the shares with srun or an array, or {ADVICE}",
                BATCH[0]
            ))),
            (None, None) => {
                let names: Vec<&str> = LAUNCHERS.iter().map(|launcher| launcher.rank).collect();
                Err(error(format!("none of {} is set; {ADVICE}", names.join(", "))))
            }
            (Some((process, shard)), Some((job, shards))) if shard.count > 1 && shards.count > 1 => {
                Err(error(format!(
                    "{} is of {} processes and {} of {} jobs, and only one of them can number the shares; start one \
                     process in each job, or {ADVICE}",
                    process.rank, shard.count, job.rank, shards.count
                )))
            }
            (Some((_, shard)), Some((_, shards))) => Ok(if shards.count > 1 { shards } else { shard }),
            (Some((_, shard)), None) | (None, Some((_, shard))) => Ok(shard),
        }
    }

    /// Whether a cell belongs to the share.
    pub fn has(self, cell: u64) -> bool {
        cell % self.count == self.number - 1
    }
}

/// Slurm sets the number of a process also in a batch script, which runs once however many tasks the job has. A step of
/// `srun` has the second variable, too.
const BATCH: [&str; 3] = ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"];

/// Whether a launcher has started this process.
fn is_present(launcher: &Launcher, variable: &impl Fn(&str) -> Option<String>) -> bool {
    let [rank, step, count] = BATCH;
    let is_batch = launcher.rank == rank
        && variable("SLURM_JOB_ID").is_some()
        && variable(step).is_none()
        && variable(count).is_none_or(|count| count != "1");
    variable(launcher.rank).is_some() && !is_batch
}

/// The share that a launcher names.
fn share(launcher: &Launcher, variable: &impl Fn(&str) -> Option<String>) -> Result<Shard, String> {
    let number = |name: &str| -> Result<u64, String> {
        let text = variable(name).ok_or_else(|| {
            format!("{} is set, and {name}, the number of shares, is not; set it, or {ADVICE}", launcher.rank)
        })?;
        text.trim().parse().map_err(|_| format!("{name} is `{text}`, not a whole number"))
    };
    let or = |name: Option<&str>, default: u64| match name {
        Some(name) if variable(name).is_some() => number(name),
        _ => Ok(default),
    };
    let (rank, count) = (number(launcher.rank)?, number(launcher.count)?);
    let (first, step) = (or(launcher.first, 0)?, or(launcher.step, 1)?.max(1));
    let shard = Shard { number: (rank.saturating_sub(first) / step).saturating_add(1), count };
    if rank < first || shard.number > count {
        return Err(format!("{} is {rank}, but there are {count} shares", launcher.rank));
    }
    Ok(shard)
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, ShardError> {
        let parsed = text.split_once('/').and_then(|(number, count)| {
            Some(Self { number: number.parse().ok()?, count: count.parse().ok()? })
        });
        parsed.filter(|shard| shard.number >= 1 && shard.number <= shard.count).ok_or_else(|| ShardError {
            text: text.to_owned(),
            problem: "write the number of the share and the number of shares, such as 1/4, or auto"
                .to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auto(variables: &[(&str, &str)]) -> Result<Shard, String> {
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Shard::from_environment(find).map_err(|error| error.to_string())
    }

    #[test]
    fn a_share_is_a_number_and_a_count() {
        assert_eq!("2/4".parse::<Shard>().unwrap(), Shard { number: 2, count: 4 });
        for bad in ["0/4", "5/4", "4", "1/0", "a/b", ""] {
            let error = bad.parse::<Shard>().unwrap_err().to_string();
            assert!(error.contains("such as 1/4"), "{error}");
        }
    }

    const OPEN_MPI: [(&str, &str); 2] = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "4")];
    const STEP: [(&str, &str); 3] =
        [("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2"), ("SLURM_STEP_NUM_TASKS", "2")];
    const BATCH_SCRIPT: [(&str, &str); 3] =
        [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2"), ("SLURM_JOB_ID", "9")];
    const ARRAY: [(&str, &str); 4] = [
        ("SLURM_ARRAY_TASK_ID", "14"),
        ("SLURM_ARRAY_TASK_COUNT", "3"),
        ("SLURM_ARRAY_TASK_MIN", "10"),
        ("SLURM_ARRAY_TASK_STEP", "2"),
    ];
    const INDEXED_JOB: [(&str, &str); 2] = [("JOB_COMPLETION_INDEX", "7"), ("JOB_COMPLETIONS", "8")];

    #[test]
    fn launchers_number_their_shares() {
        let shard = |number, count| Ok(Shard { number, count });
        assert_eq!(auto(&OPEN_MPI), shard(1, 4));
        assert_eq!(auto(&[("PMI_RANK", "3"), ("PMI_SIZE", "4")]), shard(4, 4));
        assert_eq!(auto(&STEP), shard(2, 2));
        assert_eq!(auto(&STEP[..2]), shard(2, 2), "without the variables of a job, it is a step");
        assert_eq!(auto(&ARRAY), shard(3, 3));
        assert!(auto(&ARRAY[..3]).unwrap_err().contains("there are 3 shares"), "a step of 1 by default");
        assert_eq!(auto(&INDEXED_JOB), shard(8, 8));
    }

    #[test]
    fn the_launcher_that_started_the_process_counts() {
        let shard = |number, count| Ok(Shard { number, count });
        let with = |sets: &[&[(&'static str, &'static str)]]| auto(&sets.concat());
        assert_eq!(with(&[&STEP, &OPEN_MPI]), shard(1, 4), "mpirun in a step of Slurm");
        assert_eq!(with(&[&STEP, &[("PMI_RANK", "1"), ("PMI_SIZE", "2")]]), shard(2, 2), "srun --mpi=pmi2");
        assert_eq!(with(&[&BATCH_SCRIPT, &OPEN_MPI]), shard(1, 4), "mpirun in a batch script");
        assert_eq!(with(&[&BATCH_SCRIPT, &ARRAY]), shard(3, 3), "a task of an array with two processors");
        let plain = [("SLURM_PROCID", "0"), ("SLURM_JOB_ID", "9")];
        assert_eq!(
            with(&[&plain, &ARRAY]),
            shard(3, 3),
            "sbatch --array without --ntasks sets no SLURM_NTASKS"
        );
        let one = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1"), ("SLURM_JOB_ID", "9")];
        assert_eq!(with(&[&one, &ARRAY]), shard(3, 3));
        assert_eq!(with(&[&one]), shard(1, 1));
        let single = [("JOB_COMPLETION_INDEX", "0"), ("JOB_COMPLETIONS", "1")];
        assert_eq!(with(&[&OPEN_MPI, &single]), shard(1, 4), "mpirun in the only pod of a job");
        for (sets, named) in [
            (&[&STEP[..], &ARRAY][..], ["SLURM_PROCID is of 2 processes", "SLURM_ARRAY_TASK_ID of 3 jobs"]),
            (
                &[&OPEN_MPI, &ARRAY],
                ["OMPI_COMM_WORLD_RANK is of 4 processes", "SLURM_ARRAY_TASK_ID of 3 jobs"],
            ),
            (&[&OPEN_MPI, &INDEXED_JOB], ["OMPI_COMM_WORLD_RANK", "JOB_COMPLETION_INDEX of 8 jobs"]),
        ] {
            let message = with(sets).unwrap_err();
            assert!(named.iter().all(|named| message.contains(named)), "{message}");
        }
    }

    #[test]
    fn numbers_that_are_no_share_are_refused() {
        for (variables, message) in [
            (&[][..], "none of OMPI_COMM_WORLD_RANK"),
            (&BATCH_SCRIPT, "SLURM_PROCID is that of a batch script"),
            (&[("PMI_RANK", "4"), ("PMI_SIZE", "4")], "PMI_RANK is 4, but there are 4 shares"),
            (&[("PMI_RANK", "x"), ("PMI_SIZE", "4")], "PMI_RANK is `x`"),
            (&[("OMPI_COMM_WORLD_RANK", "1")], "OMPI_COMM_WORLD_SIZE, the number of shares, is not"),
            (&[("PMI_RANK", "1")], "PMI_SIZE, the number of shares, is not"),
            (&[("SLURM_PROCID", "1")], "SLURM_NTASKS, the number of shares, is not"),
            (&[("SLURM_ARRAY_TASK_ID", "1")], "SLURM_ARRAY_TASK_COUNT, the number of shares, is not"),
            (&[("JOB_COMPLETION_INDEX", "7")], "JOB_COMPLETIONS, the number of shares, is not"),
            (&[("PMI_RANK", "18446744073709551615"), ("PMI_SIZE", "4")], "there are 4 shares"),
            (&[("PMI_RANK", "0"), ("PMI_SIZE", "0")], "there are 0 shares"),
        ] {
            let refused = auto(variables).unwrap_err();
            assert!(refused.contains(message), "{variables:?}: {refused}");
        }
    }

    #[test]
    fn each_cell_belongs_to_one_share() {
        for cell in 0..20 {
            let shares = (1..=3).filter(|number| Shard { number: *number, count: 3 }.has(cell)).count();
            assert_eq!(shares, 1, "{cell}");
        }
    }
}
