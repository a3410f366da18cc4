//! `iopath serve` with TLS against nbdkit with the same certificates. The client is nbdcopy, which verifies the
//! certificate, with one connection; it reads the whole export and drops the data. `openssl` makes the certificates.
//!
//! The rate includes the start of nbdcopy and the handshake of TLS, some milliseconds.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::super::figures::Goal;
use super::super::report::Figure;
use super::super::side::TargetFile;
use super::super::turns::alternate;
use super::{Peer, Run, Started, cpu, pair, socket};
use crate::workspace;

/// A size of the reads, and their number in flight.
struct Row {
    name: &'static str,
    block_bytes: u64,
    depth: u32,
}

const ROWS: &[Row] = &[
    Row { name: "nbd, TLS, 1 MiB read, depth 4", block_bytes: 1 << 20, depth: 4 },
    Row { name: "nbd, TLS, 4 KiB read, depth 32", block_bytes: 4096, depth: 32 },
];

const SIDES: [Peer; 2] = [Peer::Ours, Peer::NbdkitFile];

/// The names of the figures.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

/// Measures the figures, in rounds of both sides. Prints a line for a missing program.
pub(super) fn measure(rounds: u32, target: &TargetFile) -> Result<Vec<Figure>> {
    let missing =
        ["nbdcopy", "nbdkit", "openssl"].iter().find(|name| workspace::find_program(name).is_none());
    if let Some(program) = missing {
        eprintln!("skipped: nbd, TLS: {program} is not installed");
        return Ok(Vec::new());
    }
    let certificates = Certificates::new()?;
    let mut figures = Vec::new();
    for row in ROWS {
        let turns = alternate(row.name, rounds, SIDES.len(), |side| {
            run_once(SIDES[side], row, &certificates, target)
        })?;
        let goals = (Goal::AtLeast(1.0), Goal::AtMost(1.0));
        figures.extend(pair(row.name, Peer::NbdkitFile.label(), &turns, 1, goals));
    }
    Ok(figures)
}

fn run_once(peer: Peer, row: &Row, certificates: &Certificates, target: &TargetFile) -> Result<Run> {
    let socket = socket();
    let server = Started::run(certificates.server(peer, target, &socket), &socket)?;
    let copy = |block_bytes: u64, depth: u32| {
        let mut command = Command::new("nbdcopy");
        command.args(["--connections=1", "--threads=1", "--no-extents"]);
        command.args([format!("--request-size={block_bytes}"), format!("--requests={depth}")]);
        command.arg(certificates.uri(&socket)).arg("null:");
        succeed(&mut command)
    };
    // The server reads the file into its cache.
    copy(1 << 20, 4)?;
    let before = cpu::process_seconds(server.0.id())?;
    let started = Instant::now();
    copy(row.block_bytes, row.depth)?;
    let seconds = started.elapsed().as_secs_f64();
    let cpu_seconds = cpu::process_seconds(server.0.id())? - before;
    let ios = ((target.mib << 20) / row.block_bytes) as f64;
    Ok(Run { iops: ios / seconds, cpu_us: cpu_seconds * 1e6 / ios })
}

/// A folder with the certificates of an authority and of the server. Removed at drop.
struct Certificates(PathBuf);

impl Certificates {
    fn new() -> Result<Self> {
        let folder = workspace::target_dir().join(format!("xtask/bench-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let certificates = Self(folder);
        let file = |name: &str| certificates.0.join(name);
        let new_key = ["-newkey", "ed25519", "-nodes"];
        let mut authority = Command::new("openssl");
        authority.args(["req", "-x509", "-days", "2", "-subj", "/CN=authority"]).args(new_key);
        authority.arg("-keyout").arg(file("ca-key.pem")).arg("-out").arg(file("ca-cert.pem"));
        succeed(&mut authority)?;
        let mut request = Command::new("openssl");
        request.args(["req", "-subj", "/CN=server"]).args(new_key);
        request.arg("-keyout").arg(file("server-key.pem")).arg("-out").arg(file("server.csr"));
        succeed(&mut request)?;
        std::fs::write(file("server.ext"), "subjectAltName=DNS:localhost\nextendedKeyUsage=serverAuth\n")?;
        let mut signed = Command::new("openssl");
        signed.args(["x509", "-req", "-days", "2", "-in"]).arg(file("server.csr"));
        signed.arg("-CA").arg(file("ca-cert.pem")).arg("-CAkey").arg(file("ca-key.pem"));
        signed.args(["-CAcreateserial", "-extfile"]).arg(file("server.ext"));
        signed.arg("-out").arg(file("server-cert.pem"));
        succeed(&mut signed)?;
        Ok(certificates)
    }

    fn uri(&self, socket: &Path) -> String {
        format!("nbds+unix:///?socket={}&tls-certificates={}", socket.display(), self.0.display())
    }

    /// The command of a server that accepts only encrypted connections.
    fn server(&self, peer: Peer, target: &TargetFile, socket: &Path) -> Command {
        let mut plain = peer.command(target, socket);
        if peer == Peer::Ours {
            plain.arg("--tls-cert").arg(self.0.join("server-cert.pem"));
            plain.arg("--tls-key").arg(self.0.join("server-key.pem"));
            return plain;
        }
        // The options of nbdkit stand before the name of its plug-in.
        let mut command = Command::new(plain.get_program());
        command.arg("--tls=require").arg(format!("--tls-certificates={}", self.0.display()));
        command.args(plain.get_args());
        command
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a command that must succeed.
fn succeed(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_servers_use_the_same_certificates() {
        let certificates = Certificates("t/keys".into());
        let target = TargetFile { path: "t/disk".into(), mib: 64 };
        for peer in SIDES {
            let command = certificates.server(peer, &target, Path::new("t/socket"));
            let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
            let text = words.join(" ");
            assert!(
                text.contains("t/keys") && text.contains("t/disk") && text.contains("t/socket"),
                "{text}"
            );
        }
        // No folder was made.
        std::mem::forget(certificates);
    }
}
