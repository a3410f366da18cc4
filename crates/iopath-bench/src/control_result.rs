//! The observations of the controls of jobs as a part of a result, and as warnings. Does not control: `job/control.rs`
//! does.

use iopath_report::result::{DepthSearchResult, LatencyTargetResult};

use crate::job::control::{ControlEnd, DepthFound};

/// The results of controls.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ControlResult {
    pub(crate) latency_target: Option<LatencyTargetResult>,
    pub(crate) warnings: Vec<String>,
}

/// The results of the controls of some jobs.
pub(crate) fn of<'a>(ends: impl Iterator<Item = &'a ControlEnd>) -> ControlResult {
    let mut result = ControlResult::default();
    for ControlEnd { depth, ended } in ends {
        if let Some(DepthFound { target, best, is_complete }) = *depth {
            let of_target = result.latency_target.get_or_insert_with(|| LatencyTargetResult {
                limit_ns: u64::try_from(target.limit.as_nanos()).unwrap_or(u64::MAX),
                percent: f64::from(target.per_million) / 10_000.0,
                window_seconds: target.window.as_secs_f64(),
                searches: Vec::new(),
            });
            let (depth, iops) = best.unzip();
            of_target.searches.push(DepthSearchResult { depth, iops, complete: is_complete });
        }
        result.warnings.extend(ended.iter().map(|reason| format!("a job ended early: {reason}")));
    }
    let searches = result.latency_target.iter().flat_map(|target| &target.searches);
    if searches.into_iter().any(|search| !search.complete) {
        result.warnings.push(
            "the search for the depth that keeps latency_target is not complete; use a longer runtime or a shorter \
             latency_window"
                .to_owned(),
        );
    }
    result
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::controls::LatencyTarget;

    #[test]
    fn searches_and_rates_have_results_and_warnings() {
        let target = LatencyTarget {
            limit: Duration::from_micros(500),
            window: Duration::from_secs(5),
            per_million: 999_000,
            continues: false,
        };
        let found = |best, is_complete| Some(DepthFound { target, best, is_complete });
        let ends = [
            ControlEnd { depth: found(Some((7, 1000.0)), true), ended: None },
            ControlEnd { depth: found(None, false), ended: Some("its rate fell".to_owned()) },
        ];
        let ControlResult { latency_target, warnings } = of(ends.iter());
        let target = latency_target.unwrap();
        assert_eq!((target.limit_ns, target.percent), (500_000, 99.9));
        let depths: Vec<_> = target.searches.iter().map(|search| (search.depth, search.complete)).collect();
        assert_eq!(depths, [(Some(7), true), (None, false)]);
        assert_eq!(warnings[0], "a job ended early: its rate fell");
        assert!(warnings[1].contains("is not complete"));
        assert_eq!(of([].iter()), ControlResult::default());
    }
}
