//! The protocol of the ranks: the common start of each repetition, its end, the exchange of its measurements, and the
//! end of all after the failure of one. Rank 0 is the hub: ranks report to it, and it orders the others.
//!
//! Several workloads one after another, some of which a rank may refuse, are in `team/campaign.rs`.
//!
//! A rank that waits for others also listens for orders, so a failure reaches it. It waits on the lane of the end only
//! afterwards, because the barriers of the lane of work no longer match.

mod campaign;

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use iopath_bench::peers::{Go, PeerRepeat, Peers};
use iopath_bench::share::{Layout, Share};
use iopath_bench::{BenchError, Interruption};
use iopath_report::result::Report;

use super::clock::offsets;
use super::communicator::{Communicator, Lane, Tag};
use super::hello::{Hello, Names, refusal};
use super::merge::{Merge, RankEnd, Repetition};
use super::plan::{Plan, Stop};
use super::wire;

/// The time after a failure in which all ranks must come to the end.
const PATIENCE: Duration = Duration::from_secs(8);

/// Round trips for an offset after each repetition.
const ROUNDS: u32 = 10;

/// The longest text of a failure: messages of this size need no buffer of the receiver.
const TEXT_MAX: usize = 1000;

/// The first byte of a report or order.
const ENDED: u8 = 1;
const FAILED: u8 = 2;

/// The first byte of an exchange.
const CONTENT: u8 = 1;
const REFUSED: u8 = 2;

/// The ranks of a measurement.
#[derive(Debug)]
pub struct Team {
    ranks: Box<dyn Communicator>,
    /// The host of each rank.
    hosts: Vec<String>,
    /// The facts of each rank; on rank 0 only.
    hellos: Vec<Hello>,
    plan: Cell<Plan>,
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the present repetition, over all groups of jobs.
    sequence: u32,
    /// Whether the first rank of this repetition has ended, and the others end with it.
    ends: bool,
    /// The failure of another rank.
    failure: Option<String>,
    /// The last workload that a rank has refused: all ranks know it.
    refusal: Option<String>,
    /// The number of the series of the next repetitions.
    series: usize,
    /// The complete repetitions, on rank 0.
    repetitions: Vec<Repetition>,
}

/// The end of a measurement on this rank.
#[derive(Debug)]
pub struct Outcome {
    /// The merged results; on rank 0 only, and none without a complete repetition.
    pub report: Option<Report>,
    /// The failure with the name of its rank; on rank 0, or on the rank itself if rank 0 does not know it.
    pub failure: Option<String>,
    /// Whether all ranks came to the end: otherwise the caller must abort the program.
    pub is_complete: bool,
}

impl Team {
    /// Exchanges the facts of all ranks.
    ///
    /// # Errors
    /// The ranks differ. The message is on rank 0 only. Without any message: a signal came.
    pub fn meet(ranks: Box<dyn Communicator>, hello: &Hello, plan: Plan) -> Result<Self, Option<String>> {
        let own = serde_json::to_vec(hello).expect("JSON can represent all fields");
        let all = ranks.gather(Lane::End, own).ok_or(None)?;
        let hellos: Vec<Option<Hello>> = all.iter().map(|bytes| serde_json::from_slice(bytes).ok()).collect();
        let unreadable = hellos.iter().position(Option::is_none).map(|rank| {
            format!("the facts of rank {rank} are not those of this version; install the same version on all hosts")
        });
        let hellos: Vec<Hello> = hellos.into_iter().flatten().collect();
        let problem = unreadable.or_else(|| refusal(&hellos));
        let hosts: Vec<&String> = hellos.iter().map(|hello| &hello.host).collect();
        let verdict = serde_json::to_vec(&(&problem, hosts)).expect("JSON can represent all fields");
        let verdict = ranks.broadcast(Lane::End, verdict).ok_or(None)?;
        match serde_json::from_slice::<(Option<String>, Vec<String>)>(&verdict) {
            Ok((None, hosts)) if hosts.len() == ranks.size() as usize => {
                Ok(Self { ranks, hosts, hellos, plan: Cell::new(plan), state: RefCell::default() })
            }
            _ => Err(problem.filter(|_| ranks.rank() == 0)),
        }
    }

    /// The number of this rank.
    pub fn rank(&self) -> u32 {
        self.ranks.rank()
    }

    /// How the ranks measure together.
    pub fn plan(&self) -> Plan {
        self.plan.get()
    }

    /// Replaces the plan, on all ranks: that of a sweep which is continued is in its file.
    pub fn set_plan(&self, plan: Plan) {
        self.plan.set(plan);
    }

    /// The names of this rank.
    pub fn names(&self) -> Names {
        Names::of(self.rank(), &self.hosts)
    }

    /// Whether this rank and rank 0 are on one host.
    pub fn is_on_host_of_rank_0(&self) -> bool {
        self.hosts[self.rank() as usize] == self.hosts[0]
    }

    /// The share of this rank in the target.
    ///
    /// # Errors
    /// In words: there is no order in which each rank accesses the share of another host.
    pub fn share(&self) -> Result<Share, String> {
        let (rank, count) = (self.rank(), self.ranks.size());
        let layout = self.plan().shared.unwrap_or(Layout::Whole);
        let distance = if self.plan().reordered { distance(&self.hosts)? } else { 0 };
        Ok(Share { number: (rank + distance) % count, count, layout })
    }

    /// Ends the measurement on all ranks. `failure` is that of this rank.
    pub fn finish(&self, report: Option<Report>, failure: Option<String>) -> Outcome {
        let mut state = self.state.borrow_mut();
        let is_peers = failure.is_some() && failure == state.failure;
        let agreed = failure.clone().filter(|_| failure == state.refusal);
        state.repetitions.sort_by_key(|repetition| repetition.series);
        drop(state);
        let own = failure.filter(|_| !is_peers && agreed.is_none() && !Interruption::is_requested());
        if let Some(text) = &own {
            self.fail(text);
        }
        let begun = Instant::now();
        let is_together = !Interruption::is_requested()
            && self.ranks.barrier(Lane::End, &mut || {
                self.listen();
                let has_failed = own.is_some() || self.state.borrow().failure.is_some();
                Interruption::is_requested() || (has_failed && begun.elapsed() > PATIENCE)
            });
        let gathered = is_together.then(|| {
            let end = RankEnd::of(report.as_ref(), own.clone());
            self.ranks.gather(Lane::End, serde_json::to_vec(&end).expect("JSON can represent all fields"))
        });
        let gathered = gathered.flatten();
        let is_complete = gathered.is_some();
        if self.rank() > 0 {
            return Outcome { report: None, failure: own.filter(|_| !is_complete), is_complete };
        }
        let ends: Option<Vec<RankEnd>> =
            gathered.and_then(|ends| ends.iter().map(|bytes| serde_json::from_slice(bytes).ok()).collect());
        let named = |rank: usize, text: &String| format!("rank {rank} on host {}: {text}", self.hosts[rank]);
        let of_ends =
            ends.iter().flatten().enumerate().filter_map(|(rank, end)| Some((rank, end.failure.as_ref()?)));
        let failed: Vec<_> = of_ends.collect();
        let failure = match &failed[..] {
            [] => self.state.borrow().failure.clone().or(own.as_ref().map(|text| named(0, text))).or(agreed),
            [(rank, text)] => Some(named(*rank, text)),
            [(rank, text), others @ ..] => {
                Some(format!("{} ({} more ranks failed)", named(*rank, text), others.len()))
            }
        };
        let state = self.state.borrow();
        let report = report
            .and_then(|report| self.merge(&state.repetitions, ends.as_deref()).report(report))
            .map(|report| Report { failure: failure.clone().or(report.failure.clone()), ..report });
        Outcome { report, failure, is_complete }
    }

    fn merge<'a>(&'a self, repetitions: &'a [Repetition], ends: Option<&'a [RankEnd]>) -> Merge<'a> {
        Merge { plan: self.plan(), hosts: &self.hosts, hellos: &self.hellos, repetitions, ends }
    }

    /// Waits until rank 0 has shown the results, which may take long on a terminal. All ranks came to the end before,
    /// and the launcher ends them if one has died since.
    pub fn close(&self) {
        self.ranks.barrier(Lane::End, &mut || Interruption::is_requested());
    }

    /// Reports the failure of this rank.
    fn fail(&self, text: &str) {
        // A character at the end may be cut: the reader replaces it.
        let text = &text.as_bytes()[..text.len().min(TEXT_MAX)];
        if self.rank() == 0 {
            let text = String::from_utf8_lossy(text);
            self.order(FAILED, format!("rank 0 on host {}: {text}", self.hosts[0]).as_bytes());
        } else {
            self.ranks.send(0, Tag::Report, &message(FAILED, text));
        }
    }

    /// Sends an order to all other ranks.
    fn order(&self, kind: u8, content: &[u8]) {
        for rank in 1..self.ranks.size() {
            self.ranks.send(rank, Tag::Order, &message(kind, content));
        }
    }

    /// Handles the messages that have arrived.
    fn listen(&self) {
        let tag = if self.rank() == 0 { Tag::Report } else { Tag::Order };
        while let Some((from, bytes)) = self.ranks.poll(tag) {
            match bytes.split_first() {
                Some((&ENDED, content)) => self.handle_end(content),
                Some((&FAILED, content)) => {
                    let text = String::from_utf8_lossy(content).into_owned();
                    let host = &self.hosts[from as usize];
                    let text =
                        if self.rank() == 0 { format!("rank {from} on host {host}: {text}") } else { text };
                    self.handle_failure(text);
                }
                _ => {}
            }
        }
    }

    /// A rank has ended the repetition of this number.
    fn handle_end(&self, content: &[u8]) {
        let mut state = self.state.borrow_mut();
        // A report of an earlier repetition may arrive late.
        if *content != state.sequence.to_le_bytes() || state.ends {
            return;
        }
        state.ends = true;
        if self.rank() == 0 {
            self.order(ENDED, content);
        }
    }

    fn handle_failure(&self, text: String) {
        let mut state = self.state.borrow_mut();
        if state.failure.is_none() {
            if self.rank() == 0 {
                self.order(FAILED, text.as_bytes());
            }
            state.failure = Some(text);
        }
    }

    /// Waits for the other ranks on the lane of work.
    fn wait(&self) -> Result<(), BenchError> {
        let is_together = self.ranks.barrier(Lane::Work, &mut || {
            self.listen();
            Interruption::is_requested() || self.state.borrow().failure.is_some()
        });
        if is_together { Ok(()) } else { Err(self.failure().unwrap_or(BenchError::Interrupted)) }
    }

    /// The bytes of all ranks on rank 0, without their first one; nothing on the others. A rank that refuses its
    /// workload sends [`REFUSED`] and the reason instead of [`CONTENT`], at any exchange of the others: the workload
    /// is then refused on all of them.
    fn exchange(&self, kind: u8, content: &[u8]) -> Result<Vec<Vec<u8>>, BenchError> {
        self.wait()?;
        let mut all = self.ranks.gather(Lane::Work, message(kind, content)).ok_or(BenchError::Interrupted)?;
        let is_refused = |bytes: &Vec<u8>| bytes.first() == Some(&REFUSED);
        let reason = all.iter().position(is_refused).map(|rank| {
            format!("rank {rank} on host {}: {}", self.hosts[rank], String::from_utf8_lossy(&all[rank][1..]))
        });
        let reason = reason.unwrap_or_default().into_bytes();
        let reason = self.ranks.broadcast(Lane::Work, reason).ok_or(BenchError::Interrupted)?;
        if reason.is_empty() {
            for bytes in &mut all {
                drop(bytes.drain(..1));
            }
            return Ok(all);
        }
        let reason = String::from_utf8_lossy(&reason).into_owned();
        self.state.borrow_mut().refusal = Some(reason.clone());
        Err(BenchError::PeerRefused(reason))
    }
}

impl Peers for Team {
    fn start(&self) -> Result<(), BenchError> {
        {
            let mut state = self.state.borrow_mut();
            state.sequence += 1;
            state.ends = false;
        }
        self.exchange(CONTENT, &[])?;
        self.ranks.start_together(Lane::Work).ok_or(BenchError::Interrupted)
    }

    fn poll(&self) -> Go {
        self.listen();
        let state = self.state.borrow();
        match (&state.failure, state.ends) {
            (Some(_), _) => Go::Failed,
            (None, true) => Go::End,
            (None, false) => Go::On,
        }
    }

    fn ended(&self) {
        if self.plan().stop != Stop::First || self.state.borrow().ends {
            return;
        }
        let sequence = self.state.borrow().sequence.to_le_bytes();
        if self.rank() == 0 {
            self.handle_end(&sequence);
        } else {
            self.ranks.send(0, Tag::Report, &message(ENDED, &sequence));
        }
    }

    fn seconds(&self) -> f64 {
        self.ranks.seconds()
    }

    fn repeated(&self, repeat: PeerRepeat) -> Result<(), BenchError> {
        let all = self.exchange(CONTENT, &wire::encode(&repeat))?;
        let offsets = offsets(&*self.ranks, ROUNDS).ok_or(BenchError::Interrupted)?;
        if self.rank() > 0 {
            return Ok(());
        }
        let mut ranks = Vec::with_capacity(all.len());
        for (rank, bytes) in all.iter().enumerate() {
            let decoded = wire::decode(bytes).filter(|one| {
                (one.figures.number, one.figures.parts.len()) == (repeat.number, repeat.parts.len())
            });
            let host = &self.hosts[rank];
            ranks.push(decoded.ok_or_else(|| {
                BenchError::Peer(format!(
                    "rank {rank} on host {host} has sent no measurements of repetition {}",
                    repeat.number
                ))
            })?);
        }
        let mut state = self.state.borrow_mut();
        let series = state.series;
        state.repetitions.push(Repetition { series, ranks, offsets });
        Ok(())
    }

    fn failure(&self) -> Option<BenchError> {
        self.state.borrow().failure.clone().map(BenchError::Peer)
    }
}

fn message(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind], content].concat()
}

/// The smallest distance between ranks at which no rank is on the host of the other.
fn distance(hosts: &[String]) -> Result<u32, String> {
    let count = hosts.len();
    let is_other = |distance: &usize| (0..count).all(|rank| hosts[rank] != hosts[(rank + distance) % count]);
    (1..count).find(is_other).map(|distance| distance as u32).ok_or_else(|| {
        "--reorder needs ranks on several hosts, none of which has more than half of them; start the ranks on more hosts, \
         or remove --reorder"
            .to_owned()
    })
}

#[cfg(test)]
mod own_tests {
    use super::*;

    #[test]
    fn a_reordered_rank_never_has_the_share_of_its_own_host() {
        let hosts = |names: &str| names.chars().map(String::from).collect::<Vec<_>>();
        assert_eq!(distance(&hosts("aabb")), Ok(2));
        assert_eq!(distance(&hosts("abab")), Ok(1));
        assert_eq!(distance(&hosts("aabbcc")), Ok(2));
        assert!(distance(&hosts("aaab")).unwrap_err().contains("--reorder"));
        assert!(distance(&hosts("a")).is_err());
    }
}
