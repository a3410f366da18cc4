//! The JSON of iopath: the document of `--json`. docs/schema has the schemas.

use super::Format;

/// The row of the table.
pub(super) const ROW: Format = Format {
    name: "json",
    about: "the JSON of iopath, as --json",
    is_of_runs: false,
    render: |document, _| document.json(),
};
