//! The cost of many buffered volumes: CPU time of an open and close, memory, descriptors. With a context, and without.
//!
//! `cargo run --release -p iopath --example many_volumes -- DIRECTORY [VOLUMES]` creates files of 1 MiB in the
//! directory, and removes them.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use iopath::{Context, IoMode, Options, Volume};

/// The memory of the context.
const MEMORY_BYTES: u64 = 64 << 20;

/// The cache of a volume without a context.
const CACHE_BYTES: u64 = 1 << 20;

/// The bytes of a file.
const FILE_BYTES: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("name a directory for the files")?;
    let count: usize = arguments.next().map_or(Ok(1000), |count| count.parse())?;
    let directory = Path::new(&directory).join(format!("many-volumes-{}", std::process::id()));
    fs::create_dir(&directory)?;
    let measured = measure(&directory, count);
    fs::remove_dir_all(&directory)?;
    measured
}

fn measure(directory: &Path, count: usize) -> Result<(), Box<dyn Error>> {
    let paths: Vec<PathBuf> = (0..count).map(|number| directory.join(number.to_string())).collect();
    for path in &paths {
        fs::write(path, vec![1; FILE_BYTES as usize])?;
    }
    let buffered = Options::new().mode(IoMode::Buffered).write(true);
    // A context keeps the pages of files that have been unchanged for two seconds.
    thread::sleep(Duration::from_secs(3));
    let alone = || buffered.clone().cache_bytes(CACHE_BYTES);
    let context = Context::new(MEMORY_BYTES);
    let together = || buffered.clone().context(&context);
    let keeping = Context::new(MEMORY_BYTES);
    keeping.keep_closed(count);
    let kept = || buffered.clone().context(&keeping);
    let nothing = |_: &Volume| Ok(());
    let read = |volume: &Volume| Ok(volume.read_exact_at(&mut [0; 4096], 0)?);
    open_and_close("alone", &paths, alone, nothing)?;
    open_and_close("in a context", &paths, together, nothing)?;
    open_and_close("alone, with a page read", &paths, alone, read)?;
    open_and_close("in a context, with a page read", &paths, together, read)?;
    open_and_close("the same, and the page is kept", &paths, kept, read)?;
    open_and_close("the same, and the page was kept", &paths, kept, read)?;
    println!("{:?}", keeping.stats());
    keeping.keep_closed(0);

    let before = status();
    let options = buffered.context(&context);
    let volumes: Vec<Volume> =
        paths.iter().map(|path| Volume::open(path, &options)).collect::<Result<_, _>>()?;
    show("open", &before, count);
    let mut page = [0; 4096];
    for volume in &volumes {
        volume.read_exact_at(&mut page, 0)?;
    }
    show("a page read of each", &before, count);
    for volume in &volumes {
        volume.write_at(&page, 8192)?;
    }
    show("a page written of each", &before, count);
    println!("{:?}", context.stats());
    Ok(())
}

fn open_and_close(
    what: &str,
    paths: &[PathBuf],
    options: impl Fn() -> Options,
    act: impl Fn(&Volume) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let _warm = Volume::open(&paths[0], &options())?;
    let cpu = || iopath_os::process_cpu_times();
    let (begun, before) = (Instant::now(), cpu());
    for path in paths {
        let volume = Volume::open(path, &options())?;
        act(&volume)?;
        volume.close()?;
    }
    let (wall, after) = (begun.elapsed(), cpu());
    let used = (after.user + after.system).saturating_sub(before.user + before.system);
    let each = |time: Duration| time.as_secs_f64() * 1e6 / paths.len() as f64;
    println!("open and close {what}: {:.1} µs of CPU time, {:.1} µs", each(used), each(wall));
    Ok(())
}

/// The resident memory in bytes, the open descriptors and the threads of this process.
struct Status {
    memory: u64,
    descriptors: usize,
    threads: usize,
}

fn status() -> Status {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default();
    let entries = |path| fs::read_dir(path).map_or(0, Iterator::count);
    Status {
        memory: pages * iopath_os::page_bytes() as u64,
        descriptors: entries("/proc/self/fd"),
        threads: entries("/proc/self/task"),
    }
}

fn show(what: &str, before: &Status, count: usize) {
    let now = status();
    let count = count as f64;
    println!(
        "{what}: {:.1} KiB and {:.2} descriptors for each, {} threads",
        now.memory.saturating_sub(before.memory) as f64 / 1024.0 / count,
        (now.descriptors - before.descriptors) as f64 / count,
        now.threads
    );
}
