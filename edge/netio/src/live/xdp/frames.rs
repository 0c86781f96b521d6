//! The pieces of memory that packets lie in, and who has which.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Frames on their way back from blocks to the kernel, and those that are kept on that way.
#[derive(Debug)]
pub(crate) struct Returned {
    state: Mutex<State>,
    frame_bytes: u64,
    /// How many can be kept at once.
    most: u32,
}

#[derive(Debug, Default)]
struct State {
    free: Vec<u64>,
    /// By their place: how many keep them, and whether their block is gone.
    kept: BTreeMap<u64, Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    pins: u32,
    is_returned: bool,
}

/// Keeps frames from the kernel until it is dropped.
#[derive(Debug)]
pub(crate) struct FrameHold {
    frames: Vec<u64>,
    returned: Arc<Returned>,
}

/// Keeps one frame of a block from the kernel, also when the block is gone, until it is dropped.
#[derive(Debug)]
pub(crate) struct FramePin {
    frame: u64,
    returned: Arc<Returned>,
}

impl Returned {
    /// Nothing yet, of so many frames of this length. A half of them can be kept.
    pub(super) fn new(frames: u32, frame_bytes: u32) -> Self {
        Self { state: Mutex::default(), frame_bytes: u64::from(frame_bytes).max(1), most: frames / 2 }
    }

    /// All that came back since the last time, put behind what is in `to`.
    pub(super) fn take(&self, to: &mut Vec<u64>) {
        to.append(&mut self.lock().free);
    }

    /// Bytes of a frame.
    pub(crate) fn frame_bytes(&self) -> u64 {
        self.frame_bytes
    }

    /// How many frames can be kept at once.
    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// Keeps the frame that has this byte, which a block has now; nothing where as many are kept as can be.
    pub(crate) fn pin(this: &Arc<Self>, place: u64) -> Option<FramePin> {
        let frame = place - place % this.frame_bytes;
        let mut state = this.lock();
        if state.kept.len() >= this.most as usize && !state.kept.contains_key(&frame) {
            return None;
        }
        state.kept.entry(frame).or_default().pins += 1;
        drop(state);
        Some(FramePin { frame, returned: Arc::clone(this) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FrameHold {
    /// One that holds nothing yet.
    pub(super) fn none(returned: &Arc<Returned>) -> Self {
        Self { frames: Vec::new(), returned: Arc::clone(returned) }
    }

    /// So many more frames come.
    pub(super) fn reserve(&mut self, frames: usize) {
        self.frames.reserve(frames);
    }

    /// Holds another frame.
    pub(super) fn add(&mut self, frame: u64) {
        self.frames.push(frame);
    }
}

impl Drop for FrameHold {
    fn drop(&mut self) {
        if self.frames.is_empty() {
            return;
        }
        let State { free, kept } = &mut *self.returned.lock();
        if kept.is_empty() {
            free.append(&mut self.frames);
            return;
        }
        for frame in self.frames.drain(..) {
            match kept.get_mut(&frame) {
                Some(kept) => kept.is_returned = true,
                None => free.push(frame),
            }
        }
    }
}

impl FramePin {
    /// The frame's number.
    pub(crate) fn number(&self) -> u64 {
        self.frame / self.returned.frame_bytes
    }
}

impl Drop for FramePin {
    fn drop(&mut self) {
        let State { free, kept } = &mut *self.returned.lock();
        let Some(this) = kept.get_mut(&self.frame) else { return };
        this.pins -= 1;
        if this.pins == 0 {
            // Where its block is there still, that gives it back.
            if this.is_returned {
                free.push(self.frame);
            }
            kept.remove(&self.frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came_back(returned: &Returned) -> Vec<u64> {
        let mut to = Vec::new();
        returned.take(&mut to);
        to.sort_unstable();
        to
    }

    #[test]
    fn a_frame_comes_back_once_when_neither_its_block_nor_anybody_else_has_it() {
        let returned = Arc::new(Returned::new(8, 2048));
        let block = |frames: &[u64]| {
            let mut hold = FrameHold::none(&returned);
            frames.iter().for_each(|frame| hold.add(*frame));
            hold
        };
        let first = block(&[0, 2048, 4096]);
        let pins = [Returned::pin(&returned, 2048 + 99).unwrap(), Returned::pin(&returned, 2048).unwrap()];
        let early = Returned::pin(&returned, 4096).unwrap();
        assert_eq!((pins[0].number(), early.number()), (1, 2));
        drop(early);
        assert!(came_back(&returned).is_empty());
        drop(first);
        assert_eq!(came_back(&returned), [0, 4096]);
        let [one, two] = pins;
        drop(one);
        assert!(came_back(&returned).is_empty());
        drop(two);
        assert_eq!(came_back(&returned), [2048]);
        // Kept again, and let go before its block: it comes back with that.
        let again = block(&[2048]);
        drop(Returned::pin(&returned, 2048));
        assert!(came_back(&returned).is_empty());
        drop(again);
        assert_eq!(came_back(&returned), [2048]);
    }

    #[test]
    fn half_of_the_frames_can_be_kept() {
        let returned = Arc::new(Returned::new(8, 2048));
        let pins: Vec<FramePin> =
            (0..4).map(|frame| Returned::pin(&returned, frame * 2048).unwrap()).collect();
        assert!(Returned::pin(&returned, 4 * 2048).is_none());
        assert!(Returned::pin(&returned, 0).is_some(), "one that is kept already needs no more");
        drop(pins);
        assert!(Returned::pin(&returned, 4 * 2048).is_some());
    }
}
