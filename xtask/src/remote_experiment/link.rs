//! A network namespace at the end of a link of limited rate: a pair of virtual network devices, each with a token
//! bucket (tc-tbf(8)). Removed at drop.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The addresses of the ends, from the block of RFC 2544 for benchmarks of networks.
pub(super) const SERVER: &str = "198.18.97.2";
const CLIENT: &str = "198.18.97.1";

/// The namespace.
pub(super) struct Link {
    namespace: String,
}

impl Link {
    /// A new namespace, whose link sends and receives at most `mbit` Mbit/s.
    pub(super) fn new(mbit: u32) -> Result<Self> {
        // Names of network devices have at most 15 characters.
        let number = std::process::id();
        let link = Self { namespace: format!("iopath{number}") };
        let [near, far] = [format!("iop{number}a"), format!("iop{number}b")];
        let namespace = link.namespace.as_str();
        ip(&["netns", "add", namespace])?;
        ip(&["link", "add", &near, "type", "veth", "peer", "name", &far, "netns", namespace])?;
        ip(&["addr", "add", &format!("{CLIENT}/30"), "dev", &near])?;
        ip(&["link", "set", &near, "up"])?;
        ip(&["-n", namespace, "addr", "add", &format!("{SERVER}/30"), "dev", &far])?;
        ip(&["-n", namespace, "link", "set", &far, "up"])?;
        let rate = format!("{mbit}mbit");
        // The queue of a network adapter: at most 50 ms.
        let bucket = ["root", "tbf", "rate", &rate, "burst", "128kb", "latency", "50ms"];
        tc(&[&["qdisc", "add", "dev", &near], &bucket[..]].concat())?;
        tc(&[&["-n", namespace, "qdisc", "add", "dev", &far], &bucket[..]].concat())?;
        Ok(link)
    }

    /// A command that runs in the namespace.
    pub(super) fn remote_command(&self, program: &Path) -> Command {
        let mut command = Command::new("ip");
        // `ip netns exec` becomes the program, so a signal reaches it.
        command.args(["netns", "exec", &self.namespace]).arg(program);
        command
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The devices are removed with the namespace.
        let _ = ip(&["netns", "delete", &self.namespace]);
    }
}

fn ip(arguments: &[&str]) -> Result<String> {
    output(Command::new("ip").args(arguments))
}

fn tc(arguments: &[&str]) -> Result<String> {
    output(Command::new("tc").args(arguments))
}

/// The output of a command that must succeed.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}
