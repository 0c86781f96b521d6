//! Sources that share an interface: each reads a part of its packets, on a thread of its own.

use super::fanout::OpenedSockets;
use super::xdp::SharedFrames;
use crate::ring::DescriptorRing;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The resources that all sources of a group share. A single source is a group of one.
#[derive(Debug)]
pub(crate) struct SourceGroup {
    /// The number of sources.
    pub(crate) sources: usize,
    pub(crate) ring: DescriptorRing,
    /// The frames of AF_XDP.
    pub(crate) frames: SharedFrames,
    /// The packet sockets.
    pub(crate) sockets: OpenedSockets,
    /// The number of blocks so far.
    blocks: AtomicU64,
    /// The number of packets so far, if there are several sources.
    packets: AtomicU64,
}

impl SourceGroup {
    pub(crate) fn new(sources: usize, ring: DescriptorRing) -> Self {
        Self {
            sources,
            ring,
            frames: SharedFrames::default(),
            sockets: OpenedSockets::default(),
            blocks: AtomicU64::new(0),
            packets: AtomicU64::new(0),
        }
    }

    /// The number for a new block, which no other block of the group has.
    pub(crate) fn next_block(&self) -> u64 {
        self.blocks.fetch_add(1, Ordering::Relaxed)
    }
}

/// A source's place in its group.
#[derive(Clone, Debug)]
pub(crate) struct GroupPlace {
    pub(crate) group: Arc<SourceGroup>,
    /// The number of the source in the group.
    pub(crate) place: usize,
}

impl GroupPlace {
    /// The source's part of some things, such as queues, which are distributed in turn.
    pub(crate) fn part_of<T: Copy>(&self, all: &[T]) -> Vec<T> {
        all.iter().skip(self.place).step_by(self.group.sources.max(1)).copied().collect()
    }

    /// The number of the first of `count` packets, if numbers are shared with other sources.
    pub(crate) fn first_packet(&self, count: u64) -> Option<u64> {
        (self.group.sources > 1).then(|| self.group.packets.fetch_add(count, Ordering::Relaxed))
    }
}
