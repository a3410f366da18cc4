//! The verification of a result on a page: its outcome as a finding, and the first faults. `verify` found them.

use maud::Markup;

use super::facts::Tone;
use super::parts::Statement;
use crate::format::page;
use crate::result::{Report, RunResult, VerifyFault, VerifyResult};
use crate::section::{Columns, Section};
use crate::size::format_size;

/// The outcome of each kind: runs with faults, each with a statement, and the runs without any.
pub(super) fn statements(name: &str, report: &Report) -> Vec<Statement> {
    let verified = || report.runs.iter().filter_map(|run| Some((run, run.verify.as_ref()?)));
    let mut list: Vec<Statement> = verified()
        .filter(|(_, verify)| verify.faults() > 0)
        .map(|(run, verify)| faulty(run, verify))
        .collect();
    let clean = || verified().filter(|(_, verify)| verify.faults() == 0);
    let blocks: u64 = clean().map(|(_, verify)| verify.blocks).sum();
    if clean().next().is_some() {
        let bytes = clean().map(|(_, verify)| verify.bytes).sum();
        let text = format!("The verification of {blocks} blocks found no fault");
        let evidence = format!("{} read back and compared", format_size(bytes));
        list.push(Statement::new(Tone::Good, "verification", text, evidence));
    }
    for statement in &mut list {
        if !name.is_empty() {
            statement.tag = format!("{name} · {}", statement.tag);
        }
    }
    list
}

fn faulty(run: &RunResult, verify: &VerifyResult) -> Statement {
    let counts = [
        (verify.lost, "lost"),
        (verify.stale, "stale"),
        (verify.torn, "torn"),
        (verify.misdirected, "misdirected"),
        (verify.corrupt, "corrupt"),
        (verify.unstamped, "unstamped"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, kind)| format!("{count} {kind}")).collect();
    let text = format!(
        "{}: the verification found {} faults in {} blocks: {}",
        run.name(),
        verify.faults(),
        verify.blocks,
        counts.join(", ")
    );
    let first = verify
        .first
        .first()
        .map(|fault| format!("the first: {} at offset {}, {} bytes", fault.kind, fault.offset, fault.bytes));
    Statement::new(Tone::Bad, "verification", text, first.unwrap_or_default())
}

/// The first faults of each run as a table; nothing without faults.
pub(super) fn section(report: &Report) -> Markup {
    let faults = report.runs.iter().flat_map(|run| {
        let first = run.verify.iter().flat_map(|verify| &verify.first);
        first.map(move |fault| (run, fault))
    });
    let columns = Columns::of(faults)
        .text("run", |(run, _): (&RunResult, &VerifyFault)| run.name())
        .text("kind", |(_, fault)| &fault.kind)
        .number("offset", |(_, fault)| fault.offset)
        .number("bytes", |(_, fault)| fault.bytes)
        .number("first bad byte", |(_, fault)| fault.first_bad)
        .number("expected write", |(_, fault)| fault.expected)
        .number("found write", |(_, fault)| fault.found)
        .number("belongs to", |(_, fault)| fault.belongs_to);
    page::sections(&[Section::of(columns).titled("The first faults of the verification")])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rw;
    use crate::fixtures::run;

    #[test]
    fn a_fault_is_a_failure_and_a_clean_run_a_success() {
        let mut runs = [1, 2].map(|_| run("kernel-direct", Rw::Write, 4096, 1, &[100.0, 101.0], 0.5));
        runs[0].verify = Some(VerifyResult { blocks: 10, bytes: 40960, ..VerifyResult::default() });
        let fault = VerifyFault {
            kind: "<script>".to_owned(),
            offset: 8192,
            bytes: 4096,
            first_bad: 8200,
            expected: Some(2),
            found: None,
            belongs_to: None,
        };
        let faulty =
            VerifyResult { blocks: 5, torn: 1, lost: 2, first: vec![fault], ..VerifyResult::default() };
        runs[1].verify = Some(faulty);
        let report = Report::new(None, None, runs.into());
        let list = statements("", &report);
        assert_eq!((list[0].tone, list[1].tone), (Tone::Bad, Tone::Good), "{list:?}");
        assert!(list[0].text.contains("found 3 faults in 5 blocks: 2 lost, 1 torn"), "{list:?}");
        assert!(list[1].text.contains("10 blocks found no fault"), "{list:?}");
        let html = section(&report).into_string();
        assert!(html.contains(">8200<") && html.contains("&lt;script&gt;"), "{html}");
        assert!(statements("", &Report::new(None, None, Vec::new())).is_empty());
    }
}
