//! Where the packets of a forwarding channel go.

use super::lane::Outlet;
use super::tap::TapEnd;
use std::sync::Arc;
use weir_abi::flag;
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
        if self.fetch(block, packet, room) {
            self.offer(room);
        }
    }

    /// Has a packet of a block go on with these patches, in their order. A patch that cannot be made is left out, and counted by the caller: it
    /// was checked when the module made it, so that can only be where the packet's memory has changed since. Says how many those are.
    pub fn pass_patched<'a>(
        &self,
        block: &Block,
        packet: usize,
        patches: impl Iterator<Item = &'a Patch>,
        room: &mut Vec<u8>,
    ) -> u64 {
        let Some(descriptor) = block.descriptors().get(packet) else { return 0 };
        if !self.fetch(block, packet, room) {
            return 0;
        }
        let mut unmade = 0;
        for patch in patches {
            let made = patch.fields.apply(room, descriptor, patch.offset, &patch.bytes);
            unmade += u64::from(made.is_err());
        }
        self.offer(room);
        unmade
    }

    /// Copies a packet, if all of it is there.
    fn fetch(&self, block: &Block, packet: usize, room: &mut Vec<u8>) -> bool {
        let Some(descriptor) = block.descriptors().get(packet).filter(|it| it.flags & flag::CUT == 0) else {
            match self {
                Self::Link(outlet) => outlet.cut(),
                Self::Tap(end) => end.tally.lost(Loss::Cut),
            }
            return false;
        };
        block.copy_packet(packet, room);
        // A packet from a virtual interface of this machine may have no checksum yet, and nobody behind us computes it.
        weir_wire::complete(room, descriptor);
        true
    }

    fn offer(&self, frame: &[u8]) {
        match self {
            // What does not go is counted.
            Self::Link(outlet) => _ = outlet.offer(frame),
            Self::Tap(end) => end.offer(frame),
        }
    }
}
