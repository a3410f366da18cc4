//! The tests of `iopath` in one test program, a module for each subject: `cargo test -p iopath-cli --test all run::`
//! runs the module `run`.

#[macro_use]
#[path = "../../iopath-os/tests/support/mod.rs"]
mod loops;
mod serving;
mod support;

mod arguments;
mod attach;
mod bad_days;
mod bad_servers;
mod compare;
mod compare_storage;
mod convert;
mod experiment;
mod extreme_values;
mod fio;
mod fio_examples;
mod fio_lines;
mod fit;
mod full_disk;
mod help;
mod interrupted;
mod jobfile;
mod limits;
mod lists;
mod live;
mod log;
mod many;
mod map;
mod messages;
mod metrics;
mod presets;
mod record;
mod refusals;
mod remote;
mod replay;
mod report;
mod run;
mod schema;
mod serve;
mod serve_model;
mod serve_service;
mod serve_vhost;
mod served;
mod simulated;
mod streams;
mod survey;
mod sweep;
mod sweep_resume;
mod sweep_shards;
mod targets;
mod tune;
mod usage;
mod whatif;
