//! A modelled target: `model:NAME` for a preset, `model:FILE.toml` for a file of parameters. Finds and checks the
//! model; does not run it. `model_host.rs` has the modelled host in front of it.

use std::path::{Path, PathBuf};

use iopath_core::SECTOR_BYTES;
use iopath_model::Model;

use crate::error::BenchError;
use crate::field::Field;
use crate::model_host::{is_file, read};
use crate::paths::PATHS;
use crate::refusal::WorkloadError;
use crate::stripe_name::StripeName;
use crate::workload::Workload;

/// The prefix of a target that is a model. Write a file with such a name as `./model:NAME`.
const PREFIX: &str = "model:";

/// Separates the name of a model from other values of its parameters: `model:NAME?PARAMETER=VALUE&PARAMETER=VALUE`.
const PARAMETERS: char = '?';

/// The longest run in seconds: 146 years. A model refuses later requests, so no completion overflows the clock.
const SECONDS_MAX: u64 = (1 << 62) / 1_000_000_000;

/// Upper bounds of memory in bytes: of the queues for a transfer in flight, and of the page cache for a page.
const TRANSFER_BYTES: u64 = 1 << 10;
const PAGE_BYTES: u64 = 256;

/// A model that workloads access as a target.
#[derive(Debug, Clone)]
pub struct ModelTarget {
    /// The name as given, with the prefix.
    name: PathBuf,
    model: Model,
}

impl ModelTarget {
    /// The model with the name of a target; none if the target is a file, directory or device.
    ///
    /// # Errors
    /// [`BenchError`]: there is no such preset, the file cannot be read, or a parameter is wrong.
    pub fn find(target: &Path) -> Result<Option<Self>, BenchError> {
        if let Some(stripe) = StripeName::find(target)? {
            return Self::striped(target, &stripe);
        }
        let Some(name) = target.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { return Ok(None) };
        let (name, parameters) = name.split_once(PARAMETERS).unwrap_or((name, ""));
        let parameters: Vec<(&str, &str)> = parameters
            .split('&')
            .filter(|parameter| !parameter.is_empty())
            .map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")))
            .collect();
        let model = if is_file(name) {
            Model::parse_with(name, &read(Path::new(name))?, &parameters)?
        } else {
            Model::preset_with(name, &parameters)?
        };
        Ok(Some(Self { name: target.to_owned(), model }))
    }

    /// A stripe of models; none if no member is a model.
    fn striped(target: &Path, stripe: &StripeName) -> Result<Option<Self>, BenchError> {
        let models = stripe.members.iter().filter(|member| is_model(member)).count();
        if models == 0 {
            return Ok(None);
        }
        let refused = |reason| WorkloadError::Stripe { target: target.to_owned(), reason };
        if models < stripe.members.len() {
            return Err(WorkloadError::SeveralTargets.into());
        }
        let first = stripe.members.first().and_then(|member| member.to_str()?.strip_prefix(PREFIX));
        let first = first.ok_or(refused("a model has a name"))?;
        if stripe.members.iter().any(|member| *member != stripe.members[0]) {
            return Err(refused("all members of a modelled stripe are the same model").into());
        }
        let (name, parameters) = first.split_once(PARAMETERS).unwrap_or((first, ""));
        if is_file(name) {
            return Err(
                refused("write a model file of kind stripe, with the file as its table device").into()
            );
        }
        let parameters: Vec<(String, &str)> = parameters
            .split('&')
            .filter(|parameter| !parameter.is_empty())
            .map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")))
            .map(|(name, value)| (format!("device.{name}"), value))
            .collect();
        let parameters: Vec<(&str, &str)> =
            parameters.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let (members, chunk_kib) = (stripe.members.len(), stripe.chunk_bytes as f64 / 1024.0);
        let text = format!(
            "kind = \"stripe\"\nmembers = {members}\nchunk_kib = {chunk_kib:?}\n\n[device]\nbase = {name:?}\n"
        );
        let model = Model::parse_with(&target.to_string_lossy(), &text, &parameters)?;
        Ok(Some(Self { name: target.to_owned(), model }))
    }

    /// A model without a file; `name` is for messages.
    pub fn of(name: &str, model: Model) -> Self {
        Self { name: PathBuf::from(name), model }
    }

    /// The name as given, with the prefix.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// The parameters.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Its capacity in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.model.capacity() * SECTOR_BYTES
    }

    /// The alignment of offsets and lengths of direct I/O, in bytes.
    pub fn align_bytes(&self) -> u32 {
        self.model.limits().logical_block_bytes
    }
}

impl Workload {
    /// Performs the checks of a modelled target, in addition to those of [`Workload::check`].
    pub fn check_on_model(&self, model: &ModelTarget) -> Result<(), WorkloadError> {
        let path = self.path;
        if !path.capabilities.runs_on_models() {
            let known = PATHS.iter().filter(|row| row.capabilities.runs_on_models()).map(|row| row.name);
            let (target, known) = (model.name().to_owned(), known.collect());
            return Err(WorkloadError::NoModel { path: path.name, target, known });
        }
        let block = model.align_bytes();
        let page = self.cache.on_block(block).page_bytes();
        if path.capabilities.cache && !page.is_multiple_of(block) {
            let range = format!("a multiple of {block}, the block size of {}", model.name().display());
            return Err(WorkloadError::OutOfRange { field: Field::PAGE_SIZE, value: page.into(), range });
        }
        self.check_end_of_time()
    }

    fn check_end_of_time(&self) -> Result<(), WorkloadError> {
        let Some(time) = self.end.time() else { return Ok(()) };
        let runs = u64::from(self.repetitions) + u64::from(self.warm);
        let seconds = time.as_secs().saturating_add(1).saturating_mul(runs);
        if seconds > SECONDS_MAX {
            return Err(WorkloadError::EndOfTime { seconds, seconds_max: SECONDS_MAX });
        }
        Ok(())
    }

    /// Checks that the tables of queues and page cache fit in memory. A model has no buffers. `available` is the memory
    /// in bytes; if it is unknown, the check passes.
    pub(crate) fn check_memory_on_model(&self, available: Option<u64>) -> Result<(), WorkloadError> {
        let transfers = u64::from(self.depth_in_flight()) * u64::from(self.jobs);
        let cache = if self.path.capabilities.cache { self.cache.cache_bytes() } else { 0 };
        let pages = cache / u64::from(self.cache.page_bytes());
        let needed = (transfers * TRANSFER_BYTES).saturating_add(pages.saturating_mul(PAGE_BYTES));
        let needed = needed.saturating_mul(1 + self.more_targets.len() as u64);
        match available {
            Some(available) if needed > available => Err(WorkloadError::Tables { needed, available }),
            _ => Ok(()),
        }
    }
}

/// Whether a target names a model, which may not exist.
pub fn is_model(target: &Path) -> bool {
    let is_name = |path: &Path| path.to_str().is_some_and(|name| name.starts_with(PREFIX));
    match StripeName::find(target) {
        Ok(Some(stripe)) => stripe.members.iter().any(|member| is_name(member)),
        _ => is_name(target),
    }
}

/// The model file that a target names; none if it names a preset or no model.
pub fn model_file(target: &Path) -> Option<&Path> {
    let name = target.to_str()?.strip_prefix(PREFIX)?;
    is_file(name).then(|| Path::new(name))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cache::CacheSettings;
    use crate::paths::find_path;
    use crate::workload::{End, LatencySampling, Repetitions};
    use iopath_report::Rw;

    #[test]
    fn a_name_is_a_preset_and_a_path_is_a_file() {
        for (target, file) in [
            ("model:cloud", None),
            ("model:my.toml", Some("my.toml")),
            ("model:./mine", Some("./mine")),
            ("my.toml", None),
            ("./model:cloud", None),
        ] {
            assert_eq!(model_file(Path::new(target)), file.map(Path::new), "{target}");
        }
        assert!(is_model(Path::new("model:none-such")) && !is_model(Path::new("./model:cloud")));
        assert!(ModelTarget::find(Path::new("./model:cloud")).unwrap().is_none());
        let cloud = ModelTarget::find(Path::new("model:cloud")).unwrap().expect("a preset");
        assert_eq!(cloud.name(), Path::new("model:cloud"));
        assert_eq!(cloud.size_bytes(), cloud.model().limits().capacity * 512);
    }

    fn on_cloud(workload: &Workload) -> Result<(), String> {
        let cloud = ModelTarget::find(Path::new("model:cloud")).unwrap().expect("a preset");
        workload.check_on_model(&cloud).map_err(|error| {
            assert!(error.is_usage(), "{error}");
            error.to_string()
        })
    }

    #[test]
    fn a_path_of_the_kernel_is_refused_and_the_message_names_the_paths_for_models() {
        let known = PATHS.iter().filter(|row| row.capabilities.runs_on_models()).map(|row| row.name);
        let end = format!("model:cloud is a model; use path {}", known.collect::<Vec<_>>().join(" or "));
        assert!(end.contains("iopath-direct or iopath-raw"), "{end}");
        for row in PATHS {
            let refused = on_cloud(&Workload { path: row, ..Workload::default() });
            if row.capabilities.runs_on_models() {
                refused.unwrap();
            } else {
                let text = refused.unwrap_err();
                assert!(text.starts_with(&format!("path {} ", row.name)) && text.ends_with(&end), "{text}");
            }
        }
    }

    #[test]
    fn settings_without_a_meaning_in_virtual_time_are_refused_by_name() {
        let on = |path| Workload {
            path: find_path(path).unwrap(),
            target: Some("model:cloud".into()),
            ..Workload::default()
        };
        let refused = |workload: Workload| workload.check().unwrap_err().to_string();
        let engine = Workload { engine: Some(iopath::Engine::Threads), ..on("iopath-direct") };
        assert!(refused(engine).ends_with("; omit engine"));
        let latency_sampling = LatencySampling::constant(8);
        let sampled = Workload { latency_sampling, ..on("kernel-direct") };
        assert!(refused(sampled).ends_with("; omit latency sampling"));
        assert!(refused(Workload { rw: Rw::Trim, ..on("iopath-direct") }).ends_with("; omit pattern"));
    }

    #[test]
    fn a_run_past_the_end_of_time_is_refused() {
        let path = find_path("iopath-direct").unwrap();
        let years = |years: u64, repetitions| Workload {
            path,
            end: End::Time(Duration::from_secs(years * 31_536_000)),
            repetitions: Repetitions::constant(repetitions),
            ..Workload::default()
        };
        on_cloud(&years(100, 1)).unwrap();
        for (count, repetitions) in [(100, 2), (10_000, 1), (1 << 30, u32::MAX)] {
            assert!(on_cloud(&years(count, repetitions)).unwrap_err().contains("virtual time"), "{count}");
        }
    }

    #[test]
    fn a_cache_whose_tables_exceed_the_memory_is_refused() {
        let cache = CacheSettings { cache_bytes: Some(1 << 40), ..CacheSettings::default() };
        let path = find_path("iopath-buffered").unwrap();
        let workload = Workload { path, cache, ..Workload::default() };
        assert!(workload.check_memory_on_model(Some(1 << 30)).is_err());
        workload.check_memory_on_model(None).unwrap();
        Workload::default().check_memory_on_model(Some(1 << 20)).unwrap();
    }

    #[test]
    fn an_unknown_preset_is_refused_and_the_message_names_the_known_presets() {
        let error = ModelTarget::find(Path::new("model:clod")).unwrap_err();
        assert!(error.is_usage(), "{error}");
        let text = error.to_string();
        assert!(text.contains("`clod`") && text.contains("cloud"), "{text}");
    }

    #[test]
    fn a_missing_file_and_a_device_are_refused() {
        let text = ModelTarget::find(Path::new("model:/none/such.toml")).unwrap_err().to_string();
        assert!(text.starts_with("model file /none/such.toml does not exist"), "{text}");
        let text = ModelTarget::find(Path::new("model:/dev/zero")).unwrap_err().to_string();
        assert!(text.contains("/dev/zero") && text.contains("not a regular file"), "{text}");
    }
}
