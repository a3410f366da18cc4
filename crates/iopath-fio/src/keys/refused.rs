//! The keys that iopath knows and refuses, each with its reason and the values that change nothing.

use super::{Key, Support};
use iopath_bench::options::Decides::{Contents, Direction, Durability, Range};

const fn no(names: &'static [&'static str], reason: &'static str) -> Key {
    Key::new(names, Support::No, reason)
}

/// A key whose value 0 switches the function off.
const fn off(names: &'static [&'static str], reason: &'static str) -> Key {
    no(names, reason).neutral(&["0"])
}

const ORDERS: &str = "no such order of offsets";
const ZONED: &str = "no zoned block devices";
const TRIMS: &str = "trims are a pattern of their own: rw=randtrim";
const FLUSHES: &str = "a job flushes its whole file, after a number of writes (fsync) and at its end";
const SETTING: &str = "no such setting";
const REPLAY: &str = "no replay of I/O logs";
const SERIES: &str = "series have the mean of each interval, in a file for each job";
const ENGINE: &str = "it belongs to an engine of fio that has no path here";
const PASSTHROUGH: &str = "no commands to devices beside the block layer";

pub(super) const KEYS: &[Key] = &[
    no(&["verify_policy"], "each written block is verified").neutral(&["completed"]).decides(Contents),
    off(&["verify_offset"], "verified blocks have the format of iopath").decides(Contents),
    off(
        &["verify_only"],
        "a job verifies what jobs of the same file have written; use rw=read to check stamps alone",
    )
    .switch()
    .decides(Direction),
    off(&["verify_backlog_batch"], "a job reads its whole backlog"),
    off(
        &["verify_state_load", "verify_trigger", "verify_trigger_file"],
        "the expected content is known during the run only",
    )
    .decides(Contents),
    off(&["bs_is_seq_rand"], "sizes are of reads and of writes").switch().decides(Range),
    no(&["rw_sequencer"], ORDERS).neutral(&["sequential"]).decides(Range),
    off(&["sprandom", "spr_op", "spr_num_regions", "spr_cs", "num_range"], ORDERS).decides(Range),
    off(&["zonecapacity", "read_beyond_wp", "zone_reset_threshold", "zone_reset_frequency"], ZONED)
        .decides(Range),
    off(
        &[
            "max_open_zones",
            "job_max_open_zones",
            "ignore_zone_limits",
            "recover_zbd_write_error",
            "write_zone_remainder",
        ],
        ZONED,
    )
    .decides(Range),
    off(&["trim_percentage", "trim_backlog", "trim_backlog_batch"], TRIMS).decides(Direction),
    off(&["write_barrier", "end_syncfs"], FLUSHES).decides(Durability),
    off(&["sync_file_range"], FLUSHES).decides(Durability),
    off(&["atomic"], "no untorn writes").decides(Durability),
    off(&["file_append"], "a job accesses a range of fixed size").decides(Range),
    no(&["lockfile"], SETTING).neutral(&["none"]),
    no(&["write_hint"], SETTING).neutral(&["none", "0"]),
    off(&["serialize_overlap"], "the order of overlapping transfers is that of the path"),
    off(
        &["thinkcycles", "thinktime_spin", "thinktime_iotime"],
        "a job pauses after each transfer, without use of the CPU",
    ),
    off(&["rate_ignore_thinktime"], "a rate counts from the start of the job, with its pauses"),
    off(&["ramp_size"], "the time before the measurement is ramp_time"),
    off(&["log_window_value", "log_max_value", "log_issue_time"], SERIES),
    off(
        &["log_unix_epoch", "log_alternate_epoch", "log_alternate_epoch_clock_id"],
        "the times of series begin with the job",
    ),
    no(&["read_iolog", "write_iolog", "replay_redirect", "replay_skip"], REPLAY).decides(Range),
    off(&["read_iolog_chunked", "replay_no_stall", "replay_align"], REPLAY),
    no(&["replay_scale"], REPLAY).neutral(&["1", "0"]),
    no(&["replay_time_scale"], REPLAY).neutral(&["100", "0"]),
    off(&["merge_blktrace_file", "merge_blktrace_scalars", "merge_blktrace_iters"], REPLAY).decides(Range),
    no(&["cgroup"], "no such setting; start the program in the control group"),
    off(&["cgroup_weight", "cgroup_nodelete"], "no such setting; start the program in the control group"),
    off(&["uid", "gid"], "no such setting; start the program as this user"),
    no(&["exec_prerun", "exec_postrun"], "a job starts no programs; run them before and after it"),
    no(&["profile"], "no such profile; `iopath run --preset list` shows those of iopath"),
    no(&["hipri_percentage"], "a job with hipri polls all completions").neutral(&["100", "0"]),
    off(&["force_async", "nowait", "uncached"], "the path decides how it submits and completes"),
    off(&["thp"], "huge pages of mapped files are those of the system"),
    no(&["cmd_type", "uring_cmd_type"], PASSTHROUGH).neutral(&["nvme"]).decides(Range),
    no(&["write_mode", "read_mode", "sg_write_mode", "verify_mode", "pi_chk"], PASSTHROUGH)
        .neutral(&["write", "read"])
        .decides(Direction),
    off(&["readfua", "writefua", "stream_id", "deac"], PASSTHROUGH).decides(Durability),
    off(&["md_per_io_size", "pi_act", "apptag", "apptag_mask", "cdb_len", "verify_bytchk"], PASSTHROUGH)
        .decides(Contents),
    off(
        &[
            "fdp",
            "fdp_pli",
            "dataplacement",
            "dp_scheme",
            "plids",
            "plid_select",
            "data_placement",
            "fdp_pli_select",
        ],
        "no placement of data",
    ),
    no(&["clustername", "clientname", "pool", "rbdname", "conf"], ENGINE)
        .neutral(&["/etc/ceph/ceph.conf"])
        .decides(Range),
    no(&["busy_poll", "touch_objects"], ENGINE).neutral(&["0", "1"]).decides(Range),
    no(&["hostname", "bindname", "interface", "port", "window_size", "mss", "ttl"], ENGINE)
        .neutral(&["0", "1"])
        .decides(Range),
    no(&["protocol", "proto", "verb", "nodelay"], ENGINE).neutral(&["tcp", "write", "0"]).decides(Range),
    off(&["listen", "pingpong"], ENGINE).switch().decides(Range),
    no(&["cpuload", "cpuchunks", "cpumode", "exit_on_io_done"], ENGINE)
        .neutral(&["0", "50000", "noop"])
        .decides(Range),
    no(&["program", "arguments", "grace_time", "std_redirect"], ENGINE).neutral(&["0", "1"]).decides(Range),
    no(&["volume", "brick", "single-instance", "single_instance"], ENGINE).neutral(&["0"]).decides(Range),
    no(&["donorname", "inplace", "skip_bad", "stat_type"], ENGINE).neutral(&["0", "stat"]).decides(Range),
    off(
        &["namenode", "hdfsdirectory", "chunk_size", "chunck_size", "hdfs_use_direct", "nfs_url", "lfs_uri"],
        ENGINE,
    )
    .decides(Range),
    off(
        &[
            "https",
            "http_host",
            "http_user",
            "http_pass",
            "http_mode",
            "http_verbose",
            "http_swift_auth_token",
            "http_s3_key",
            "http_s3_keyid",
            "http_s3_region",
            "http_s3_sse_customer_key",
            "http_s3_security_token",
            "http_s3_storage_class",
            "http_s3_sse_customer_algorithm",
            "http_object_mode",
        ],
        ENGINE,
    )
    .decides(Range),
    off(
        &[
            "cont",
            "svcl",
            "object_class",
            "initiator",
            "cuda_io",
            "rocm_io",
            "gpu_dev_id",
            "gpu_dev_ids",
            "rbd_encryption_format",
            "rbd_encryption_passphrase",
            "xnvme_admin",
            "xnvme_async",
            "xnvme_be",
            "xnvme_dev_nsid",
            "xnvme_dev_subnqn",
            "xnvme_mem",
            "xnvme_sync",
        ],
        ENGINE,
    )
    .decides(Range),
    off(&["xnvme_iovec", "no_completion_thread", "dummy"], ENGINE).switch().decides(Range),
    off(
        &[
            "libblkio_driver",
            "libblkio_path",
            "libblkio_pre_connect_props",
            "libblkio_num_entries",
            "libblkio_queue_size",
            "libblkio_pre_start_props",
            "libblkio_wait_mode",
        ],
        ENGINE,
    )
    .decides(Range),
    off(
        &["libblkio_vectored", "libblkio_write_zeroes_on_trim", "libblkio_force_enable_completion_eventfd"],
        ENGINE,
    )
    .switch()
    .decides(Range),
];
