//! The prose of the manual pages: a row for each command. A test demands the row of a new command. The options come
//! from the description of the arguments, the examples from the tasks of `iopath help`.

/// The prose of a page.
#[derive(Debug)]
pub(super) struct Verb {
    pub(super) name: &'static str,
    /// The paragraphs of its description.
    pub(super) text: &'static [&'static str],
    /// Its page in the documentation.
    pub(super) docs: &'static str,
    /// Exit codes besides 0, 1 and 2.
    pub(super) codes: &'static [(&'static str, &'static str)],
}

impl Verb {
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        VERBS.iter().find(|verb| verb.name == name)
    }
}

const fn verb(name: &'static str, docs: &'static str, text: &'static [&'static str]) -> Verb {
    Verb { name, text, docs, codes: &[] }
}

const SIGNAL: (&str, &str) =
    ("130, 129, 143", "SIGINT, SIGHUP or SIGTERM ended the command; the results so far are printed");

pub(super) static VERBS: &[Verb] = &[
    verb(
        "survey",
        "docs/survey.md",
        &[
            "Measures a directory, file, block device or modelled disk on each path, at block sizes from 4 KiB to 64 MiB, in \
             at most 90 seconds. The findings come first: the recommended path, block size and depth, each with a confidence \
             and the reasons that lower it. The tables follow.",
            "In a directory, survey writes a scratch file of its own and removes it at the end. An existing file or device is \
             only read, unless --overwrite permits writes. A combination that a cache answered is marked, and never \
             recommended.",
        ],
    ),
    Verb {
        codes: &[SIGNAL],
        ..verb(
            "run",
            "docs/run.md, docs/jobfiles.md, docs/presets.md, docs/verify.md",
            &[
                "Measures one workload on one path: throughput, latency, CPU cost and the requests of the device, with the \
                 spread of the repetitions. Lists measure all combinations side by side, in turns. Several targets are \
                 measured at the same time. A JOBFILE of fio, or a preset, replaces the workload.",
                "Each repetition begins with empty caches unless --warm is set. The result states if memory, not storage, \
                 served it. Without --overwrite, the command writes only to scratch files of its own.",
            ],
        )
    },
    Verb {
        codes: &[SIGNAL],
        ..verb(
            "fio",
            "docs/fio.md, docs/jobfiles.md",
            &[
                "Runs a command line of fio as it is: options of jobs, job files, and the options for output. A program of the name \
                 fio, such as a symbolic link, behaves in the same way. --help shows the options, --cmdhelp all keys.",
                "A file that does not exist is created, and stays. Without --allow-overwrite, an existing file or device that iopath \
                 did not create is only read. The exit code is 1 for any failure, as in fio.",
            ],
        )
    },
    Verb {
        codes: &[
            ("3", "B is significantly worse than A"),
            ("4", "with --strict: a verdict is inconclusive, or a workload has no partner"),
        ],
        ..verb(
            "compare",
            "docs/compare.md",
            &[
                "Compares two results, or two or more commands that it executes alternately with --live, each compared with \
               the first. For each metric, it prints the difference, its 95% confidence interval and a verdict. Results of different conditions are refused \
               unless --vary names the difference. It also reads the JSON of fio and tables of blockdev-perftest.",
            ],
        )
    },
    verb(
        "report",
        "docs/report.md",
        &[
            "Writes results and request logs as one HTML page without external files: findings, curves, tables, comparison, \
           machine, settings and the exact commands. The page works offline and without scripts.",
        ],
    ),
    verb(
        "experiment",
        "docs/experiments.md",
        &[
            "Re-enacts published effects of the I/O path on modelled hardware of their time, in virtual time, and compares \
           published figures with those of the model. Predictions count, calibrated figures do not. With --target, it \
           measures the effects that real storage can show.",
        ],
    ),
    verb(
        "fit",
        "docs/fit.md, docs/models.md",
        &[
            "Fits the parameters of a model to measurements of a target, or to a request log, and writes a model file for \
           --target model:FILE.toml. It states the error of the model on workloads that the fit did not use.",
        ],
    ),
    verb(
        "whatif",
        "docs/whatif.md, docs/fit.md",
        &[
            "Replays the requests of request logs and CSV files on a model, in virtual time, under each combination of \
           elevators, request sizes, depths, merges and priorities. It prints throughput, latencies, requests at the device, \
           seeks, utilisation and fairness, their differences from the reference and from the recorded run with 95% \
           intervals, and a verdict. The verdict includes the error of the model, as `iopath fit` states it.",
            "Requests are due at their recorded times, or, with --closed, after the completions that they followed. With \
           --shard, several processes run a study together, and --merge-parts joins their parts.",
        ],
    ),
    Verb {
        codes: &[SIGNAL],
        ..verb(
            "replay",
            "docs/replay.md, docs/record.md",
            &[
                "Replays the I/Os of a request log, or of a trace that another program recorded, on files, block devices, stripes, \
                 exports or modelled disks, in real time: at the recorded times, after the recorded completions and think times, or \
                 as fast as possible. It prints how late the submissions were, and recorded and measured latencies side by side.",
                "Writes, flushes and discards are replayed, too, on scratch files and modelled disks. A file or device of the user \
                 needs --overwrite, or --reads-only. The trace is read twice; its memory is bounded.",
            ],
        )
    },
    verb(
        "sweep",
        "docs/sweep.md",
        &[
            "Measures each combination of lists of paths, patterns, block sizes, depths and settings, in random order. \
           Settings of the device are applied, journaled and restored. The results file is updated after each cell, and \
           --resume continues an interrupted sweep.",
        ],
    ),
    verb(
        "tune",
        "docs/tune.md",
        &[
            "Shows the settings of the kernel for a block device, with range and meaning; sets them; restores them. Each \
           change is written to a journal first, so that --restore, and the next start of any command after SIGKILL, \
           restores the previous values. With --try, it measures candidates on a workload, and keeps the best one if it is \
           better with confidence.",
        ],
    ),
    verb(
        "serve",
        "docs/serve.md",
        &[
            "Serves files and block devices over NBD until SIGINT or SIGTERM, and prints the URI of each export. Exports are \
           read-only unless --writable is set.",
            "With --vhost-user, one target is a disk of a virtual machine instead, and the socket is printed: \
           docs/vhost-user.md.",
        ],
    ),
    verb(
        "attach",
        "docs/attach.md",
        &[
            "Makes files, block devices, modelled disks, stripes and NBD exports block devices of this machine, /dev/ublkbN, by \
             the ublk driver of Linux 6.5 or newer, until SIGINT or SIGTERM, and prints their paths. The elevator, the page \
             cache and the readahead of iopath are then under any file system.",
            "A device on iopath-direct or iopath-raw survives a kill of the process: its requests wait, and --recover continues \
             it. A device that is in use at SIGTERM waits in the same way.",
        ],
    ),
    verb(
        "detach",
        "docs/attach.md",
        &[
            "Removes devices of `iopath attach`: completes their requests, flushes their targets, and ends their processes. A \
             device that is in use is refused, unless --force is set.",
        ],
    ),
    verb(
        "elevators",
        "docs/elevators.md",
        &[
            "Lists the I/O schedulers (elevators) of the library for --elevator: the order, the use, and each setting with its \
           default, unit and range.",
        ],
    ),
    Verb {
        codes: &[
            ("the command's", "with a command: its exit code, or 128 and its signal"),
            ("130, 129, 143", "SIGINT, SIGHUP or SIGTERM ended the recording; the log is complete"),
        ],
        ..verb(
            "record",
            "docs/record.md, docs/log.md",
            &[
                "Records the I/O of all programs on the kernel's own path, from the tracepoints of the block layer, until the \
                 command ends, the time of --for has passed, or Ctrl-C. The file is a request log: `iopath log`, `report`, `fit` \
                 and `whatif` read it. Each queue of the log is a device, and each stream a process.",
                "It needs root, or CAP_PERFMON and a readable tracefs. Events that the kernel could not deliver are counted, by \
                 event and CPU, and the summary states them.",
            ],
        )
    },
    verb(
        "convert",
        "docs/convert.md",
        &[
            "Writes a request log, or a trace that another program recorded, in another format. The format of the input is \
             detected by its content: blktrace, blkparse, perf script, trace-cmd, biosnoop, fio's I/O logs, and public sets of \
             traces, also compressed with gzip or zstd. `iopath log`, `report`, `fit` and `whatif` read the same files.",
            "What the input lacks, and what the output cannot hold, is stated on stderr. No existing file is replaced without \
             --force.",
        ],
    ),
    verb(
        "log",
        "docs/log.md, docs/log-summary.md, docs/log-format.md",
        &[
            "Reads a request log that `iopath run --log FILE` has written. The summary has one page: bios and requests, merges, \
           reasons against a merge, seeks, the latency of each stage, requests in flight, streams and the slowest bios. \
           `iopath log dump` prints one line for each event. A log that ends early is read up to the damage.",
        ],
    ),
    verb(
        "map",
        "docs/map.md",
        &[
            "Shows the extents of a file on its device, and counts the requests that direct reads of the whole file need for \
           each block size. The content is not read.",
        ],
    ),
    verb("completions", "docs/help.md", &["Writes a completion script for a shell to stdout."]),
    verb(
        "man",
        "docs/help.md",
        &[
            "Writes the manual page of a command to stdout, in the format of man(7). Without a command, it writes the page of \
           iopath itself. With --output, it writes all pages to a directory.",
        ],
    ),
    verb(
        "help",
        "docs/help.md",
        &[
            "Shows the help of a command, or of a task: a question, a short answer, and commands that answer it. Without an \
           argument, it lists both.",
        ],
    ),
];
