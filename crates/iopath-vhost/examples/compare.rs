//! Measures servers of vhost-user-blk by random reads, without a guest: this crate's, and the storage daemon of QEMU if
//! it is installed, in turns, on the same file. Reports the IOPS and the CPU time of the server for each I/O.
//!
//! ```sh
//! cargo run --release -p iopath-vhost --example compare -- FILE [QUEUES [SECONDS [ROUNDS]]]
//! ```

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use iopath::{Options, Unaligned, Volume};
use iopath_vhost::{VhostOptions, VhostServer};
use support::front_end::{FrontEnd, READ, Slot, USUAL};
use support::guest::{Driver, Guest};

type Error = Box<dyn std::error::Error>;

/// Requests in flight of each queue.
const DEPTH: u64 = 32;

/// Bytes of a request.
const BYTES: u32 = 4096;

/// The program of the comparison.
const DAEMON: &str = "qemu-storage-daemon";

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, file, socket, queues] = &arguments[..]
        && command == "serve"
    {
        return serve(file, Path::new(socket), queues.parse()?);
    }
    let file = arguments.first().ok_or("usage: compare FILE [QUEUES [SECONDS [ROUNDS]]]")?;
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let (queues, seconds, rounds) = (number(1, 1)?, number(2, 5)?, number(3, 3)?);
    let blocks = std::fs::metadata(file)?.len() / u64::from(BYTES);
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("socket");
    println!("{queues} queues, depth {DEPTH} each, {BYTES} bytes, {seconds} s");
    println!("{:<10} {:>10} {:>14} {:>16}", "server", "IOPS", "CPU us per I/O", "IOPS per CPU s");
    for _ in 0..rounds {
        for name in ["iopath", "qemu"] {
            let Some(server) = start(name, file, &socket, queues)? else { continue };
            let measured = measure(&server, &socket, queues as usize, blocks, Duration::from_secs(seconds));
            drop(server);
            let _ = std::fs::remove_file(&socket);
            let (requests, elapsed, cpu) = measured?;
            let iops = requests as f64 / elapsed.as_secs_f64();
            let each = cpu.as_secs_f64() * 1e6 / requests as f64;
            println!("{name:<10} {iops:>10.0} {each:>14.2} {:>16.0}", 1e6 / each);
        }
    }
    Ok(())
}

/// Serves until the process is killed.
fn serve(file: &str, socket: &Path, queues: u16) -> Result<(), Error> {
    let volume = Volume::open(file, &Options::new().write(true).unaligned(Unaligned::Bounce).depth(256))?;
    let options = VhostOptions {
        volume,
        is_writable: true,
        queues,
        id: "compare".to_owned(),
        stop_limit: Duration::from_secs(10),
        log: None,
    };
    let server = VhostServer::start(UnixListener::bind(socket)?, options)?;
    loop {
        std::thread::sleep(Duration::from_secs(1));
        for message in server.take_messages() {
            eprintln!("{message}");
        }
    }
}

/// A server that is killed at the end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server; `None`, with a line, if it is not installed.
fn start(name: &str, file: &str, socket: &Path, queues: u64) -> Result<Option<Running>, Error> {
    let place = socket.display();
    let mut command = if name == "iopath" {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", file, &place.to_string(), &queues.to_string()]);
        command
    } else {
        let mut command = Command::new(DAEMON);
        command.args(["--object", "iothread,id=thread"]);
        command.arg("--blockdev");
        command.arg(format!("driver=file,filename={file},node-name=disk,cache.direct=on,aio=io_uring"));
        command.arg("--export");
        command.arg(format!(
            "type=vhost-user-blk,id=export,node-name=disk,addr.type=unix,addr.path={place},writable=on,\
             num-queues={queues},iothread=thread"
        ));
        command
    };
    let child = match command.stdin(Stdio::null()).spawn() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("{name:<10} is not installed ({DAEMON})");
            return Ok(None);
        }
        child => Running(child?),
    };
    // A connection would be the only one of the daemon.
    let began = Instant::now();
    while !socket.exists() {
        if began.elapsed() > Duration::from_secs(10) {
            return Err(format!("{name} does not start").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(200));
    Ok(Some(child))
}

/// The requests of a run, its time, and the CPU time of the server.
fn measure(
    server: &Running,
    socket: &Path,
    queues: usize,
    blocks: u64,
    length: Duration,
) -> Result<(u64, Duration, Duration), Error> {
    let guest = Guest::new(Slot::of(queues as u64 * DEPTH).data());
    let mut front_end = FrontEnd::new(socket, &guest, queues, 128, USUAL);
    run(&mut front_end, &guest, blocks, Duration::from_millis(500));
    let (began, before) = (Instant::now(), cpu_time(server.0.id())?);
    let requests = run(&mut front_end, &guest, blocks, length);
    Ok((requests, began.elapsed(), cpu_time(server.0.id())?.saturating_sub(before)))
}

/// Reads for this time on all queues. The number of requests.
fn run(front_end: &mut FrontEnd, guest: &Guest, blocks: u64, length: Duration) -> u64 {
    let until = Instant::now() + length;
    std::thread::scope(|scope| {
        let threads: Vec<_> = front_end
            .drivers
            .iter_mut()
            .map(|driver| scope.spawn(move || read(driver, guest, blocks, until)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
    })
}

/// Keeps [`DEPTH`] random reads of a queue in flight until this time.
fn read(driver: &mut Driver, guest: &Guest, blocks: u64, until: Instant) -> u64 {
    let first = driver.number as u64 * DEPTH;
    let mut free: Vec<u64> = (first..first + DEPTH).collect();
    let mut slots = [0; 1024];
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ (first + 1);
    let mut completed = 0;
    loop {
        let has_ended = Instant::now() >= until;
        while let Some(number) = free.pop().filter(|_| !has_ended) {
            // xorshift64: any order without a pattern.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let sector = state % blocks * u64::from(BYTES / 512);
            let slot = Slot::of(number);
            let parts = slot.parts(guest, READ, sector, &[(slot.data(), BYTES)]);
            let Some(head) = driver.add(&parts) else { break };
            slots[usize::from(head)] = number;
        }
        if has_ended && driver.next_available == driver.last_used {
            return completed;
        }
        driver.show();
        let (mut head, _) = driver.wait_used();
        loop {
            completed += 1;
            free.push(slots[usize::from(head)]);
            let Some(next) = driver.pop_used() else { break };
            head = next.0;
        }
    }
}

/// The CPU time of a process.
fn cpu_time(pid: u32) -> Result<Duration, Error> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // User and system time are the 14th and 15th field; the second one may contain spaces.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().filter_map(|&at| fields.get(at)?.parse::<u64>().ok()).sum();
    Ok(Duration::from_micros(ticks * 1_000_000 / rustix::param::clock_ticks_per_second()))
}
