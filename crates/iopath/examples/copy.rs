//! Copies a file by direct I/O, 1 MiB at a time: `cargo run -p iopath --example copy -- FROM TO`.

use iopath::{AlignedBuf, Options, Volume};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("copy: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut names = std::env::args_os().skip(1);
    let (Some(from), Some(to)) = (names.next(), names.next()) else {
        return Err("usage: copy FROM TO".into());
    };
    let source = Volume::open(&from, &Options::new())?;
    let block = u64::from(source.facts().block_bytes);
    // Direct writes are whole blocks. The last block is written whole; then the file is truncated to its size.
    let target = Volume::open(&to, &Options::new().create(source.size_bytes().next_multiple_of(block)))?;
    let mut buffer = AlignedBuf::new(1 << 20)?;
    let mut offset = 0;
    while offset < source.size_bytes() {
        let bytes = source.read_at(&mut buffer, offset)?;
        let whole_blocks = bytes.next_multiple_of(target.facts().block_bytes as usize);
        target.write_at(&buffer[..whole_blocks], offset)?;
        offset += bytes as u64;
    }
    target.flush()?;
    drop(target);
    std::fs::OpenOptions::new().write(true).open(&to)?.set_len(offset)?;
    println!("{offset} bytes copied with {}", source.facts().engine);
    Ok(())
}
