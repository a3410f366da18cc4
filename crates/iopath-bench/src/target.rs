//! The target of a measurement: a scratch file, an existing file or block device, an export of a server, a model, or
//! none. Decides which bytes a workload may access. Does not transfer them.

use std::fs::File;
use std::path::{Path, PathBuf};

use iopath_os::target::extents::{extents, first_unwritten};
use iopath_os::target::guard::Contents;
use iopath_os::target::{self, DioAlignment, Kind, TargetError, open_exclusive};
use iopath_report::random;

use crate::error::BenchError;
use crate::export::RemoteTarget;
use crate::model::{ModelTarget, is_model};
use crate::own_file::directory_of;
use crate::paths::PATHS;
use crate::progress::{Progress, Silent, Stage};
use crate::refusal::WorkloadError;
pub use crate::scratch::NewContent;
use crate::scratch::Scratch;
use crate::storage::{Resident, Storage};
use crate::stripe_name::StripeName;
use crate::workload::{DEFAULT_SIZE_BYTES, Workload};

/// The properties of a file or device, as the system reports them.
pub use iopath_os::target::Target as TargetInfo;

/// The size of the scratch file that tests the alignment of direct I/O in a directory.
const PROBE_BYTES: u64 = 64 << 10;

/// The bytes that workloads access. One target serves any number of workloads, one after another.
#[derive(Debug)]
pub struct Target {
    /// None for a path without a target, and for a model.
    info: Option<TargetInfo>,
    /// The open export, if the target is one.
    remote: Option<RemoteTarget>,
    /// The model, if the target is one.
    model: Option<ModelTarget>,
    /// The stripe that iopath makes of targets; none for other targets.
    stripe: Option<Striped>,
    /// Further targets, for the same workload at the same time: models if this one is a model.
    more: Vec<Self>,
    size_bytes: u64,
    scratch: Option<Scratch>,
    /// The first offset outside of written extents, where the filesystem supports FIEMAP.
    unwritten: Option<u64>,
    /// The page caches above the bytes, and the counter of their transfers.
    storage: Storage,
    /// Prevents mounts of a block device during writes to it.
    _claim: Option<File>,
}

/// A stripe of targets of this machine.
#[derive(Debug)]
struct Striped {
    /// The name, with the files of the members.
    path: PathBuf,
    members: Vec<Target>,
}

impl Target {
    /// Opens or creates the target of a workload.
    ///
    /// # Errors
    /// [`BenchError`]: the workload is invalid, or the target does not suit it.
    pub fn prepare(workload: &Workload, progress: &mut dyn Progress) -> Result<Self, BenchError> {
        workload.check()?;
        let mut models = Vec::new();
        for target in workload.target.iter().chain(&workload.more_targets) {
            models.extend(ModelTarget::find(target)?);
        }
        if !models.is_empty() && models.len() <= workload.more_targets.len() {
            return Err(WorkloadError::SeveralTargets.into());
        }
        if !models.is_empty() {
            return Self::modelled(models, workload);
        }
        let first = Self::real(workload, progress)?;
        let each = workload.more_targets.iter().map(|target| {
            let workload = Workload { target: Some(target.clone()), ..workload.clone() };
            // An option may hold on a local file, and not on an export.
            workload.check()?;
            Self::real(&workload, progress)
        });
        let more = each.collect::<Result<_, BenchError>>()?;
        Ok(Self { more, ..first })
    }

    /// A share of existing files, devices or models: percent of the smallest of them, rounded down to a multiple of
    /// `align_bytes`.
    ///
    /// # Errors
    /// [`BenchError`]: a target is a directory or a stripe on this machine, which has no size of its own, or cannot be
    /// examined.
    pub fn share_bytes(targets: &[PathBuf], percent: u32, align_bytes: u64) -> Result<u64, BenchError> {
        let no_size = |target: &Path| WorkloadError::NoSize { target: target.to_owned() };
        let size = |target: &PathBuf| {
            if let Some(model) = ModelTarget::find(target)? {
                return Ok(model.size_bytes());
            }
            if StripeName::find(target)?.is_some() {
                return Err(no_size(target).into());
            }
            let info = inspect(target)?;
            if info.kind == Kind::Directory { Err(no_size(target).into()) } else { Ok(info.size_bytes) }
        };
        let sizes = targets.iter().map(size).collect::<Result<Vec<u64>, BenchError>>()?;
        let least = sizes.into_iter().min().ok_or_else(|| no_size(Path::new(".")))?;
        let share = (u128::from(least) * u128::from(percent) / 100) as u64;
        Ok(share - share % align_bytes.max(1))
    }

    /// Opens or creates one target on this machine.
    fn real(workload: &Workload, progress: &mut dyn Progress) -> Result<Self, BenchError> {
        workload.check_on_storage()?;
        let path = workload.path;
        let Some(target) = workload.required_target()? else {
            return Ok(Self::none(workload.size_bytes.unwrap_or(DEFAULT_SIZE_BYTES)));
        };
        if let Some(remote) = RemoteTarget::find(target)? {
            return Self::exported(remote, workload);
        }
        if let Some(stripe) = StripeName::find(target)? {
            return Self::striped(&stripe, workload, progress);
        }
        let info = inspect(target)?;
        if info.kind == Kind::Directory {
            let size_bytes = workload.size_bytes.unwrap_or(DEFAULT_SIZE_BYTES);
            workload.check_size(size_bytes)?;
            workload.check_warm(size_bytes)?;
            // Filling a large file can take minutes: test the alignment with a small one first.
            if path.capabilities.needs_direct_io() {
                Self::probe(target, workload.seed)?.check_alignment(workload)?;
            }
            Self::scratch(target, size_bytes, workload.seed, progress)
        } else {
            Self::existing(info, workload)
        }
    }

    /// A stripe of files, devices, and scratch files in directories.
    fn striped(
        stripe: &StripeName,
        workload: &Workload,
        progress: &mut dyn Progress,
    ) -> Result<Self, BenchError> {
        check_path_of_stripe(workload)?;
        if stripe.members.iter().any(|member| is_model(member)) {
            return Err(WorkloadError::SeveralTargets.into());
        }
        let share = |bytes| stripe.member_bytes(bytes);
        let mut members = Vec::with_capacity(stripe.members.len());
        for (number, member) in stripe.members.iter().enumerate() {
            let is_scratch = member.is_dir();
            let default = is_scratch.then_some(DEFAULT_SIZE_BYTES);
            let of_member = Workload {
                path: workload.path,
                target: Some(member.clone()),
                rw: workload.rw,
                size_bytes: workload.size_bytes.or(default).map(share),
                seed: random::of_target(workload.seed, number),
                overwrite: workload.overwrite,
                ..Workload::default()
            };
            members.push(Self::real(&of_member, progress)?);
        }
        let files: Vec<PathBuf> =
            members.iter().filter_map(|member| Some(member.file()?.to_owned())).collect();
        let least = members.iter().map(|member| member.size_bytes).min().unwrap_or(0);
        let named = StripeName { members: files, ..stripe.clone() };
        let (target, has) = (named.target(), stripe.size_bytes(least));
        let wanted = workload.size_bytes.unwrap_or(workload.size_bytes_min());
        if wanted > has {
            let chunk = stripe.chunk_bytes;
            return Err(WorkloadError::StripeTooSmall { target, has, chunk, least, wanted }.into());
        }
        let size_bytes = workload.size_bytes.unwrap_or(has);
        Ok(Self { stripe: Some(Striped { path: target, members }), ..Self::none(size_bytes) })
    }

    /// The members of a stripe; none of other targets.
    fn members(&self) -> &[Self] {
        self.stripe.as_ref().map_or(&[], |stripe| &stripe.members)
    }

    /// No target, for paths without one.
    pub fn none(size_bytes: u64) -> Self {
        Self {
            info: None,
            remote: None,
            model: None,
            stripe: None,
            more: Vec::new(),
            size_bytes,
            scratch: None,
            unwritten: None,
            storage: Storage::none(),
            _claim: None,
        }
    }

    /// A scratch file in a directory, removed on drop.
    ///
    /// # Errors
    /// [`BenchError`]: a file of that size cannot be created in the directory.
    pub fn scratch(
        directory: &Path,
        size_bytes: u64,
        seed: u64,
        progress: &mut dyn Progress,
    ) -> Result<Self, BenchError> {
        Self::scratch_with(directory, size_bytes, NewContent::Written, seed, progress)
    }

    /// As [`Target::scratch`], with another content.
    ///
    /// # Errors
    /// As for [`Target::scratch`].
    pub fn scratch_with(
        directory: &Path,
        size_bytes: u64,
        content: NewContent,
        seed: u64,
        progress: &mut dyn Progress,
    ) -> Result<Self, BenchError> {
        let create = |advance: &mut dyn FnMut(u64)| {
            Scratch::with_content(directory, size_bytes, content, seed, advance)
        };
        Self::of_scratch(filled(directory, size_bytes, progress, create)?, size_bytes)
    }

    /// A file of this name that iopath creates and keeps, with the mark of [`kept_file`](crate::kept_file). Replaces a
    /// file of the name that has the mark. A scratch file where the filesystem stores no mark.
    ///
    /// # Errors
    /// As for [`Target::scratch`], and a file of the user with this name.
    pub fn kept(
        file: &Path,
        size_bytes: u64,
        content: NewContent,
        seed: u64,
        progress: &mut dyn Progress,
    ) -> Result<Self, BenchError> {
        let directory = directory_of(file);
        let create =
            |advance: &mut dyn FnMut(u64)| Scratch::to_keep(directory, size_bytes, content, seed, advance);
        let scratch = filled(directory, size_bytes, progress, create)?;
        match scratch.keep(file).map_err(BenchError::io("create", file))? {
            Ok(()) => Ok(Self::of(inspect(file)?, size_bytes)),
            Err(scratch) => Self::of_scratch(scratch, size_bytes),
        }
    }

    /// The first `size_bytes` of a file that [`Target::kept`] has made, now or in an earlier run.
    ///
    /// # Errors
    /// [`BenchError`]: the file cannot be examined.
    pub fn made(file: &Path, size_bytes: u64) -> Result<Self, BenchError> {
        Ok(Self::of(inspect(file)?, size_bytes))
    }

    /// A stripe of targets of this machine, each of which holds its share of `size_bytes`.
    pub fn stripe_of(members: Vec<Self>, chunk_bytes: u64, size_bytes: u64) -> Self {
        let files = members.iter().filter_map(|member| Some(member.file()?.to_owned())).collect();
        let path = StripeName::of(chunk_bytes, files).target();
        Self { stripe: Some(Striped { path, members }), ..Self::none(size_bytes) }
    }

    fn of_scratch(scratch: Scratch, size_bytes: u64) -> Result<Self, BenchError> {
        let info = inspect(scratch.path())?;
        Ok(Self { scratch: Some(scratch), ..Self::of(info, size_bytes) })
    }

    /// A small scratch file, to test the alignment of direct I/O in a directory.
    pub fn probe(directory: &Path, seed: u64) -> Result<Self, BenchError> {
        Self::scratch(directory, PROBE_BYTES, seed, &mut Silent)
    }

    /// The first `size_bytes` of this target, for reads while this target exists.
    #[must_use]
    pub fn first(&self, size_bytes: u64) -> Self {
        let size_bytes = size_bytes.min(self.size_bytes);
        let local = self.info.as_ref().filter(|_| self.remote.is_none());
        let storage = local.map_or_else(Storage::none, |info| Storage::of(info, size_bytes));
        Self {
            info: self.info.clone(),
            remote: self.remote.clone(),
            unwritten: self.unwritten,
            storage,
            ..Self::none(size_bytes)
        }
    }

    /// A user's file or block device. Writes need permission, and no other user of the device.
    fn existing(info: TargetInfo, workload: &Workload) -> Result<Self, BenchError> {
        let mut claim = None;
        if workload.rw.writes() {
            if !workload.overwrite {
                return Err(WorkloadError::Overwrite { target: info.path }.into());
            }
            target::may_overwrite(&info)?;
            let file = open_exclusive(&info, false, Contents::Kept)?;
            target::lock(&info, &file, true)?;
            claim = Some(file);
        }
        let (has, wanted) = (info.size_bytes, workload.size_bytes.unwrap_or(workload.size_bytes_min()));
        if wanted > has {
            return Err(WorkloadError::TooSmall { target: info.path, has, wanted }.into());
        }
        Ok(Self { _claim: claim, ..Self::of(info, workload.size_bytes.unwrap_or(has)) })
    }

    /// An export of a server. Writes need permission, here and at the server; the server knows other users of the data.
    fn exported(remote: RemoteTarget, workload: &Workload) -> Result<Self, BenchError> {
        let info = remote.info()?;
        let path = workload.path;
        if !path.capabilities.runs_on_models() {
            let known = PATHS.iter().filter(|row| row.capabilities.runs_on_models()).map(|row| row.name);
            let (target, known) = (info.path, known.collect());
            return Err(WorkloadError::NotRemote { path: path.name, target, known }.into());
        }
        if workload.rw.writes() {
            if remote.is_read_only() {
                return Err(WorkloadError::ReadOnlyExport { target: info.path }.into());
            }
            if !workload.overwrite {
                return Err(WorkloadError::Overwrite { target: info.path }.into());
            }
        }
        let (has, wanted) = (info.size_bytes, workload.size_bytes.unwrap_or(workload.size_bytes_min()));
        if wanted > has {
            return Err(WorkloadError::TooSmall { target: info.path, has, wanted }.into());
        }
        let size_bytes = workload.size_bytes.unwrap_or(has);
        // No page cache of this machine lies above the export, and no counter shows transfers of the server's storage.
        Ok(Self { info: Some(info), remote: Some(remote), ..Self::none(size_bytes) })
    }

    /// Models. They hold no data, so writing to them needs no permission.
    fn modelled(models: Vec<ModelTarget>, workload: &Workload) -> Result<Self, BenchError> {
        let wanted = workload.size_bytes.unwrap_or(workload.size_bytes_min());
        for model in &models {
            workload.check_on_model(model)?;
            let has = model.size_bytes();
            if wanted > has {
                let target = model.name().to_owned();
                return Err(WorkloadError::TooSmall { target, has, wanted }.into());
            }
        }
        let mut each = models.into_iter().map(|model| {
            let size_bytes = workload.size_bytes.unwrap_or(model.size_bytes());
            Self { model: Some(model), ..Self::none(size_bytes) }
        });
        let first = each.next().expect("there is a model at least");
        Ok(Self { more: each.collect(), ..first })
    }

    fn of(info: TargetInfo, size_bytes: u64) -> Self {
        let unwritten = unwritten(&info, size_bytes);
        let storage = Storage::of(&info, size_bytes);
        Self { info: Some(info), unwritten, storage, ..Self::none(size_bytes) }
    }

    /// The open export, if the target is one.
    pub fn remote(&self) -> Option<&RemoteTarget> {
        self.remote.as_ref()
    }

    /// The model; none where the target is real.
    pub fn model(&self) -> Option<&ModelTarget> {
        self.model.as_ref()
    }

    /// The targets that a workload accesses at the same time: this one first.
    pub(crate) fn each(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.more)
    }

    /// The number of targets that a workload accesses at the same time.
    pub(crate) fn count(&self) -> usize {
        1 + self.more.len()
    }

    /// The name of each target, of several: models and files as given.
    pub fn names(&self) -> Vec<String> {
        self.each().filter_map(|one| Some(one.name()?.display().to_string())).collect()
    }

    /// The name as given of a model, otherwise [`Target::file`].
    pub fn name(&self) -> Option<&Path> {
        self.model.as_ref().map(ModelTarget::name).or(self.file())
    }

    /// The file or device, or the name of a stripe; none without a target, and for a model.
    pub fn file(&self) -> Option<&Path> {
        let file = self.info.as_ref().map(|info| info.path.as_path());
        file.or(self.stripe.as_ref().map(|stripe| stripe.path.as_path()))
    }

    /// The properties of the file or device; none without a target.
    pub fn info(&self) -> Option<&TargetInfo> {
        self.info.as_ref()
    }

    /// Whether it is a device or an export, whose size is fixed.
    pub fn is_device(&self) -> bool {
        self.info.as_ref().is_some_and(|info| info.kind != Kind::RegularFile)
    }

    /// Whether it is a scratch file.
    pub fn is_scratch(&self) -> bool {
        self.scratch.is_some() || (self.stripe.is_some() && self.members().iter().all(Self::is_scratch))
    }

    /// The bytes that may be accessed, from offset zero.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The bytes that may be accessed on each of several targets.
    pub(crate) fn size_bytes_of_each(&self) -> u64 {
        self.each().map(|one| one.size_bytes).min().unwrap_or(0)
    }

    /// The bytes that may be accessed on all targets together.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.each().map(|one| one.size_bytes).sum()
    }

    /// The kernel's name of the disk beneath; none without a single disk.
    pub fn disk(&self) -> Option<&str> {
        self.info.as_ref().and_then(|info| info.backing.disk()).map(|disk| disk.name.as_str())
    }

    /// The kernel's names of the disks beneath: of a stripe, those of its members.
    pub(crate) fn disks(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self).chain(self.members()).filter_map(Self::disk)
    }

    /// The first offset in bytes inside of a hole or an unwritten extent, where reads do not reach the disk. None where
    /// the filesystem has no such extent there, or does not support FIEMAP.
    pub fn unwritten(&self) -> Option<u64> {
        self.unwritten
    }

    /// The alignment of offsets and lengths for direct I/O, in bytes.
    ///
    /// # Errors
    /// [`BenchError::Direct`]: the target does not support direct I/O.
    pub fn direct_align_bytes(&self) -> Result<u32, BenchError> {
        if let Some(model) = self.model() {
            return Ok(model.align_bytes());
        }
        if let Some(remote) = &self.remote {
            return Ok(remote.align_bytes());
        }
        let of_members = self.members().iter().map(Self::direct_align_bytes);
        if let Some(largest) = of_members.collect::<Result<Vec<_>, _>>()?.into_iter().max() {
            return Ok(largest);
        }
        let Some(file) = self.file() else { return Ok(1) };
        Ok(DioAlignment::discover(file)?.offset_bytes)
    }

    /// The workload with the settings of the page cache that suit the blocks of this target.
    pub(crate) fn with_pages(&self, workload: &Workload) -> Result<Workload, BenchError> {
        let mut workload = workload.clone();
        if workload.path.capabilities.cache && workload.cache.page_bytes.is_none() {
            let blocks = self.each().map(|one| match one.model() {
                None => Ok(one.direct_align_bytes()?.max(iopath_os::page_bytes() as u32)),
                Some(model) => Ok(model.align_bytes()),
            });
            let largest = blocks.collect::<Result<Vec<u32>, BenchError>>()?.into_iter().max();
            workload.cache = workload.cache.on_block(largest.unwrap_or(1));
            // The largest page bounds the block.
            workload.check_cache()?;
        }
        Ok(workload)
    }

    /// Refuses a path that does not access stripes, and on a synchronous path of the kernel blocks that are not in one
    /// chunk: its system calls access one file each.
    pub(crate) fn check_path(&self, workload: &Workload) -> Result<(), WorkloadError> {
        let path = workload.path;
        for Striped { path: name, .. } in self.each().filter_map(|one| one.stripe.as_ref()) {
            check_path_of_stripe(workload)?;
            let block_bytes = u64::from(workload.block_size.bytes());
            let splits = StripeName::find(name)?.is_some_and(|stripe| {
                workload.unit_bytes() != block_bytes
                    || !stripe.chunk_bytes.is_multiple_of(block_bytes)
                    || !workload.start_bytes.is_multiple_of(block_bytes)
            });
            if splits && !path.capabilities.runs_on_models() {
                let known = PATHS.iter().filter(|row| row.capabilities.runs_on_models()).map(|row| row.name);
                return Err(WorkloadError::NoStripe { path: path.name, known: known.collect() });
            }
        }
        Ok(())
    }

    /// Refuses blocks and a first byte that are not aligned for direct I/O. A page cache of iopath accepts any block,
    /// but uses direct I/O itself.
    pub fn check_alignment(&self, workload: &Workload) -> Result<(), BenchError> {
        let path = workload.path.capabilities;
        if !path.needs_direct_io() {
            return Ok(());
        }
        for one in self.each() {
            let alignment = u64::from(one.direct_align_bytes()?);
            let Some(target) = one.name() else { continue };
            let block_bytes = workload.unit_bytes();
            if !path.cache && !block_bytes.is_multiple_of(alignment) {
                return Err(BenchError::Unaligned { block_bytes, alignment, target: target.to_owned() });
            }
            let offset = workload.start_bytes;
            if !path.cache && !offset.is_multiple_of(alignment) {
                return Err(BenchError::UnalignedStart { offset, alignment, target: target.to_owned() });
            }
        }
        Ok(())
    }

    /// The page caches above the bytes, and the counter of their transfers.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Drops the pages of this target from the page cache, and returns the bytes that are still resident; none without
    /// a file or device.
    pub(crate) fn drop_cached(&self) -> Result<Option<Resident>, BenchError> {
        let mut all: Option<Resident> = None;
        for one in std::iter::once(self).chain(self.members()) {
            let Some(resident) = one.storage.drop_cached()? else { continue };
            let sum = all.get_or_insert_default();
            sum.bytes += resident.bytes;
            sum.bytes_beneath += resident.bytes_beneath;
        }
        Ok(all)
    }
}

/// Only code of iopath makes a stripe, so not all paths access one.
/// A scratch file that `create` fills, with its progress.
fn filled(
    directory: &Path,
    size_bytes: u64,
    progress: &mut dyn Progress,
    create: impl FnOnce(&mut dyn FnMut(u64)) -> Result<Scratch, BenchError>,
) -> Result<Scratch, BenchError> {
    progress.stage(&Stage::Scratch { directory: directory.to_owned(), bytes: size_bytes });
    let mut shown = 0;
    create(&mut |done| {
        if done * 100 / size_bytes > shown {
            shown = done * 100 / size_bytes;
            progress.advance(done as f64 / size_bytes as f64);
        }
    })
}

fn check_path_of_stripe(workload: &Workload) -> Result<(), WorkloadError> {
    let path = workload.path;
    if path.capabilities.stripes {
        return Ok(());
    }
    let known = PATHS.iter().filter(|row| row.capabilities.stripes).map(|row| row.name);
    Err(WorkloadError::NoStripe { path: path.name, known: known.collect() })
}

/// None for a device, and where the filesystem does not support FIEMAP.
fn unwritten(info: &TargetInfo, size_bytes: u64) -> Option<u64> {
    let file = File::open(&info.path).ok().filter(|_| info.kind == Kind::RegularFile)?;
    first_unwritten(&extents(&file).ok()?, size_bytes)
}

/// The properties of a file, directory or device.
pub fn inspect(path: &Path) -> Result<TargetInfo, BenchError> {
    TargetInfo::inspect(path).map_err(|error| match error {
        TargetError::Stat { path, source } => BenchError::open(&path, false)(source),
        other => BenchError::Target(other),
    })
}
