//! One stream of readahead: its position, the end of the pages read ahead, and its next window. `recent.rs` and
//! `readahead.rs` detect streams; `streams.rs` finds the stream of a read.

use crate::file::page::{Page, PageRange};
use crate::time::Instant;

/// The direction of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    /// Each read begins where the last ended.
    Forward,
    /// Each read ends where the last began.
    Backward,
    /// Each read begins this many pages after the beginning of the last (before, if negative).
    Strided(i64),
}

/// Pages to read: one run, or equal pieces at equal distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    start: Page,
    /// Pages of one piece.
    pages: u64,
    pieces: u64,
    stride: i64,
    async_pages: u64,
    /// The first page with a marker, and the distance from marker to marker; a distance of 0 for no marker.
    marker: Page,
    marker_step: i64,
}

impl Window {
    /// A window of requested pages only, limited to the distance. The rest is read when the reader reaches it.
    pub(super) fn only(at: PageRange, distance: Distance) -> Self {
        Self::run(PageRange::new(at.start(), at.pages().min(distance.pages)), 0)
    }

    pub(super) fn run(pages: PageRange, async_pages: u64) -> Self {
        Self {
            start: pages.start(),
            pages: pages.pages(),
            pieces: 1,
            stride: 0,
            async_pages,
            marker: Page::MAX,
            marker_step: 0,
        }
    }

    pub(super) fn marked(self, marker: Page, marker_step: i64) -> Self {
        Self { marker, marker_step, ..self }
    }

    /// The pieces, in the order the reader will reach them.
    pub fn ranges(&self) -> impl Iterator<Item = PageRange> {
        let Self { start, pages, stride, .. } = *self;
        (0..self.pieces).map(move |piece| PageRange::new(moved(start, stride, piece), pages))
    }

    /// The number of pages read before they are requested.
    pub const fn async_pages(&self) -> u64 {
        self.async_pages
    }

    /// The number of all pages.
    pub const fn pages(&self) -> u64 {
        self.pages.saturating_mul(self.pieces)
    }

    /// Whether a read that reaches `page`, which is in the window, calls [`super::Readahead::on_marker`].
    pub const fn is_marked(&self, page: Page) -> bool {
        let delta = page.0.wrapping_sub(self.marker.0).cast_signed();
        // Wrapping, since the lowest number has no negative.
        self.marker_step != 0
            && delta.wrapping_rem(self.marker_step) == 0
            && delta.wrapping_div(self.marker_step) >= 0
    }
}

/// The distance that a stream may read ahead, in pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Distance {
    pub(super) pages: u64,
    /// The device's best request: the unit of readahead.
    pub(super) chunk: u64,
}

impl Distance {
    /// If the distance is less than two chunks, the chunk is half of it. A chunk is the distance from marker to marker,
    /// which has a sign.
    pub(super) fn new(pages: u64, chunk: u64) -> Self {
        Self { pages, chunk: chunk.min(pages.div_ceil(2)).min(i64::MAX.cast_unsigned()) }
    }
}

/// The first window for a request of `pages` pages (Linux, `get_init_ra_size`).
pub(super) fn first_size(pages: u64, max: u64) -> u64 {
    match pages.checked_next_power_of_two().unwrap_or(u64::MAX) {
        small if small <= max / 32 => small * 4,
        middling if middling <= max / 4 => middling * 2,
        _ => max,
    }
}

/// The size of the window after a window of `size` (Linux, `get_next_ra_size`).
pub(super) const fn next_size(size: u64, max: u64) -> u64 {
    if size < max / 16 {
        size * 4
    } else if size <= max / 2 {
        size * 2
    } else {
        max
    }
}

/// One reader.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    course: Course,
    /// Pages of one read.
    pub(super) piece: u64,
    /// The reader's position. Pages between this position and `edge` are read ahead, and not yet used as far as known.
    pub(super) reader: Page,
    /// The beginning of the next window.
    pub(super) edge: Page,
    /// The number of pages to keep ahead now.
    size: u64,
    /// `size` grows when the reader reaches this page: once for each window.
    grows_at: Page,
    /// The maximum of `size` since pages were evicted before use.
    cap: u64,
    /// Pages read ahead since the last shrink.
    since_shrink: u64,
    is_shrunk: bool,
    /// Whether one read has continued another.
    pub(super) is_proven: bool,
    /// Pages of the first window that are a guess.
    pub(super) guessed: u64,
    pub(super) used: Instant,
}

impl Stream {
    /// The maximum number of pieces that a strided stream reads ahead, each a request at the device.
    const PIECES_MAX: u64 = 64;

    pub(super) fn new(course: Course, at: PageRange, size: u64, distance: Distance) -> Self {
        // The pages of one read include small gaps that are read through.
        let size = size.min(distance.pages);
        let edge = if course == Course::Backward { at.end() } else { at.start() };
        Self {
            course,
            piece: at.pages(),
            reader: edge,
            edge,
            size,
            grows_at: edge,
            cap: u64::MAX,
            since_shrink: 0,
            is_shrunk: false,
            is_proven: true,
            guessed: 0,
            used: Instant::ZERO,
        }
    }

    /// A stream for announced sequential reads.
    pub(super) fn announced(at: PageRange, distance: Distance) -> Self {
        Self::new(Course::Forward, at, distance.pages, distance)
    }

    /// A stream for one large request without a continuation so far.
    pub(super) fn of_one_request(at: PageRange, distance: Distance) -> Self {
        Self { is_proven: false, ..Self::new(Course::Forward, at, distance.pages, distance) }
    }

    pub(super) fn with_guessed(self, guessed: u64) -> Self {
        Self { guessed, ..self }
    }

    /// The stream with `edge`: all pages before it are cached or being read.
    pub(super) fn issued_to(self, edge: Page) -> Self {
        Self { edge, ..self }
    }

    /// Whether a miss belongs to this stream: at its edge, or among the pages it has read ahead.
    pub(super) fn is_missed_by(&self, at: PageRange) -> bool {
        match self.course {
            Course::Forward => self.reader <= at.start() && at.start() <= self.edge,
            Course::Backward => at.start() < self.reader && self.edge <= at.end(),
            Course::Strided(_) => self.piece_at(at.start()).is_some(),
        }
    }

    /// Whether the stream has read `page` ahead.
    pub(super) fn has_ahead(&self, page: Page) -> bool {
        match self.course {
            Course::Forward => self.reader <= page && page < self.edge,
            Course::Backward => self.edge <= page && page < self.reader,
            Course::Strided(_) => self.piece_at(page).is_some_and(|start| start != self.edge),
        }
    }

    /// For strided streams: the start of the piece that contains `page`, between the reader and the edge.
    fn piece_at(&self, page: Page) -> Option<Page> {
        let Course::Strided(stride) = self.course else { return None };
        let low = if stride > 0 { self.reader } else { self.edge };
        let offset = page.0.checked_sub(low.0)?;
        let start = Page(page.0 - offset % stride.unsigned_abs());
        let high = self.reader.max(self.edge);
        (start <= high && page.since(start) < self.piece).then_some(start)
    }

    /// Handles a miss of the reader. Returns the window, and whether later windows will be smaller.
    pub(super) fn miss(&mut self, at: PageRange, distance: Distance, end: Page) -> (Window, bool) {
        let mut shrinks = false;
        if self.has_ahead(at.start()) {
            // The page was read ahead and evicted.
            shrinks = self.shrink();
        } else if self.reader != self.edge {
            // The reader has used all pages ahead: the distance is too short.
            self.grow(distance);
        }
        self.is_proven |= self.course == Course::Forward && self.reader < at.start();
        let window = match self.course {
            Course::Forward => self.forward(at, at.start(), distance, end),
            Course::Backward => self.backward(at, at.end(), distance),
            Course::Strided(stride) => {
                let start = self.piece_at(at.start()).unwrap_or(at.start());
                self.strided(start, start, stride, end)
            }
        };
        (window.unwrap_or_else(|| Window::only(at, distance)), shrinks)
    }

    /// Handles a marker that the reader has reached. Returns the next window.
    pub(super) fn reach(&mut self, at: PageRange, distance: Distance, end: Page) -> Option<Window> {
        self.is_shrunk = false;
        let is_down = match self.course {
            Course::Forward => false,
            Course::Backward => true,
            Course::Strided(stride) => stride < 0,
        };
        let has_passed = if is_down { at.start() <= self.grows_at } else { at.start() >= self.grows_at };
        if has_passed {
            self.grow(distance);
        }
        match self.course {
            Course::Forward => self.forward(at, self.edge, distance, end),
            Course::Backward => self.backward(at, self.edge, distance),
            Course::Strided(stride) => {
                let start = self.piece_at(at.start())?;
                self.strided(start, self.edge, stride, end)
            }
        }
    }

    fn forward(&mut self, at: PageRange, from: Page, distance: Distance, end: Page) -> Option<Window> {
        let reader = at.start();
        let chunk = self.chunk(distance);
        // Requested pages are certain. They are read at once, up to the distance.
        let certain = at.end().min(reader + distance.pages);
        let ahead = if self.is_proven { reader + self.size } else { reader };
        let wanted = ahead.max(certain).min(end.max(certain));
        let asked = certain.since(from);
        self.reader = reader;
        self.edge = from;
        // Less than a chunk waits, unless it is requested or the end of the volume.
        if wanted <= from || (asked == 0 && wanted.since(from) < chunk && wanted < end) {
            return None;
        }
        let to = if wanted < end { align(wanted, from, certain, chunk) } else { wanted };
        self.edge = to;
        let async_pages = to.since(from.max(at.end()));
        self.since_shrink = self.since_shrink.saturating_add(async_pages);
        let window = Window::run(PageRange::between(from, to), async_pages);
        // The reader cannot reach a marker at its own position. So after a miss, the first marker follows the first
        // requested chunk.
        let marker = if from == reader { from + asked.min(chunk) } else { from };
        Some(if marker < to { window.marked(marker, chunk.cast_signed()) } else { window })
    }

    fn backward(&mut self, at: PageRange, from: Page, distance: Distance) -> Option<Window> {
        let reader = at.start();
        let chunk = self.chunk(distance);
        // After a miss, `from` is above the requested pages; after a marker, it is below the reader.
        let certain = reader.min(from);
        let wanted = at.end().min(reader + self.piece) - self.size;
        let aligned = Page(wanted.0.checked_next_multiple_of(chunk).unwrap_or(u64::MAX));
        let low =
            if from.since(aligned) >= chunk && aligned <= certain { aligned } else { wanted.min(certain) };
        self.reader = reader;
        self.edge = from;
        let pages = from.since(low);
        if pages == 0 || (from <= reader && pages < chunk && low > Page(0)) {
            return None;
        }
        self.edge = low;
        let async_pages = certain.since(low);
        self.since_shrink = self.since_shrink.saturating_add(async_pages);
        let window = Window::run(PageRange::between(low, from), async_pages);
        Some(if async_pages > 0 { window.marked(certain - 1, -chunk.cast_signed()) } else { window })
    }

    fn strided(&mut self, reader: Page, from: Page, stride: i64, end: Page) -> Option<Window> {
        let ahead = (self.size / self.piece).clamp(1, Self::PIECES_MAX);
        let done = pieces_between(reader, from, stride);
        let fits = if stride > 0 {
            end.since(from + self.piece.saturating_sub(1)).div_ceil(stride.unsigned_abs())
        } else {
            from.0 / stride.unsigned_abs() + 1
        };
        let pieces = (ahead + 1).saturating_sub(done).min(fits);
        self.reader = reader;
        self.edge = moved(from, stride, pieces);
        let asked = u64::from(reader == from);
        let async_pages = pieces.saturating_sub(asked).saturating_mul(self.piece);
        self.since_shrink = self.since_shrink.saturating_add(async_pages);
        let window = Window { pieces, stride, ..Window::run(PageRange::new(from, self.piece), async_pages) };
        (pieces > 0).then(|| window.marked(moved(from, stride, asked), stride))
    }

    fn grow(&mut self, distance: Distance) {
        if self.since_shrink >= self.cap.saturating_mul(16) {
            self.cap = self.cap.saturating_mul(2);
            self.since_shrink = 0;
        }
        self.size = next_size(self.size, distance.pages).min(self.cap).min(distance.pages);
        self.grows_at = self.edge;
    }

    /// The number of pages to read at once: the device's best request, or half of a window that is less than two such
    /// requests.
    fn chunk(&self, distance: Distance) -> u64 {
        distance.chunk.min((self.size / 2).max(1))
    }

    /// Halves the window, at most once until the reader is active again. Returns whether it did.
    pub(super) fn shrink(&mut self) -> bool {
        if self.is_shrunk {
            return false;
        }
        self.is_shrunk = true;
        self.size = (self.size / 2).max(1);
        self.cap = self.size;
        self.since_shrink = 0;
        true
    }
}

/// The end of a window, moved down to a whole chunk if pages are left, and not below `certain`.
fn align(to: Page, from: Page, certain: Page, chunk: u64) -> Page {
    let aligned = Page(to.0 - to.0 % chunk);
    if aligned > from && aligned >= certain { aligned } else { to }
}

/// `page` moved by `steps` strides, limited to the valid page numbers.
const fn moved(page: Page, stride: i64, steps: u64) -> Page {
    let pages = stride.unsigned_abs().saturating_mul(steps);
    if stride < 0 { Page(page.0.saturating_sub(pages)) } else { Page(page.0.saturating_add(pages)) }
}

/// The number of strides from `reader` to `edge`.
fn pieces_between(reader: Page, edge: Page, stride: i64) -> u64 {
    let pages = if stride < 0 { reader.since(edge) } else { edge.since(reader) };
    pages / stride.unsigned_abs()
}
