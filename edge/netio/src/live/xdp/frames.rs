//! Frames, which are pieces of memory that contain one packet each, and the holds on them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The frames that blocks have returned and the kernel has not received yet, and the pinned frames.
#[derive(Debug)]
pub(crate) struct ReturnedFrames {
    state: Mutex<State>,
    frame_bytes: u64,
    /// The most frames that can be pinned at once.
    pins_max: u32,
}

#[derive(Debug, Default)]
struct State {
    free: Vec<u64>,
    /// Pinned frames by address: the number of pins, and whether their block is dropped.
    pinned: BTreeMap<u64, PinnedFrame>,
}

#[derive(Debug, Default)]
struct PinnedFrame {
    pins: u32,
    is_returned: bool,
}

/// The frames of all sources that share an interface. Each source has a part of them, of the same size.
#[derive(Debug)]
pub(crate) struct FramePools {
    pools: Box<[Arc<ReturnedFrames>]>,
    /// The length of the frames of each source in bytes.
    bytes_each: u64,
}

/// A hold on frames, which keeps them from the kernel until it is dropped.
#[derive(Debug)]
pub(crate) struct FrameHold {
    frames: Vec<u64>,
    returned: Arc<ReturnedFrames>,
}

/// A pin of one frame of a block: it keeps the frame from the kernel until it is dropped, even if the block is
/// dropped before.
#[derive(Debug)]
pub(crate) struct FramePin {
    frame: u64,
    returned: Arc<ReturnedFrames>,
}

impl FramePools {
    /// Creates the record of `frames_each` frames of this length for each of `sources` sources.
    pub(super) fn new(sources: u32, frames_each: u32, frame_bytes: u32) -> Self {
        let pools = (0..sources).map(|_| Arc::new(ReturnedFrames::new(frames_each, frame_bytes))).collect();
        Self { pools, bytes_each: (u64::from(frames_each) * u64::from(frame_bytes)).max(1) }
    }

    /// The frames of a source.
    pub(super) fn of_source(&self, place: usize) -> Option<&Arc<ReturnedFrames>> {
        self.pools.get(place)
    }

    /// The length of a frame in bytes.
    pub(crate) fn frame_bytes(&self) -> u64 {
        self.pools.first().map_or(1, |returned| returned.frame_bytes)
    }

    /// The most frames that can be pinned at once.
    pub(crate) fn pins_max(&self) -> u32 {
        self.pools.iter().map(|returned| returned.pins_max).fold(0, u32::saturating_add)
    }

    /// Pins the frame that contains this byte, and which a block holds now; `None` if the limit of pins of the
    /// source's frames is reached.
    pub(crate) fn pin(&self, address: u64) -> Option<FramePin> {
        let returned = self.pools.get(usize::try_from(address / self.bytes_each).ok()?)?;
        ReturnedFrames::pin(returned, address)
    }
}

impl ReturnedFrames {
    /// Creates the record of `frames` frames of this length. Half of them can be pinned.
    pub(super) fn new(frames: u32, frame_bytes: u32) -> Self {
        Self { state: Mutex::default(), frame_bytes: u64::from(frame_bytes).max(1), pins_max: frames / 2 }
    }

    /// Appends all frames that came back since the last call to `to`.
    pub(super) fn take(&self, to: &mut Vec<u64>) {
        to.append(&mut self.lock().free);
    }

    /// Pins the frame that contains this byte, and which a block holds now; `None` if the limit of pins is reached.
    fn pin(this: &Arc<Self>, address: u64) -> Option<FramePin> {
        let frame = address - address % this.frame_bytes;
        let mut state = this.lock();
        if state.pinned.len() >= this.pins_max as usize && !state.pinned.contains_key(&frame) {
            return None;
        }
        state.pinned.entry(frame).or_default().pins += 1;
        drop(state);
        Some(FramePin { frame, returned: Arc::clone(this) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FrameHold {
    /// Creates an empty hold.
    pub(super) fn empty(returned: &Arc<ReturnedFrames>) -> Self {
        Self { frames: Vec::new(), returned: Arc::clone(returned) }
    }

    /// Reserves capacity for `frames` more frames.
    pub(super) fn reserve(&mut self, frames: usize) {
        self.frames.reserve(frames);
    }

    /// Adds a frame.
    pub(super) fn add(&mut self, frame: u64) {
        self.frames.push(frame);
    }
}

impl Drop for FrameHold {
    fn drop(&mut self) {
        if self.frames.is_empty() {
            return;
        }
        let State { free, pinned } = &mut *self.returned.lock();
        if pinned.is_empty() {
            free.append(&mut self.frames);
            return;
        }
        for frame in self.frames.drain(..) {
            match pinned.get_mut(&frame) {
                Some(pinned) => pinned.is_returned = true,
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
        let State { free, pinned } = &mut *self.returned.lock();
        let Some(this) = pinned.get_mut(&self.frame) else { return };
        this.pins -= 1;
        if this.pins == 0 {
            // If its block still holds the frame, the block returns it.
            if this.is_returned {
                free.push(self.frame);
            }
            pinned.remove(&self.frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came_back(returned: &ReturnedFrames) -> Vec<u64> {
        let mut to = Vec::new();
        returned.take(&mut to);
        to.sort_unstable();
        to
    }

    #[test]
    fn a_frame_comes_back_once_after_its_block_and_all_pins_are_dropped() {
        let returned = Arc::new(ReturnedFrames::new(8, 2048));
        let block = |frames: &[u64]| {
            let mut hold = FrameHold::empty(&returned);
            frames.iter().for_each(|frame| hold.add(*frame));
            hold
        };
        let first = block(&[0, 2048, 4096]);
        let pins = [
            ReturnedFrames::pin(&returned, 2048 + 99).unwrap(),
            ReturnedFrames::pin(&returned, 2048).unwrap(),
        ];
        let early = ReturnedFrames::pin(&returned, 4096).unwrap();
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
        // Pinned again and unpinned before its block is dropped: it comes back with the block.
        let again = block(&[2048]);
        drop(ReturnedFrames::pin(&returned, 2048));
        assert!(came_back(&returned).is_empty());
        drop(again);
        assert_eq!(came_back(&returned), [2048]);
    }

    #[test]
    fn half_of_the_frames_can_be_pinned() {
        let returned = Arc::new(ReturnedFrames::new(8, 2048));
        let pins: Vec<FramePin> =
            (0..4).map(|frame| ReturnedFrames::pin(&returned, frame * 2048).unwrap()).collect();
        assert!(ReturnedFrames::pin(&returned, 4 * 2048).is_none());
        assert!(ReturnedFrames::pin(&returned, 0).is_some(), "a second pin of a frame does not count");
        drop(pins);
        assert!(ReturnedFrames::pin(&returned, 4 * 2048).is_some());
    }
}
