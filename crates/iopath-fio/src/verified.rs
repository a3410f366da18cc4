//! The expected content of the targets of a job file, for jobs that verify. All jobs of the file share it: a job can
//! check the blocks that a job of an earlier group has written.

use super::error::JobFileError;
use super::job::Job;
use super::members::Member;
use super::place::Place;
use iopath_bench::shape::common;
use iopath_bench::verify::record::Record;
use iopath_bench::workload::Workload;

/// The record of a place.
#[derive(Debug)]
pub(super) struct PlaceRecord {
    pub(super) place: Place,
    pub(super) record: Record,
}

impl PlaceRecord {
    /// The record of a place; none if no job verifies it.
    pub(super) fn of<'a>(records: &'a [Self], place: &Place) -> Option<&'a Record> {
        records.iter().find(|one| one.place == *place).map(|one| &one.record)
    }
}

/// The records of all places that jobs verify. `sizes`: the number of jobs of each group.
pub(super) fn records(
    jobs: &[Job],
    members: &[Vec<Member>],
    sizes: &[usize],
) -> Result<Vec<PlaceRecord>, JobFileError> {
    let mut records: Vec<PlaceRecord> = Vec::new();
    for first in members.iter().flatten().filter(|member| member.workload.verify.is_some()) {
        if records.iter().any(|known| known.place == first.place) {
            continue;
        }
        let of_place: Vec<&Member> =
            members.iter().flatten().filter(|member| member.place == first.place).collect();
        check(jobs, &of_place, sizes)?;
        let verifies = || of_place.iter().filter(|member| member.workload.verify.is_some());
        let start_bytes = verifies().map(|member| member.workload.start_bytes).min().unwrap_or(0);
        let end_bytes = verifies().map(|member| member.end_bytes).max().unwrap_or(0);
        // Each transfer of each job is of whole blocks.
        let block_bytes = verifies().fold(0, |block, member| {
            let offset = member.workload.start_bytes - start_bytes;
            common(common(block, member.workload.unit_bytes()), offset)
        });
        let contents = &first.workload.contents;
        if let Some(other) = verifies().find(|member| !has_same_contents(&member.workload, &first.workload)) {
            return Err(jobs[other.job].problem(format!(
                "it verifies other contents of the same file than job {}; use one verify and one verify_pattern",
                jobs[first.job].name
            )));
        }
        let has_writer = verifies().any(|member| member.workload.rw.writes());
        let record = Record::fitting(start_bytes, end_bytes, block_bytes as u32, has_writer);
        let record = record.map_err(|error| jobs[first.job].refused(&error))?.with_contents(contents);
        records.push(PlaceRecord { place: first.place.clone(), record });
    }
    Ok(records)
}

/// Whether the blocks of both have stamps, or the same pattern.
fn has_same_contents(one: &Workload, other: &Workload) -> bool {
    let pattern = |workload: &Workload| workload.verify.is_some_and(|verify| verify.is_pattern);
    pattern(one) == pattern(other) && (!pattern(one) || one.contents == other.contents)
}

/// Checks that each block has one writer at a time, which verifies too.
fn check(jobs: &[Job], members: &[&Member], sizes: &[usize]) -> Result<(), JobFileError> {
    for (index, one) in members.iter().enumerate() {
        for other in &members[index + 1..] {
            let overlap =
                one.workload.start_bytes < other.end_bytes && other.workload.start_bytes < one.end_bytes;
            if !overlap || !(one.workload.rw.writes() || other.workload.rw.writes()) {
                continue;
            }
            let [unverified, verified] =
                if one.workload.verify.is_none() { [one, other] } else { [other, one] };
            if unverified.workload.verify.is_none() && verified.workload.verify.is_none() {
                continue;
            }
            let name = &jobs[unverified.job].name;
            if unverified.workload.verify.is_none() && unverified.workload.rw.writes() {
                return Err(jobs[verified.job].problem(format!(
                    "job {name} writes to the same range without verify; add verify to it, or use another range"
                )));
            }
            if unverified.workload.verify.is_some() && group(one.job, sizes) == group(other.job, sizes) {
                return Err(jobs[verified.job].problem(format!(
                    "verify needs one job at a time for each block, and job {name} accesses the same range; add stonewall, or \
                     use ranges that do not overlap (offset, offset_increment)"
                )));
            }
        }
    }
    Ok(())
}

/// The number of the group of a job.
fn group(job: usize, sizes: &[usize]) -> usize {
    let mut end = 0;
    sizes
        .iter()
        .position(|size| {
            end += size;
            job < end
        })
        .unwrap_or(sizes.len())
}
