//! The keys that control a job: least rates, latency targets, shares, the thread, series over time, and zones.

use std::num::NonZeroU64;

use super::{Key, no_effect, partly, set, yes};
use crate::jobfile::control_keys::{PriorityOfSize, class_of};
use crate::jobfile::given::{Given, Refused};
use crate::jobfile::job::Job;
use crate::thread_settings::{HINT_MAX, IoClass, MemoryPolicy, numbers};

pub(super) const KEYS: &[Key] = &[
    yes(
        &["rate_min", "ratemin"],
        "the least bytes a second; a job below it ends, with a warning",
        set!(controls.rate_min = sizes),
    ),
    yes(
        &["rate_iops_min"],
        "the least transfers a second; a job below it ends, with a warning",
        set!(controls.rate_iops_min = sizes),
    ),
    yes(
        &["rate_cycle"],
        "the time between two checks of the least rate, in milliseconds, 1 or more; default: 1000",
        |job, given| {
            let cycle = Some(given.millis()?).filter(|cycle| !cycle.is_zero());
            let cycle = cycle.ok_or(Refused::Expected("milliseconds, 1 or more: 500"))?;
            job.controls.rate_cycle = Some(cycle);
            Ok(())
        },
    ),
    yes(
        &["latency_target"],
        "the job searches for the largest depth whose transfers keep this latency; see *Latency target*",
        set!(controls.latency_target = Some(micros)),
    ),
    yes(&["latency_window"], "the time at each depth", set!(controls.latency_window = micros)),
    yes(&["latency_percentile"], "the transfers in 100 that keep the latency; default: 100", |job, given| {
        const EXPECTED: Refused = Refused::Expected("0 to 100: 99.9");
        let percent: f64 = given.text()?.parse().map_err(|_| EXPECTED)?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(EXPECTED);
        }
        job.controls.latency_share = Some((percent * 10_000.0).round() as u32);
        Ok(())
    }),
    yes(&["latency_run"], "1 continues with the depth of the search", set!(controls.latency_run = flag)),
    yes(
        &["flow"],
        "the weight of the job; jobs with the same `flow_id` share their I/Os by weight",
        |job, given| {
            let weight = u16::try_from(given.bytes()?);
            let weight = weight.map_err(|_| Refused::Expected("a whole number from 0 to 65535"))?;
            job.controls.flow = NonZeroU64::new(weight.into());
            Ok(())
        },
    ),
    yes(&["flow_id"], "the number of the group of jobs with a `flow`", set!(controls.flow_id = bytes)),
    yes(
        &["flow_sleep"],
        "the time after which a job that is ahead of its share tries again; 50 µs at least",
        set!(controls.flow_sleep = micros),
    ),
    // The thread.
    yes(&["cpus_allowed"], "the CPUs of the thread: `0,5,8-15`", set!(controls.thread.cpus = numbers)),
    yes(&["cpumask"], "the CPUs of the thread, as a mask of bits", |job, given| {
        let mask = given.positive()?;
        job.controls.thread.cpus = (0..64).filter(|cpu| mask >> cpu & 1 == 1).collect();
        Ok(())
    }),
    yes(&["cpus_allowed_policy"], "`shared`, or `split`: one CPU for each clone", |job, given| {
        job.controls.thread.splits_cpus = match given.text()? {
            "shared" => false,
            "split" => true,
            _ => return Err(Refused::Expected("shared or split")),
        };
        Ok(())
    }),
    partly(
        &["numa_cpu_nodes"],
        "the nodes of the CPUs of the thread: `0,2-3`; no `all`",
        set!(controls.thread.nodes = numbers),
    ),
    partly(
        &["numa_mem_policy"],
        "`default`, `local`, `prefer:NODE`, `bind:NODES` or `interleave:NODES`; no `all`",
        memory_policy,
    ),
    yes(&["nice"], "added to the nice value of the thread", |job, given| {
        job.controls.thread.nice =
            given.text()?.parse().map_err(|_| Refused::Expected("a whole number from -20 to 19"))?;
        Ok(())
    }),
    yes(
        &["prio"],
        "the level of the thread's I/O priority, 0 to 7; without `prioclass`, of class 2",
        |job, given| {
            let number = given.bytes()?;
            let priority = &mut job.controls.thread.priority;
            priority.level =
                u8::try_from(number).ok().filter(|level| *level <= 7).ok_or(Refused::Expected("0 to 7"))?;
            if priority.class == IoClass::None {
                priority.class = IoClass::BestEffort;
            }
            Ok(())
        },
    ),
    yes(
        &["prioclass"],
        "the class of the thread's I/O priority: 0 none, 1 real time, 2 best effort, 3 idle",
        |job, given| {
            job.controls.thread.priority.class =
                class_of(given.bytes()?).ok_or(Refused::Expected("0 to 3"))?;
            Ok(())
        },
    ),
    yes(&["priohint"], "the hint of the thread's I/O priority, 0 to 1023", |job, given| {
        let number = u16::try_from(given.bytes()?).ok().filter(|hint| *hint <= HINT_MAX);
        job.controls.thread.priority.hint = number.ok_or(Refused::Expected("0 to 1023"))?;
        Ok(())
    }),
    partly(
        &["cmdprio_percentage"],
        "the transfers in 100 with a priority of their own, for reads and writes; path `kernel-uring`; no figures by priority",
        |job, given| {
            job.controls.priority_percent = given.pair(100, "0 to 100, or READS,WRITES: 20, 20,0")?;
            Ok(())
        },
    ),
    yes(&["cmdprio_class"], "the class of these transfers; default: 1", |job, given| {
        job.controls.priority_class = given.pair(3, "0 to 3, or READS,WRITES: 1, 1,2")?;
        Ok(())
    }),
    yes(&["cmdprio"], "the level of these transfers; default: 0", |job, given| {
        job.controls.priority_level = given.pair(7, "0 to 7, or READS,WRITES: 0, 0,4")?;
        Ok(())
    }),
    yes(&["cmdprio_hint"], "the hint of these transfers; default: 0", |job, given| {
        job.controls.priority_hint = given.pair(HINT_MAX.into(), "0 to 1023, or READS,WRITES: 0, 0,4")?;
        Ok(())
    }),
    partly(
        &["cmdprio_bssplit"],
        "the same by size: `SIZE/PERCENT[/CLASS/LEVEL[/HINT]]:…`, for reads and writes; as `cmdprio_percentage`",
        priorities_of_sizes,
    ),
    // Series over time.
    yes(
        &["write_bw_log"],
        "throughput over time, as fio's file `NAME_bw.NUMBER.log`; see *Series over time*",
        |job, given| {
            job.controls.throughput_log = Some(given.log_name());
            Ok(())
        },
    ),
    yes(
        &["write_lat_log"],
        "latencies over time: `NAME_lat.NUMBER.log`, and from the submission `NAME_clat.NUMBER.log`",
        |job, given| {
            job.controls.latency_log = Some(given.log_name());
            Ok(())
        },
    ),
    yes(&["write_iops_log"], "transfers a second over time: `NAME_iops.NUMBER.log`", |job, given| {
        job.controls.iops_log = Some(given.log_name());
        Ok(())
    }),
    yes(
        &["log_avg_msec"],
        "the time that a line of these files covers, in milliseconds; default: a line for each transfer",
        set!(controls.log_average = millis),
    ),
    yes(&["log_offset"], "1 adds the offset to each line", set!(controls.log_offset = flag)),
    yes(&["log_prio"], "1 writes the number of the thread's priority", set!(controls.log_priority = flag)),
    no_effect(
        &["log_entries", "log_compression", "log_compression_cpus", "log_store_compressed"],
        "a line needs 64 bytes of memory during the run",
    ),
    // Zones.
    partly(
        &["zonemode"],
        "`none` and `strided`; default: `strided` with a `zonesize`, else `none`",
        |job, given| {
            given.only(&["none", "strided"], "no zoned block devices")?;
            job.zones.is_strided = Some(given.text()? == "strided");
            Ok(())
        },
    ),
    yes(&["zonesize"], "the bytes to transfer in a zone before the next one", set!(zones.size_bytes = bytes)),
    yes(&["zonerange"], "the length of a zone; default: `zonesize`", set!(zones.range_bytes = bytes)),
    yes(&["zoneskip"], "the bytes between two zones", set!(zones.skip_bytes = bytes)),
];

fn memory_policy(job: &mut Job, given: &Given) -> Result<(), Refused> {
    const EXPECTED: Refused =
        Refused::Expected("default, local, prefer:NODE, bind:NODES or interleave:NODES: bind:0-1");
    let (mode, nodes) = given.text()?.split_once(':').unwrap_or((given.text()?, ""));
    let nodes = numbers(nodes);
    job.controls.thread.memory = match (mode, nodes) {
        ("default" | "local", None) => MemoryPolicy::Default,
        ("prefer", Some(nodes)) if nodes.len() == 1 => MemoryPolicy::Prefer(nodes[0]),
        ("bind", Some(nodes)) => MemoryPolicy::Bind(nodes),
        ("interleave", Some(nodes)) => MemoryPolicy::Interleave(nodes),
        _ => return Err(EXPECTED),
    };
    Ok(())
}

fn priorities_of_sizes(job: &mut Job, given: &Given) -> Result<(), Refused> {
    const EXPECTED: Refused = Refused::Expected(
        "SIZE/PERCENT[/CLASS/LEVEL[/HINT]]:…, or READS,WRITES: 4k/20:64k/0, 4k/10/1/0:4k/20/2/4",
    );
    let directions = given.per_direction().ok_or(EXPECTED)?;
    for (split, text) in job.controls.priority_split.iter_mut().zip(directions) {
        let entry = |entry: &str| {
            let mut parts = entry.split('/');
            let bytes = u32::try_from(given.bytes_of(parts.next()?)?).ok()?;
            let numbers: Option<Vec<u64>> = parts.map(|part| part.parse().ok()).collect();
            let (percent, rest) = numbers.as_deref()?.split_first()?;
            let at = |index: usize, max: u64| match rest.get(index) {
                Some(number) if *number > max => None,
                number => Some(number.copied()),
            };
            let is_complete = matches!(rest.len(), 0 | 2 | 3) && *percent <= 100;
            let (class, level, hint) = (at(0, 3)?, at(1, 7)?, at(2, HINT_MAX.into())?);
            is_complete.then_some(PriorityOfSize { bytes, percent: *percent as u32, class, level, hint })
        };
        let entries: Option<Vec<PriorityOfSize>> =
            text.unwrap_or("").split(':').filter(|text| !text.is_empty()).map(entry).collect();
        let entries = entries.ok_or(EXPECTED)?;
        let of_size = |bytes| entries.iter().filter(move |other| other.bytes == bytes);
        if entries.iter().any(|entry| of_size(entry.bytes).map(|one| one.percent).sum::<u32>() > 100) {
            return Err(Refused::Expected("shares of 100 or less in total for each size: 4k/60:4k/40"));
        }
        *split = entries;
    }
    Ok(())
}
