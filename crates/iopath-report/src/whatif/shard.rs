//! Parts of a study: the cells of one of several processes. The launchers of clusters name the part in the environment.

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

/// The variables of a launcher: rank, number of ranks, first rank, distance of ranks.
struct Launcher {
    rank: &'static str,
    count: &'static str,
    first: Option<&'static str>,
    step: Option<&'static str>,
}

/// The launchers, in the order in which they are tried: a task of an array has also a rank within its job.
const LAUNCHERS: [Launcher; 5] = [
    Launcher { rank: "OMPI_COMM_WORLD_RANK", count: "OMPI_COMM_WORLD_SIZE", first: None, step: None },
    Launcher { rank: "PMI_RANK", count: "PMI_SIZE", first: None, step: None },
    Launcher {
        rank: "SLURM_ARRAY_TASK_ID",
        count: "SLURM_ARRAY_TASK_COUNT",
        first: Some("SLURM_ARRAY_TASK_MIN"),
        step: Some("SLURM_ARRAY_TASK_STEP"),
    },
    Launcher { rank: "SLURM_PROCID", count: "SLURM_NTASKS", first: None, step: None },
    // Kubernetes numbers the pods of an Indexed Job, and the manifest states their count.
    Launcher { rank: "JOB_COMPLETION_INDEX", count: "JOB_COMPLETIONS", first: None, step: None },
];

impl Shard {
    /// The share that the launcher of this process names in its environment.
    ///
    /// # Errors
    /// [`ShardError`]: no launcher is known, or its numbers are no share.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ShardError> {
        let error = |problem: String| ShardError { text: "auto".to_owned(), problem };
        let Some(launcher) = LAUNCHERS.iter().find(|launcher| variable(launcher.rank).is_some()) else {
            let names: Vec<&str> = LAUNCHERS.iter().map(|launcher| launcher.rank).collect();
            return Err(error(format!("none of {} is set; write the share as 1/4", names.join(", "))));
        };
        let number = |name: &str| -> Result<u64, ShardError> {
            let text =
                variable(name).ok_or_else(|| error(format!("{name} is not set; write the share as 1/4")))?;
            text.trim().parse().map_err(|_| error(format!("{name} is `{text}`, not a whole number")))
        };
        let or = |name: Option<&str>, default: u64| match name {
            Some(name) if variable(name).is_some() => number(name),
            _ => Ok(default),
        };
        let (rank, count) = (number(launcher.rank)?, number(launcher.count)?);
        let (first, step) = (or(launcher.first, 0)?, or(launcher.step, 1)?.max(1));
        let shard = Self { number: rank.saturating_sub(first) / step + 1, count };
        if rank < first || shard.number > count {
            return Err(error(format!("{} is {rank}, but there are {count} shares", launcher.rank)));
        }
        Ok(shard)
    }

    /// Whether a cell belongs to the share.
    pub fn has(self, cell: u64) -> bool {
        cell % self.count == self.number - 1
    }
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

    #[test]
    fn launchers_number_their_shares() {
        let shard = |number, count| Ok(Shard { number, count });
        assert_eq!(auto(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "4")]), shard(1, 4));
        assert_eq!(auto(&[("PMI_RANK", "3"), ("PMI_SIZE", "4")]), shard(4, 4));
        assert_eq!(auto(&[("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2")]), shard(2, 2));
        assert_eq!(auto(&[("JOB_COMPLETION_INDEX", "7"), ("JOB_COMPLETIONS", "8")]), shard(8, 8));
        assert!(auto(&[("JOB_COMPLETION_INDEX", "7")]).unwrap_err().contains("JOB_COMPLETIONS is not set"));
        let array = [
            ("SLURM_ARRAY_TASK_ID", "14"),
            ("SLURM_ARRAY_TASK_COUNT", "3"),
            ("SLURM_ARRAY_TASK_MIN", "10"),
            ("SLURM_ARRAY_TASK_STEP", "2"),
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "1"),
        ];
        assert_eq!(auto(&array), shard(3, 3));
        for (variables, message) in [
            (&[][..], "OMPI_COMM_WORLD_RANK"),
            (&[("PMI_RANK", "4"), ("PMI_SIZE", "4")], "PMI_RANK is 4, but there are 4 shares"),
            (&[("PMI_RANK", "x"), ("PMI_SIZE", "4")], "PMI_RANK is `x`"),
            (&[("PMI_RANK", "1")], "PMI_SIZE is not set"),
        ] {
            assert!(auto(variables).unwrap_err().contains(message), "{variables:?}");
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
