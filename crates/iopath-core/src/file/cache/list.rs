//! Lists of frames that share one set of links: a frame is in one list at most, leaves it in O(1), and nothing
//! allocates after construction. What a list means is its owner's business.

const NIL: u32 = u32::MAX;

/// The links of all frames.
#[derive(Debug)]
pub(super) struct Links(Box<[Link]>);

#[derive(Debug, Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
}

/// One list: its ends and its length.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    front: u32,
    back: u32,
    len: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { front: NIL, back: NIL, len: 0 };

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn front(&self) -> Option<u32> {
        (self.len > 0).then_some(self.front)
    }
}

impl Links {
    pub(super) fn new(frames: u32) -> Self {
        Self(vec![Link { before: NIL, after: NIL }; frames as usize].into())
    }

    pub(super) fn push_back(&mut self, list: &mut List, frame: u32) {
        self.0[frame as usize] = Link { before: list.back, after: NIL };
        match self.0.get_mut(list.back as usize) {
            Some(newest) => newest.after = frame,
            None => list.front = frame,
        }
        list.back = frame;
        list.len += 1;
    }

    pub(super) fn pop_front(&mut self, list: &mut List) -> Option<u32> {
        let frame = list.front()?;
        self.remove(list, frame);
        Some(frame)
    }

    /// Takes a frame out of the list it is in, which must be `list`.
    pub(super) fn remove(&mut self, list: &mut List, frame: u32) {
        let Link { before, after } = self.0[frame as usize];
        debug_assert!(before != NIL || list.front == frame, "frame {frame} is not in this list");
        debug_assert!(after != NIL || list.back == frame, "frame {frame} is not in this list");
        match self.0.get_mut(before as usize) {
            Some(before) => before.after = after,
            None => list.front = after,
        }
        match self.0.get_mut(after as usize) {
            Some(after) => after.before = before,
            None => list.back = before,
        }
        list.len -= 1;
    }

    /// The frames of a list, first to last.
    pub(super) fn iter(&self, list: &List) -> impl Iterator<Item = u32> {
        let first = list.front();
        std::iter::successors(first, |frame| Some(self.0[*frame as usize].after).filter(|next| *next != NIL))
    }
}
