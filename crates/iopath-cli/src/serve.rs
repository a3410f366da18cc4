//! `iopath serve`: serves files and block devices over NBD.

use crate::args::{ServeArgs, TlsMode};
use crate::output::{plain, print};
use iopath_lab::serve::{Listen, ServeRequest, ServeTlsRequest, serve};
use iopath_lab::size::format_size;
use std::io::{IsTerminal, Write, stderr};

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let serving = serve(&ServeRequest {
        targets: args.target.clone(),
        names: args.export.clone(),
        listen: args.unix.clone().map(Listen::Unix).or_else(|| args.listen.clone()),
        tls: tls(args),
        mode: args.path,
        elevator: args.elevator.clone(),
        cache_bytes: args.cache,
        is_writable: args.writable,
        overwrite: args.overwrite,
        threads: args.threads,
        connections_max: args.connections,
    })?;
    for uri in &serving.uris {
        print(&format!("{uri}\n"))?;
    }
    let is_terminal = stderr().is_terminal();
    let totals = serving.run(|rates, messages| {
        let mut stderr = stderr().lock();
        let clear = if is_terminal { "\r\x1b[K" } else { "" };
        for message in messages {
            let _ = writeln!(stderr, "{clear}iopath: closed a connection: {}", plain(message));
        }
        if is_terminal {
            let (iops, mb) = (rates.requests_per_s, rates.bytes_per_s / 1e6);
            let _ = write!(stderr, "{clear}{} clients, {iops:.0} IOPS, {mb:.1} MB/s ", rates.connections);
            let _ = stderr.flush();
        }
    })?;
    let clear = if is_terminal { "\r\x1b[K" } else { "" };
    let bytes = format_size(totals.bytes);
    eprintln!("{clear}iopath: served {} connections, {} requests, {bytes}", totals.accepted, totals.requests);
    Ok(())
}

/// The encryption, if there is a certificate.
fn tls(args: &ServeArgs) -> Option<ServeTlsRequest> {
    let mode = args.tls.unwrap_or(TlsMode::Require);
    let (certificate, key) =
        args.tls_cert.clone().zip(args.tls_key.clone()).filter(|_| mode != TlsMode::Off)?;
    let is_required = mode == TlsMode::Require;
    Some(ServeTlsRequest { certificate, key, client_ca: args.tls_ca.clone(), is_required })
}
