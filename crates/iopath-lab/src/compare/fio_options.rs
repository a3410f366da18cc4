//! The conditions of a job in fio's JSON: its options, in the terms of iopath's results. The parser of job files reads
//! them, so that all spellings of a value are the same, and an absent option has its default. Does not read results.

use super::data::{DIRECT, Run, range};
use iopath_bench::options::{self, NONE, Ran};
use iopath_bench::shape::of_both;
use iopath_fio::{Job, StatedRate};

/// Options of the content and of the place, as they are.
const AS_GIVEN: [(&str, Option<&str>); 7] = [
    ("filename", None),
    ("directory", None),
    ("size", None),
    ("offset", None),
    ("buffer_compress_percentage", Some(NONE)),
    ("buffer_pattern", Some(NONE)),
    ("dedupe_percentage", Some(NONE)),
];

/// Adds the conditions of options, of which the last one of a name counts.
pub(super) fn conditions(options: &[(&str, &str)], run: &mut Run) {
    let given = |name: &str| options.iter().rfind(|(known, _)| *known == name).map(|(_, value)| *value);
    let (job, others) = Job::of_options(options);
    run.identity("rw", job.workload.rw.name());
    run.identity("numjobs", job.clones());
    run.identity(DIRECT, job.direct);
    if let Some(engine) = given("ioengine") {
        run.identity("engine", engine);
    }
    let stated = job.stated();
    run.identity("bs", stated.block_bytes);
    run.identity("iodepth", stated.depth);
    let rate = match stated.rate {
        StatedRate::Unlimited => NONE.to_owned(),
        StatedRate::Iops(rate) => rate.to_string(),
        // Compared as it is written.
        StatedRate::Unknown => given("rate_iops").or(given("rate")).unwrap_or(NONE).to_owned(),
    };
    run.identity("rate-iops", rate);
    run.identity("bssplit", stated.workload.shape.sizes.as_ref().map_or_else(|| NONE.to_owned(), of_both));
    if let Some([start, end]) = stated.range {
        run.identity("range", range(start, end));
    }
    let think = (!job.workload.think.is_zero()).then(|| format!("{} ns", job.workload.think.as_nanos()));
    run.identity("thinktime", think.unwrap_or_else(|| NONE.to_owned()));
    run.identity("verify", if job.verifies { given("verify").unwrap_or(NONE) } else { NONE });
    let ran = Ran { workload: &stated.workload, end_bytes: 0, engine: None };
    for row in options::options() {
        let (name, text) = (row.compared_name(), row.fact.and_then(|fact| fact.condition_of(&ran)));
        if let Some(text) = text.filter(|_| run.fact(&name).is_none()) {
            run.identity(&name, text);
        }
    }
    let has_zeroes = given("zero_buffers").is_some_and(|value| value != "0");
    run.identity("zero_buffers", has_zeroes);
    for (name, default) in AS_GIVEN {
        let is_in_range = stated.range.is_some() && ["size", "offset"].contains(&name);
        if let Some(value) = given(name).or(default).filter(|_| !is_in_range) {
            run.identity(if name == "filename" { "target" } else { name }, value);
        }
    }
    for (name, value) in others {
        if run.fact(name).is_none() && name != "ioengine" {
            run.identity(name, value);
        }
    }
}
