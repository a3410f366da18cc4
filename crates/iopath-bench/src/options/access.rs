//! Options of the access: path, target, engine and elevator of a measurement.

use std::path::PathBuf;

use super::Form::{One, Repeated};
use super::Support::{Partly, Yes};
use super::{
    Decides, Difference, Fact, Given, IoEngine, Kind, NONE, OptionRow, Refused, Settings, list, set,
};
use crate::field::Field;
use crate::path::PathRow;
use crate::paths::{
    PATHS, find_path, iopath_direct, kernel_buffered, kernel_direct, kernel_mmap, kernel_uring, null,
};
use crate::place::Place;

pub(super) const ROWS: &[OptionRow] = &[
    OptionRow::option(
        "--path",
        list!("PATH"),
        "The I/O path to measure. Lists, also of --rw, --bs, --iodepth and --numjobs, measure all combinations side by side",
        path,
    )
    .names(|| PATHS.iter().map(|row| (row.name, row.about)).collect())
    .key(Partly, &["ioengine"], "the path; see the table of engines").decides(Decides::Range)
    .field(Field::PATH)
    .fact(Fact::of_run("path", Kind::Text, Difference::Refused))
    .of_job_file(),
    OptionRow::only_key(
        Yes,
        &["direct"],
        "selects the path together with `ioengine`",
        set!(direct = flag),
    ).decides(Decides::Durability),
    OptionRow::only_key(Yes, &["buffered"], "the opposite of `direct`", |settings, given| {
        settings.direct = !given.flag()?;
        Ok(())
    }).decides(Decides::Durability),
    OptionRow::option(
        "--target",
        Repeated("TARGET"),
        "A directory (for a temporary scratch file), a file or a block device; or a modelled disk in virtual time, as \
         model:NAME or model:FILE.toml. A list, or a repeated option, runs the workload on all targets at the same time",
        target,
    )
    .key(
        Partly,
        &["filename"],
        "one file, device, model (`model\\:NAME`) or NBD export (`nbd\\://SERVER/EXPORT`); see *Files*",
    ).decides(Decides::Range)
    .field(Field::TARGET)
    .of_job_file()
    .file(),
    OptionRow::only_key(Yes, &["uri"], "the export of `ioengine=nbd`", |settings, given| {
        settings.files.push(given.text()?.to_owned());
        Ok(())
    })
    .decides(Decides::Range),
    OptionRow::option(
        "--host",
        One("NAME|FILE.toml"),
        "The CPUs in front of a modelled target: a preset, or a file of parameters; default: CPU work takes no time",
        |settings, given| {
            settings.host = Some(given.text()?.to_owned());
            Ok(())
        },
    )
    .field(Field("modelled host"))
    .fact(Fact::of_run("model_host.name", Kind::Text, Difference::RefusedOr(NONE)))
    .only_on(&[Place::Model], |workload| workload.host.as_ref().map(|host| host.name().to_owned()))
    .of_job_file(),
    OptionRow::option(
        "--overwrite",
        super::Form::Flag,
        "Allow writing to a file or device that is not a scratch file of iopath. Destroys its content",
        set!(workload.overwrite = flag),
    )
    .field(Field::OVERWRITE)
    .of_job_file(),
];

/// The engines of fio that have a path here.
pub static ENGINES: &[(&str, IoEngine)] = &[
    ("psync", IoEngine::Synchronous),
    ("sync", IoEngine::Synchronous),
    ("vsync", IoEngine::Synchronous),
    ("pvsync", IoEngine::Synchronous),
    ("pvsync2", IoEngine::Synchronous),
    ("libaio", IoEngine::Asynchronous),
    ("aio", IoEngine::Asynchronous),
    ("linuxaio", IoEngine::Asynchronous),
    ("io_uring", IoEngine::Asynchronous),
    ("posixaio", IoEngine::Asynchronous),
    ("mmap", IoEngine::Mapped),
    ("null", IoEngine::Null),
    ("nbd", IoEngine::Path(&iopath_direct::ROW)),
];

impl IoEngine {
    /// The path that stands for the engine on files and devices of this machine; none for a mapped file with direct
    /// I/O.
    pub fn path(self, is_direct: bool) -> Option<&'static PathRow> {
        match (self, is_direct) {
            (Self::Synchronous | Self::Asynchronous, false) => Some(&kernel_buffered::ROW),
            (Self::Synchronous, true) => Some(&kernel_direct::ROW),
            (Self::Asynchronous, true) => Some(&kernel_uring::ROW),
            (Self::Mapped, false) => Some(&kernel_mmap::ROW),
            (Self::Mapped, true) => None,
            (Self::Null, _) => Some(&null::ROW),
            (Self::Path(row), _) => Some(row),
        }
    }
}

fn path(settings: &mut Settings, given: &Given) -> Result<(), Refused> {
    let name = given.text()?;
    let known =
        ENGINES.iter().find(|(known, _)| *known == name && (name != "null" || given.is_in_job_file()));
    let engine = match known {
        Some((_, engine)) => *engine,
        None => IoEngine::Path(find_path(name).map_err(|_| {
            Refused::Value(
                "it has no path here; use psync, libaio, io_uring, mmap, nbd, null or a path of iopath",
            )
        })?),
    };
    settings.engine = engine;
    if let IoEngine::Path(row) = engine {
        settings.workload.path = row;
    }
    Ok(())
}

/// On the command line, a name with commas is a list, unless a file has this name. As in fio, a line of a job file
/// adds files to those of the lines before it and of `[global]`.
fn target(settings: &mut Settings, given: &Given) -> Result<(), Refused> {
    if given.is_in_job_file() {
        settings.files.extend(given.list()?);
        return Ok(());
    }
    let target = given.file()?;
    match target.to_str() {
        Some(list) if list.contains(',') && !list.starts_with("stripe:") && !target.exists() => {
            settings.targets.extend(list.split(',').map(PathBuf::from));
        }
        _ => settings.targets.push(target),
    }
    Ok(())
}
