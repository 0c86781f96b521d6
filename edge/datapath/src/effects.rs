//! The effects of modules' verdicts on a packet that goes on: in a private copy, which no module sees.

use weir_abi::{Descriptor, flag};
use weir_sandbox::Patch;
use weir_units::Timestamp;
use weir_wire::{LinkType, Meta};

/// Turns a private copy of a packet into what goes on: with these patches, in their order. Returns how many of them could not be made: each was
/// checked when the module made it, so that can only be where the packet's memory has changed since.
///
/// A checksum that a host left to its network card is computed where the packet leaves through an interface, as nothing computes it behind
/// that; and where a patch is to update it, as there is nothing in it to update.
pub fn apply<'a>(
    copy: &mut [u8],
    descriptor: &Descriptor,
    leaves: bool,
    patches: impl Iterator<Item = &'a Patch> + Clone,
) -> u64 {
    if leaves || patches.clone().any(|patch| is_covered(descriptor, patch)) {
        weir_wire::complete(copy, descriptor);
    }
    let made = |patch: &Patch| patch.fields.apply(copy, descriptor, patch.offset, &patch.bytes).is_ok();
    patches.map(made).filter(|is_made| !is_made).count() as u64
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
    let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    let meta =
        Meta { ts: Timestamp(0), cap_len: len, wire_len: len, link_type, interface: 0, number: 0, data: 0 };
    // All bytes are there, so no more of them are asked for.
    if let Ok(descriptor) = weir_wire::classify(frame, &meta) {
        weir_wire::complete(frame, &descriptor);
    }
}

/// Returns true where only a part of the packet was captured: it cannot be sent.
pub fn is_cut(descriptor: &Descriptor) -> bool {
    descriptor.flags & flag::CUT != 0
}
