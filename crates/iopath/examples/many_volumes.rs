//! The cost of many buffered volumes: CPU time of an open and close, memory, descriptors, rings and threads. With a
//! context, and without; and of the system calls on a file that do the same.
//!
//! `cargo run --release -p iopath --example many_volumes -- DIRECTORY [VOLUMES [ROUNDS]]` creates files of 1 MiB in the
//! directory, and removes them. The rounds alternate between the ways, and each figure is a median.

use std::error::Error;
use std::fs;
use std::os::unix::fs::FileExt;
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
    let rounds: usize = arguments.next().map_or(Ok(5), |rounds| rounds.parse())?;
    let directory = Path::new(&directory).join(format!("many-volumes-{}", std::process::id()));
    fs::create_dir(&directory)?;
    let measured = measure(&directory, count, rounds.max(1));
    fs::remove_dir_all(&directory)?;
    measured
}

fn measure(directory: &Path, count: usize, rounds: usize) -> Result<(), Box<dyn Error>> {
    let create = |name: String| -> Result<PathBuf, Box<dyn Error>> {
        let path = directory.join(name);
        fs::write(&path, vec![1; FILE_BYTES as usize])?;
        Ok(path)
    };
    let paths: Vec<PathBuf> =
        (0..count).map(|number| create(number.to_string())).collect::<Result<_, _>>()?;
    let other = create("other".to_owned())?;
    let buffered = Options::new().mode(IoMode::Buffered).write(true);
    // A context keeps the pages of files that have been unchanged for two seconds.
    thread::sleep(Duration::from_secs(3));
    let alone = buffered.clone().cache_bytes(CACHE_BYTES);
    let context = Context::new(MEMORY_BYTES);
    let together = buffered.clone().context(&context);
    let keeping = Context::new(MEMORY_BYTES);
    keeping.keep_closed(count);
    let kept = buffered.clone().context(&keeping);
    // The first volume of a device inspects it.
    let _first = [
        Volume::open(&other, &alone.clone().second_cache(true))?,
        Volume::open(&other, &together.clone().second_cache(true))?,
    ];
    let mut page = [0; 4096];
    let mut ways: [(&str, Way<'_>); 8] = [
        ("file", Box::new(|path| file(path).map(drop))),
        ("alone", Box::new(|path| Ok(Volume::open(path, &alone)?.close()?))),
        ("in a context", Box::new(|path| Ok(Volume::open(path, &together)?.close()?))),
        ("file, page read", Box::new(|path| Ok(file(path)?.read_exact_at(&mut [0; 4096], 0)?))),
        ("alone, page read", Box::new(|path| read(path, &alone))),
        ("alone, cache of 256 MiB, page read", Box::new(|path| read(path, &buffered))),
        ("in a context, page read", Box::new(|path| read(path, &together))),
        ("the same, and pages are kept", Box::new(|path| read(path, &kept))),
    ];
    let mut times = ways.each_ref().map(|_| Vec::with_capacity(rounds));
    for _ in 0..rounds {
        for ((_, act), times) in ways.iter_mut().zip(&mut times) {
            let begun = (cpu(), Instant::now());
            paths.iter().try_for_each(|path| act(path))?;
            let each = |time: Duration| time.as_secs_f64() * 1e6 / paths.len() as f64;
            times.push((each(cpu().saturating_sub(begun.0)), each(begun.1.elapsed())));
        }
    }
    for ((name, _), times) in ways.iter().zip(&mut times) {
        let median = |values: &mut dyn Iterator<Item = f64>| {
            let mut values: Vec<f64> = values.collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let (cpu, wall) =
            (median(&mut times.iter().map(|time| time.0)), median(&mut times.iter().map(|time| time.1)));
        println!("open and close {name:36} {cpu:7.1} µs of CPU time {wall:7.1} µs");
    }
    drop(ways);
    println!("{:?}", keeping.stats());
    keeping.keep_closed(0);

    let before = status();
    let options = buffered.context(&context);
    let volumes: Vec<Volume> =
        paths.iter().map(|path| Volume::open(path, &options)).collect::<Result<_, _>>()?;
    show("open", &before, count);
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

/// A way to open a file, and to close it.
type Way<'a> = Box<dyn FnMut(&Path) -> Result<(), Box<dyn Error>> + 'a>;

fn file(path: &Path) -> Result<fs::File, Box<dyn Error>> {
    Ok(fs::OpenOptions::new().read(true).write(true).open(path)?)
}

fn read(path: &Path, options: &Options) -> Result<(), Box<dyn Error>> {
    let volume = Volume::open(path, options)?;
    volume.read_exact_at(&mut [0; 4096], 0)?;
    Ok(volume.close()?)
}

fn cpu() -> Duration {
    let times = iopath_os::process_cpu_times();
    times.user + times.system
}

/// The resident memory in bytes, the open descriptors, the rings among them, and the threads of this process.
struct Status {
    memory: u64,
    descriptors: usize,
    rings: usize,
    threads: usize,
}

fn status() -> Status {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default();
    let entries = |path| fs::read_dir(path).into_iter().flatten().flatten();
    let is_ring = |entry: &fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == "anon_inode:[io_uring]")
    };
    Status {
        memory: pages * iopath_os::page_bytes() as u64,
        descriptors: entries("/proc/self/fd").count(),
        rings: entries("/proc/self/fd").filter(is_ring).count(),
        threads: entries("/proc/self/task").count(),
    }
}

fn show(what: &str, before: &Status, count: usize) {
    let now = status();
    let count = count as f64;
    println!(
        "{what}: {:.1} KiB and {:.2} descriptors for each, {} descriptors of rings, {} threads",
        now.memory.saturating_sub(before.memory) as f64 / 1024.0 / count,
        (now.descriptors - before.descriptors) as f64 / count,
        now.rings,
        now.threads
    );
}
