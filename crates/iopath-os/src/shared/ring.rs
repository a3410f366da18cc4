//! A bounded ring from one thread to another, without locks and without waits. It does not wake the consumer.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::sync::atomic::{AtomicU32, Ordering};

/// The end that adds entries.
pub(super) struct Producer<T> {
    ring: Arc<Ring<T>>,
    /// The next entry to write. Entries before the shared `tail` are published.
    tail: u32,
    /// The shared `head` as last read: entries before it are free.
    head_seen: u32,
}

/// The end that removes entries.
pub(super) struct Consumer<T> {
    ring: Arc<Ring<T>>,
    head: u32,
    /// The shared `tail` as last read.
    tail_seen: u32,
}

struct Ring<T> {
    entries: Box<[UnsafeCell<MaybeUninit<T>>]>,
    mask: u32,
    /// Written by the producer: entries before it may be read.
    tail: OwnLine<AtomicU32>,
    /// Written by the consumer: entries before it may be written again.
    head: OwnLine<AtomicU32>,
}

/// On cache lines of its own, so that the two ends do not slow each other down.
#[repr(align(128))]
struct OwnLine<T>(T);

// SAFETY: an entry is accessed by one end at a time: by the producer before `tail` passes it, by the consumer from then
// on until `head` passes it. Both indices are published with release and read with acquire.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: as above; the entries belong to the ring.
unsafe impl<T: Send> Send for Ring<T> {}

/// Both ends of a ring with room for `capacity` entries.
pub(super) fn ring<T: Copy>(capacity: u32) -> (Producer<T>, Consumer<T>) {
    let entries = capacity.max(1).next_power_of_two();
    let ring = Arc::new(Ring {
        entries: (0..entries).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
        mask: entries - 1,
        tail: OwnLine(AtomicU32::new(0)),
        head: OwnLine(AtomicU32::new(0)),
    });
    (Producer { ring: Arc::clone(&ring), tail: 0, head_seen: 0 }, Consumer { ring, head: 0, tail_seen: 0 })
}

impl<T: Copy> Producer<T> {
    /// Adds an entry. The consumer sees it after [`Producer::publish`].
    ///
    /// # Panics
    /// If the ring is full: a bug, since both users of a ring count their entries.
    #[inline]
    pub(super) fn push(&mut self, value: T) {
        let entries = self.ring.mask + 1;
        if self.tail.wrapping_sub(self.head_seen) == entries {
            self.head_seen = self.ring.head.0.load(Ordering::Acquire);
            assert!(
                self.tail.wrapping_sub(self.head_seen) < entries,
                "the ring of {entries} entries is full"
            );
        }
        let entry = self.ring.entries[(self.tail & self.ring.mask) as usize].get();
        // SAFETY: the consumer has passed this entry (checked above) and reads it again only after `tail` has.
        unsafe { (*entry).write(value) };
        self.tail = self.tail.wrapping_add(1);
    }

    /// Publishes all added entries to the consumer.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.ring.tail.0.store(self.tail, Ordering::Release);
    }

    /// The number of entries added and not yet removed, as far as the consumer has released them.
    pub(super) fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.ring.head.0.load(Ordering::Acquire))
    }
}

impl<T: Copy> Consumer<T> {
    /// The oldest published entry; it stays in the ring.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<&T> {
        if self.head == self.tail_seen {
            self.tail_seen = self.ring.tail.0.load(Ordering::Acquire);
            if self.head == self.tail_seen {
                return None;
            }
        }
        let entry = self.ring.entries[(self.head & self.ring.mask) as usize].get();
        // SAFETY: the producer published this entry, and writes it again only after the shared `head` has passed it.
        // Only `release` moves that, and it needs the consumer, which the reference borrows.
        Some(unsafe { (*entry).assume_init_ref() })
    }

    /// Removes the entry that [`Consumer::peek`] has returned. The producer sees the room after [`Consumer::release`].
    #[inline]
    pub(super) const fn skip(&mut self) {
        debug_assert!(self.head != self.tail_seen, "no entry was peeked");
        self.head = self.head.wrapping_add(1);
    }

    /// Removes the oldest published entry. The producer sees the room after [`Consumer::release`].
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        let value = *self.peek()?;
        self.skip();
        Some(value)
    }

    /// Releases the room of all removed entries to the producer.
    #[inline]
    pub(super) fn release(&mut self) {
        self.ring.head.0.store(self.head, Ordering::Release);
    }

    /// The number of published entries.
    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.ring.tail.0.load(Ordering::Acquire).wrapping_sub(self.head)
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("tail", &self.tail).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("head", &self.head).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(iopath_explore)))]
mod tests {
    use super::*;

    #[test]
    fn entries_come_out_in_order_across_threads_and_wrap_around() {
        const COUNT: u32 = 20_000;
        let (mut producer, mut consumer) = ring(8);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for value in 0..COUNT {
                    while producer.len() == 8 {
                        std::thread::yield_now();
                    }
                    producer.push(value);
                    producer.publish();
                }
            });
            for expected in 0..COUNT {
                let value = loop {
                    match consumer.pop() {
                        Some(value) => break value,
                        None => std::thread::yield_now(),
                    }
                };
                consumer.release();
                assert_eq!(value, expected);
            }
        });
    }

    #[test]
    fn an_entry_is_invisible_until_it_is_published() {
        let (mut producer, mut consumer) = ring(2);
        producer.push(1);
        assert_eq!((consumer.pop(), consumer.len()), (None, 0));
        producer.publish();
        assert_eq!(
            (consumer.len(), consumer.peek().copied(), consumer.pop(), consumer.pop()),
            (1, Some(1), Some(1), None)
        );
    }

    #[test]
    #[should_panic(expected = "the ring of 2 entries is full")]
    fn a_full_ring_refuses_an_entry() {
        let (mut producer, _consumer) = ring(2);
        (0..3).for_each(|value| producer.push(value));
    }
}
