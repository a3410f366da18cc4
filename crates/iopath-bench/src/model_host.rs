//! The modelled host of a run: its CPUs, found by the name of a preset or of a file of parameters. `model.rs` has the
//! modelled targets.

use std::io;
use std::path::Path;

use iopath_model::HostModel;
use iopath_report::bounded;

use crate::error::BenchError;

/// The suffix of the name of a file of parameters.
const SUFFIX: &str = ".toml";

/// The maximum size of such a file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The modelled CPUs of a run on modelled targets.
#[derive(Debug, Clone)]
pub struct ModelHost {
    name: String,
    model: HostModel,
}

impl ModelHost {
    /// The preset `name`, or the file of this name if it ends in `.toml` or has a `/`.
    ///
    /// # Errors
    /// [`BenchError`]: there is no such preset, the file cannot be read, or a parameter is wrong.
    pub fn find(name: &str) -> Result<Self, BenchError> {
        let model = if is_file(name) {
            HostModel::parse(name, &read(Path::new(name))?)?
        } else {
            HostModel::preset(name)?
        };
        Ok(Self { name: name.to_owned(), model })
    }

    /// The name as given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parameters.
    pub fn model(&self) -> &HostModel {
        &self.model
    }
}

/// Whether a name is that of a file, and not of a preset.
pub(crate) fn is_file(name: &str) -> bool {
    name.contains('/') || name.ends_with(SUFFIX)
}

/// The text of a file of parameters.
pub(crate) fn read(file: &Path) -> Result<String, BenchError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => BenchError::NoModelFile { file: file.to_owned() },
        _ => BenchError::Io { action: "read model file", target: file.to_owned(), source },
    };
    let bytes = bounded::read_regular(file, FILE_BYTES_MAX).map_err(failed)?;
    String::from_utf8(bytes)
        .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error.utf8_error())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_host_is_refused_and_the_message_names_the_known_hosts() {
        let error = ModelHost::find("none-such").unwrap_err().to_string();
        assert!(error.contains("`none-such`") && error.contains("server-2006"), "{error}");
        let missing = ModelHost::find("./none.toml").unwrap_err().to_string();
        assert!(missing.contains("./none.toml"), "{missing}");
    }
}
