//! The keys that iopath knows and refuses, each with its reason.

use super::{Key, Support};

const fn no(names: &'static [&'static str], reason: &'static str) -> Key {
    Key { names, support: Support::No, mapping: reason, has_off: false, apply: |_, _| Ok(()) }
}

/// A key whose value 0 switches the function off.
const fn switch(names: &'static [&'static str], reason: &'static str) -> Key {
    Key { has_off: true, ..no(names, reason) }
}

pub(super) const KEYS: &[Key] = &[
    no(&["verify_pattern", "verify_offset"], "verified blocks have the format of iopath"),
    switch(
        &["verify_only"],
        "a job verifies what jobs of the same file have written; use rw=read to check stamps alone",
    ),
    switch(&["verify_backlog_batch"], "a job reads its whole backlog"),
    switch(&["verify_dump"], "faults are in the results, blocks are not stored"),
    switch(
        &["verify_state_load", "verify_state_save", "verify_trigger", "verify_trigger_file"],
        "the expected content is known during the run only",
    ),
    switch(&["bs_is_seq_rand"], "sizes are of reads and of writes"),
    no(
        &["rw_sequencer", "random_sequence_stride", "sprandom", "spr_op", "spr_num_regions", "spr_cs"],
        "no such order of offsets",
    ),
    no(
        &[
            "zonemode",
            "zonerange",
            "zonesize",
            "zonecapacity",
            "zoneskip",
            "read_beyond_wp",
            "max_open_zones",
        ],
        "no zones",
    ),
    switch(
        &["trim_percentage", "trim_backlog", "trim_backlog_batch", "trim_verify_zero"],
        "no path discards blocks",
    ),
    switch(
        &["sync_file_range", "write_barrier", "sync", "end_syncfs"],
        "a job flushes its whole file, after a number of writes (fsync) and at its end",
    ),
    switch(&["file_append", "fill_device", "fill_fs"], "a job accesses a range of fixed size"),
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
        &["thinkcycles", "thinktime_spin", "thinktime_blocks_type", "thinktime_iotime"],
        "a job pauses after each transfer, without use of the CPU",
    ),
    switch(
        &["rate_min", "ratemin", "rate_iops_min", "rate_cycle", "rate_ignore_thinktime"],
        "a job that does not keep its rate continues, with a warning",
    ),
    switch(
        &["latency_target", "latency_window", "latency_percentile", "latency_run", "max_latency"],
        "the depth is fixed",
    ),
    switch(&["ramp_size"], "the time before the measurement is ramp_time"),
    switch(&["flow", "flow_id", "flow_sleep"], "jobs do not wait for each other"),
    no(
        &[
            "write_bw_log",
            "write_lat_log",
            "write_iops_log",
            "write_hist_log",
            "log_avg_msec",
            "log_offset",
            "log_prio",
        ],
        "no series over time; iopath run --log records requests",
    ),
    no(
        &["read_iolog", "write_iolog", "replay_no_stall", "replay_redirect", "replay_time_scale"],
        "no replay of I/O logs",
    ),
    no(
        &[
            "nice",
            "prio",
            "prioclass",
            "cmdprio",
            "cmdprio_percentage",
            "cmdprio_class",
            "cmdprio_bssplit",
            "cpus_allowed",
            "cpus_allowed_policy",
            "cpumask",
            "numa_cpu_nodes",
            "numa_mem_policy",
            "cgroup",
            "cgroup_weight",
            "uid",
            "gid",
        ],
        "threads have no such setting; start iopath with nice, ionice, taskset or numactl",
    ),
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
