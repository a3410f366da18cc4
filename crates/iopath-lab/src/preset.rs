//! Presets: job files by name, embedded in the program from the folder `presets`, each with the table of its classic.
//! Does not run them: see `iopath-fio`.

mod view;

use std::path::{Path, PathBuf};

use iopath_report::UnknownName;
use iopath_report::result::Report;

use iopath_fio::{Environment, JobFile, JobFileError};

/// A job file with a name.
#[derive(Debug)]
pub struct Preset {
    /// The name that `--preset` takes.
    pub name: &'static str,
    /// A description of one line.
    pub about: &'static str,
    /// The job file.
    pub text: &'static str,
    /// The default number of repetitions.
    pub repeats: u32,
    /// The classic table below the table of jobs; none for presets without one.
    view: Option<fn(&Report) -> String>,
}

/// All presets, in the order of help.
pub static PRESETS: [Preset; 8] = [
    Preset {
        name: "stream",
        about: "sequential throughput: large direct reads and writes, 8 in flight",
        text: include_str!("../presets/stream.fio"),
        repeats: 3,
        view: None,
    },
    Preset {
        name: "parallel",
        about: "several targets at the same time: sum, first and last done, skew, fairness",
        text: include_str!("../presets/parallel.fio"),
        repeats: 3,
        view: Some(view::parallel),
    },
    Preset {
        name: "perftest",
        about: "reads and writes through the page cache with blocks from 64m to 4k, as dd; the classic table",
        text: include_str!("../presets/perftest.fio"),
        repeats: 3,
        view: Some(view::perftest),
    },
    Preset {
        name: "bonnie",
        about: "block output, rewrite, block input and seeks of a file through the page cache, with CPU percent",
        text: include_str!("../presets/bonnie.fio"),
        repeats: 1,
        view: Some(view::bonnie),
    },
    Preset {
        name: "clients",
        about: "a file server with 48 clients, as dbench",
        text: include_str!("../presets/clients.fio"),
        repeats: 1,
        view: None,
    },
    Preset {
        name: "database",
        about: "random pages by direct I/O, and a log that flushes each record",
        text: include_str!("../presets/database.fio"),
        repeats: 1,
        view: None,
    },
    Preset {
        name: "recorder",
        about: "8 streams that write at a fixed rate, with the latency from the due time",
        text: include_str!("../presets/recorder.fio"),
        repeats: 1,
        view: None,
    },
    Preset {
        name: "ping",
        about: "single random reads with pauses, as ioping",
        text: include_str!("../presets/ping.fio"),
        repeats: 1,
        view: Some(view::ping),
    },
];

/// The preset of a name.
///
/// # Errors
/// [`UnknownName`], with the known names.
pub fn find_preset(name: &str) -> Result<&'static Preset, UnknownName> {
    PRESETS.iter().find(|preset| preset.name == name).ok_or_else(|| UnknownName {
        kind: "preset",
        name: name.to_owned(),
        known: PRESETS.iter().map(|preset| preset.name).collect(),
    })
}

impl Preset {
    /// The jobs. With several targets, each job has a copy for each of them, at the same time.
    ///
    /// # Errors
    /// [`JobFileError`]: a target is not valid UTF-8.
    pub fn jobs(&self, targets: &[PathBuf], environment: &dyn Environment) -> Result<JobFile, JobFileError> {
        let file = format!("preset {}", self.name);
        let mut jobs = JobFile::parse(&file, self.text.as_bytes(), environment, false)?;
        if targets.len() > 1 {
            let each = |target: &PathBuf| {
                let target = target.as_path();
                jobs.jobs.iter().map(|job| on_target(job, target)).collect::<Vec<_>>()
            };
            let per_target: Vec<_> = targets.iter().map(each).collect();
            // The copies of a job are in one group: only the first of them waits for the jobs before it.
            jobs.jobs = (0..jobs.jobs.len())
                .flat_map(|job| per_target.iter().map(move |copies| copies[job].clone()))
                .collect();
            for (number, job) in jobs.jobs.iter_mut().enumerate() {
                job.stonewall &= number % targets.len() == 0;
            }
        }
        Ok(jobs)
    }

    /// The classic table of the results; none for presets without one.
    pub fn table(&self, report: &Report) -> Option<String> {
        self.view.map(|view| view(report)).filter(|table| !table.is_empty())
    }
}

/// A copy of a job on a target: its directory, or its file or device.
fn on_target(job: &iopath_fio::Job, target: &Path) -> iopath_fio::Job {
    let name = target.display().to_string();
    let mut copy = job.clone();
    copy.name = format!("{} on {name}", job.name);
    if target.is_dir() {
        copy.directories = vec![name];
        copy.files = Vec::new();
    } else {
        (copy.files, copy.directories) = (vec![name], Vec::new());
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_fio::System;

    #[test]
    fn each_preset_is_a_job_file_without_unsupported_keys_and_has_a_name_of_its_own() {
        for preset in &PRESETS {
            let jobs = preset.jobs(&[], &System).unwrap_or_else(|error| panic!("{error}"));
            assert!(!jobs.jobs.is_empty() && jobs.warnings.is_empty(), "{}", preset.name);
            assert_eq!(find_preset(preset.name).unwrap().name, preset.name);
        }
        let text = find_preset("bonny").unwrap_err().to_string();
        assert!(text.starts_with("unknown preset `bonny`; use one of: stream, parallel, "), "{text}");
    }

    #[test]
    fn the_copies_of_a_job_on_several_targets_are_one_group() {
        let targets = [PathBuf::from("a"), PathBuf::from("b")];
        let jobs = find_preset("stream").unwrap().jobs(&targets, &System).unwrap();
        let groups: Vec<Vec<&str>> =
            jobs.groups().iter().map(|group| group.iter().map(|job| job.name.as_str()).collect()).collect();
        assert_eq!(groups, [["read on a", "read on b"], ["write on a", "write on b"]]);
    }
}
