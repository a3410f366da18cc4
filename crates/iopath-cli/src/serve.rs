//! `iopath serve`: serves files and block devices over NBD, or one of them as a disk of a virtual machine.

use crate::args::{ServeArgs, TlsMode};
use crate::output::Json;
use crate::stderr::{Stderr, note, note_after};
use iopath_bench::workload::LogSettings;
use iopath_lab::metrics::{Exporter, serve_metrics};
use iopath_lab::serve::{Listen, ServeEnd, ServeRates, ServeRequest, ServeTlsRequest, serve, serve_vhost};
use iopath_report::exports::{Export, Exports};
use iopath_report::size::format_size;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let targets: Vec<&Path> = args.target.iter().map(PathBuf::as_path).collect();
    let json = Json::new(&args.json, &targets, args.log.as_deref())?;
    let exporter = args.metrics.start(args.json.force)?;
    let request = request(args);
    if args.vhost_user.is_some() {
        return run_vhost(json, &request, args.queues, exporter.as_ref());
    }
    let serving = serve(&request)?;
    let exports = args
        .target
        .iter()
        .zip(&serving.uris)
        .map(|(target, uri)| Export { target: target.display().to_string(), uri: uri.clone() });
    let exports = Exports::of_process(exports.collect());
    if !serving.is_activated || args.json.json.is_some() {
        json.show(|| exports.to_json(), &serving.uris.join("\n"))?;
    }
    let end = serving.run(|rates, messages| show(rates, messages, exporter.as_ref()))?;
    report(&end, "connections", exporter.as_ref());
    Ok(())
}

/// Shows the work of a server that has ended; `clients` names its clients.
fn report(end: &ServeEnd, clients: &str, exporter: Option<&Exporter>) {
    let totals = end.totals;
    if let Some(exporter) = exporter {
        exporter.publish(serve_metrics(&ServeRates::at_end(totals)));
    }
    let bytes = format_size(totals.bytes);
    note_after(
        clear(),
        format_args!("served {} {clients}, {} requests, {bytes}", totals.accepted, totals.requests),
    );
    if totals.abandoned > 0 {
        note(format_args!(
            "gave up {} requests that had no result when the time to stop was over",
            totals.abandoned
        ));
    }
    if let Some(missed) = end.log.map(|log| log.missed + log.over_limit).filter(|missed| *missed > 0) {
        note(format_args!(
            "the log misses {missed} records: the storage of the log is too slow, or --log-limit too small"
        ));
    }
}

/// Serves a disk of a virtual machine.
fn run_vhost(
    json: Json<'_>,
    request: &ServeRequest,
    queues: Option<u16>,
    exporter: Option<&Exporter>,
) -> anyhow::Result<()> {
    let serving = serve_vhost(request, queues)?;
    // The option excludes JSON.
    json.show(String::new, &serving.socket.display().to_string())?;
    let end = serving.run(|rates, messages| show(rates, messages, exporter))?;
    report(&end, "front ends", exporter);
    Ok(())
}

/// Publishes the rates, and shows messages, and the rates on a terminal.
pub(crate) fn show(rates: &ServeRates, messages: &[String], exporter: Option<&Exporter>) {
    if let Some(exporter) = exporter {
        exporter.publish(serve_metrics(rates));
    }
    let clear = clear();
    for message in messages {
        note_after(clear, message);
    }
    if std::io::stderr().is_terminal() {
        let _ = Stderr.write_all(format!("{clear}{rates} ").as_bytes());
    }
}

/// Clears the line of the rates.
pub(crate) fn clear() -> &'static str {
    if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" }
}

fn request(args: &ServeArgs) -> ServeRequest {
    let socket = args.vhost_user.clone().or_else(|| args.unix.clone());
    ServeRequest {
        targets: args.target.clone(),
        names: args.export.clone(),
        listen: socket.map(Listen::Unix).or_else(|| args.listen.clone()),
        tls: tls(args),
        volume: args.volume.request(args.writable, args.overwrite),
        log: args.log.clone().map(|file| LogSettings { file, limit_bytes: args.log_limit, accesses: false }),
        threads: args.threads,
        connections_max: args.connections,
        exits_with_parent: args.exit_with_parent,
    }
}

/// The encryption, if there is a certificate.
fn tls(args: &ServeArgs) -> Option<ServeTlsRequest> {
    let mode = args.tls.unwrap_or(TlsMode::Require);
    let (certificate, key) =
        args.tls_cert.clone().zip(args.tls_key.clone()).filter(|_| mode != TlsMode::Off)?;
    let is_required = mode == TlsMode::Require;
    Some(ServeTlsRequest { certificate, key, client_ca: args.tls_ca.clone(), is_required })
}
