//! One modelled device behind several queues. With elevator `none`, each job has a queue and an engine of its own. All
//! of them use one disk, as they do through the kernel. Requests that do not fit in the device wait in the order of
//! arrival. The hub does not reorder requests.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use iopath_core::{BlockDevice, Busy, Completion, Instant, Io, Limits, OwnedIo, Tag};
use slab::Slab;

/// A device that several ports share.
#[derive(Debug)]
pub(super) struct Hub<D: BlockDevice> {
    device: D,
    /// Requests at the device and in `waiting`: the port of each, and its tag at that port. The index is the tag at the
    /// device.
    requests: Slab<(u32, Tag)>,
    /// Requests that did not fit in the device, the oldest first.
    waiting: VecDeque<OwnedIo<D::Memory>>,
    /// Empty lists of segments, kept to avoid allocations.
    spare: Vec<Vec<D::Memory>>,
    /// Completions that the ports have not polled.
    done: Vec<VecDeque<Completion>>,
    /// Ports that have completions in `done`, each once.
    ready: Vec<u32>,
}

/// One queue's access to the device.
#[derive(Debug)]
pub(super) struct Port<D: BlockDevice> {
    hub: Rc<RefCell<Hub<D>>>,
    number: u32,
    limits: Limits,
}

impl<D: BlockDevice> Hub<D> {
    /// A device for this number of queues, and its ports.
    pub(super) fn new(device: D, ports: u32) -> (Rc<RefCell<Self>>, Vec<Port<D>>) {
        let limits = device.limits().clone();
        let hub = Rc::new(RefCell::new(Self {
            device,
            requests: Slab::new(),
            waiting: VecDeque::new(),
            spare: Vec::new(),
            done: (0..ports).map(|_| VecDeque::new()).collect(),
            ready: Vec::new(),
        }));
        let port = |number| Port { hub: Rc::clone(&hub), number, limits: limits.clone() };
        let ports = (0..ports).map(port).collect();
        (hub, ports)
    }

    pub(super) const fn device(&self) -> &D {
        &self.device
    }

    /// Passes completions to their ports, and waiting requests to the device. The ports with completions go to `ready`.
    pub(super) fn collect(&mut self, now: Instant, ready: &mut Vec<u32>) {
        while let Some(Completion { tag, result }) = self.device.poll_completion(now) {
            let (port, tag) = self.requests.remove(tag.index());
            let done = &mut self.done[port as usize];
            if done.is_empty() {
                self.ready.push(port);
            }
            done.push_back(Completion { tag, result });
        }
        ready.append(&mut self.ready);
        while let Some(held) = self.waiting.front() {
            if self.device.submit(&held.io(held.tag), now).is_err() {
                break;
            }
            self.spare.extend(self.waiting.pop_front().map(|held| held.segments));
        }
    }

    fn submit(&mut self, port: u32, io: &Io<'_, D::Memory>, now: Instant) {
        let tag = Tag::from_bits(self.requests.insert((port, io.tag)) as u32);
        if self.waiting.is_empty() && self.device.submit(&io.with_tag(tag), now).is_ok() {
            return;
        }
        let segments = self.spare.pop().unwrap_or_default();
        self.waiting.push_back(OwnedIo::new(&io.with_tag(tag), segments));
    }

    pub(super) fn commit(&mut self, now: Instant) {
        self.device.commit(now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.device.poll_timeout()
    }
}

impl<D: BlockDevice> BlockDevice for Port<D> {
    type Memory = D::Memory;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, D::Memory>, now: Instant) -> Result<(), Busy> {
        self.hub.borrow_mut().submit(self.number, io, now);
        Ok(())
    }

    /// The hub commits for all ports together.
    fn commit(&mut self, _now: Instant) {}

    fn poll_completion(&mut self, _now: Instant) -> Option<Completion> {
        self.hub.borrow_mut().done[self.number as usize].pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use iopath_core::{Extent, LengthOnly, Memory, Op, Sector};

    use super::*;

    /// A device with room for two requests. Each request takes a microsecond.
    struct Disk {
        limits: Limits,
        in_flight: VecDeque<(Instant, Tag)>,
    }

    impl BlockDevice for Disk {
        type Memory = LengthOnly;

        fn limits(&self) -> &Limits {
            &self.limits
        }

        fn submit(&mut self, io: &Io<'_, LengthOnly>, now: Instant) -> Result<(), Busy> {
            if self.in_flight.len() == 2 {
                return Err(Busy { tag: io.tag });
            }
            assert!(self.in_flight.iter().all(|(_, tag)| *tag != io.tag), "tags are unique at the device");
            assert_eq!(io.segments().map(|memory| memory.bytes()).sum::<u64>(), io.extent.bytes());
            self.in_flight.push_back((now + Duration::from_micros(1), io.tag));
            Ok(())
        }

        fn commit(&mut self, _: Instant) {}

        fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
            let (_, tag) = self.in_flight.pop_front_if(|(due, _)| *due <= now)?;
            Some(Completion { tag, result: Ok(()) })
        }

        fn poll_timeout(&self) -> Option<Instant> {
            self.in_flight.front().map(|(due, _)| *due)
        }
    }

    #[test]
    fn requests_of_all_ports_reach_the_device_in_order_and_complete_at_their_port() {
        let disk = Disk { limits: Limits::with_capacity(1 << 20), in_flight: VecDeque::new() };
        let (hub, mut ports) = Hub::new(disk, 3);
        let (memory, tag) = ([LengthOnly::new(4096)], Tag::from_bits(7));
        let mut now = Instant::ZERO;
        for port in [2, 0, 1, 0] {
            let extent = Extent::new(Sector(8 * port as u64), 8).unwrap();
            // All queues use the same tags.
            ports[port].submit(&Io::new(tag, Op::Read, extent, &memory), now).unwrap();
        }
        let mut completed = Vec::new();
        while let Some(due) = { hub.borrow().poll_timeout() } {
            now = due;
            let mut ready = Vec::new();
            hub.borrow_mut().collect(now, &mut ready);
            for port in ready {
                while let Some(done) = ports[port as usize].poll_completion(now) {
                    assert_eq!(done.tag, tag);
                    completed.push((now.as_nanos(), port));
                }
            }
        }
        assert_eq!(completed, [(1000, 2), (1000, 0), (2000, 1), (2000, 0)], "two at a time");
        assert!(hub.borrow().requests.is_empty() && hub.borrow().waiting.is_empty());
    }
}
