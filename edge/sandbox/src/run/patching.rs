//! Patches that a module makes: the host function `patch`.

use crate::run::fault::FaultKind;
use crate::run::guest_memory::guest_memory;
use crate::run::host::{HostPhase, HostState, packet_at};
use smallvec::SmallVec;
use weir_abi::host::HostFunction;
use weir_abi::{code, limit};
use weir_wire::{PEEK_MAX, PatchError, WriteFields};

/// The bytes of a patch. Those of the usual patches, an IPv6 address at the most, need no memory of their own.
pub type PatchBytes = SmallVec<[u8; 16]>;

/// A patch of a packet, as the module requested it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The packet's index in its block.
    pub packet: u32,
    /// Offset in the packet.
    pub offset: u32,
    /// The new bytes.
    pub bytes: PatchBytes,
    /// The fields that the module may write. They are checked again when the patch is applied.
    pub fields: WriteFields,
}

/// The host function `patch`.
pub(crate) fn patch(
    host: &mut HostState,
    descriptor: u32,
    offset: u32,
    (bytes, len): (u32, u32),
    current: Option<u32>,
) -> Result<i32, FaultKind> {
    let mut guest = guest_memory(host, HostFunction::Patch)?.for_packet(current);
    let phase = guest.host.phase;
    let Some((index, _)) = packet_at(phase, descriptor, current) else { return Ok(code::WHEN) };
    let HostPhase::Batch { first, .. } = phase else { return Ok(code::WHEN) };
    if len > limit::PATCH_BYTES {
        return Ok(code::RANGE);
    }
    let described = guest.batch_descriptor(descriptor)?;
    let packet = first + index;
    let fields = guest.host.writable_fields();
    // Most patches write a field of a header whose place the descriptor states.
    let stored = guest.bytes(bytes, len, |bytes, host| {
        if fields.check_common(described, offset, bytes) {
            return Ok(host.store_patch(index, packet, offset, bytes, fields));
        }
        Err(PatchBytes::from_slice(bytes))
    })?;
    let bytes = match stored {
        Ok(code) => return Ok(code),
        Err(bytes) => bytes,
    };
    // Only headers can be patched. They end where the payload begins, if the classifier has found the payload. Otherwise
    // they end at the latest after the most bytes that the classifier reads.
    let has_payload = described.flags & weir_abi::flag::L4 != 0;
    let headers_max = if has_payload { usize::from(described.payload_offset) } else { PEEK_MAX };
    let head = described.cap_len.min(u32::try_from(headers_max).unwrap_or(u32::MAX));
    guest.bytes(described.data, head, |head, host| match fields.check(head, described, offset, &bytes) {
        Ok(()) => host.store_patch(index, packet, offset, &bytes, fields),
        Err(PatchError::Range { .. }) => code::RANGE,
        Err(PatchError::Denied { .. }) => code::DENIED,
        Err(PatchError::Withheld { .. }) => {
            if let Some(rights) = &host.rights {
                rights.refuse();
            }
            code::DENIED
        }
    })
}

impl HostState {
    /// Returns the fields that the module may write now: those that both its profile and its session allow.
    fn writable_fields(&self) -> WriteFields {
        let profile = self.admitted.profile().writes;
        self.rights.as_ref().map_or(profile, |rights| rights.fields() & profile)
    }

    /// Stores a patch that was checked, of packet `index` of the batch. Returns the code for the module.
    #[inline(always)]
    fn store_patch(
        &mut self,
        index: u32,
        packet: u32,
        offset: u32,
        bytes: &[u8],
        fields: WriteFields,
    ) -> i32 {
        let Some(made) = self.patch_counts.get_mut(index as usize) else { return code::WHEN };
        if u32::from(*made) >= self.patches_max {
            return code::FULL;
        }
        *made += 1;
        if self.keeps_patches {
            self.patches.push(Patch { packet, offset, bytes: PatchBytes::from_slice(bytes), fields });
        }
        code::OK
    }
}
