//! Effects of modules' verdicts on a forwarded packet. They are applied to a private copy, which no module can
//! access.

use weir_abi::{Descriptor, flag};
use weir_netio::{ChecksumStatus, finish_checksum};
use weir_sandbox::Patch;
use weir_wire::{LinkType, Meta};

/// The patches of a block's packets, from which the caller takes the patches of one packet after another.
#[derive(Debug, Default)]
pub struct Patches<'a> {
    /// Sorted by packet.
    all: Vec<&'a Patch>,
    /// The index in `all` of the first patch that has not been taken.
    next: usize,
}

impl<'a> Patches<'a> {
    /// Collects patches. Patches of one packet are applied in the order given.
    pub fn new(patches: impl Iterator<Item = &'a Patch>) -> Self {
        let mut all: Vec<&Patch> = patches.collect();
        // The sort is stable, so patches of one packet keep their order.
        all.sort_by_key(|patch| patch.packet);
        Self { all, next: 0 }
    }

    /// The patches of a packet. The caller must ask for packets in order; patches of skipped packets are dropped.
    pub fn for_packet(&mut self, packet: usize) -> &[&'a Patch] {
        let remaining = self.all.get(self.next..).unwrap_or_default();
        let from = remaining.iter().take_while(|patch| (patch.packet as usize) < packet).count();
        let remaining = remaining.get(from..).unwrap_or_default();
        let count = remaining.iter().take_while(|patch| patch.packet as usize == packet).count();
        self.next += from + count;
        remaining.get(..count).unwrap_or_default()
    }
}

/// The outcome of applying patches to the private copy of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Patches that could not be applied. Each was checked when the module made it, so the packet's memory has
    /// changed since.
    pub failed_patches: u64,
    /// False if the checksum was left to a network card and could not be computed. Such a packet must not leave
    /// through an interface.
    pub is_complete: bool,
}

/// Applies patches to a private copy of a packet, in order, and completes its checksum if necessary.
///
/// `leaves` is true if the packet leaves through an interface. An offloaded checksum is computed in two cases: the
/// packet leaves, and no network card would compute its checksum; or a patch has to update the checksum, which must be
/// complete for that.
pub fn apply(
    copy: &mut [u8],
    descriptor: &Descriptor,
    checksum: ChecksumStatus,
    leaves: bool,
    patches: &[&Patch],
) -> Applied {
    let mut is_complete = true;
    if leaves || patches.iter().any(|patch| is_covered(descriptor, patch)) {
        is_complete = finish_checksum(copy, descriptor, checksum);
    }
    let mut failed_patches = 0;
    for patch in patches {
        failed_patches +=
            u64::from(patch.fields.apply(copy, descriptor, patch.offset, &patch.bytes).is_err());
    }
    Applied { failed_patches, is_complete }
}

/// Returns true if a checksum above IP can cover bytes of the patch: addresses, or anything behind them.
fn is_covered(descriptor: &Descriptor, patch: &Patch) -> bool {
    const IPV4_ADDRESSES: usize = 12;
    const IPV6_ADDRESSES: usize = 8;
    let addresses = if descriptor.flags & flag::IPV4 != 0 { IPV4_ADDRESSES } else { IPV6_ADDRESSES };
    let end = usize::try_from(patch.offset).unwrap_or(usize::MAX).saturating_add(patch.bytes.len());
    end > usize::from(descriptor.l3_offset) + addresses
}

/// Completes the checksum of a frame that a module built, if its field holds only the sum of the pseudo header. The
/// kernel reports nothing about such a frame.
pub fn complete_frame(frame: &mut [u8], link_type: LinkType) {
    // The frame is complete, so the classifier does not ask for more bytes.
    if let Ok(descriptor) = weir_wire::classify(frame, &Meta::of_whole(frame, link_type)) {
        finish_checksum(frame, &descriptor, ChecksumStatus::Unknown);
    }
}

/// Returns true if only a part of the packet was captured, so that the packet cannot be sent.
pub fn is_cut(descriptor: &Descriptor) -> bool {
    descriptor.flags & flag::CUT != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::WriteFields;

    fn patch(packet: u32, offset: u32) -> Patch {
        Patch { packet, offset, bytes: vec![0].into(), fields: WriteFields::ALL }
    }

    #[test]
    fn each_packet_has_its_own_patches_in_their_order() {
        let all = [patch(5, 0), patch(2, 1), patch(5, 2), patch(0, 3), patch(2, 4)];
        let mut patches = Patches::new(all.iter());
        let mut offsets =
            |packet| patches.for_packet(packet).iter().map(|patch| patch.offset).collect::<Vec<_>>();
        assert_eq!(
            [offsets(1), offsets(2), offsets(3), offsets(5), offsets(6)],
            [vec![], vec![1, 4], vec![], vec![0, 2], vec![]]
        );
    }
}
