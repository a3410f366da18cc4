//! The argument of commands that publish metrics.

use crate::stderr::note;
use clap::Args;
use iopath_lab::metrics::{Exporter, MetricsError, MetricsPlace};

#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    /// Publish metrics in the format OpenMetrics: at http://[ADDRESS:]PORT/metrics (a port alone is that of 127.0.0.1),
    /// or in a file that is replaced every second
    #[arg(long, value_name = "[ADDRESS:]PORT|FILE")]
    pub(crate) metrics: Option<MetricsPlace>,
}

impl MetricsArgs {
    /// Starts to publish, and states where. `replaces` permits a file that iopath has not created.
    pub(crate) fn start(&self, replaces: bool) -> Result<Option<Exporter>, MetricsError> {
        let Some(place) = &self.metrics else { return Ok(None) };
        let exporter = Exporter::of_option(place, replaces)?;
        if let Some(address) = exporter.address {
            note(format_args!("metrics at http://{address}/metrics"));
        }
        Ok(Some(exporter))
    }
}
