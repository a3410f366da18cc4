//! The keys that iopath accepts without any effect on a measurement: they select what iopath does anyway, or concern
//! the output. A value that fio does not take is refused.

use iopath_bench::options::Values::{Cpus, Errors, Flag, Names, Number, Range, Text};

use super::{Key, no_effect};

const FILES: &str = "a file that iopath creates is complete before the first job";
const PATH: &str = "the path decides how it submits and completes";
const THREADS: &str = "jobs are always threads of one process";
const FAILURE: &str = "a run without errors is the same; the first failure ends the run";
const OUTPUT: &str = "concerns the output of fio only";
const NONE: &str = "it has none in fio, too";
const SERIES: &str = "a line needs 64 bytes of memory during the run";

pub(super) const KEYS: &[Key] = &[
    no_effect(&["softrandommap"], Flag, "the permutation of `norandommap=0` needs no memory").switch(),
    no_effect(
        &["random_generator"],
        Names(&["tausworthe", "lfsr", "tausworthe64"]),
        "random numbers are of xoshiro256++",
    ),
    no_effect(
        &["io_submit_mode"],
        Names(&["inline", "offload"]),
        "`inline` and `offload`: a path with several transfers in flight does not wait in its submissions",
    ),
    no_effect(&["verify_interval", "verify_pattern_interval"], Number, "each 512 bytes have a checksum"),
    no_effect(
        &["verify_write_sequence", "verify_header_seed", "experimental_verify"],
        Flag,
        "each write of a block has a number",
    ),
    no_effect(&["verify_async"], Number, "the thread of the job checks its blocks"),
    no_effect(&["verify_async_cpus"], Cpus, "the thread of the job checks its blocks"),
    no_effect(&["create_serialize", "create_fsync", "create_on_open", "allow_file_create"], Flag, FILES),
    no_effect(&["openfiles"], Number, "all files of a job are open"),
    no_effect(&["filetype"], Text, "the kind and the name of a file are as given"),
    no_effect(&["unique_filename"], Flag, "the kind and the name of a file are as given"),
    no_effect(&["scramble_buffers"], Flag, "each buffer has incompressible content from the start"),
    no_effect(&["randcontent"], Number, "each buffer has incompressible content from the start"),
    no_effect(&["refill_buffers"], Flag, "each buffer has incompressible content from the start").switch(),
    no_effect(&["fixedbufs", "registerfiles", "userspace_reap"], Flag, PATH).switch(),
    no_effect(&["nonvectored"], Number, PATH),
    no_effect(&["libaio_vectored"], Flag, PATH),
    no_effect(&["thread"], Flag, THREADS).switch(),
    no_effect(&["threads"], Number, THREADS),
    no_effect(
        &["continue_on_error"],
        Names(&["none", "read", "write", "io", "verify", "all", "0", "1"]),
        FAILURE,
    ),
    no_effect(&["ignore_error"], Errors, FAILURE),
    no_effect(&["error_dump"], Flag, FAILURE),
    no_effect(&["exitall_on_error"], Flag, "the first failure ends the run").switch(),
    no_effect(&["trim_verify_zero"], Flag, "a trimmed block has no content to verify"),
    no_effect(&["verify_state_save"], Flag, "the expected content is known during the run only"),
    no_effect(&["allow_mounted_write"], Flag, "a mounted device is never written to"),
    no_effect(&["unlink_each_loop"], Flag, "the passes of a job access one file"),
    no_effect(&["hugepage-size", "gtod_cpu"], Number, "the system decides"),
    no_effect(
        &[
            "gtod_reduce",
            "disable_lat",
            "disable_clat",
            "disable_slat",
            "disable_bw",
            "disable_bw_measurement",
        ],
        Flag,
        "each latency is measured, for the delays and limits of jobs; one workload has `--latency-every`",
    ),
    no_effect(&["significant_figures"], Range(1, 10), "the results have three digits"),
    no_effect(&["bwavgtime", "iopsavgtime", "job_start_clock_id"], Number, OUTPUT),
    no_effect(&["disk_util", "block_error_percentiles"], Flag, OUTPUT),
    no_effect(&["clocksource"], Names(&["gettimeofday", "clock_gettime", "cpu"]), OUTPUT),
    no_effect(&["unit_base"], Names(&["0", "8", "1"]), OUTPUT),
    no_effect(&["flow_watermark", "percentage_sequential", "rwmixcycle", "verifysort_nr"], Number, NONE),
    no_effect(&["verifysort"], Flag, NONE),
    no_effect(&["comm"], Text, "the name of a process"),
    no_effect(&["description"], Text, "a comment"),
    no_effect(&["log_entries"], Range(1024, 1 << 20), SERIES),
    no_effect(&["log_compression"], Range(1024, 512 << 20), SERIES).neutral(&["0"]),
    no_effect(&["log_compression_cpus"], Cpus, SERIES),
    no_effect(&["log_store_compressed"], Flag, SERIES),
];
