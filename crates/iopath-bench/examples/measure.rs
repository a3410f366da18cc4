//! The lab as a library: measures one path on one target and prints the table.
//!
//! `cargo run --release -p iopath-bench --example measure -- kernel-direct . randread 4k 1 2`
//! (path, target, rw, block size, depth, seconds)

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use iopath_bench::paths::find_path;
use iopath_bench::progress::Silent;
use iopath_bench::{BlockSize, Depth, End, Repetitions, Workload, run};
use iopath_report::format::{Document, View};
use iopath_report::result::Report;
use iopath_report::size::parse_size;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match measure(&arguments) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("measure: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &[String]) -> Result<String, Box<dyn std::error::Error>> {
    let [path, target, rw, block, depth, seconds] = arguments else {
        return Err("give path, target, rw, block size, depth and seconds".into());
    };
    let workload = Workload {
        path: find_path(path)?,
        target: Some(target.into()),
        rw: rw.parse()?,
        block_size: BlockSize::new(parse_size(block)?)?,
        depth: Depth::new(depth.parse::<u32>()?)?,
        end: End::Time(Duration::try_from_secs_f64(seconds.parse()?)?),
        size_bytes: None,
        repetitions: Repetitions::constant(1),
        ..Workload::default()
    };
    let result = run(&workload, &mut Silent)?;
    let warnings = result.warnings.join("\n");
    let report = Report::new(None, None, vec![result]);
    Ok(format!("{}\n{warnings}", report.text(View::plain(None))))
}
