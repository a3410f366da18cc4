//! The keys that iopath accepts: with an equivalent here, or without any effect on a measurement.

use std::num::NonZeroU64;
use std::time::Duration;

use iopath_report::Rw;

use super::{Key, no_effect, partly, set, yes};
use crate::jobfile::control_keys::ExitWhat;
use crate::jobfile::given::{self, Given, Refused};
use crate::jobfile::job::{IoEngine, Job, SteadyKey};
use crate::paths::find_path;
use crate::shape::Sizes;
use crate::steady::SteadyMetric;
use crate::workload::RateProcess;

pub(super) const KEYS: &[Key] = &[
    // The job.
    yes(&["name"], "the name of the job in the results", |job, given| {
        given.text()?.clone_into(&mut job.name);
        Ok(())
    }),
    yes(&["stonewall", "wait_for_previous"], "starts a group of jobs", set!(stonewall = flag)),
    partly(&["wait_for"], "starts a group of jobs, so the job waits for all jobs before it", |job, given| {
        job.wait_for = Some(given.text()?.to_owned());
        Ok(())
    }),
    yes(&["numjobs"], "clones: one thread each, with its own seed", set!(clones = positive)),
    yes(&["exitall"], "the end of the job ends its group", set!(exit_all = flag)),
    yes(
        &["exit_what"],
        "`group` and `stonewall` end the group of the job; `all` also skips later groups",
        |job, given| {
            job.exit_what = match given.text()? {
                "group" | "stonewall" => ExitWhat::Group,
                "all" => ExitWhat::All,
                _ => return Err(Refused::Expected("group, stonewall or all")),
            };
            Ok(())
        },
    ),
    // The pattern.
    partly(
        &["rw", "readwrite"],
        "`read`, `write`, `randread`, `randwrite`, `rw`, `readwrite`, `randrw`, `trim`, `randtrim`, `trimwrite`, `randtrimwrite`; \
         with `:SIZE` after a sequential one (`--skip`), and `:N` after a random one (`--random-run`)",
        rw,
    ),
    yes(&["rwmixread"], "`--rwmixread`", set!(read_percent = percent)),
    yes(&["rwmixwrite"], "the rest is reads", |job, given| {
        job.read_percent = 100 - given.percent()?;
        Ok(())
    }),
    yes(&["bs", "blocksize"], "`--bs`; sizes of reads and writes: `4k,16k`", |job, given| {
        for (sizes, bytes) in job.sizes.iter_mut().zip(given.sizes()?) {
            *sizes = given::sizes_of(Sizes::one(bytes.unwrap_or(4096)))?;
        }
        Ok(())
    }),
    yes(
        &["bssplit"],
        "`--bssplit`: `4k/60:64k/40`, for reads and writes: `4k/60:64k/40,8k`",
        |job, given| given.set_sizes(&mut job.sizes, "sizes with shares in percent: 4k/60:64k/40", false),
    ),
    yes(
        &["bsrange", "blocksize_range"],
        "`--bssplit 4k-64k`: multiples of the smallest size, each with the same probability",
        |job, given| {
            given.set_sizes(&mut job.sizes, "a range of sizes, or READS,WRITES: 4k-64k, 4k-8k,16k-64k", true)
        },
    ),
    partly(
        &["blocksize_unaligned", "bs_unaligned"],
        "`bsrange` has all sizes, if it stands before this key",
        |job, given| {
            let step_by_byte = given.flag()?;
            for sizes in job.sizes.iter_mut().filter(|_| step_by_byte) {
                if let Sizes::Range { step, .. } = sizes {
                    *step = 1;
                }
            }
            Ok(())
        },
    ),
    yes(&["blockalign", "ba"], "the unit of random offsets; default: the smallest size", |job, given| {
        job.align_bytes = given.sizes()?.into_iter().flatten().next().unwrap_or(0);
        Ok(())
    }),
    partly(
        &["random_distribution"],
        "`random`, `zipf:THETA[:CENTER]`, `pareto:POWER[:CENTER]`, `normal:PERCENT[:CENTER]`, `zoned:ACCESS/SIZE:…`, \
         `sequence:BLOCK,…`",
        random_distribution,
    ),
    yes(
        &["random_sequence_stride"],
        "1: each pass of `sequence` begins after the blocks of the pass before it",
        set!(sequence_moves = flag),
    ),
    partly(&["percentage_random"], "`--percentage-random`; one value for all directions", |job, given| {
        if given.text()?.contains(',') {
            return Err(Refused::Value("reads and writes share the sequence of offsets"));
        }
        job.random_percent = given.percent()?;
        Ok(())
    }),
    no_effect(
        &["norandommap", "softrandommap"],
        "random offsets are always independent of each other: some blocks are accessed twice, others never",
    ),
    yes(&["randseed"], "`--seed`", set!(seed = Some(bytes))),
    yes(&["randrepeat", "allrandrepeat"], "0 draws a seed; default: 1", set!(is_repeatable = flag)),
    no_effect(&["random_generator"], "random numbers are of xoshiro256++"),
    // The range.
    yes(
        &["size"],
        "the range from `offset`; percentages are of an existing file or device",
        set!(size = Some(amount)),
    ),
    yes(&["io_size", "io_limit"], "the bytes to transfer; default: one pass", set!(io_size = Some(amount))),
    partly(&["filesize"], "one size, for a file that does not exist", |job, given| {
        if given.text()?.contains(['-', ':']) {
            return Err(Refused::Value("files of a job have one size"));
        }
        job.file_bytes = Some(given.bytes()?);
        Ok(())
    }),
    yes(&["offset"], "the first byte of the range", set!(offset = amount)),
    yes(&["offset_increment"], "added to `offset` for each clone", set!(offset_increment = amount)),
    yes(&["offset_align"], "the alignment of offsets in percent", set!(offset_align_bytes = bytes)),
    yes(&["number_ios"], "the maximum number of transfers", set!(ios = Some(positive))),
    yes(&["loops"], "passes, without dropping the caches in between", set!(loops = positive)),
    // Time.
    yes(&["runtime", "timeout"], "`--runtime`", |job, given| {
        job.runtime = Some(given.seconds()?).filter(|time| *time > Duration::ZERO);
        Ok(())
    }),
    yes(&["time_based"], "repeats the range until the end of `runtime`", set!(time_based = flag)),
    yes(&["ramp_time"], "runs before the measurement", set!(ramp = seconds)),
    partly(&["startdelay"], "a time; no range", |job, given| {
        if given.text()?.contains(['-', ':']) {
            return Err(Refused::Value("a job has one delay"));
        }
        job.start_delay = given.seconds()?;
        Ok(())
    }),
    yes(
        &["steadystate", "ss"],
        "`iops`, `bw` or `lat`, or one of them with `_slope`, a colon, and a limit; see *Steady state*",
        steady_state,
    ),
    yes(
        &["steadystate_duration", "ss_dur"],
        "`--steady-window`; 0 is off",
        set!(steady_window = Some(seconds)),
    ),
    yes(
        &["steadystate_ramp_time", "ss_ramp"],
        "the time between the start of the measurement and the first sample",
        set!(steady_ramp = seconds),
    ),
    yes(
        &["steadystate_check_interval", "ss_interval"],
        "the time between samples; default: 1 s",
        set!(steady_interval = seconds),
    ),
    partly(&["thinktime"], "`--thinktime`, with a depth of 1 as in fio", set!(think = micros)),
    yes(&["thinktime_blocks"], "the transfers before each pause; default: 1", |job, given| {
        job.think_every = NonZeroU64::new(given.positive()?).unwrap_or(NonZeroU64::MIN);
        Ok(())
    }),
    no_effect(&["thinktime_blocks_type"], "a job with pauses has one transfer in flight"),
    partly(
        &["rate"],
        "`--rate`; latencies count from the intended start; a mixed pattern has a rate for reads and one for writes, or none",
        |job, given| {
            job.rate_bytes = given.sizes()?;
            Ok(())
        },
    ),
    partly(&["rate_iops"], "`--rate-iops`, as `rate`", |job, given| {
        job.rate_ios = given.sizes()?;
        Ok(())
    }),
    yes(&["rate_process"], "`--rate-process`: `linear` or `poisson`", |job, given| {
        job.rate_process = match given.text()? {
            "linear" => RateProcess::Linear,
            "poisson" => RateProcess::Poisson,
            _ => return Err(Refused::Expected("linear or poisson")),
        };
        Ok(())
    }),
    // The access.
    partly(&["ioengine"], "the path; see the table of engines", ioengine),
    yes(&["direct"], "selects the path together with `ioengine`", set!(direct = flag)),
    yes(&["buffered"], "the opposite of `direct`", |job, given| {
        job.direct = !given.flag()?;
        Ok(())
    }),
    yes(&["iodepth"], "`--iodepth`; a synchronous path has 1, as in fio", set!(depth = positive)),
    no_effect(
        &["io_submit_mode"],
        "`inline` and `offload`: a path with several transfers in flight does not wait in its submissions",
    ),
    // Verification.
    partly(&["verify"], "`--verify`, in the format of iopath with any checksum of fio; no `pattern`", verify),
    yes(&["do_verify"], "0 does not read written blocks back after the job", |job, given| {
        job.verify.after = given.flag()?;
        Ok(())
    }),
    yes(&["verify_fatal"], "`--verify-fatal`", |job, given| {
        job.verify.fatal = given.flag()?;
        Ok(())
    }),
    yes(&["verify_backlog"], "`--verify-backlog`", |job, given| {
        job.verify.backlog = NonZeroU64::new(given.bytes()?);
        Ok(())
    }),
    partly(
        &["verify_dump"],
        "1 writes the first 20 blocks with faults to files `NAME.OFFSET.received` and `.expected` in the current directory",
        set!(verify.dump = flag),
    ),
    no_effect(&["verify_interval"], "each 512 bytes have a checksum"),
    no_effect(
        &["verify_pattern"],
        "the content of a verified block depends on its offset and its write, so that more faults are found",
    ),
    no_effect(
        &["verify_write_sequence", "verify_header_seed", "experimental_verify"],
        "each write of a block has a number",
    ),
    no_effect(&["verify_async", "verify_async_cpus"], "the thread of the job checks its blocks"),
    partly(
        &["fill_device", "fill_fs"],
        "the range of a file or device that exists is all of it; a file that does not exist needs a size",
        |_, given| given.flag().map(drop),
    ),
    // The files.
    partly(
        &["filename"],
        "one file, device, model (`model\\:NAME`) or NBD export (`nbd\\://SERVER/EXPORT`); see *Files*",
        |job, given| {
            // As in fio, a line adds files to those of the lines before it and of [global].
            job.files.extend(given.list()?);
            Ok(())
        },
    ),
    yes(
        &["directory"],
        "the directory of the files; several are distributed to the clones",
        set!(directories = list),
    ),
    partly(&["nrfiles", "nr_files"], "1", |_, given| given.only(&["1"], "a job has one file")),
    yes(&["pre_read"], "`--warm`", set!(pre_read = flag)),
    partly(&["invalidate"], "1: each measurement starts with empty caches", |_, given| {
        given.only_on("a measurement starts with empty caches; pre_read=1 fills them")
    }),
    yes(
        &["fsync", "fdatasync"],
        "`--fsync`: a flush after each number of writes, with its own latency",
        |job, given| {
            job.flush_every = NonZeroU64::new(given.bytes()?);
            Ok(())
        },
    ),
    no_effect(
        &["end_fsync", "fsync_on_close"],
        "a writing job flushes at its end, and its time includes the flush",
    ),
    no_effect(
        &[
            "overwrite",
            "fallocate",
            "create_serialize",
            "create_fsync",
            "create_on_open",
            "allow_file_create",
        ],
        "a file that iopath creates is written completely before the first job",
    ),
    no_effect(&["unlink"], "files that iopath created are always removed"),
    no_effect(&["openfiles", "file_service_type", "filetype", "unique_filename"], "a job has one file"),
    no_effect(
        &["refill_buffers", "scramble_buffers", "randcontent"],
        "each buffer has incompressible content from the start",
    ),
    no_effect(&["mem", "iomem", "iomem_align", "mem_align"], "buffers are aligned for direct I/O"),
    no_effect(
        &["fixedbufs", "registerfiles", "userspace_reap", "nonvectored", "libaio_vectored"],
        "the path decides how it submits and completes",
    ),
    // Threads and results.
    no_effect(&["thread", "threads"], "jobs are always threads of one process"),
    no_effect(
        &["group_reporting", "new_group", "stats", "unified_rw_reporting"],
        "the results always have each job and each group of jobs",
    ),
    no_effect(
        &[
            "gtod_reduce",
            "disable_lat",
            "disable_clat",
            "disable_slat",
            "disable_bw",
            "disable_bw_measurement",
        ],
        "latency and throughput are always measured",
    ),
    no_effect(
        &[
            "clat_percentiles",
            "lat_percentiles",
            "slat_percentiles",
            "percentile_list",
            "significant_figures",
        ],
        "the results have fixed percentiles",
    ),
    no_effect(
        &["bwavgtime", "iopsavgtime", "disk_util", "clocksource", "unit_base", "job_start_clock_id"],
        "concerns the output of fio only",
    ),
    yes(&["kb_base"], "1024 or 1000", |_, given| given.only(&["1024", "1000"], "a unit is 1024 or 1000")),
    no_effect(&["description"], "a comment"),
];

fn rw(job: &mut Job, given: &Given) -> Result<(), Refused> {
    const KNOWN: &str =
        "read, write, randread, randwrite, rw, readwrite, randrw, trim, randtrim, trimwrite or randtrimwrite";
    let text = given.text()?;
    let (pattern, modifier) = text.split_once(':').unwrap_or((text, ""));
    job.rw = match pattern {
        "readwrite" => Rw::Rw,
        other => other.parse().map_err(|_| Refused::Expected(KNOWN))?,
    };
    (job.skip_bytes, job.random_run) = (0, 1);
    if modifier.is_empty() {
        return Ok(());
    }
    if job.rw.is_random() {
        let run = modifier.parse().ok().filter(|run| *run > 0);
        job.random_run =
            run.ok_or(Refused::Expected("a number of transfers of 1 or more after the colon"))?;
    } else {
        job.skip_bytes = given.signed(modifier)?;
    }
    Ok(())
}

fn steady_state(job: &mut Job, given: &Given) -> Result<(), Refused> {
    const EXPECTED: Refused = Refused::Expected(
        "iops, bw or lat, or one of them with _slope, a colon, and a limit: iops:10%, bw_slope:0.1%",
    );
    let (criterion, limit) = given.text()?.split_once(':').ok_or(EXPECTED)?;
    let (metric, is_slope) = match criterion {
        "iops" => (SteadyMetric::Iops, false),
        "iops_slope" => (SteadyMetric::Iops, true),
        "bw" => (SteadyMetric::Throughput, false),
        "bw_slope" => (SteadyMetric::Throughput, true),
        "lat" => (SteadyMetric::Latency, false),
        "lat_slope" => (SteadyMetric::Latency, true),
        _ => return Err(EXPECTED),
    };
    job.steady = Some(SteadyKey { metric, is_slope, limit: limit.parse().map_err(|_| EXPECTED)? });
    Ok(())
}

fn ioengine(job: &mut Job, given: &Given) -> Result<(), Refused> {
    job.engine = match given.text()? {
        "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" => IoEngine::Synchronous,
        "libaio" | "io_uring" | "posixaio" => IoEngine::Asynchronous,
        "mmap" => IoEngine::Mapped,
        "null" => IoEngine::Null,
        name => IoEngine::Path(find_path(name).map_err(|_| {
            Refused::Value("it has no path here; use psync, libaio, io_uring, mmap, null or a path of iopath")
        })?),
    };
    Ok(())
}

fn verify(job: &mut Job, given: &Given) -> Result<(), Refused> {
    const CHECKSUMS: [&str; 17] = [
        "meta",
        "md5",
        "crc64",
        "crc32c",
        "crc32c-intel",
        "crc32",
        "crc16",
        "crc7",
        "xxhash",
        "sha512",
        "sha256",
        "sha1",
        "sha3-224",
        "sha3-256",
        "sha3-384",
        "sha3-512",
        "0",
    ];
    let text = given.text()?;
    given.only(&CHECKSUMS, "verified blocks have the format of iopath; use a checksum such as crc32c")?;
    job.verifies = text != "0";
    Ok(())
}

fn random_distribution(job: &mut Job, given: &Given) -> Result<(), Refused> {
    const EXPECTED: &str = "random, zipf:THETA[:CENTER], pareto:POWER[:CENTER], normal:PERCENT[:CENTER], \
                            zoned:ACCESS/SIZE:… in percent or sequence:BLOCK,… with 64 blocks at most";
    let text = given.text()?;
    if text.starts_with("zoned_abs") || (text.contains(',') && !text.starts_with("sequence:")) {
        return Err(Refused::Value("no such distribution for a whole job"));
    }
    job.distribution = text.parse().map_err(|_| Refused::Expected(EXPECTED))?;
    Ok(())
}
