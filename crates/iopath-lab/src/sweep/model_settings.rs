//! Settings of modelled targets in a sweep: those of the host in front of the model, and the parameters of the model
//! itself. Real devices have those of `device_settings`.

use iopath_core::elevator::ElevatorSpec;
use iopath_report::size::parse_size;

use super::error::SweepError;
use iopath_bench::cache::parse_readahead;
use iopath_bench::model::ModelTarget;
use iopath_bench::workload::Workload;

/// The parameter of models that limits a request, as `max_sectors_kb` of Linux does.
const REQUEST_MAX: &str = "request_max_kib";

/// The tables of layers above a device in model files.
const LAYERS: [&str; 3] = ["", "device.", "device.device."];

/// Sets a value in a workload on a model: `readahead` (of path iopath-buffered, with the windows of Linux), `elevator`,
/// `max_sectors`, or a parameter of the model.
///
/// # Errors
/// [`SweepError::Model`].
pub fn set_on_model(workload: &mut Workload, name: &str, value: &str) -> Result<(), SweepError> {
    let bad = |reason: String| SweepError::Model { name: name.to_owned(), reason };
    match name {
        "readahead" | "read_ahead_kb" => {
            let text = match (name, value.parse::<u64>()) {
                ("read_ahead_kb", Ok(kib)) => format!("linux:{kib}k"),
                _ if parse_size(value).is_ok() => format!("linux:{value}"),
                _ => value.to_owned(),
            };
            workload.cache.readahead = Some(parse_readahead(&text).map_err(bad)?);
        }
        "elevator" | "scheduler" => {
            let spec = value.parse::<ElevatorSpec>();
            workload.elevator = Some(spec.map_err(|error| bad(error.to_string()))?);
        }
        "max_sectors" | "max_sectors_kb" => {
            let kib = match value.parse::<u64>() {
                Ok(kib) => kib,
                Err(_) => parse_size(value).map_err(|error| bad(error.to_string()))? / 1024,
            };
            set_request_max(workload, kib);
        }
        _ if name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.".contains(&byte)) =>
        {
            set_parameter(workload, name, value);
        }
        _ => return Err(bad("use readahead, elevator, max_sectors, or a parameter of the model".to_owned())),
    }
    Ok(())
}

/// Limits the requests of the model, or of the model below its layers.
fn set_request_max(workload: &mut Workload, kib: u64) {
    let names = LAYERS.iter().map(|layer| format!("{layer}{REQUEST_MAX}"));
    let mut variants = names.map(|name| {
        let mut variant = workload.clone();
        set_parameter(&mut variant, &name, &kib.to_string());
        variant
    });
    let is_known = |variant: &Workload| {
        variant.target.iter().chain(&variant.more_targets).all(|target| ModelTarget::find(target).is_ok())
    };
    // Without a known name, the message about the first one explains why.
    let Some(first) = variants.next() else { return };
    *workload = if is_known(&first) { first } else { variants.find(is_known).unwrap_or(first) };
}

/// Adds a parameter to the name of the target: `model:NAME?PARAMETER=VALUE`.
fn set_parameter(workload: &mut Workload, name: &str, value: &str) {
    for target in workload.target.iter_mut().chain(&mut workload.more_targets) {
        let text = target.to_string_lossy().into_owned();
        let separator = if text.contains('?') { '&' } else { '?' };
        *target = format!("{text}{separator}{name}={value}").into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath::Readahead;
    use std::path::Path;

    #[test]
    fn settings_of_the_host_and_parameters_of_the_model_are_set() {
        let mut workload = Workload { target: Some("model:hdd-20tb".into()), ..Workload::default() };
        for (name, value) in
            [("readahead", "128k"), ("elevator", "deadline"), ("max_sectors", "64k"), ("queue_depth", "4")]
        {
            set_on_model(&mut workload, name, value).unwrap();
        }
        assert_eq!(workload.cache.readahead, Some(Readahead::Linux(128 << 10)));
        assert_eq!(workload.elevator.as_ref().map(ToString::to_string).as_deref(), Some("deadline"));
        let target = workload.target.as_deref().unwrap();
        assert_eq!(target, Path::new("model:hdd-20tb?request_max_kib=64&queue_depth=4"));
        set_on_model(&mut workload, "read_ahead_kb", "64").unwrap();
        assert_eq!(workload.cache.readahead, Some(Readahead::Linux(64 << 10)));
        for (name, value) in [("readahead", "far"), ("elevator", "lift"), ("max_sectors", "x"), ("a b", "1")]
        {
            assert!(set_on_model(&mut workload, name, value).unwrap_err().is_usage(), "{name}");
        }
    }
}
