//! Options of the thread of a job: its CPUs, its memory and its priorities. Only job files have them.

use super::Support::{Partly, Yes};
use super::control_keys::{PriorityOfSize, class_of};
use super::{Difference, Given, Kind, NONE, OptionRow, Refused, Settings, set};
use crate::field::Field;
use crate::place::Place;
use crate::thread_settings::{HINT_MAX, IoClass, MemoryPolicy, numbers};

impl OptionRow {
    /// An option of the thread of a job.
    const fn of_thread(self) -> Self {
        self.only_on(&[Place::Storage("no effect: virtual time has no threads")], |_| None)
    }
}

pub(super) const ROWS: &[OptionRow] = &[
    OptionRow::only_key(
        Yes,
        &["cpus_allowed"],
        "the CPUs of the thread: `0,5,8-15`",
        set!(workload.controls.thread.cpus = numbers),
    )
    .of_thread(),
    OptionRow::only_key(Yes, &["cpumask"], "the CPUs of the thread, as a mask of bits", |settings, given| {
        let mask = given.bytes()?;
        settings.workload.controls.thread.cpus = (0..64).filter(|cpu| mask >> cpu & 1 == 1).collect();
        Ok(())
    }).neutral(&["0"])
    .of_thread(),
    OptionRow::only_key(
        Yes,
        &["cpus_allowed_policy"],
        "`shared`, or `split`: one CPU for each clone",
        |settings, given| {
            settings.workload.controls.thread.splits_cpus = match given.text()? {
                "shared" => false,
                "split" => true,
                _ => return Err(Refused::Expected("shared or split")),
            };
            Ok(())
        },
    )
    .of_thread(),
    OptionRow::only_key(
        Partly,
        &["numa_cpu_nodes"],
        "the nodes of the CPUs of the thread: `0,2-3`; no `all`",
        set!(workload.controls.thread.nodes = numbers),
    )
    .of_thread(),
    OptionRow::only_key(
        Partly,
        &["numa_mem_policy"],
        "`default`, `local`, `prefer:NODE`, `bind:NODES` or `interleave:NODES`; no `all`",
        memory_policy,
    )
    .of_thread(),
    OptionRow::only_key(
        Yes,
        &["lockmem"],
        "memory that is locked beside each clone during the run, so that less is left for the page cache",
        set!(workload.controls.thread.locked_bytes = bytes),
    )
    .neutral(&["0"])
    .of_thread(),
    OptionRow::only_key(
        Yes,
        &["hipri"],
        "1: the thread polls the disk for completions; path `kernel-uring`, on a disk with polled queues",
        set!(workload.polling.completions = flag),
    )
    .switch()
    .field(Field("polled completions"))
    .only_on(&[Place::Polling], |workload| workload.polling.completions.then(String::new))
    .states(
        "polling",
        Kind::Text,
        Difference::RefusedOr(NONE),
        "`completions` if the job polls the disk for them, `submissions` if a thread of the kernel polls for those; none \
         without.",
        |ran| {
            let polling = ran.workload.polling;
            let both = [(polling.completions, "completions"), (polling.submissions, "submissions")];
            let names: Vec<_> = both.into_iter().filter(|(is_used, _)| *is_used).map(|(_, name)| name).collect();
            (!names.is_empty()).then(|| names.join(", ").into())
        },
    ),
    OptionRow::only_key(
        Yes,
        &["sqthread_poll"],
        "1: a thread of the kernel polls for submissions; path `kernel-uring`",
        set!(workload.polling.submissions = flag),
    )
    .switch()
    .field(Field("polled submissions"))
    .only_on(&[Place::Polling], |workload| workload.polling.submissions.then(String::new)),
    OptionRow::only_key(Yes, &["sqthread_poll_cpu"], "the CPU of that thread", |settings, given| {
        let cpu = u32::try_from(given.bytes()?);
        settings.workload.polling.cpu = Some(cpu.map_err(|_| Refused::Expected("the number of a CPU"))?);
        Ok(())
    })
    .only_on(&[Place::Polling], |_| None),
    OptionRow::only_key(Yes, &["nice"], "added to the nice value of the thread", |settings, given| {
        settings.workload.controls.thread.nice =
            given.text()?.parse().map_err(|_| Refused::Expected("a whole number from -20 to 19"))?;
        Ok(())
    })
    .of_thread(),
    OptionRow::only_key(
        Yes,
        &["prio"],
        "the level of the thread's I/O priority, 0 to 7; without `prioclass`, of class 2",
        |settings, given| {
            let number = given.bytes()?;
            let priority = &mut settings.workload.controls.thread.priority;
            priority.level =
                u8::try_from(number).ok().filter(|level| *level <= 7).ok_or(Refused::Expected("0 to 7"))?;
            if priority.class == IoClass::None {
                priority.class = IoClass::BestEffort;
            }
            Ok(())
        },
    )
    .of_thread(),
    OptionRow::only_key(
        Yes,
        &["prioclass"],
        "the class of the thread's I/O priority: 0 none, 1 real time, 2 best effort, 3 idle",
        |settings, given| {
            settings.workload.controls.thread.priority.class =
                class_of(given.bytes()?).ok_or(Refused::Expected("0 to 3"))?;
            Ok(())
        },
    )
    .of_thread(),
    OptionRow::only_key(
        Yes,
        &["priohint"],
        "the hint of the thread's I/O priority, 0 to 1023",
        |settings, given| {
            let number = u16::try_from(given.bytes()?).ok().filter(|hint| *hint <= HINT_MAX);
            settings.workload.controls.thread.priority.hint = number.ok_or(Refused::Expected("0 to 1023"))?;
            Ok(())
        },
    )
    .of_thread(),
    OptionRow::only_key(
        Partly,
        &["cmdprio_percentage"],
        "the transfers in 100 with a priority of their own, for reads and writes; path `kernel-uring`; no figures by priority",
        |settings, given| {
            settings.controls.priority_percent = given.pair(100, "0 to 100, or READS,WRITES: 20, 20,0")?;
            Ok(())
        },
    )
    .field(Field("priorities of single transfers"))
    .only_on(&[Place::Priorities], |workload| {
        let priorities = &workload.controls.priorities;
        (!priorities.is_empty()).then(String::new)
    }),
    OptionRow::only_key(
        Yes,
        &["cmdprio_class"],
        "the class of these transfers; default: 1",
        |settings, given| {
            settings.controls.priority_class = given.pair(3, "0 to 3, or READS,WRITES: 1, 1,2")?;
            Ok(())
        },
    )
    .only_on(&[Place::Priorities], |_| None),
    OptionRow::only_key(Yes, &["cmdprio"], "the level of these transfers; default: 0", |settings, given| {
        settings.controls.priority_level = given.pair(7, "0 to 7, or READS,WRITES: 0, 0,4")?;
        Ok(())
    })
    .only_on(&[Place::Priorities], |_| None),
    OptionRow::only_key(
        Yes,
        &["cmdprio_hint"],
        "the hint of these transfers; default: 0",
        |settings, given| {
            settings.controls.priority_hint =
                given.pair(HINT_MAX.into(), "0 to 1023, or READS,WRITES: 0, 0,4")?;
            Ok(())
        },
    )
    .only_on(&[Place::Priorities], |_| None),
    OptionRow::only_key(
        Partly,
        &["cmdprio_bssplit"],
        "the same by size: `SIZE/PERCENT[/CLASS/LEVEL[/HINT]]:…`, for reads and writes; as `cmdprio_percentage`",
        priorities_of_sizes,
    )
    .only_on(&[Place::Priorities], |_| None),
];

fn memory_policy(settings: &mut Settings, given: &Given) -> Result<(), Refused> {
    const EXPECTED: Refused =
        Refused::Expected("default, local, prefer:NODE, bind:NODES or interleave:NODES: bind:0-1");
    let (mode, nodes) = given.text()?.split_once(':').unwrap_or((given.text()?, ""));
    let nodes = numbers(nodes);
    settings.workload.controls.thread.memory = match (mode, nodes) {
        ("default" | "local", None) => MemoryPolicy::Default,
        ("prefer", Some(nodes)) if nodes.len() == 1 => MemoryPolicy::Prefer(nodes[0]),
        ("bind", Some(nodes)) => MemoryPolicy::Bind(nodes),
        ("interleave", Some(nodes)) => MemoryPolicy::Interleave(nodes),
        _ => return Err(EXPECTED),
    };
    Ok(())
}

fn priorities_of_sizes(settings: &mut Settings, given: &Given) -> Result<(), Refused> {
    const EXPECTED: Refused = Refused::Expected(
        "SIZE/PERCENT[/CLASS/LEVEL[/HINT]]:…, or READS,WRITES: 4k/20:64k/0, 4k/10/1/0:4k/20/2/4",
    );
    let directions = given.per_direction().ok_or(EXPECTED)?;
    for (split, text) in settings.controls.priority_split.iter_mut().zip(directions) {
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
