//! The tasks of `iopath help TASK`: questions of users, with the commands that answer them. A new task is a row of
//! [`TASKS`]. Tests parse every example, and run the cheap ones.

use std::fmt::Write;

/// A question, and the commands that answer it.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) name: &'static str,
    /// The question, without a question mark.
    pub(crate) question: &'static str,
    /// The answer in short.
    pub(crate) text: &'static str,
    pub(crate) examples: &'static [Example],
    /// Pages of the documentation, and related tasks.
    pub(crate) more: &'static str,
}

/// A command line of a POSIX shell.
#[derive(Debug)]
pub(crate) struct Example {
    pub(crate) purpose: &'static str,
    pub(crate) command: &'static str,
}

impl Task {
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        TASKS.iter().find(|task| task.name == name)
    }
}

/// The list of tasks, below the list of commands.
pub(crate) fn list() -> String {
    let mut text = String::from("Tasks, with examples (iopath help TASK):\n");
    for Task { name, question, .. } in TASKS {
        let _ = writeln!(text, "  {name:<12} {question}");
    }
    text.pop();
    text
}

const fn example(purpose: &'static str, command: &'static str) -> Example {
    Example { purpose, command }
}

/// All tasks, the most frequent first.
pub(crate) static TASKS: &[Task] = &[
    Task {
        name: "first-look",
        question: "which path, block size and depth suit this storage",
        text: "A survey measures all paths of a directory, file or block device in at most 90 seconds. It begins with its \
               findings: the recommended combination, its CPU cost, and reasons to doubt. It writes only to a scratch file \
               of its own; an existing file or device is only read.",
        examples: &[
            example(
                "Survey the current directory, and keep the figures",
                "iopath survey . --json survey.json",
            ),
            example("The same in less time, with fewer block sizes", "iopath survey . --time 30s"),
            example("Show the figures as one HTML page", "iopath report survey.json -o survey.html"),
        ],
        more: "docs/survey.md; iopath help slow-disk, iopath help database",
    },
    Task {
        name: "slow-disk",
        question: "why is this storage slow",
        text: "Measure single reads first: their latency is that of the device and the path. Then write a request log of a \
               workload, and look at the stages: a long D2C is time in the device, a long I2D is time in the I/O scheduler. \
               The log counts the requests that were not merged, by reason. `iopath map` shows whether a file is fragmented, \
               and `iopath tune` the settings of the device.",
        examples: &[
            example("The latency of single reads", "iopath run --preset ping --target ."),
            example(
                "Log each request of a workload",
                "iopath run --path iopath-direct --target . --size 64m --rw randread --iodepth 32 --elevator deadline \
                 --runtime 1s --repeat 1 --log run.log",
            ),
            example("Summarise the log on one page", "iopath log run.log"),
            example("The first 10 ms, line by line", "iopath log dump run.log --to 10ms"),
            example("The extents of a file, and the requests of its reads", "iopath map data.bin"),
            example("The settings of the device beneath", "iopath tune /dev/sda"),
        ],
        more: "docs/log.md, docs/map.md, docs/tune.md",
    },
    Task {
        name: "slow-io",
        question: "why is the I/O of my program slow",
        text: "Record the block I/O of the whole machine while the program runs: no change of the program is needed, but root \
               is. The page of the log then shows each device and each process: how busy, how many in flight, how large the \
               requests are, which were merged, and where the time passes: waiting for a request (Q2G), in the plug (G2I), in \
               the I/O scheduler (I2D), at the device (D2C). `record --top` shows the same once a second. `whatif` predicts what another \
               scheduler or depth would have done.",
        examples: &[
            example("Record while a program runs", "iopath record -- make -j8"),
            example("Who used which device, and where did the time pass", "iopath log record.log"),
            example(
                "Predict other schedulers, on a model that is fitted to the recording",
                "iopath whatif record.log --elevator none,deadline,fair --closed",
            ),
            example(
                "Try settings of the kernel on a workload like it, and keep the best",
                "iopath tune /dev/sda --try scheduler=none,mq-deadline -- --path kernel-direct --rw randread --runtime 1s",
            ),
            example(
                "Confirm: replay the recorded reads, before and after a change",
                "iopath replay record.log --device sda --target /dev/sda --reads-only",
            ),
        ],
        more: "docs/record.md, docs/log.md, docs/whatif.md, docs/replay.md; iopath help slow-disk",
    },
    Task {
        name: "compare",
        question: "is B faster than A",
        text: "Two results are compared with a 95% interval for each metric, and a verdict: faster, slower, the same within \
               the threshold, or inconclusive with the number of repetitions that a verdict needs. `--live` executes two \
               or more commands alternately until the verdicts are clear, so a drift of the machine affects both alike. Results under \
               different conditions are refused unless `--vary` names the difference.",
        examples: &[
            example(
                "Measure A",
                "iopath run --path kernel-buffered --target . --size 64m --bs 64k --repeat 5 --json a.json",
            ),
            example(
                "Measure B, which differs in its path",
                "iopath run --path iopath-buffered --target . --size 64m --bs 64k --repeat 5 --json b.json",
            ),
            example("Compare the results", "iopath compare a.json b.json --vary path"),
            example(
                "Execute two commands alternately, 20 s at most",
                "iopath compare --live --time-max 20s \
                 \"iopath run --path kernel-direct --target . --size 16m --bs 64k --repeat 1 --json -\" \
                 \"iopath run --path kernel-direct --target . --size 16m --bs 256k --repeat 1 --json -\"",
            ),
            example(
                "Several combinations side by side, with the best marked",
                "iopath run --path kernel-direct,iopath-direct --target . --size 64m --bs 4k,64k --runtime 300ms",
            ),
        ],
        more: "docs/compare.md, docs/tutorial.md; iopath compare --help has the options",
    },
    Task {
        name: "regression",
        question: "how does a script notice that storage became slower",
        text: "Keep a result as the baseline, measure again later, and compare. The exit code is 3 if the new result is \
               significantly worse by more than the threshold, and 0 if not. With `--strict`, it is 4 if there is no \
               verdict. `--format markdown` prints tables for a comment in a code review.",
        examples: &[
            example(
                "Measure the baseline",
                "iopath run --path kernel-direct --target . --size 64m --rw randread --runtime 500ms --repeat 10 \
                 --json baseline.json",
            ),
            example(
                "Measure again after the change",
                "iopath run --path kernel-direct --target . --size 64m --rw randread --runtime 500ms --repeat 10 \
                 --json new.json",
            ),
            example(
                "Compare; exit code 3 is a regression",
                "iopath compare baseline.json new.json --threshold 5% --format markdown",
            ),
        ],
        more: "docs/compare.md, docs/result.md",
    },
    Task {
        name: "database",
        question: "which path suits the data files and the log of a database",
        text: "Two workloads decide: random reads of one page from files larger than memory, where p99 counts, and a log that \
               is flushed after each commit, where the flushes per second count. Measure both, through the page cache and \
               with direct I/O. The block size is the page size of the database, --numjobs the number of its threads that read.",
        examples: &[
            example(
                "Reads of pages, through the page cache and direct",
                "iopath run --path kernel-buffered,kernel-direct --target . --size 256m --rw randread --bs 8k --numjobs 4 \
                 --runtime 500ms",
            ),
            example(
                "Commits: an fsync after each write",
                "iopath run --path kernel-buffered,kernel-direct --target . --size 16m --rw write --bs 8k --fsync 1 \
                 --runtime 500ms",
            ),
            example("Pages and log at the same time", "iopath run --preset database --target ."),
        ],
        more: "docs/tutorial.md answers this question for one disk; iopath help compare",
    },
    Task {
        name: "queue-depth",
        question: "how many I/Os in flight does this device need",
        text: "Measure random reads at growing depths. IOPS grow with the depth until the device is busy; from there on, only \
               the latency grows. Choose the smallest depth with nearly the highest IOPS (△). With several threads, the depth \
               of all threads together counts.",
        examples: &[
            example(
                "Depths side by side, in turns",
                "iopath run --path iopath-direct --target . --size 256m --rw randread --bs 4k \
                 --iodepth 1,2,4,8,16,32,64 --runtime 300ms",
            ),
            example(
                "Depths and block sizes as a heat map",
                "iopath sweep --path iopath-direct --target . --size 256m --rw randread --bs 4k,16k,64k --iodepth 1..64 \
                 --runtime 200ms -o depth.json",
            ),
        ],
        more: "docs/run.md, docs/sweep.md",
    },
    Task {
        name: "jobfile",
        question: "how do the job files of fio run here",
        text: "Job files run as they are. An unsupported key is an error that names the key and the line; --lenient makes it \
               a warning. Options on the command line replace keys of all jobs. Results are printed as a table, or in the \
               JSON of fio for its readers. Presets are job files in the program.",
        examples: &[
            example("Run all jobs", "iopath run job.fio --target ."),
            example(
                "Run one job, and ignore unsupported keys",
                "iopath run job.fio --section reads --lenient --target .",
            ),
            example("Print the JSON of fio", "iopath run job.fio --target . --format fio-json"),
            example(
                "Run a command line of fio",
                "iopath fio --name=t --rw=randread --bs=4k --size=256m --runtime=5",
            ),
            example("List the presets", "iopath run --preset list"),
        ],
        more: "docs/fio.md, docs/jobfiles.md, docs/presets.md",
    },
    Task {
        name: "model",
        question: "how would this workload run on hardware that is not here",
        text: "A target model:NAME is a modelled disk in virtual time: the same queue, elevators and page cache, and results \
               that do not depend on this machine. `iopath fit` fits a model to a device or to a request log, and states its \
               error. `iopath experiment` compares published figures with models of the hardware of their time.",
        examples: &[
            example(
                "Random reads on a modelled hard disk",
                "iopath run --path iopath-direct --target model:hdd-20tb --rw randread --iodepth 8 --runtime 10s",
            ),
            example(
                "The same with another I/O scheduler",
                "iopath run --path iopath-direct --target model:hdd-20tb --rw randread --iodepth 32 --device-depth 4 \
                 --elevator closest --runtime 10s",
            ),
            example(
                "Fit a model to the storage of this directory",
                "iopath fit . -o my-disk.toml --time 60s",
            ),
            example("Re-enact a published effect", "iopath experiment link"),
        ],
        more: "docs/models.md, docs/fit.md, docs/experiments.md",
    },
    Task {
        name: "predict",
        question: "what would another elevator, depth or request size have done",
        text: "Record a request log of the workload, and replay it on a model of the device. A log of a model is replayed on \
               this model. For a log of a real device, whatif fits a model first. The tables have the differences from the \
               recorded run and from the recorded settings, and the verdict says whether they are larger than their \
               intervals and the error of the model.",
        examples: &[
            example(
                "Record random reads of four threads on a modelled hard disk",
                "iopath run --path iopath-direct --target model:hdd-20tb --size 4g --rw randread --numjobs 4 --iodepth 8 \
                 --elevator deadline --device-depth 4 --runtime 5s --repeat 1 --log run.log",
            ),
            example(
                "Replay them with other elevators",
                "iopath whatif run.log --elevator none,deadline,fair --closed",
            ),
        ],
        more: "docs/whatif.md, docs/fit.md",
    },
    Task {
        name: "settings",
        question: "which kernel settings of a device are better for a workload",
        text: "`iopath tune` shows the settings with their meaning. It writes a journal before each change, so `--restore` \
               undoes the changes also after a crash. `--try` measures candidates on a workload, and keeps the best one only \
               if it is better with confidence. Changes need root.",
        examples: &[
            example("Show the settings", "iopath tune /dev/sda"),
            example("Change one", "iopath tune /dev/sda read_ahead_kb=1024"),
            example(
                "Measure candidates",
                "iopath tune /dev/sda --try scheduler=none,mq-deadline -- --path kernel-direct --rw randread --runtime 1s",
            ),
            example("Restore the settings", "iopath tune /dev/sda --restore"),
        ],
        more: "docs/tune.md, docs/sweep.md",
    },
    Task {
        name: "remote",
        question: "how does another machine or a virtual machine use this storage",
        text: "`iopath serve` exports files and block devices over NBD, read-only unless --writable. It prints a URI for each \
               export and runs until SIGINT or SIGTERM. TCP has no encryption: without a host name, it listens on 127.0.0.1.",
        examples: &[
            example("Serve a file on a unix socket", "iopath serve data.bin --unix data.sock"),
            example(
                "Serve a file for writing on TCP port 10809",
                "iopath serve data.bin --writable --listen 10809",
            ),
            example(
                "Through the page cache of iopath",
                "iopath serve data.bin --unix data.sock --path iopath-buffered --cache 64m",
            ),
            example(
                "As a disk of a virtual machine, without NBD",
                "iopath serve data.bin --writable --vhost-user data.sock",
            ),
            example("As a block device of this machine", "iopath attach data.bin --elevator deadline"),
        ],
        more: "docs/serve.md, docs/vhost-user.md, docs/attach.md",
    },
    Task {
        name: "integrity",
        question: "does this storage return the bytes that were written",
        text: "With --verify, writes carry checksums, offsets and numbers, and blocks are read back. The result counts blocks \
               that are lost, stale, torn, misdirected or corrupt, and names the first of them.",
        examples: &[
            example(
                "Write at random, and read all blocks back",
                "iopath run --path kernel-direct --target . --size 64m --rw randwrite --bs 4k --verify --repeat 1",
            ),
            example(
                "Read back during the run, too, and end at the first fault",
                "iopath run --path kernel-direct --target . --size 64m --rw randwrite --bs 4k --verify \
                 --verify-backlog 1000 --verify-fatal --repeat 1",
            ),
        ],
        more: "docs/verify.md",
    },
];
