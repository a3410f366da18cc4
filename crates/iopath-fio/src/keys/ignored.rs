//! The keys that iopath accepts without any effect on a measurement: they select what iopath does anyway, or concern
//! the output.

use super::{UnusedKey, no_effect};

pub(super) const KEYS: &[UnusedKey] = &[
    no_effect(
        &["norandommap", "softrandommap"],
        "random offsets are always independent of each other: some blocks are accessed twice, others never",
    ),
    no_effect(&["random_generator"], "random numbers are of xoshiro256++"),
    no_effect(&["thinktime_blocks_type"], "a job with pauses has one transfer in flight"),
    no_effect(
        &["io_submit_mode"],
        "`inline` and `offload`: a path with several transfers in flight does not wait in its submissions",
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
        &["bwavgtime", "iopsavgtime", "disk_util", "clocksource", "unit_base", "job_start_clock_id"],
        "concerns the output of fio only",
    ),
    no_effect(&["description"], "a comment"),
    no_effect(
        &["log_entries", "log_compression", "log_compression_cpus", "log_store_compressed"],
        "a line needs 64 bytes of memory during the run",
    ),
];
