//! The host's access to memory at addresses that a module passes. No other file reads or writes such memory.

use crate::run::fault::FaultKind;
use crate::run::host::HostState;
use std::ops::Range;
use std::sync::atomic::Ordering;
use wasmtime::{Caller, Extern, Memory};
use weir_abi::host::HostFunction;
use weir_abi::{DESCRIPTOR_BYTES, Descriptor, export, limit};
use weir_os::memory::copy_once;

/// Access to a module's memory and to the host's state during one call of a host function.
pub(crate) struct GuestMemory<'a> {
    private: &'a [u8],
    pub(crate) host: &'a mut HostState,
    function: HostFunction,
}

/// Returns access to the memory of the calling module for the host function `function`. The result can be used for several
/// ranges.
///
/// # Errors
/// [`FaultKind::TimeOverrun`] if the watchdog interrupts the call; [`FaultKind::WildPointer`] if the module has no memory yet.
#[inline]
pub(crate) fn guest_memory<'a>(
    caller: &'a mut Caller<'_, HostState>,
    function: HostFunction,
) -> Result<GuestMemory<'a>, FaultKind> {
    let (private, host) = memory(caller, function)?.data_and_store_mut(caller);
    if host.must_interrupt.load(Ordering::Relaxed) {
        return Err(FaultKind::TimeOverrun);
    }
    Ok(GuestMemory { private, host, function })
}

impl GuestMemory<'_> {
    /// Calls `act` with the bytes `address..address + len` of the module, and with the host's state.
    ///
    /// Bytes of the private memory are borrowed in place, because no code of the sandbox runs during `act`. Packets,
    /// descriptors and tables are copied first, and each byte is read once, because they can change while they are read:
    /// another process can write the file, and another thread fills the next block.
    ///
    /// # Errors
    /// [`FaultKind::WildPointer`] if the range is not completely inside one readable area, or longer than
    /// [`limit::HOST_READ_BYTES`].
    #[inline]
    pub(crate) fn bytes<R>(
        &mut self,
        address: u32,
        len: u32,
        act: impl FnOnce(&[u8], &mut HostState) -> R,
    ) -> Result<R, FaultKind> {
        let wild = FaultKind::WildPointer { function: self.function.name() };
        if len > limit::HOST_READ_BYTES {
            // Limits the time of the host function, and the size of the copy.
            return Err(wild);
        }
        let (start, len) = (address as usize, len as usize);
        if let Some(bytes) = self.private.get(start..start.saturating_add(len)) {
            return Ok(act(bytes, self.host));
        }
        let base = self.private.as_ptr();
        let from = base.addr() + start;
        let is_inside = |area: &Range<usize>| area.start <= from && from.saturating_add(len) <= area.end;
        let HostState { packets, descriptors, tables, .. } = &*self.host;
        if !is_inside(packets) && !is_inside(descriptors) && !tables.iter().any(is_inside) {
            return Err(wild);
        }
        let mut copy = std::mem::take(&mut self.host.scratch);
        copy.clear();
        copy.reserve(len);
        // SAFETY: `from..from + len` is inside an area that this module's `Instance` has mapped readable in its reserved
        // address range. The range has the same provenance as the private memory, because `crate::run::space::Space`
        // created both by one mapping. `copy` has capacity for `len` bytes, all of which are written.
        unsafe {
            copy_once(base.add(start), copy.as_mut_ptr(), len);
            copy.set_len(len);
        }
        let result = act(&copy, self.host);
        self.host.scratch = copy;
        Ok(result)
    }

    /// Reads the descriptor at this address.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub(crate) fn descriptor(&mut self, address: u32) -> Result<Descriptor, FaultKind> {
        let wild = FaultKind::WildPointer { function: self.function.name() };
        let len = u32::try_from(DESCRIPTOR_BYTES).unwrap_or(u32::MAX);
        self.bytes(address, len, |bytes, _| bytes.first_chunk().map(Descriptor::from_bytes))?.ok_or(wild)
    }
}

/// Calls `act` with the bytes of one range, as [`GuestMemory::bytes`] does.
///
/// # Errors
/// As [`guest_memory`] and [`GuestMemory::bytes`].
#[inline]
pub(crate) fn with_bytes<R>(
    caller: &mut Caller<'_, HostState>,
    function: HostFunction,
    address: u32,
    len: u32,
    act: impl FnOnce(&[u8], &mut HostState) -> R,
) -> Result<R, FaultKind> {
    guest_memory(caller, function)?.bytes(address, len, act)
}

/// Copies at most the first `capacity` bytes of `bytes` to `address` in the private memory of the calling module. Returns
/// the length of all of `bytes`.
///
/// # Errors
/// [`FaultKind::WildPointer`] if `address..address + capacity` is not inside the private memory.
pub(crate) fn write_bytes(
    caller: &mut Caller<'_, HostState>,
    function: HostFunction,
    address: u32,
    capacity: u32,
    bytes: &[u8],
) -> Result<usize, FaultKind> {
    let memory = memory(caller, function)?;
    let (start, capacity) = (address as usize, capacity as usize);
    let to = memory.data_mut(caller).get_mut(start..start.saturating_add(capacity));
    let to = to.ok_or(FaultKind::WildPointer { function: function.name() })?;
    let copied = bytes.len().min(capacity);
    to[..copied].copy_from_slice(&bytes[..copied]);
    Ok(bytes.len())
}

/// Returns the private memory of the calling module.
#[inline]
fn memory(caller: &mut Caller<'_, HostState>, function: HostFunction) -> Result<Memory, FaultKind> {
    match caller.data().memory {
        Some(memory) => Ok(memory),
        None => exported_memory(caller, function),
    }
}

/// Returns the exported memory during instantiation, when it is not in the host's state yet.
#[cold]
fn exported_memory(caller: &mut Caller<'_, HostState>, function: HostFunction) -> Result<Memory, FaultKind> {
    match caller.get_export(export::MEMORY) {
        Some(Extern::Memory(memory)) => Ok(memory),
        _ => Err(FaultKind::WildPointer { function: function.name() }),
    }
}
