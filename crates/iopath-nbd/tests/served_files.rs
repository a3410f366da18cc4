//! The server over files: sizes that are no multiple of a block, and the request log with every elevator.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use iopath::log::{LogSink, RecordBatch, RequestLog};
use iopath::{IoMode, OpenError, Options, Unaligned, Volume, elevator, log};
use iopath_nbd::{ClientOperation, ClientOptions, Listen, ServeOptions, Served, Server};

use crate::sockets::Client;

/// A server of a file with this content; `None`, with a line, without direct I/O.
fn serve(
    folder: &Path,
    content: &[u8],
    options: &Options,
    serve_options: &ServeOptions,
) -> Option<(Server, Client)> {
    let (file, socket) = (folder.join("disk"), folder.join("socket"));
    std::fs::write(&file, content).unwrap();
    let volume = match Volume::open(&file, &options.clone().write(true).unaligned(Unaligned::Bounce)) {
        Ok(volume) => volume,
        Err(OpenError::Direct(error)) => {
            eprintln!("skipped: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let export = Served { name: String::new(), description: String::new(), volume, is_writable: true };
    let server = Server::start(&Listen::Unix(socket.clone()), &[export], serve_options).unwrap();
    let client = Client::connect(&socket, ClientOptions::export(""));
    Some((server, client))
}

#[test]
fn the_last_bytes_of_a_file_are_read_written_zeroed_and_trimmed_on_every_path() {
    for size in [1_usize, 511, 513, 4095, 4097, 1_000_777] {
        for mode in [IoMode::Direct, IoMode::Raw, IoMode::Buffered] {
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let mut content: Vec<u8> = (0..size).map(|at| (at % 251) as u8 + 1).collect();
            let options = ServeOptions { workers: 1, ..ServeOptions::default() };
            let Some((server, mut client)) =
                serve(folder.path(), &content, &Options::new().mode(mode), &options)
            else {
                return;
            };
            let last = (size - 1) / 4096 * 4096;
            for start in [0, size - 1, last, last.saturating_sub(5000), (size - 1) / 512 * 512] {
                let (offset, length) = (start as u64, (size - start) as u64);
                let operations = [
                    ClientOperation::Read { offset, length: length as u32 },
                    ClientOperation::Write { offset, length: length as u32, fua: false },
                    ClientOperation::WriteZeroes { offset, length, fua: false, no_hole: false },
                    ClientOperation::Write { offset, length: length as u32, fua: true },
                    ClientOperation::WriteZeroes { offset, length, fua: true, no_hole: true },
                    ClientOperation::Write { offset, length: length as u32, fua: false },
                    ClientOperation::Trim { offset, length, fua: false },
                ];
                for (number, operation) in operations.into_iter().enumerate() {
                    let mut data = vec![number as u8 + 100; size - start];
                    let ended = client.execute(operation, &mut data);
                    assert!(ended.is_ok(), "{mode:?}, {size} bytes, {operation:?}: {ended:?}");
                    match operation {
                        ClientOperation::Read { .. } => assert!(data == content[start..], "{mode:?}, {size}"),
                        ClientOperation::Write { .. } => content[start..].copy_from_slice(&data),
                        _ => content[start..].fill(0),
                    }
                    let mut read = vec![0xEE; size];
                    client
                        .execute(ClientOperation::Read { offset: 0, length: size as u32 }, &mut read)
                        .unwrap();
                    assert!(read == content, "{mode:?}, {size} bytes, from {start}: {operation:?}");
                }
            }
            drop(client);
            server.stop().unwrap();
            let file = std::fs::read(folder.path().join("disk")).unwrap();
            assert!(file == content, "{mode:?}: {size} bytes became {}, or other bytes", file.len());
        }
    }
}

/// Counts records.
#[derive(Debug, Default, Clone)]
struct Counter(Arc<AtomicU64>);

impl LogSink for Counter {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), log::NoRoom> {
        self.0.fetch_add(batch.records().len() as u64, Relaxed);
        batch.clear();
        Ok(())
    }
}

#[test]
fn the_log_of_a_served_volume_has_its_requests_with_every_elevator() {
    for mode in [IoMode::Direct, IoMode::Buffered] {
        for row in elevator::ELEVATORS {
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let records = Counter::default();
            let sink = records.clone();
            let log = RequestLog::new(move || Box::new(sink.clone()));
            let options = ServeOptions { workers: 2, log: Some(log), ..ServeOptions::default() };
            let open = Options::new().mode(mode).elevator(row.name);
            let Some((server, mut client)) = serve(folder.path(), &vec![7; 1 << 20], &open, &options) else {
                return;
            };
            for block in 0..16 {
                let read = ClientOperation::Read { offset: block << 16, length: 4096 };
                client.execute(read, &mut [0; 4096]).unwrap();
            }
            drop(client);
            server.stop().unwrap();
            // At least an insertion, a dispatch and a completion for each read of the device.
            let records = records.0.load(Relaxed);
            assert!(records >= 3, "{mode:?}, {}: {records} records", row.name);
        }
    }
}
