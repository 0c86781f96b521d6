//! The effects of modules' verdicts on a packet that goes on: in a private copy, which no module sees.

use crate::left;
use weir_abi::{Descriptor, flag};
use weir_netio::ChecksumStatus;
use weir_sandbox::Patch;
use weir_units::Timestamp;
use weir_wire::{LinkType, Meta};

/// The patches of a block's packets, found packet by packet.
#[derive(Debug, Default)]
pub struct Patches<'a> {
    /// In the order of the packets.
    all: Vec<&'a Patch>,
    next: usize,
}

impl<'a> Patches<'a> {
    /// These, in the order in which they are made to a packet.
    pub fn new(patches: impl Iterator<Item = &'a Patch>) -> Self {
        let mut all: Vec<&Patch> = patches.collect();
        // Stable: those of one packet stay in their order.
        all.sort_by_key(|patch| patch.packet);
        Self { all, next: 0 }
    }

    /// The patches of a packet. Packets are asked for in the order of the block; what was not asked for is left out.
    pub fn of(&mut self, packet: usize) -> &[&'a Patch] {
        let left = self.all.get(self.next..).unwrap_or_default();
        let from = left.iter().take_while(|patch| (patch.packet as usize) < packet).count();
        let left = left.get(from..).unwrap_or_default();
        let own = left.iter().take_while(|patch| patch.packet as usize == packet).count();
        self.next += from + own;
        left.get(..own).unwrap_or_default()
    }
}

/// What became of a packet's private copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Patches that could not be made: each was checked when the module made it, so that can only be where the packet's memory has changed since.
    pub unmade: u64,
    /// False where a host left the checksum to its network card and it could not be computed: such a packet may not leave.
    pub is_finished: bool,
}

/// Turns a private copy of a packet into what goes on: with these patches, in their order.
///
/// A checksum that a host left to its network card is computed where the packet leaves through an interface, as nothing computes it behind
/// that; and where a patch is to update it, as there is nothing in it to update.
pub fn apply(
    copy: &mut [u8],
    descriptor: &Descriptor,
    checksum: ChecksumStatus,
    leaves: bool,
    patches: &[&Patch],
) -> Applied {
    let mut is_finished = true;
    if leaves || patches.iter().any(|patch| is_covered(descriptor, patch)) {
        is_finished = left::finish(copy, descriptor, checksum);
    }
    let mut unmade = 0;
    for patch in patches {
        unmade += u64::from(patch.fields.apply(copy, descriptor, patch.offset, &patch.bytes).is_err());
    }
    Applied { unmade, is_finished }
}

/// Whether a checksum above IP can cover bytes of the patch: addresses, or anything behind them.
fn is_covered(descriptor: &Descriptor, patch: &Patch) -> bool {
    const IPV4_ADDRESSES: usize = 12;
    const IPV6_ADDRESSES: usize = 8;
    let addresses = if descriptor.flags & flag::IPV4 != 0 { IPV4_ADDRESSES } else { IPV6_ADDRESSES };
    let end = usize::try_from(patch.offset).unwrap_or(usize::MAX).saturating_add(patch.bytes.len());
    end > usize::from(descriptor.l3_offset) + addresses
}

/// Computes the checksum of a frame where there is only what a host leaves to its network card. Of a frame of a module nothing else is known than its bytes.
pub fn complete_frame(frame: &mut [u8], link_type: LinkType) {
    // All bytes are there, so no more of them are asked for.
    if let Ok(descriptor) = weir_wire::classify(frame, &whole(frame, link_type)) {
        left::finish(frame, &descriptor, ChecksumStatus::Unknown);
    }
}

/// What is to be known of a packet whose bytes are all there.
pub(crate) fn whole(packet: &[u8], link_type: LinkType) -> Meta {
    let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
    Meta { ts: Timestamp(0), cap_len: len, wire_len: len, link_type, interface: 0, number: 0, data: 0 }
}

/// Returns true where only a part of the packet was captured: it cannot be sent.
pub fn is_cut(descriptor: &Descriptor) -> bool {
    descriptor.flags & flag::CUT != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::WriteFields;

    fn patch(packet: u32, offset: u32) -> Patch {
        Patch { packet, offset, bytes: vec![0], fields: WriteFields::ALL }
    }

    #[test]
    fn each_packet_has_its_own_patches_in_their_order() {
        let all = [patch(5, 0), patch(2, 1), patch(5, 2), patch(0, 3), patch(2, 4)];
        let mut patches = Patches::new(all.iter());
        let mut offsets = |packet| patches.of(packet).iter().map(|patch| patch.offset).collect::<Vec<_>>();
        assert_eq!(
            [offsets(1), offsets(2), offsets(3), offsets(5), offsets(6)],
            [vec![], vec![1, 4], vec![], vec![0, 2], vec![]]
        );
    }
}
