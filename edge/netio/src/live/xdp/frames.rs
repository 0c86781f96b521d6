//! The pieces of memory that packets lie in, and who has which.

use std::sync::{Arc, Mutex, PoisonError};

/// Frames on their way back from blocks to the kernel.
#[derive(Debug, Default)]
pub(super) struct Returned(Mutex<Vec<u64>>);

/// Keeps frames from the kernel until it is dropped.
#[derive(Debug)]
pub(crate) struct FrameHold {
    frames: Vec<u64>,
    returned: Arc<Returned>,
}

impl Returned {
    /// All that came back since the last time, put behind what is in `to`.
    pub(super) fn take(&self, to: &mut Vec<u64>) {
        to.append(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl FrameHold {
    /// One that holds nothing yet.
    pub(super) fn none(returned: &Arc<Returned>) -> Self {
        Self { frames: Vec::new(), returned: Arc::clone(returned) }
    }

    /// Holds another frame.
    pub(super) fn add(&mut self, frame: u64) {
        if self.frames.is_empty() {
            self.frames.reserve(crate::BLOCK_PACKETS);
        }
        self.frames.push(frame);
    }
}

impl Drop for FrameHold {
    fn drop(&mut self) {
        if !self.frames.is_empty() {
            self.returned.0.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.frames);
        }
    }
}
