//! Pairs the runs of both sides: runs with equal conditions, and repetitions in several files. Does not compare values.

use std::collections::{BTreeSet, HashMap, HashSet};

use iopath_report::stats::trimmed::Location;

use super::data::{DIRECT, GROUP, METRICS, Run, TARGET, differences};
use super::error::CompareError;

/// The name that permits every difference.
const ALL: &str = "all";

/// The pairs of runs, and the workloads without a partner.
#[derive(Debug)]
pub(super) struct Matched {
    pub(super) pairs: Vec<[Run; 2]>,
    pub(super) unmatched: [Vec<String>; 2],
}

/// Pairs the runs of two sides, each a list of files. A difference in a fact outside of `vary` is refused.
pub(super) fn pair_up(
    sides: [&[Vec<Run>]; 2],
    names: [&str; 2],
    vary: &[String],
) -> Result<Matched, CompareError> {
    let vary = permitted(sides, vary)?;
    let keys = distinguishing(sides, &vary);
    let [mut files_a, mut files_b] = sides.map(<[_]>::to_vec);
    let keys = with_groups(&mut [&mut files_a, &mut files_b], keys);
    let [a, b] = [merge_files(&files_a, names[0])?, merge_files(&files_b, names[1])?];
    if let ([a], [b]) = (&a[..], &b[..]) {
        check(a, b, &vary)?;
        return Ok(Matched { pairs: vec![[a.clone(), b.clone()]], unmatched: Default::default() });
    }
    unambiguous(&a, names[0], &keys)?;
    let partners = unambiguous(&b, names[1], &keys)?;
    let (mut pairs, mut left_a, mut is_paired) = (Vec::new(), Vec::new(), vec![false; b.len()]);
    for run in a {
        match partners.get(&run.signature(&keys)) {
            Some(at) => {
                check(&run, &b[*at], &vary)?;
                is_paired[*at] = true;
                pairs.push([run, b[*at].clone()]);
            }
            None => left_a.push(run),
        }
    }
    let left_b: Vec<Run> =
        b.into_iter().zip(is_paired).filter(|(_, is_paired)| !is_paired).map(|(run, _)| run).collect();
    if pairs.is_empty() {
        // The most similar runs show the cause.
        let all = left_a.iter().flat_map(|a| left_b.iter().map(move |b| (a, b)));
        let nearest = all.min_by_key(|(a, b)| refused(a, b, &vary).len());
        let (a, b) = nearest.expect("each side has a run");
        check(a, b, &vary)?;
        return Err(CompareError::Selection(
            "no run of A has a partner in B with the same conditions; select runs with FILE@KEY=VALUE"
                .to_owned(),
        ));
    }
    let workloads = |runs: &[Run]| runs.iter().map(Run::workload).collect();
    Ok(Matched { pairs, unmatched: [workloads(&left_a), workloads(&left_b)] })
}

/// The conditions that both sides state and that distinguish their workloads. A condition that one of two formats lacks
/// is not compared.
fn distinguishing(sides: [&[Vec<Run>]; 2], vary: &[String]) -> BTreeSet<String> {
    let [a, b] = sides.map(|side| {
        let runs = side.iter().flatten();
        runs.flat_map(|run| run.distinguishing().map(str::to_owned)).collect::<BTreeSet<String>>()
    });
    let tools: BTreeSet<_> = sides.into_iter().flatten().flatten().map(|run| run.fact("tool")).collect();
    // fio and iopath name the files that they make differently.
    let is_named = |key: &str| key != TARGET || tools.len() == 1;
    a.intersection(&b).filter(|key| !vary.contains(key) && is_named(key)).cloned().collect()
}

/// Makes the group a condition of the jobs of both sides that are equal otherwise in a file.
fn with_groups(sides: &mut [&mut Vec<Vec<Run>>; 2], mut keys: BTreeSet<String>) -> BTreeSet<String> {
    let mut twins = HashSet::new();
    for file in sides.iter().flat_map(|side| side.iter()) {
        let mut known = HashSet::new();
        twins.extend(file.iter().map(|run| run.signature(&keys)).filter(|one| !known.insert(one.clone())));
    }
    let runs = sides.iter_mut().flat_map(|side| side.iter_mut()).flatten();
    for run in runs.filter(|run| twins.contains(&run.signature(&keys))) {
        if let Some(group) = run.fact(GROUP).map(str::to_owned) {
            run.replace(GROUP, &group);
        }
    }
    if !twins.is_empty() {
        keys.insert(GROUP.to_owned());
    }
    keys
}

/// The facts that may differ. An unknown name is an error: it would permit nothing.
fn permitted(sides: [&[Vec<Run>]; 2], vary: &[String]) -> Result<Vec<String>, CompareError> {
    let runs = || sides.into_iter().flatten().flatten();
    let known: BTreeSet<&str> = runs()
        .flat_map(|run| run.facts().iter().filter(|fact| fact.is_identity).map(|fact| fact.key.as_str()))
        .collect();
    if vary.iter().any(|key| key == ALL) {
        return Ok(known.into_iter().map(str::to_owned).collect());
    }
    if let Some(key) = vary.iter().find(|key| !known.contains(key.as_str())) {
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        return Err(CompareError::Selection(format!(
            "--vary {key}: the results have no such condition; use {ALL} or some of: {known}"
        )));
    }
    let mut vary = vary.to_vec();
    if vary.iter().any(|key| key == "path") {
        // The path determines it.
        vary.push(DIRECT.to_owned());
    }
    Ok(vary)
}

fn refused(a: &Run, b: &Run, vary: &[String]) -> Vec<(String, String, String)> {
    let different = differences(a, b).into_iter().filter(|one| one.is_identity && !vary.contains(&one.key));
    different
        .map(|one| {
            let [a, b] = one.values;
            (one.key, a, b)
        })
        .collect()
}

fn check(a: &Run, b: &Run, vary: &[String]) -> Result<(), CompareError> {
    let differences = refused(a, b, vary);
    if differences.is_empty() { Ok(()) } else { Err(CompareError::Different { differences }) }
}

/// The position of each run by its conditions. Two runs of one side with equal conditions could both be the partner of
/// a run.
fn unambiguous(
    runs: &[Run],
    name: &str,
    keys: &BTreeSet<String>,
) -> Result<HashMap<String, usize>, CompareError> {
    let mut known = HashMap::new();
    for (index, run) in runs.iter().enumerate() {
        let Some(other) = known.insert(run.signature(keys), index) else { continue };
        let keys: Vec<String> = differences(run, &runs[other]).into_iter().map(|one| one.key).collect();
        return Err(CompareError::Selection(if keys.is_empty() {
            format!("{name} has the same workload twice: {}", run.workload())
        } else {
            format!("{name} has runs that differ only in {}; select one with FILE@KEY=VALUE", keys.join(", "))
        }));
    }
    Ok(known)
}

/// The runs of one side. Each of several files is one repetition: the repetitions within a file share its scratch file,
/// its place on the disk and its moment, so they are not independent.
fn merge_files(files: &[Vec<Run>], name: &str) -> Result<Vec<Run>, CompareError> {
    let [first, others @ ..] = files else { return Ok(Vec::new()) };
    if others.is_empty() {
        return Ok(first.clone());
    }
    let keys = files.iter().flatten().flat_map(|run| run.distinguishing().map(str::to_owned)).collect();
    let partners = |run: &Run| -> Result<Run, CompareError> {
        let mut same = vec![run];
        for file in others {
            let signature = run.signature(&keys);
            let mut found = file.iter().filter(|other| other.signature(&keys) == signature);
            match (found.next(), found.next()) {
                (Some(one), None) if refused(run, one, &[]).is_empty() => same.push(one),
                (Some(_), None) | (None, _) => return Err(not_a_repetition(run, file, name)),
                _ => {
                    return Err(CompareError::Selection(format!(
                        "a file of {name} has the same workload twice"
                    )));
                }
            }
        }
        Ok(join(&same))
    };
    first.iter().map(partners).collect()
}

fn not_a_repetition(run: &Run, file: &[Run], name: &str) -> CompareError {
    let nearest = file.iter().map(|other| refused(run, other, &[])).min_by_key(Vec::len).unwrap_or_default();
    let keys: Vec<String> = nearest.into_iter().map(|(key, a, b)| format!("{key} ({a}, {b})")).collect();
    let cause = if keys.is_empty() { String::new() } else { format!(": {}", keys.join(", ")) };
    CompareError::Selection(format!("the files {name} are not repetitions of the same workloads{cause}"))
}

/// Executions of one workload as the repetitions of one run: each is represented by the trimmed geometric mean of its
/// values.
pub(super) fn join(executions: &[&Run]) -> Run {
    let mut joined = executions[0].clone();
    joined.samples.clear();
    for metric in METRICS {
        let mean = |run: &&Run| {
            let values = run.values(metric)?;
            let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
            Location::trimmed(&logs).map(|location| location.mean.exp())
        };
        joined.sample(metric, executions.iter().map(mean).collect());
    }
    joined
}
