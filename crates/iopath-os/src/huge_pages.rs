//! The system's allocator with huge pages for large blocks, for programs with tables of many megabytes and random
//! accesses. Memory for transfers is in `aligned.rs`.

use crate::aligned::{HUGE_PAGE_BYTES, system};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::Range;

/// An allocator for `#[global_allocator]`: the system's, with advice to use huge pages for blocks of 4 MiB and more.
///
/// A queue of a million requests takes some 200 MB of tables. With pages of 4 KiB, almost every access to the tables
/// also waits for a page-table walk. A huge page of 2 MiB covers 512 times as much memory. With the usual setting
/// `madvise` (`/sys/kernel/mm/transparent_hugepage/enabled`), the kernel uses huge pages only for advised memory.
///
/// Costs one system call for each large allocation. The first access to a part of a reserved block takes up to 2 MiB of
/// memory instead of 4 KiB.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: iopath_os::HugePages = iopath_os::HugePages;
///
/// let table = vec![7_u64; 1 << 20];
/// assert!(table.iter().all(|row| *row == 7));
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct HugePages;

/// The minimum size of an advised block: smaller blocks may not contain a whole huge page.
const ADVISED_FROM: usize = 2 * HUGE_PAGE_BYTES;

// SAFETY: every block is the system allocator's, returned unchanged and released with the same layout; the advice
// changes neither its address nor its contents.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let block = unsafe { System.alloc(layout) };
        // SAFETY: the block was just allocated with this size.
        unsafe { advise(block, layout.size()) };
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let block = unsafe { System.alloc_zeroed(layout) };
        // SAFETY: the block was just allocated with this size.
        unsafe { advise(block, layout.size()) };
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        let block = unsafe { System.realloc(block, layout, size) };
        // SAFETY: the block was just allocated with this size.
        unsafe { advise(block, size) };
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Advises the kernel to use the huge pages that lie completely in a block.
///
/// # Safety
/// The block is null, or it is allocated and belongs to the caller.
#[inline]
unsafe fn advise(block: *mut u8, bytes: usize) {
    if bytes < ADVISED_FROM || block.is_null() {
        return;
    }
    let inside = whole_pages(block.addr()..block.addr() + bytes);
    // SAFETY: the range lies in the caller's block, and so in mapped memory.
    unsafe { system::advise_huge(block.with_addr(inside.start), inside.len()) };
}

/// The part of a range that huge pages can cover.
fn whole_pages(block: Range<usize>) -> Range<usize> {
    block.start.next_multiple_of(HUGE_PAGE_BYTES)..block.end & !(HUGE_PAGE_BYTES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_that_lie_completely_in_the_block_are_advised() {
        const PAGE: usize = HUGE_PAGE_BYTES;
        assert_eq!(whole_pages(16..16 + 2 * PAGE), PAGE..2 * PAGE);
        assert_eq!(whole_pages(PAGE..3 * PAGE), PAGE..3 * PAGE);
        assert_eq!(whole_pages(PAGE + 1..3 * PAGE - 1), 2 * PAGE..2 * PAGE);
    }

    #[test]
    fn blocks_of_every_size_keep_their_contents_when_they_grow() {
        let layout = |bytes| Layout::from_size_align(bytes, 64).unwrap();
        let sizes = [100, ADVISED_FROM, 3 * ADVISED_FROM, 1 << 20];
        // SAFETY: each block is used within its size, and released once with its current layout.
        unsafe {
            let mut block = HugePages.alloc_zeroed(layout(64));
            assert!((0..64).all(|place| *block.add(place) == 0));
            block.write_bytes(7, 64);
            let mut held = 64;
            for bytes in sizes {
                block = HugePages.realloc(block, layout(held), bytes);
                held = bytes;
                assert!((0..64).all(|place| *block.add(place) == 7));
                *block.add(bytes - 1) = 1;
            }
            HugePages.dealloc(block, layout(held));
        }
    }
}
