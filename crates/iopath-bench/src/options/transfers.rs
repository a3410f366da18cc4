//! Options of the transfers: pattern, sizes, offsets, transfers in flight and threads.

use std::num::NonZeroU32;

use iopath_report::Rw;
use serde_json::Value;

use super::Form::{One, Pair};
use super::Support::{Partly, Yes};
use super::given::sizes_of;
use super::{
    Decides, Difference, Fact, Given, Kind, NONE, OptionRow, Refused, Settings, command_line, list, set,
};
use crate::distribution::VALID;
use crate::field::Field;
use crate::paths::kernel_uring;
use crate::place::Place;
use crate::shape::Sizes;
use crate::workload::{BlockSize, Depth, Distribution, Jobs, ReadShare};

pub(super) const ROWS: &[OptionRow] = &[
    OptionRow::option("--rw", list!("RW"), "Direction and order of transfers", rw)
        .names(|| Rw::ALL.map(|rw| (rw.name(), "")).into())
        .default("read")
        .field(Field::PATTERN)
        .fact(Fact::of_run("rw", Kind::Text, Difference::Refused))
        .only_on(&[Place::Storage("a model has no trims")], |workload| {
            workload.rw.trims().then(|| workload.rw.name().to_owned())
        })
        .key(
            Partly,
            &["rw", "readwrite"],
            "`read`, `write`, `randread`, `randwrite`, `rw`, `readwrite`, `randrw`, `trim`, `randtrim`, `trimwrite`, `randtrimwrite`; \
             with `:SIZE` after a sequential one (`--skip`), and `:N` after a random one (`--random-run`)",
        ).decides(Decides::Direction),
    OptionRow::option(
        "--rwmixread",
        One("PERCENT"),
        "Percentage of reads in rw and randrw",
        |settings, given| {
            let percent = if given.is_in_job_file() { given.percent()? } else { given.positive()? };
            settings.workload.read_share = ReadShare::new(percent)?;
            Ok(())
        },
    )
    .default("50")
    .field(Field::READ_SHARE)
    .states(
        "read_percent",
        Kind::Whole,
        Difference::RefusedIfKnown,
        "The percentage of reads of a mixed pattern; none for other patterns.",
        |ran| {
            let is_mixed = matches!(ran.workload.rw, Rw::Rw | Rw::RandRw);
            is_mixed.then(|| ran.workload.read_share.get().into())
        },
    )
    .or_null()
    .key(Yes, &["rwmixread"], "`--rwmixread`").decides(Decides::Direction),
    OptionRow::only_key(Yes, &["rwmixwrite"], "the rest is reads", |settings, given| {
        settings.workload.read_share = ReadShare::new(100 - given.percent()?)?;
        Ok(())
    }).decides(Decides::Direction),
    OptionRow::option("--bs", list!("SIZE"), "The size of each transfer", block_size)
        .default("4k")
        .field(Field::BLOCK_SIZE)
        .fact(Fact::of_run("block_bytes", Kind::Whole, Difference::Refused))
        .key(Yes, &["bs", "blocksize"], "`--bs`; sizes of reads and writes: `4k,16k`").decides(Decides::Range),
    OptionRow::option(
        "--bssplit",
        Pair("SIZES"),
        "Several sizes of transfers, with shares in percent (4k/60:64k/40) or as a range (4k-64k); reads and writes apart \
         after a comma",
        |settings, given| {
            let expected = if given.is_in_job_file() {
                "sizes with shares in percent: 4k/60:64k/40"
            } else {
                "sizes of 1 byte to 1 GiB with a share in percent, 100 in all: 4k/60:64k/40; or a range: 4k-64k"
            };
            given.set_sizes(&mut settings.sizes, expected, false)
        },
    )
    .conflicts(&["bs"])
    .fact(Fact::of_run("block_sizes", Kind::Text, Difference::RefusedOr(NONE)))
    .key(Yes, &["bssplit"], "`--bssplit`: `4k/60:64k/40`, for reads and writes: `4k/60:64k/40,8k`").decides(Decides::Range),
    OptionRow::only_key(
        Yes,
        &["bsrange", "blocksize_range"],
        "`--bssplit 4k-64k`: multiples of the smallest size, each with the same probability",
        |settings, given| {
            let expected = "a range of sizes, or READS,WRITES: 4k-64k, 4k-8k,16k-64k";
            given.set_sizes(&mut settings.sizes, expected, true)
        },
    ).decides(Decides::Range),
    OptionRow::only_key(
        Yes,
        &["blocksize_unaligned", "bs_unaligned"],
        "`bsrange` has all sizes, not the multiples of the smallest alone",
        set!(is_unaligned = flag),
    ).switch().decides(Decides::Range),
    OptionRow::only_key(
        Yes,
        &["ba", "blockalign"],
        "the unit of random offsets; default: the smallest size",
        |settings, given| {
            settings.align_bytes = given.limits()?.into_iter().flatten().next().unwrap_or(0);
            Ok(())
        },
    ).neutral(&["0"]).decides(Decides::Range)
    .states(
        "align_bytes",
        Kind::Whole,
        Difference::RefusedOr("default"),
        "The unit of random offsets in bytes; none for the smallest size of a transfer.",
        |ran| ran.workload.shape.align_bytes.map(Value::from),
    ),
    OptionRow::option(
        "--skip",
        One("SIZE"),
        "Bytes that a sequential pattern skips after each transfer; negative from the end to the start: -8k",
        |settings, given| {
            settings.workload.shape.skip_bytes = given.typed(command_line::signed_size)?;
            Ok(())
        },
    )
    .signed()
    .states(
        "skip_bytes",
        Kind::Signed,
        Difference::RefusedOr("default"),
        "The bytes that a sequential pattern skips after each transfer, negative backwards; none without a gap.",
        |ran| Some(ran.workload.shape.skip_bytes).filter(|bytes| *bytes != 0).map(Value::from),
    ),
    OptionRow::option(
        "--random-run",
        One("N"),
        "Transfers of a random pattern at adjacent offsets, from each random offset on",
        |settings, given| {
            settings.workload.shape.random_run = given.typed(command_line::count)?;
            Ok(())
        },
    )
    .default("1")
    .states(
        "random_run",
        Kind::Whole,
        Difference::RefusedOr("default"),
        "The transfers of a random pattern at adjacent offsets, from each random offset on; none for 1.",
        |ran| Some(ran.workload.shape.random_run).filter(|run| *run > 1).map(Value::from),
    ),
    OptionRow::option(
        "--percentage-random",
        One("PERCENT"),
        "Transfers in 100 of a random pattern with a random offset; the others follow the transfer before them",
        |settings, given| {
            if !given.is_in_job_file() || !given.text()?.contains(',') {
                settings.workload.shape.random_percent = given.percent()? as u32;
                return Ok(());
            }
            let [reads, writes] = given.pair(100, "0 to 100, or READS,WRITES,TRIMS")?;
            let both = [reads, writes].map(|percent| percent.unwrap_or(100));
            if both[0] != both[1] {
                return Err(Refused::Value("reads and writes share the sequence of offsets"));
            }
            settings.workload.shape.random_percent = both[0] as u32;
            Ok(())
        },
    )
    .default("100")
    .states(
        "random_percent",
        Kind::Whole,
        Difference::RefusedOr("default"),
        "The percentage of random offsets of a random pattern, the others follow the transfer before them; none for 100.",
        |ran| Some(ran.workload.shape.random_percent).filter(|percent| *percent < 100).map(Value::from),
    )
    .key(Partly, &["percentage_random"], "`--percentage-random`; one value for all directions").neutral(&["100,100,100"]).decides(Decides::Range),
    OptionRow::only_key(
        Partly,
        &["norandommap"],
        "1: random offsets are independent of each other, so that some blocks are accessed twice and others never. 0: a \
         uniform pattern of one size accesses each block once in each pass; other random patterns have independent offsets",
        set!(is_independent = flag),
    )
    .switch()
    .decides(Decides::Range)
    .states(
        "covers",
        Kind::Flag,
        Difference::Shown,
        "`true` if random offsets are a permutation of the blocks in each pass; none if they are independent of each other.",
        |ran| (ran.workload.covers && ran.workload.rw.is_random()).then(|| true.into()),
    ),
    OptionRow::option(
        "--random-distribution",
        One("NAME[:NUMBER...]"),
        "How the offsets of random patterns are distributed: random (uniform), zipf:THETA, pareto:POWER, normal:PERCENT, \
         each with an optional :CENTER from 0 to 1, or zoned:ACCESS/SIZE:... in percent",
        random_distribution,
    )
    .default("random")
    .states(
        "distribution",
        Kind::Text,
        Difference::RefusedIfKnown,
        "The distribution of random offsets; none for sequential patterns.",
        |ran| ran.workload.rw.is_random().then(|| ran.workload.distribution.to_string().into()),
    )
    .or_null()
    .key(
        Partly,
        &["random_distribution"],
        "`random`, `zipf:THETA[:CENTER]`, `pareto:POWER[:CENTER]`, `normal:PERCENT[:CENTER]`, `zoned:ACCESS/SIZE:…`, \
         `sequence:BLOCK,…`",
    ).decides(Decides::Range),
    OptionRow::only_key(
        Yes,
        &["random_sequence_stride"],
        "1: each pass of `sequence` begins after the blocks of the pass before it",
        set!(sequence_moves = flag),
    ).decides(Decides::Range),
    OptionRow::option(
        "--iodepth",
        list!("N"),
        "Transfers in flight per job; always 1 on synchronous paths",
        |settings, given| {
            settings.workload.depth = Depth::new(given.positive()?)?;
            Ok(())
        },
    )
    .default("1")
    .field(Field::DEPTH)
    .fact(Fact::of_run("io_depth", Kind::Whole, Difference::Refused))
    .key(Yes, &["iodepth"], "`--iodepth`; a synchronous path has 1, as in fio"),
    OptionRow::only_key(
        Partly,
        &["iodepth_batch", "iodepth_batch_submit"],
        "the transfers of one system call at most, on path `kernel-uring`; 0 for `iodepth`; default: 1. A path with a queue \
         of iopath submits all transfers that may start together, the first ones to an idle device in groups of 4, 4, 8 and 16",
        |settings, given| {
            settings.workload.batch.submit_max = Some(number_in_flight(given)?.unwrap_or(NonZeroU32::MAX));
            Ok(())
        },
    )
    .states(
        "submit_max",
        Kind::Whole,
        Difference::Shown,
        "The transfers that a job submits with one system call at most, on path `kernel-uring`; none for the number of that \
         path, 4.",
        |ran| {
            // Only this path submits by a call of its own.
            let has_call = ran.workload.path.name == kernel_uring::ROW.name;
            let submit_max = ran.workload.batch.submit_max.filter(|_| has_call)?.get();
            Some(submit_max.min(ran.workload.depth_in_flight()).into())
        },
    ),
    OptionRow::only_key(
        Yes,
        &["iodepth_batch_complete_min", "iodepth_batch_complete"],
        "the completions that a job with its depth in flight waits for before it starts transfers again; default: 1",
        |settings, given| {
            settings.workload.batch.complete_min = number_in_flight(given)?;
            Ok(())
        },
    )
    .states(
        "complete_min",
        Kind::Whole,
        Difference::RefusedOr(NONE),
        "The completions that a job with its depth in flight waits for before it starts transfers again; none for 1.",
        |ran| ran.workload.batch.complete_min.filter(|min| min.get() > 1).map(|min| min.get().into()),
    ),
    OptionRow::only_key(
        Partly,
        &["iodepth_batch_complete_max"],
        "a path handles all completions that it finds",
        |_, given| given.bytes().map(drop),
    ),
    OptionRow::only_key(
        Yes,
        &["iodepth_low"],
        "a job with its depth in flight starts transfers again when this number is left; default: `iodepth`",
        |settings, given| {
            settings.workload.batch.low = number_in_flight(given)?;
            Ok(())
        },
    )
    .states(
        "depth_low",
        Kind::Whole,
        Difference::RefusedOr(NONE),
        "The transfers in flight at which a job with its depth in flight starts transfers again; none for one less.",
        |ran| {
            let low = ran.workload.batch.low?.get();
            (low + 1 < ran.workload.depth_in_flight()).then(|| low.into())
        },
    ),
    OptionRow::option(
        "--numjobs",
        list!("N"),
        "Threads that run the workload concurrently",
        |settings, given| {
            settings.workload.jobs = Jobs::new(given.positive()?)?;
            Ok(())
        },
    )
    .default("1")
    .field(Field::JOBS)
    .fact(Fact::of_run("jobs", Kind::Whole, Difference::Refused))
    .key(Yes, &["numjobs"], "clones: one thread each, with its own seed"),
    OptionRow::option("--seed", One("N"), "Seed of random offsets and content", |settings, given| {
        let seed = if given.is_in_job_file() { given.bytes()? } else { given.typed(command_line::seed)? };
        settings.seed = Some(seed);
        Ok(())
    })
    .default("1")
    .states(
        "seed",
        Kind::Whole,
        Difference::Ignored,
        "The seed of offsets, mixes and contents. Of a job of a job file, that of its first clone.",
        |ran| Some(ran.workload.seed.into()),
    )
    .always()
    .key(Yes, &["randseed"], "`--seed`"),
    OptionRow::only_key(
        Yes,
        &["randrepeat", "allrandrepeat"],
        "0 draws a seed; default: 1",
        set!(is_repeatable = flag),
    ),
];

/// A number of transfers; none for 0.
fn number_in_flight(given: &Given) -> Result<Option<NonZeroU32>, Refused> {
    let number = u32::try_from(given.bytes()?);
    let number = number.map_err(|_| Refused::Expected("a number of transfers"))?;
    Ok(NonZeroU32::new(number))
}

/// The modifier after a colon is a gap or a run.
fn rw(settings: &mut Settings, given: &Given) -> Result<(), Refused> {
    const KNOWN: &str =
        "read, write, randread, randwrite, rw, readwrite, randrw, trim, randtrim, trimwrite or randtrimwrite";
    let text = given.text()?;
    let (pattern, modifier) = text.split_once(':').unwrap_or((text, ""));
    let workload = &mut settings.workload;
    workload.rw = match pattern {
        "readwrite" => Rw::Rw,
        other => other.parse().map_err(|_| Refused::Expected(KNOWN))?,
    };
    (workload.shape.skip_bytes, workload.shape.random_run) = (0, 1);
    if modifier.is_empty() {
        return Ok(());
    }
    if workload.rw.is_random() {
        let run = modifier.parse().ok().filter(|run| *run > 0);
        workload.shape.random_run =
            run.ok_or(Refused::Expected("a number of transfers of 1 or more after the colon"))?;
    } else {
        workload.shape.skip_bytes = given.signed(modifier)?;
    }
    Ok(())
}

fn block_size(settings: &mut Settings, given: &Given) -> Result<(), Refused> {
    let sizes = if given.is_in_job_file() {
        given.last_of_list()?.sizes()?
    } else {
        [Some(BlockSize::new(given.bytes()?)?.into()); 2]
    };
    for (sizes, bytes) in settings.sizes.iter_mut().zip(sizes) {
        // An empty part, such as that of `,8k`, keeps the size.
        if let Some(bytes) = bytes {
            *sizes = sizes_of(Sizes::one(bytes))?;
        }
    }
    Ok(())
}

fn random_distribution(settings: &mut Settings, given: &Given) -> Result<(), Refused> {
    let text = given.text()?;
    let has_list = text.contains(',') && !text.starts_with("sequence:");
    if given.is_in_job_file() && (text.starts_with("zoned_abs") || has_list) {
        return Err(Refused::Value("no such distribution for a whole job"));
    }
    settings.workload.distribution = text.parse::<Distribution>().map_err(|_| Refused::Expected(VALID))?;
    Ok(())
}
