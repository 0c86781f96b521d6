//! Where the packets of a forwarding channel go.

use super::lane::Outlet;
use super::tap::TapEnd;
use crate::effects;
use std::sync::Arc;
use weir_netio::{Block, Loss};
use weir_sandbox::Patch;

/// A way on for packets that came in.
#[derive(Clone, Debug)]
pub enum Way {
    /// Out through an output channel.
    Link(Outlet),
    /// To the programs behind a TAP device.
    Tap(Arc<TapEnd>),
}

impl Way {
    /// Has a packet of a block go on as it is.
    pub fn pass(&self, block: &Block, packet: usize, room: &mut Vec<u8>) {
        self.pass_patched(block, packet, &[], room);
    }

    /// Has a packet of a block go on with these patches, in their order. Returns [how many](effects::apply) of them could not be made.
    pub fn pass_patched(&self, block: &Block, packet: usize, patches: &[&Patch], room: &mut Vec<u8>) -> u64 {
        let Some(descriptor) = block.descriptors().get(packet) else { return 0 };
        if effects::is_cut(descriptor) {
            match self {
                Self::Link(outlet) => outlet.cut(),
                Self::Tap(end) => end.tally.lost(Loss::Cut),
            }
            return 0;
        }
        block.copy_packet(packet, room);
        let unmade = effects::apply(room, descriptor, true, patches);
        self.offer(room);
        unmade
    }

    fn offer(&self, frame: &[u8]) {
        match self {
            // What does not go is counted.
            Self::Link(outlet) => _ = outlet.offer(frame),
            Self::Tap(end) => end.offer(frame),
        }
    }
}
