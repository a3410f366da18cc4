//! Serves a file over NBD on a unix socket, read-only, until the process is killed:
//! `cargo run --release --example serve -- FILE SOCKET [direct|buffered] [THREADS]`. The program `iopath serve` has
//! more options.

use std::error::Error;
use std::path::PathBuf;

use iopath::{IoMode, Options, Unaligned, Volume};
use iopath_nbd::{Listen, ServeOptions, Served, Server};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, file, socket, rest @ ..] = arguments.as_slice() else {
        return Err("usage: serve FILE SOCKET [direct|buffered] [THREADS]".into());
    };
    let mode = match rest.first().map(String::as_str) {
        Some("buffered") => IoMode::Buffered,
        _ => IoMode::Direct,
    };
    let options = Options::new().mode(mode).unaligned(Unaligned::Bounce).depth(256).cache_bytes(512 << 20);
    let volume = Volume::open(file, &options)?;
    let export = Served { name: "disk".to_owned(), description: file.clone(), volume, is_writable: false };
    let mut options = ServeOptions::default();
    if let Some(threads) = rest.get(1) {
        options.workers = threads.parse()?;
    }
    let _server = Server::start(&Listen::Unix(PathBuf::from(socket)), &[export], &options)?;
    println!("nbd+unix:///disk?socket={socket}");
    loop {
        std::thread::park();
    }
}
