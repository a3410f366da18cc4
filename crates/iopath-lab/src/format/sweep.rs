//! Sweeps for the general formats.

use iopath_report::result::RunResult;
use iopath_report::table::{digits, interval, time};

use super::{Document, Records, Section, View};
use crate::sweep::SweepFile;

impl Document for SweepFile {
    fn text(&self, view: View) -> String {
        Self::text(self, view.width)
    }

    fn json(&self) -> String {
        self.to_json()
    }

    fn records(&self) -> Records {
        let (head, rows) = self.cell_records();
        Records { head, rows }
    }

    /// A row is a measured cell.
    fn sections(&self) -> Vec<Section> {
        let shown: Vec<usize> =
            (0..self.axes.len()).filter(|axis| self.axes[*axis].values.len() > 1).collect();
        let measured = ["MB/s", "±95%", "IOPS", "p50", "p99", "CPU s/GiB"].map(str::to_owned);
        let head = shown.iter().map(|axis| self.axes[*axis].name.clone()).chain(measured).collect();
        let row = |values: &[String], run: &RunResult| {
            let cpu = run.cpu.as_ref().map_or_else(|| "-".to_owned(), |cpu| digits(cpu.seconds_per_gib));
            let figures = [
                digits(run.bytes_per_second.mean / 1e6),
                interval(&run.bytes_per_second),
                digits(run.iops.mean),
                time(run.latency_ns.p50),
                time(run.latency_ns.p99),
                cpu,
            ];
            shown.iter().map(|axis| values[*axis].clone()).chain(figures).collect()
        };
        let cells = self.cells.iter().filter_map(|cell| Some(row(&cell.values, cell.run.as_ref()?)));
        let mut paragraphs = Vec::new();
        for cell in &self.cells {
            let name = self.name(cell);
            paragraphs.extend(cell.skipped.iter().map(|reason| format!("Skipped: {name}: {reason}")));
            paragraphs.extend(cell.drift.iter().map(|drift| format!("Drift: {name}: {drift}")));
        }
        let open = self.cells.iter().filter(|cell| !cell.is_done()).count();
        paragraphs.extend((open > 0).then(|| format!("Incomplete: {open} cells are not measured yet.")));
        vec![Section { title: String::new(), head, rows: cells.collect(), texts: shown.len(), paragraphs }]
    }
}
