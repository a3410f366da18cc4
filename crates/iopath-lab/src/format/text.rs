//! The default format: tables for a terminal, as wide as it is.

use super::Format;

/// The row of the table.
pub(super) const ROW: Format = Format {
    name: "table",
    about: "tables for a terminal",
    is_of_runs: false,
    render: |document, view| document.text(view).trim_end().to_owned() + "\n",
};
