//! Where packets come from: a capture, and the filter that says which of them modules are called for.

use super::progress::Progress;
use super::work::Work;
use std::sync::Arc;
use weir_netio::{Block, Capture, Filter, FilterError, ReadError};
use weir_wire::LinkType;

/// Why reading ended early.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The capture.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The filter makes no sense for a link type of the capture.
    #[error("{0}")]
    Filter(String),
}

impl From<&FilterError> for SourceError {
    fn from(error: &FilterError) -> Self {
        Self::Filter(error.to_string())
    }
}

/// What reading gave.
#[derive(Debug)]
pub enum Next {
    /// A block for the instances.
    Work(Arc<Work>),
    /// Every place for packets is in use.
    Full,
    /// No more packets.
    End,
}

/// A capture on its way to so many instances.
#[derive(Debug)]
pub struct Source {
    capture: Capture,
    filter: Option<Filter>,
    instances: usize,
    progress: Progress,
    packet: Vec<u8>,
    stopped: bool,
}

impl Source {
    /// Reads this capture.
    pub fn new(capture: Capture, filter: Option<Filter>, instances: usize, progress: Progress) -> Self {
        Self { capture, filter, instances, progress, packet: Vec::new(), stopped: false }
    }

    /// The capture.
    pub fn capture(&self) -> &Capture {
        &self.capture
    }

    /// Reads no further: something else has failed.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Reads on.
    pub fn next(&mut self) -> Result<Next, SourceError> {
        if self.stopped {
            return Ok(Next::End);
        }
        let block = match self.capture.next_block()? {
            weir_netio::Next::Block(block) => block,
            weir_netio::Next::Full => return Ok(Next::Full),
            weir_netio::Next::End => return Ok(Next::End),
        };
        self.progress.show(&self.capture);
        let selected = self.select(&block)?;
        Ok(Next::Work(Arc::new(Work::new(Some(block), selected, self.instances))))
    }

    /// What comes after the last block: the modules' stop.
    pub fn last(&mut self) -> Arc<Work> {
        self.progress.finish();
        Arc::new(Work::new(None, Vec::new(), self.instances))
    }

    fn select(&mut self, block: &Block) -> Result<Vec<u64>, SourceError> {
        let Some(filter) = &self.filter else { return Ok(Vec::new()) };
        let mut masks = vec![0u64; block.batch_count()];
        for (i, descriptor) in block.descriptors().iter().enumerate() {
            block.copy_packet(i, &mut self.packet);
            let Ok(link_type) = LinkType::try_from(u32::from(descriptor.link_type)) else { continue };
            let matches = filter.matches(link_type, descriptor.wire_len, &self.packet)?;
            masks[i / 64] |= u64::from(matches) << (i % 64);
        }
        Ok(masks)
    }
}
