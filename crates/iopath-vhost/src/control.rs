//! The state of a device for its front end: the messages of the vhost-user protocol, as the crate `vhost` decodes them.
//! Starts and stops queues; the I/O is that of their threads.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use iopath::buffers::SharedMemory;
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
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
use crate::worker::{Late, Queue, Start};

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
    /// The longest time for the requests in flight of queues that stop.
    stop_limit: Duration,
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

impl RingState {
    /// Whether it is enabled and has a descriptor for notifications.
    fn should_run(&self) -> bool {
        self.is_enabled && self.kick.is_some()
    }
}

impl Control {
    pub(crate) fn new(
        config: Config,
        state: Arc<DeviceState>,
        queues: Vec<Queue>,
        stop_limit: Duration,
    ) -> Self {
        let rings = queues.iter().map(|_| RingState::default()).collect();
        let (features, memory, inflight, to_front_end) = (0, Vec::new(), None, None);
        Self { config, state, queues, rings, features, memory, inflight, to_front_end, stop_limit }
    }

    /// Whether a front end can be served. Not while requests of the last one are in flight: they write to memory that
    /// its guest may use again.
    pub(crate) fn is_ready(&mut self) -> bool {
        let now = Instant::now();
        let is_ready = self.queues.iter_mut().all(|queue| queue.end_stop(now).is_ok());
        if is_ready {
            self.clear_fault();
        }
        is_ready
    }

    /// Forgets the front end: stops all queues, and releases its memory.
    pub(crate) fn reset(&mut self) {
        // A queue that is late goes on to stop: see `is_ready`.
        let _ = self.stop_all();
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

    /// Starts or stops a queue, as its state demands.
    fn update(&mut self, index: usize) -> Result<()> {
        let ring = &self.rings[index];
        match (ring.should_run(), ring.is_running) {
            (true, false) => self.start(index),
            (false, true) => {
                self.stop(&[index])?;
                self.clear_fault();
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

    fn try_start(&mut self, index: usize) -> std::result::Result<(), String> {
        let memory = GuestMemory::new(self.memory.clone()).map_err(|fault| fault.to_string())?;
        let ring = &self.rings[index];
        let duplicate = |file: &File| file.try_clone().map_err(|error| error.to_string());
        let kick = ring.kick.as_ref().ok_or("it has no descriptor for notifications")?;
        let start = Start {
            places: ring.places,
            memory: Arc::new(memory),
            next: ring.next,
            negotiated: self.negotiated(),
            kick: duplicate(kick)?,
            call: ring.call.as_ref().map(duplicate).transpose()?,
            inflight: self.inflight.as_ref().and_then(|regions| regions.of_queue(index as u16)),
        };
        self.queues[index].start(start, Instant::now() + self.stop_limit)
    }

    /// Stops queues after their requests in flight. A device that has stopped for a mistake stays so.
    ///
    /// # Errors
    /// Requests did not complete in time. The device has stopped, and the error ends the connection: the front end must
    /// not use the memory again as if nothing was written to it.
    fn stop(&mut self, indices: &[usize]) -> Result<()> {
        let until = Instant::now() + self.stop_limit;
        for &index in indices {
            self.queues[index].begin_stop();
        }
        let mut is_late = false;
        for &index in indices {
            self.rings[index].is_running = false;
            match self.queues[index].end_stop(until) {
                Ok(Some(next)) => self.rings[index].next = next,
                Ok(None) => {}
                Err(Late) => {
                    is_late = true;
                    let reason = format!("requests in flight did not complete within {:?}", self.stop_limit);
                    self.state.stop_for(index as u16, &reason);
                }
            }
        }
        let late = || Error::ReqHandlerError(io::Error::new(io::ErrorKind::TimedOut, "requests in flight"));
        if is_late { Err(late()) } else { Ok(()) }
    }

    /// The front end has stopped a queue. If none runs, it has reset the device, which may work again.
    fn clear_fault(&mut self) {
        let is_stopped = |(ring, queue): (&RingState, &Queue)| !ring.is_running && !queue.is_stopping();
        if self.rings.iter().zip(&self.queues).all(is_stopped) {
            self.state.is_broken.store(false, Ordering::Release);
        }
    }

    fn running(&self) -> Vec<usize> {
        (0..self.rings.len()).filter(|&index| self.rings[index].is_running).collect()
    }

    fn stop_all(&mut self) -> Result<()> {
        self.stop(&self.running())?;
        self.clear_fault();
        Ok(())
    }

    /// Changes the memory while no queue uses it. Does not reset the device.
    fn change_memory(&mut self, change: impl FnOnce(&mut Vec<Region>) -> Result<()>) -> Result<()> {
        self.stop(&self.running())?;
        // A change that is refused leaves the memory as it was, and the queues go on.
        let changed = change(&mut self.memory);
        for index in 0..self.rings.len() {
            if self.rings[index].should_run() {
                // A queue without memory waits for the next change, with a message: a front end replaces a region by
                // two changes, and the first of them is no failure.
                let _ = self.start(index);
            }
        }
        changed
    }

    /// Checks a descriptor for notifications before a queue uses it.
    fn check_event(&self, index: u8, file: Option<&File>) -> Result<()> {
        file.map_or(Ok(()), prepare_event).map_err(|error| {
            self.state.note(format!("queue {index}: the descriptor for notifications is refused: {error}"));
            Error::InvalidOperation("the descriptor for notifications is no eventfd")
        })
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

/// Prepares a descriptor for notifications. It must be an eventfd: a write to a pipe or socket could block, and a kick
/// is never read.
fn prepare_event(file: &File) -> io::Result<()> {
    // An eventfd is no file of any type.
    if FileType::from_raw_mode(fstat(file)?.st_mode) != FileType::Unknown {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no eventfd"));
    }
    // The front end may change this again: `Running::notify` does not rely on it.
    Ok(fcntl_setfl(file, fcntl_getfl(file)? | OFlags::NONBLOCK)?)
}

impl VhostUserBackendReqHandlerMut for Control {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.stop_all()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop_all()?;
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
        self.stop(&[index as usize])?;
        self.clear_fault();
        let ring = self.ring(index)?;
        // The front end sends new descriptors at the next start.
        (ring.kick, ring.call) = (None, None);
        Ok(VhostUserVringState::new(index, u32::from(ring.next)))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        self.ring(u32::from(index))?;
        self.check_event(index, fd.as_ref())?;
        let index = usize::from(index);
        self.rings[index].kick = fd;
        if self.rings[index].is_running {
            self.stop(&[index])?;
        }
        self.update(index)
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        self.ring(u32::from(index))?;
        self.check_event(index, fd.as_ref())?;
        let copy = fd.as_ref().map(File::try_clone).transpose().map_err(Error::ReqHandlerError)?;
        self.rings[usize::from(index)].call = fd;
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
