//! The facts of a rank before the first I/O, and the refusal of ranks that differ. Also the names of a rank in targets
//! and files.

use iopath_report::result::Host;
use serde::{Deserialize, Serialize};

/// The facts of a rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the program.
    pub version: String,
    /// The arguments, before the names of the rank are filled in.
    pub arguments: Vec<String>,
    /// The job file, before the names of the rank are filled in; empty without one.
    pub job_file: String,
    /// Whether the clock of its results is virtual time.
    pub is_virtual: bool,
    /// The name of the host.
    pub host: String,
    /// The machine.
    pub machine: Host,
}

/// Why ranks cannot measure together; none if they can. `hellos` are those of all ranks in their order.
pub(super) fn refusal(hellos: &[Hello]) -> Option<String> {
    let first = hellos.first()?;
    let name = |rank: usize| format!("rank {rank} on host {}", hellos[rank].host);
    let differs = |of: &dyn Fn(&Hello) -> bool| hellos.iter().position(of);
    if let Some(rank) = differs(&|hello| hello.version != first.version) {
        return Some(format!(
            "{} is iopath {}, and {} is {}; install the same version on all hosts",
            name(rank),
            hellos[rank].version,
            name(0),
            first.version
        ));
    }
    if let Some(rank) = differs(&|hello| hello.is_virtual != first.is_virtual) {
        let clock = |is_virtual| if is_virtual { "virtual" } else { "real" };
        return Some(format!(
            "{} measures in {} time, and {} in {} time; use targets of one kind on all ranks",
            name(rank),
            clock(hellos[rank].is_virtual),
            name(0),
            clock(first.is_virtual)
        ));
    }
    if first.is_virtual {
        return Some(
            "a model has a virtual time of its own in each rank, so ranks cannot share it; serve it (iopath serve \
             model:NAME) and use the address of the export as the target"
                .to_owned(),
        );
    }
    if let Some(rank) = differs(&|hello| hello.arguments != first.arguments) {
        let [theirs, ours] = difference(&hellos[rank].arguments, &first.arguments);
        return Some(format!(
            "{} has the argument `{theirs}`, and {} has `{ours}`; start all ranks with one command line ({{rank}}, {{host}} \
             and {{local_rank}} in the names of targets and files differ by rank)",
            name(rank),
            name(0)
        ));
    }
    let rank = differs(&|hello| hello.job_file != first.job_file)?;
    Some(format!("{} reads another job file than {}; copy one file to all hosts", name(rank), name(0)))
}

/// The first arguments that differ; empty beyond the end.
fn difference<'a>(a: &'a [String], b: &'a [String]) -> [&'a str; 2] {
    let at = (0..a.len().max(b.len())).find(|index| a.get(*index) != b.get(*index)).unwrap_or(0);
    [a, b].map(|words| words.get(at).map_or("", String::as_str))
}

/// The names of a rank, which replace placeholders in targets and files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// Its number.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Its number among the ranks of the host.
    pub local_rank: u32,
}

impl Names {
    /// The names of a rank, from the hosts of all ranks.
    pub(super) fn of(rank: u32, hosts: &[String]) -> Self {
        let host = hosts[rank as usize].clone();
        let local_rank = hosts[..rank as usize].iter().filter(|other| **other == host).count() as u32;
        Self { rank, host, local_rank }
    }

    /// The text with the names in place of `{rank}`, `{host}` and `{local_rank}`.
    pub fn fill(&self, text: &str) -> String {
        text.replace("{rank}", &self.rank.to_string())
            .replace("{local_rank}", &self.local_rank.to_string())
            .replace("{host}", &self.host)
    }

    /// Whether the text has a name that differs between ranks of one host.
    pub fn is_own(text: &str) -> bool {
        text.contains("{rank}") || text.contains("{local_rank}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::tests::hello;

    #[test]
    fn ranks_that_differ_are_refused_with_their_names_and_the_values() {
        let same = [hello("a"), hello("b")];
        assert_eq!(refusal(&same), None);
        let with = |change: fn(&mut Hello)| {
            let mut hellos = vec![hello("a"), hello("b"), hello("c")];
            change(&mut hellos[2]);
            refusal(&hellos).unwrap()
        };
        let message = with(|hello| hello.version = "0.0.9".to_owned());
        assert!(
            message.starts_with("rank 2 on host c is iopath 0.0.9, and rank 0 on host a is "),
            "{message}"
        );
        let message = with(|hello| hello.arguments[1] = "--bs=8k".to_owned());
        assert!(message.contains("`--bs=8k`, and rank 0 on host a has `--bs=4k`"), "{message}");
        let message = with(|hello| hello.arguments.push("--warm".to_owned()));
        assert!(message.contains("`--warm`, and rank 0 on host a has ``"), "{message}");
        let message = with(|hello| hello.is_virtual = true);
        assert!(message.contains("rank 2 on host c measures in virtual time"), "{message}");
        let message = with(|hello| hello.job_file = "[j]".to_owned());
        assert!(message.contains("another job file"), "{message}");
        let modelled = [Hello { is_virtual: true, ..hello("a") }, Hello { is_virtual: true, ..hello("a") }];
        assert!(refusal(&modelled).unwrap().contains("iopath serve"));
    }

    #[test]
    fn names_replace_their_placeholders() {
        let hosts = ["a", "b", "a", "b"].map(str::to_owned);
        let names = Names::of(2, &hosts);
        assert_eq!(names.fill("/data/{host}-{local_rank}/{rank}.{rank}{x}"), "/data/a-1/2.2{x}");
        assert_eq!(Names::of(1, &hosts).local_rank, 0);
        assert!(Names::is_own("f-{rank}") && Names::is_own("f-{local_rank}") && !Names::is_own("f-{host}"));
    }
}
