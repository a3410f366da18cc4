//! `extent`: the same write as in `boundary`, on a file that is mapped by extents.

use iopath_core::mapper::Boundary;
use iopath_report::experiment::{Direction, Report, Settings};

use super::error::ExperimentError;
use super::extending::{self, Filesystem, measure};
use super::row::Experiment;

pub(super) static ROW: Experiment = Experiment {
    id: "extent",
    title: "the same write on an extent-mapped file",
    published: "D. Chinner, reply to C. Mason's patch \"avoid too many boundaries in DIO\", linux-kernel, 10 November 2006: \
        one thread extends a file of XFS by direct writes of 512 MiB, on a stripe of 64 FC disks with chunks of 128 KiB: \
        2.24 to 2.28 GiB/s at 18,000 I/O/s and 130% CPU with each kernel. Extents have no boundaries.",
    parameters: &extending::PARAMETERS,
    run,
    on_target: None,
};

/// The kernel whose line of the published table the rows use. Extents have no boundary flag, so all kernels have the
/// same rates.
const KERNEL: &str = "2.6.19-rc3-pl-bd";

fn run(settings: &Settings) -> Result<Report, ExperimentError> {
    let ours = measure(settings, Filesystem::Xfs)?;
    let values = [
        ("throughput", "MiB/s", ours.mib_per_s, "mib_per_s", false),
        ("requests", "1/s", ours.ios_per_s, "ios_per_s", false),
        ("system CPU", "%", ours.system_percent, "cpu_system_percent", true),
        ("interrupt CPU", "%", ours.interrupt_percent, "cpu_interrupt_percent", true),
    ];
    let mut report =
        Report { rows: extending::rows(settings, (KERNEL, "xfs"), "xfs", &values), ..Report::default() };
    let indirect =
        measure(settings, Filesystem::Ext3 { boundary: Boundary::Once, block_us: 0.0, bitmap_ms: 0.0 })?;
    report.directions = vec![
        Direction::new(
            "each request is one chunk, within 10%",
            (ours.ios_per_mib * settings.count("chunk_kib") as f64 / 1024.0 - 1.0).abs() < 0.1,
        ),
        Direction::new(
            "a block-mapped file needs more than twice the requests, even with the flag once",
            indirect.ios_per_mib > 2.0 * ours.ios_per_mib,
        ),
    ];
    report.evidence = ours.evidence;
    report.notes = vec![
        "The file begins at the start of a chunk (`mkfs.xfs -d sunit=256`), and one extent maps each write. So each bio of \
         512 KiB covers four whole chunks, one on each of four disks."
            .to_owned(),
        "The fabric limits the throughput; the source states that it transfers more than 2.5 GiB/s. At the start and end \
         of each write of 512 MiB, some disks have no work, so the throughput is a little lower."
            .to_owned(),
    ];
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effect_is_reproduced() {
        extending::assert_is_reproduced(&ROW);
    }
}
