//! The state of a device for its front end: the messages of the vhost-user protocol, as the crate `vhost` decodes them.
//! Starts and stops queues; the I/O is that of their threads.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use iopath::SharedMemory;
use rustix::net::{SendFlags, send};
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use virtio_bindings::virtio_blk::VIRTIO_BLK_F_FLUSH;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use crate::config::Config;
use crate::inflight::InflightRegions;
use crate::memory::{GuestMemory, Region};
use crate::ring::RingPlaces;
use crate::running::Negotiated;
use crate::state::DeviceState;
use crate::worker::{Queue, Start};

/// The largest number of parts of a request: with a header and a status, a chain of the usual queue of 128 entries.
pub(crate) const SEG_MAX: u32 = 126;

/// The feature that announces the messages of protocol features.
const PROTOCOL_FEATURES: u64 = 1 << 30;

/// The largest number of regions of memory.
const REGIONS_MAX: u64 = 64;

/// The header of the message that the configuration has changed: its number, version 1 of the protocol, no payload.
const CONFIG_CHANGED: [u32; 3] = [2, 1, 0];

/// The device of a front end.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) config: Config,
    state: Arc<DeviceState>,
    queues: Vec<Queue>,
    rings: Vec<RingState>,
    features: u64,
    memory: Vec<Region>,
    inflight: Option<InflightRegions>,
    /// The channel for messages to the front end.
    to_front_end: Option<UnixStream>,
}

/// What the front end has said of a queue.
#[derive(Debug, Default)]
struct RingState {
    places: RingPlaces,
    next: u16,
    kick: Option<File>,
    call: Option<File>,
    is_enabled: bool,
    is_running: bool,
}

impl Control {
    pub(crate) fn new(config: Config, state: Arc<DeviceState>, queues: Vec<Queue>) -> Self {
        let rings = queues.iter().map(|_| RingState::default()).collect();
        let (features, memory, inflight, to_front_end) = (0, Vec::new(), None, None);
        Self { config, state, queues, rings, features, memory, inflight, to_front_end }
    }

    /// Forgets the front end: stops all queues, and releases its memory.
    pub(crate) fn reset(&mut self) {
        self.stop_all();
        self.rings.iter_mut().for_each(|ring| *ring = RingState::default());
        self.memory.clear();
        (self.features, self.inflight, self.to_front_end) = (0, None, None);
    }

    /// The threads of the queues, to end them.
    pub(crate) fn queues(&mut self) -> &mut [Queue] {
        &mut self.queues
    }

    /// The channel to the front end, which the crate `vhost` cannot use for all messages.
    pub(crate) fn set_to_front_end(&mut self, stream: UnixStream) {
        self.to_front_end = Some(stream);
    }

    /// The device has this many sectors now. Tells the guest, if one runs. Returns false if the front end does not take
    /// the message: the guest learns the size at its next start.
    pub(crate) fn set_capacity(&mut self, sectors: u64) -> bool {
        self.config.capacity = sectors;
        self.state.capacity.store(sectors, Ordering::Release);
        let message: Vec<u8> = CONFIG_CHANGED.iter().flat_map(|number| number.to_ne_bytes()).collect();
        match &self.to_front_end {
            // A front end that does not read must not stop the device. It can change the flags of the descriptor, and
            // not those of the call.
            Some(stream) => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                send(stream, &message, flags).is_ok_and(|sent| sent == message.len())
            }
            None => self.rings.iter().all(|ring| !ring.is_running),
        }
    }

    fn negotiated(&self) -> Negotiated {
        let has = |bit: u32| self.features & 1 << bit != 0;
        Negotiated {
            has_indirect: has(VIRTIO_RING_F_INDIRECT_DESC),
            has_event_index: has(VIRTIO_RING_F_EVENT_IDX),
            has_flush: has(VIRTIO_BLK_F_FLUSH),
        }
    }

    fn ring(&mut self, index: u32) -> Result<&mut RingState> {
        self.rings.get_mut(index as usize).ok_or(Error::InvalidOperation("there is no such queue"))
    }

    /// Starts or stops a queue, as its state demands: it runs if it is enabled and has a descriptor for notifications.
    fn update(&mut self, index: usize) -> Result<()> {
        let ring = &self.rings[index];
        let should_run = ring.is_enabled && ring.kick.is_some();
        match (should_run, ring.is_running) {
            (true, false) => self.start(index),
            (false, true) => {
                self.stop(index);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn start(&mut self, index: usize) -> Result<()> {
        let started = self.try_start(index);
        match &started {
            Ok(()) => self.rings[index].is_running = true,
            Err(reason) => self.state.note(format!("queue {index} cannot start: {reason}")),
        }
        started.map_err(|_| Error::InvalidOperation("the queue cannot start"))
    }

    fn try_start(&self, index: usize) -> std::result::Result<(), String> {
        let memory = GuestMemory::new(self.memory.clone()).map_err(|fault| fault.to_string())?;
        let ring = &self.rings[index];
        let duplicate = |file: &File| file.try_clone().map_err(|error| error.to_string());
        let kick = ring.kick.as_ref().ok_or("it has no descriptor for notifications")?;
        self.queues[index].start(Start {
            places: ring.places,
            memory: Arc::new(memory),
            next: ring.next,
            negotiated: self.negotiated(),
            kick: duplicate(kick)?,
            call: ring.call.as_ref().map(duplicate).transpose()?,
            inflight: self.inflight.as_ref().and_then(|regions| regions.of_queue(index as u16)),
        })
    }

    fn stop(&mut self, index: usize) {
        if let Some(next) = self.queues[index].stop() {
            self.rings[index].next = next;
        }
        self.rings[index].is_running = false;
        // A reset of the device stops all queues.
        if self.rings.iter().all(|ring| !ring.is_running) {
            self.state.is_broken.store(false, Ordering::Release);
        }
    }

    fn stop_all(&mut self) {
        for index in 0..self.rings.len() {
            if self.rings[index].is_running {
                self.stop(index);
            }
        }
    }

    /// Changes the memory while no queue uses it.
    fn change_memory(&mut self, change: impl FnOnce(&mut Vec<Region>) -> Result<()>) -> Result<()> {
        let running: Vec<usize> =
            (0..self.rings.len()).filter(|&index| self.rings[index].is_running).collect();
        for &index in &running {
            self.stop(index);
        }
        // A change that is refused leaves the memory as it was, and the queues go on.
        let changed = change(&mut self.memory);
        let started: Vec<Result<()>> = running.iter().map(|&index| self.start(index)).collect();
        changed.and_then(|()| started.into_iter().collect())
    }

    fn map(&self, file: &File, offset: u64, bytes: u64, guest: u64, user: u64) -> Result<Region> {
        let mapped = SharedMemory::map(file, offset, bytes);
        let memory = mapped.map_err(|error| {
            self.state.note(format!("the memory of the guest cannot be mapped: {error}"));
            Error::InvalidOperation("the memory cannot be mapped")
        })?;
        Ok(Region { guest, user, memory: Arc::new(memory) })
    }
}

/// The descriptor for notifications must never block this process, not even if it is a pipe.
fn without_blocking(file: Option<File>) -> Result<Option<File>> {
    if let Some(file) = &file {
        let flags = rustix::fs::fcntl_getfl(file).map_err(|error| Error::ReqHandlerError(error.into()))?;
        let flags = flags | rustix::fs::OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(file, flags).map_err(|error| Error::ReqHandlerError(error.into()))?;
    }
    Ok(file)
}

impl VhostUserBackendReqHandlerMut for Control {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.stop_all();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop_all();
        self.rings.iter_mut().for_each(|ring| *ring = RingState::default());
        self.features = 0;
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.config.features() | PROTOCOL_FEATURES)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let unknown = features & !(self.config.features() | PROTOCOL_FEATURES);
        if unknown != 0 {
            // Such as a guest that was started with another kind of disk. A front end may not await the answer.
            self.state.note(format!("the guest uses features that this disk does not have: {unknown:#x}"));
            return Err(Error::InvalidOperation("a feature that was not offered"));
        }
        self.features = features;
        // Without protocol features there is no message that enables a queue.
        if features & PROTOCOL_FEATURES == 0 {
            self.rings.iter_mut().for_each(|ring| ring.is_enabled = true);
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<vhost::VhostUserMemoryRegionBase>>> {
        let table: Vec<Region> = regions
            .iter()
            .zip(&files)
            .map(|(region, file)| {
                let VhostUserMemoryRegion { guest_phys_addr, memory_size, user_addr, mmap_offset } = *region;
                self.map(file, mmap_offset, memory_size, guest_phys_addr, user_addr)
            })
            .collect::<Result<_>>()?;
        self.change_memory(|memory| {
            *memory = table;
            Ok(())
        })?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = u16::try_from(num).map_err(|_| Error::InvalidOperation("a queue is smaller"))?;
        self.ring(index)?.places.size = size;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let ring = self.ring(index)?;
        ring.places = RingPlaces { size: ring.places.size, descriptors: descriptor, available, used };
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.ring(index)?.next = base as u16;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        // The front end waits for an index, which only the end of the connection can refuse.
        self.ring(index).map_err(|_| Error::InvalidParam)?;
        self.stop(index as usize);
        let ring = self.ring(index)?;
        // The front end sends new descriptors at the next start.
        (ring.kick, ring.call) = (None, None);
        Ok(VhostUserVringState::new(index, u32::from(ring.next)))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let ring = self.ring(u32::from(index))?;
        ring.kick = fd;
        if ring.is_running {
            self.stop(usize::from(index));
        }
        self.update(usize::from(index))
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let call = without_blocking(fd)?;
        let copy = call.as_ref().map(File::try_clone).transpose().map_err(Error::ReqHandlerError)?;
        self.ring(u32::from(index))?.call = call;
        self.queues[usize::from(index)].set_call(copy);
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, _fd: Option<File>) -> Result<()> {
        self.ring(u32::from(index)).map(drop)
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        use VhostUserProtocolFeatures as Features;
        Ok(Features::MQ
            | Features::CONFIG
            | Features::BACKEND_REQ
            | Features::INFLIGHT_SHMFD
            | Features::RESET_DEVICE
            | Features::CONFIGURE_MEM_SLOTS)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.queues.len() as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.ring(index)?.is_enabled = enable;
        self.update(index as usize)
    }

    fn get_config(&mut self, offset: u32, size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        Ok(self.config.read(offset, size, SEG_MAX))
    }

    fn set_config(&mut self, _offset: u32, _buf: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        // Not even the mode of the write cache: a front end that connects again does not state it again.
        Err(Error::InvalidOperation("the configuration cannot be set"))
    }

    fn set_gpu_socket(&mut self, _gpu_backend: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("a block device has no display"))
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("a block device has no shared objects"))
    }

    fn get_inflight_fd(&mut self, inflight: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let VhostUserInflight { num_queues, queue_size, .. } = *inflight;
        let queues = num_queues.min(self.queues.len() as u16);
        let (regions, file) = InflightRegions::create(queues, queue_size).map_err(Error::ReqHandlerError)?;
        let bytes = regions.bytes();
        self.inflight = Some(regions);
        Ok((VhostUserInflight::new(bytes, 0, queues, queue_size), file))
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Result<()> {
        let VhostUserInflight { mmap_size, mmap_offset, num_queues, queue_size } = *inflight;
        let regions = InflightRegions::open(&file, mmap_offset, mmap_size, num_queues, queue_size);
        self.inflight = Some(regions.map_err(|error| {
            self.state.note(format!("the record of requests in flight: {error}"));
            Error::InvalidOperation("the record cannot be used")
        })?);
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(REGIONS_MAX)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        fd: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<vhost::VhostUserMemoryRegionBase>> {
        if self.memory.len() as u64 >= REGIONS_MAX {
            return Err(Error::InvalidOperation("too many regions"));
        }
        let added =
            self.map(&fd, region.mmap_offset, region.memory_size, region.guest_phys_addr, region.user_addr)?;
        self.change_memory(|memory| {
            memory.push(added);
            Ok(())
        })?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let (guest, user) = (region.guest_phys_addr, region.user_addr);
        self.change_memory(|memory| {
            let found = memory.iter().position(|known| known.guest == guest && known.user == user);
            memory.remove(found.ok_or(Error::InvalidOperation("there is no such region"))?);
            Ok(())
        })
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _fd: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation("no migration of the state"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("no migration of the state"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidOperation("no shared memory of the device"))
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        Err(Error::InvalidOperation("no migration"))
    }
}
