//! The keys that iopath knows and refuses, each with its reason.

use super::{Key, Support, UnusedKey};

const fn no(names: &'static [&'static str], reason: &'static str) -> UnusedKey {
    UnusedKey { key: Key { names, support: Support::No, mapping: reason }, has_off: false }
}

/// A key whose value 0 switches the function off.
const fn switch(names: &'static [&'static str], reason: &'static str) -> UnusedKey {
    UnusedKey { has_off: true, ..no(names, reason) }
}

pub(super) const KEYS: &[UnusedKey] = &[
    no(&["verify_offset"], "verified blocks have the format of iopath"),
    switch(
        &["verify_only"],
        "a job verifies what jobs of the same file have written; use rw=read to check stamps alone",
    ),
    switch(&["verify_backlog_batch"], "a job reads its whole backlog"),
    switch(
        &["verify_state_load", "verify_state_save", "verify_trigger", "verify_trigger_file"],
        "the expected content is known during the run only",
    ),
    switch(&["bs_is_seq_rand"], "sizes are of reads and of writes"),
    no(&["rw_sequencer", "sprandom", "spr_op", "spr_num_regions", "spr_cs"], "no such order of offsets"),
    no(&["zonecapacity", "read_beyond_wp", "max_open_zones"], "no zoned block devices"),
    switch(
        &["trim_percentage", "trim_backlog", "trim_backlog_batch", "trim_verify_zero"],
        "trims are a pattern of their own: rw=randtrim",
    ),
    switch(
        &["sync_file_range", "write_barrier", "sync", "end_syncfs"],
        "a job flushes its whole file, after a number of writes (fsync) and at its end",
    ),
    switch(&["file_append"], "a job accesses a range of fixed size"),
    no(&["filename_format", "opendir"], "a job has one file; name it with filename"),
    switch(&["lockfile", "lockmem", "fadvise_hint", "write_hint", "ioscheduler"], "no such setting"),
    switch(
        &[
            "zero_buffers",
            "buffer_pattern",
            "buffer_compress_percentage",
            "buffer_compress_chunk",
            "dedupe_percentage",
            "dedupe_mode",
            "dedupe_working_set_percentage",
            "dedupe_global",
        ],
        "buffers have incompressible content",
    ),
    switch(
        &[
            "iodepth_batch",
            "iodepth_batch_submit",
            "iodepth_batch_complete",
            "iodepth_batch_complete_min",
            "iodepth_batch_complete_max",
            "iodepth_low",
            "serialize_overlap",
        ],
        "a job submits as soon as a transfer has completed",
    ),
    switch(
        &["thinkcycles", "thinktime_spin", "thinktime_iotime"],
        "a job pauses after each transfer, without use of the CPU",
    ),
    switch(&["rate_ignore_thinktime"], "a rate counts from the start of the job, with its pauses"),
    switch(&["ramp_size"], "the time before the measurement is ramp_time"),
    no(
        &[
            "write_hist_log",
            "log_hist_msec",
            "log_hist_coarseness",
            "log_window_value",
            "log_max_value",
            "log_issue_time",
            "per_job_logs",
        ],
        "series have the mean of each interval, in a file for each job",
    ),
    no(
        &["read_iolog", "write_iolog", "replay_no_stall", "replay_redirect", "replay_time_scale"],
        "no replay of I/O logs",
    ),
    no(&["cgroup", "cgroup_weight", "uid", "gid"], "no such setting"),
    no(&["exec_prerun", "exec_postrun"], "a job file starts no programs"),
    switch(
        &["continue_on_error", "ignore_error", "error_dump", "exitall_on_error"],
        "the first failure ends the run",
    ),
    switch(
        &["hipri", "sqthread_poll", "sqthread_poll_cpu", "force_async", "nowait", "atomic", "uncached"],
        "the path decides how it submits and completes",
    ),
];
