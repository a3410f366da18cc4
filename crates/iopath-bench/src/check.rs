//! Checks a workload against the capabilities of its path. Does not examine the target: `target.rs` does.

use std::path::Path;
use std::time::Duration;

use iopath_core::SECTOR_BYTES;
use iopath_report::Rw;
use iopath_report::size::format_size;

use crate::export::is_remote;
use crate::field::Field;
use crate::model::is_model;
use crate::options::check_places;
use crate::place::Medium;
use crate::refusal::WorkloadError;
use crate::share::{Layout, Share};
use crate::steady::{SAMPLES_MAX, SAMPLES_MIN};
use crate::verify::SECTOR_BYTES as CHECKED_BYTES;
use crate::workload::{LatencySampling, Rate, Workload};

/// The range of page sizes, in bytes.
const PAGE_BYTES_MIN: u32 = 4 << 10;
const PAGE_BYTES_MAX: u32 = 64 << 10;

/// The shortest interval between samples of a steady state with the real clock: the sampling thread may be late.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// The fewest pages of a cache.
const PAGES_MIN: u64 = 16;

impl Workload {
    /// Checks everything that does not depend on the target.
    ///
    /// # Errors
    /// [`WorkloadError`], with the field at fault.
    pub fn check(&self) -> Result<(), WorkloadError> {
        self.check_block()?;
        let medium = match self.target.as_deref() {
            Some(target) if is_model(target) => Medium::Model,
            Some(target) if is_remote(target) => Medium::Export,
            _ => Medium::Local,
        };
        check_places(self, medium)?;
        self.check_share()?;
        self.check_verify()?;
        self.check_steady_state()?;
        if let Some(size_bytes) = self.size_bytes {
            self.check_size(size_bytes)?;
        }
        self.check_device_depth()?;
        self.check_cache()
    }

    /// Refuses a share of a common target that the workload cannot have.
    fn check_share(&self) -> Result<(), WorkloadError> {
        let Some(Share { layout, .. }) = self.share else { return Ok(()) };
        let refuse = |problem| Err(WorkloadError::Share { layout: layout.name(), problem });
        match layout {
            Layout::Random if !self.rw.is_random() => {
                refuse("it needs a random pattern; use --rw=randread, or segmented or strided")
            }
            Layout::Strided if self.rw.is_random() => {
                refuse("it needs a sequential pattern; use --rw=read, or segmented or random")
            }
            Layout::Strided if !self.shape.is_plain() => {
                refuse("its blocks have one size, without gaps; remove --bssplit, --skip and the like")
            }
            Layout::Random if self.verify.is_some() && self.rw.writes() => {
                refuse("ranks overwrite blocks of each other, so none can verify its own; use segmented")
            }
            _ => Ok(()),
        }
    }

    /// The target; none on a path that needs none.
    ///
    /// # Errors
    /// [`WorkloadError::NoTarget`].
    pub fn required_target(&self) -> Result<Option<&Path>, WorkloadError> {
        if !self.path.capabilities.needs_target {
            return Ok(None);
        }
        self.target.as_deref().map(Some).ok_or(WorkloadError::NoTarget { path: self.path.name })
    }

    /// iopath's queue transfers whole sectors. A page cache in front of the queue accepts any size.
    fn check_block(&self) -> Result<(), WorkloadError> {
        if matches!(self.rw, Rw::Rewrite | Rw::TrimWrite | Rw::RandTrimWrite) && !self.shape.is_plain() {
            return Err(WorkloadError::ShapeOfRewrite);
        }
        let multiple = self.path.capabilities.block_multiple();
        if self.unit_bytes().is_multiple_of(multiple.into()) {
            return Ok(());
        }
        let range = format!("a multiple of {SECTOR_BYTES} bytes (one sector)");
        Err(WorkloadError::OutOfRange { field: Field::BLOCK_SIZE, value: self.block_size.into(), range })
    }

    /// Each block has one writer at a time, and its content passes through buffers that the lab can fill and read.
    fn check_verify(&self) -> Result<(), WorkloadError> {
        if self.verify.is_none() {
            return Ok(());
        }
        let several = self.jobs.get() > 1 && self.rw.is_random() && self.rw.writes();
        let checked = u64::from(CHECKED_BYTES);
        let reason = if self.rw.trims() {
            "a trimmed block has no content"
        } else if !self.path.capabilities.needs_target {
            "a path without a target transfers no data"
        } else if self.cache.borrow {
            "borrowed pages have no buffer of the job"
        } else if self.latency_sampling > LatencySampling::ALL {
            "sampled transfers are not checked"
        } else if !(self.unit_bytes().is_multiple_of(checked) && self.start_bytes.is_multiple_of(checked)) {
            "each 512 bytes have a checksum, so sizes and offsets must be multiples of 512"
        } else if several {
            "jobs with random writes to one range overwrite the blocks of each other; use one job"
        } else {
            return Ok(());
        };
        Err(WorkloadError::NotVerified { reason })
    }

    fn check_steady_state(&self) -> Result<(), WorkloadError> {
        let Some(steady) = &self.steady_state else { return Ok(()) };
        let reason = if self.end.time().is_none() {
            "a run without a steady state would not end; add a runtime"
        } else if steady.deviation.is_none() && steady.slope.is_none() {
            "it has no limit"
        } else if steady.interval.is_zero() || steady.samples() < SAMPLES_MIN {
            "the window has less than three samples; use a longer window or a shorter interval"
        } else if steady.samples() > SAMPLES_MAX {
            "the window has more than 10,000 samples; use a shorter window or a longer interval"
        } else {
            return Ok(());
        };
        Err(WorkloadError::NotSteady { reason })
    }

    /// Makes the checks of a target on this machine, in addition to those of [`Workload::check`].
    pub fn check_on_storage(&self) -> Result<(), WorkloadError> {
        if self.steady_state.is_some_and(|steady| steady.interval < INTERVAL_MIN) {
            let reason = "samples on storage of this machine are 50 ms apart or more; use a longer window";
            return Err(WorkloadError::NotSteady { reason });
        }
        let pace = match self.rate {
            Some(Rate::Ios(_)) => Field::RATE_IOPS,
            Some(Rate::Bytes(_)) => Field::RATE,
            None if self.think.is_zero() => return Ok(()),
            None => Field::THINK,
        };
        // A thread that waits for completions on behalf of other threads does not wake up for the next transfer.
        let can_wait = self.path.capabilities.needs_target
            && self.elevator.as_ref().is_none_or(|elevator| elevator.name() == "none");
        if (self.depth_in_flight() > 1 && !can_wait) || self.latency_sampling != LatencySampling::ALL {
            return Err(WorkloadError::PaceUnsupported { field: pace });
        }
        Ok(())
    }

    /// The device depth applies to a queue that several jobs share: with any elevator but `none`, or below a page
    /// cache.
    fn check_device_depth(&self) -> Result<(), WorkloadError> {
        let orders = self.elevator.as_ref().is_some_and(|elevator| elevator.name() != "none");
        if self.device_depth.is_none() || orders || self.path.capabilities.cache {
            return Ok(());
        }
        Err(WorkloadError::NoSharedQueue)
    }

    pub(crate) fn check_cache(&self) -> Result<(), WorkloadError> {
        if !self.path.capabilities.cache {
            return Ok(());
        }
        if self.cache.borrow && !self.rw.reads() {
            return Err(WorkloadError::NothingToBorrow { pattern: self.rw.name() });
        }
        let (cache, page) = (self.cache.cache_bytes(), self.cache.page_bytes());
        if !page.is_power_of_two() || !(PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page) {
            let [min, max] = [PAGE_BYTES_MIN, PAGE_BYTES_MAX].map(|bytes| format_size(bytes.into()));
            let range = format!("a power of two from {min} to {max}");
            return Err(WorkloadError::OutOfRange { field: Field::PAGE_SIZE, value: page.into(), range });
        }
        let least = PAGES_MIN * u64::from(page);
        if cache < least {
            let range = format!("{} or more ({PAGES_MIN} pages)", format_size(least));
            return Err(WorkloadError::OutOfRange { field: Field::CACHE_SIZE, value: cache, range });
        }
        Ok(())
    }

    /// Checks that the range to access holds one block per job.
    pub fn check_size(&self, size_bytes: u64) -> Result<(), WorkloadError> {
        let least = self.size_bytes_min().saturating_add(self.start_bytes);
        if size_bytes >= least {
            return Ok(());
        }
        let range = format!("{} or more (one block per job)", format_size(least));
        Err(WorkloadError::OutOfRange { field: Field::SIZE, value: size_bytes, range })
    }

    /// Checks that the whole range of a warm workload fits in iopath's page cache.
    pub fn check_warm(&self, size_bytes: u64) -> Result<(), WorkloadError> {
        if !self.warm || !self.path.capabilities.cache {
            return Ok(());
        }
        let page_bytes = self.cache.page_bytes().into();
        let needed = size_bytes.checked_next_multiple_of(page_bytes).unwrap_or(u64::MAX);
        if needed <= self.cache.cache_bytes() {
            return Ok(());
        }
        Err(WorkloadError::CacheTooSmall { needed, cache: self.cache.cache_bytes() })
    }

    /// Checks that the buffers fit in memory, so that the kernel does not kill a process for lack of it. `available` is
    /// the memory in bytes; without a value, the check passes.
    pub(crate) fn check_memory(&self, available: Option<u64>) -> Result<(), WorkloadError> {
        let in_flight = u64::from(self.depth_in_flight()).saturating_mul(self.jobs.into());
        let buffers = u64::from(self.block_size).saturating_mul(in_flight);
        let cache = if self.path.capabilities.cache { self.cache.cache_bytes() } else { 0 };
        let needed = buffers.saturating_add(cache);
        match available {
            Some(available) if needed > available => Err(WorkloadError::Buffers { needed, available }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use iopath::{Engine, Readahead};

    use super::*;
    use crate::cache::CacheSettings;
    use crate::model_host::ModelHost;
    use crate::paths::find_path;
    use crate::steady::SteadyState;
    use crate::workload::{BlockSize, Depth, DeviceDepth, End, Jobs, LogSettings};
    use iopath_report::Rw;

    fn on(path: &str) -> Workload {
        Workload { path: find_path(path).unwrap(), ..Workload::default() }
    }

    fn cached(cache: CacheSettings) -> Workload {
        Workload { cache, ..on("iopath-buffered") }
    }

    fn refused(workload: &Workload) -> String {
        let error = workload.check().unwrap_err();
        assert!(error.is_usage(), "{error}");
        error.to_string()
    }

    #[test]
    fn the_default_is_valid_on_every_path() {
        for path in crate::paths::PATHS {
            Workload { path, ..Workload::default() }.check().unwrap();
        }
    }

    #[test]
    fn a_queue_of_iopath_transfers_whole_sectors() {
        let workload = |path| Workload { block_size: BlockSize::constant(1000), ..on(path) };
        for path in ["iopath-direct", "iopath-raw", "null"] {
            let text = refused(&workload(path));
            assert!(text.starts_with("block size 1000 is not valid; use a multiple of 512 bytes"), "{text}");
        }
        workload("iopath-buffered").check().unwrap();
        workload("kernel-buffered").check().unwrap();
    }

    #[test]
    fn the_range_holds_a_block_for_each_job() {
        let text = refused(&Workload { size_bytes: Some(100), ..on("null") });
        assert!(text.starts_with("size 100 is not valid; use 4 KiB"), "{text}");
        Workload::default().check_size(4096).unwrap();
        Workload { jobs: Jobs::constant(2), ..Workload::default() }.check_size(4096).unwrap_err();
    }

    #[test]
    fn a_kernel_path_accepts_neither_elevator_nor_engine() {
        let elevator = Some("none".parse().unwrap());
        let text = refused(&Workload { elevator, ..Workload::default() });
        assert!(text.starts_with("path kernel-buffered does not accept elevator (`none`)"), "{text}");
        let text = refused(&Workload { engine: Some(Engine::Threads), ..Workload::default() });
        assert!(text.starts_with("path kernel-buffered does not accept engine (`threads`)"), "{text}");
    }

    #[test]
    fn a_device_depth_needs_a_queue_that_jobs_share() {
        let device_depth = Some(DeviceDepth::constant(4));
        for elevator in [None, Some("none".parse().unwrap())] {
            for path in ["iopath-direct", "iopath-raw", "null"] {
                let text = refused(&Workload { elevator: elevator.clone(), device_depth, ..on(path) });
                assert!(text.ends_with("omit it, or use another elevator"), "{text}");
            }
            Workload { elevator, device_depth, ..on("iopath-buffered") }.check().unwrap();
        }
        let elevator = Some("deadline".parse().unwrap());
        Workload { elevator, device_depth, ..on("iopath-direct") }.check().unwrap();
    }

    #[test]
    fn a_host_and_paces_of_several_transfers_in_flight_are_refused_on_storage() {
        let workload = Workload { path: find_path("iopath-direct").unwrap(), ..Workload::default() };
        workload.check_on_storage().unwrap();
        let refused = |workload: Workload| {
            let error = workload.check_on_storage().unwrap_err();
            assert!(error.is_usage());
            error.to_string()
        };
        let host = ModelHost::find("server-2006").unwrap();
        assert_eq!(host.name(), "server-2006");
        let on_null = Workload { host: Some(host), ..on("null") };
        let text = on_null.check().unwrap_err().to_string();
        assert!(text.starts_with("modelled host"), "{text}");
        let elevator = Some("deadline".parse().unwrap());
        let deep = Workload { elevator, depth: Depth::constant(2), ..workload };
        let rate = std::num::NonZeroU64::new(5);
        for (paced, named) in [
            (Workload { think: Duration::from_nanos(1), ..deep.clone() }, "think time"),
            (Workload { rate: rate.map(Rate::Ios), ..deep.clone() }, "rate of transfers"),
            (Workload { rate: rate.map(Rate::Bytes), ..deep }, "rate of bytes"),
        ] {
            let text = refused(paced.clone());
            assert!(text.starts_with(named) && text.contains("depth of 1"), "{text}");
            Workload { depth: Depth::constant(1), ..paced.clone() }.check_on_storage().unwrap();
            Workload { elevator: None, ..paced.clone() }.check_on_storage().unwrap();
            let null = find_path("null").unwrap();
            Workload { elevator: None, path: null, ..paced }.check_on_storage().unwrap_err();
        }
    }

    #[test]
    fn sampled_latencies_exclude_options_that_need_each_latency() {
        let latency_sampling = LatencySampling::constant(8);
        let sampled = Workload { latency_sampling, ..Workload::default() };
        sampled.check().unwrap();
        let flush_every = std::num::NonZeroU64::new(4);
        let text = refused(&Workload { flush_every, ..sampled.clone() });
        assert!(text.starts_with("number of writes between flushes needs each latency"), "{text}");
        let log = Some(LogSettings { file: "log".into(), limit_bytes: None, accesses: true });
        let text = refused(&Workload { log, ..sampled });
        assert!(text.starts_with("log of accesses needs each latency, and latency sampling"), "{text}");
    }

    #[test]
    fn a_steady_state_needs_a_time_limit_and_a_window_of_some_samples() {
        let steady = SteadyState::default();
        let end = End::Time(Duration::from_secs(60));
        let of = |end, steady| Workload { end, steady_state: Some(steady), ..Workload::default() };
        of(end, steady).check().unwrap();
        let short = SteadyState { window: Duration::from_secs(2), ..steady };
        let long = SteadyState { interval: Duration::from_micros(1), ..steady };
        let free = SteadyState { deviation: None, slope: None, ..steady };
        for (workload, named) in [
            (of(End::Pass, steady), "add a runtime"),
            (of(end, short), "less than three samples"),
            (of(end, long), "more than 10,000 samples"),
            (of(end, free), "has no limit"),
        ] {
            let text = refused(&workload);
            assert!(text.starts_with("steady state is not valid: ") && text.contains(named), "{text}");
        }
        let fast = of(end, steady.in_window(Duration::from_millis(100)));
        fast.check().unwrap();
        assert!(fast.check_on_storage().unwrap_err().to_string().contains("50 ms"));
    }

    #[test]
    fn a_path_without_a_cache_refuses_each_cache_setting_by_name() {
        let none = CacheSettings::default();
        for (cache, setting) in [
            (CacheSettings { cache_bytes: Some(1 << 20), ..none }, "cache size"),
            (CacheSettings { page_bytes: Some(4096), ..none }, "page size"),
            (CacheSettings { readahead: Some(Readahead::Auto), ..none }, "readahead"),
            (CacheSettings { borrow: true, ..none }, "borrowing"),
        ] {
            let text = refused(&Workload { cache, ..Workload::default() });
            let named =
                format!("path kernel-buffered has no iopath page cache and does not accept {setting};");
            assert!(text.starts_with(&named), "{text}");
            cached(cache).check().unwrap();
        }
    }

    #[test]
    fn settings_that_make_no_cache_are_refused_with_the_range() {
        let none = CacheSettings::default();
        for (workload, named) in [
            (
                cached(CacheSettings { page_bytes: Some(5000), ..none }),
                "page size 5000 is not valid; use a power",
            ),
            (cached(CacheSettings { page_bytes: Some(1 << 17), ..none }), "page size 131072 is not valid"),
            (
                cached(CacheSettings { cache_bytes: Some(1000), ..none }),
                "cache size 1000 is not valid; use 64 KiB",
            ),
            (
                Workload { rw: Rw::Write, ..cached(CacheSettings { borrow: true, ..none }) },
                "borrowing applies to reads, and pattern `write` has none",
            ),
        ] {
            let text = refused(&workload);
            assert!(text.starts_with(named), "{text}");
        }
    }

    #[test]
    fn a_warm_range_larger_than_the_cache_is_refused() {
        let cache = CacheSettings {
            cache_bytes: Some(1 << 20),
            page_bytes: Some(64 << 10),
            ..CacheSettings::default()
        };
        let warm = Workload { warm: true, ..cached(cache) };
        warm.check_warm((1 << 20) - 1).unwrap();
        warm.check_warm(u64::MAX).unwrap_err();
        let text = warm.check_warm((1 << 20) + 1).unwrap_err().to_string();
        assert!(text.contains("1.06 MiB") && text.contains("the cache of 1 MiB"), "{text}");
        cached(cache).check_warm(u64::MAX).unwrap();
    }

    #[test]
    fn buffers_that_exceed_the_memory_are_refused_with_both_sizes() {
        let (block_size, jobs) = (BlockSize::constant(1 << 30), Jobs::constant(3));
        let workload = Workload { block_size, jobs, depth: Depth::constant(2), ..on("kernel-uring") };
        let text = workload.check_memory(Some(5 << 30)).unwrap_err().to_string();
        assert!(text.starts_with("buffers of 6 GiB") && text.contains("memory of 5 GiB"), "{text}");
        workload.check_memory(Some(6 << 30)).unwrap();
        workload.check_memory(None).unwrap();
        let small = CacheSettings { cache_bytes: Some(1 << 30), ..CacheSettings::default() };
        let with_cache = Workload { block_size, ..cached(small) };
        with_cache.check_memory(Some(2 << 30)).unwrap();
        with_cache.check_memory(Some((2 << 30) - 1)).unwrap_err();
    }
}
