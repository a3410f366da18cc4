//! The keys that iopath accepts without any effect on a measurement: they select what iopath does anyway, or concern
//! the output.

use super::{Key, no_effect};

pub(super) const KEYS: &[Key] = &[
    no_effect(&["softrandommap"], "the permutation of `norandommap=0` needs no memory").switch(),
    no_effect(&["random_generator"], "random numbers are of xoshiro256++"),
    no_effect(&["thinktime_blocks_type"], "a job with pauses has one transfer in flight"),
    no_effect(
        &["io_submit_mode"],
        "`inline` and `offload`: a path with several transfers in flight does not wait in its submissions",
    ),
    no_effect(&["verify_interval", "verify_pattern_interval"], "each 512 bytes have a checksum"),
    no_effect(
        &["verify_pattern"],
        "the content of a verified block depends on its offset and its write, so that more faults are found",
    ),
    no_effect(
        &["verify_write_sequence", "verify_header_seed", "experimental_verify"],
        "each write of a block has a number",
    ),
    no_effect(&["verify_async", "verify_async_cpus"], "the thread of the job checks its blocks"),
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
    no_effect(&["openfiles"], "all files of a job are open"),
    no_effect(&["filetype", "unique_filename"], "the kind and the name of a file are as given"),
    no_effect(&["scramble_buffers", "randcontent"], "each buffer has incompressible content from the start"),
    no_effect(&["refill_buffers"], "each buffer has incompressible content from the start").switch(),
    no_effect(&["mem", "iomem", "iomem_align", "mem_align"], "buffers are aligned for direct I/O"),
    no_effect(
        &["fixedbufs", "registerfiles", "userspace_reap"],
        "the path decides how it submits and completes",
    )
    .switch(),
    no_effect(&["nonvectored", "libaio_vectored"], "the path decides how it submits and completes"),
    no_effect(&["thread"], "jobs are always threads of one process").switch(),
    no_effect(&["threads"], "jobs are always threads of one process"),
    no_effect(&["group_reporting", "new_group"], "the results always have each job and each group of jobs")
        .switch(),
    no_effect(&["stats", "unified_rw_reporting"], "the results always have each job and each group of jobs"),
    no_effect(
        &["continue_on_error", "ignore_error", "error_dump"],
        "a run without errors is the same; the first failure ends the run",
    ),
    no_effect(&["exitall_on_error"], "the first failure ends the run").switch(),
    no_effect(&["trim_verify_zero"], "a trimmed block has no content to verify"),
    no_effect(&["verify_state_save"], "the expected content is known during the run only"),
    no_effect(&["allow_mounted_write"], "a mounted device is never written to"),
    no_effect(&["unlink_each_loop"], "the passes of a job access one file"),
    no_effect(&["hugepage-size", "gtod_cpu"], "the system decides"),
    no_effect(
        &[
            "gtod_reduce",
            "disable_lat",
            "disable_clat",
            "disable_slat",
            "disable_bw",
            "disable_bw_measurement",
        ],
        "each latency is measured, for the delays and limits of jobs; one workload has `--latency-every`",
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
        &[
            "bwavgtime",
            "iopsavgtime",
            "disk_util",
            "clocksource",
            "unit_base",
            "job_start_clock_id",
            "block_error_percentiles",
        ],
        "concerns the output of fio only",
    ),
    no_effect(&["log_hist_msec", "log_hist_coarseness"], "of `write_hist_log` only, which is refused"),
    no_effect(
        &["flow_watermark", "percentage_sequential", "rwmixcycle", "verifysort", "verifysort_nr"],
        "it has none in fio, too",
    ),
    no_effect(&["comm"], "the name of a process"),
    no_effect(&["description"], "a comment"),
    no_effect(
        &["log_entries", "log_compression", "log_compression_cpus", "log_store_compressed"],
        "a line needs 64 bytes of memory during the run",
    ),
];
