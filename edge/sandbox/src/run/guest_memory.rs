//! The one place where the host looks at what a module points to.

use crate::run::fault::FaultKind;
use crate::run::host::HostState;
use std::ops::Range;
use std::sync::atomic::Ordering;
use wasmtime::{Caller, Extern, Memory};
use weir_abi::host::HostFunction;
use weir_abi::{DESCRIPTOR_BYTES, Descriptor, export, limit};
use weir_os::memory::copy_once;

/// A module's memory and the host's state, for one call of a host function.
pub(crate) struct GuestMemory<'a> {
    private: &'a [u8],
    pub(crate) host: &'a mut HostState,
    function: HostFunction,
}

/// What the host function `function` looks at in the calling module. Found once for a call, however many ranges it reads.
///
/// # Errors
/// [`FaultKind::Overrun`] where the watchdog wants the call to end; [`FaultKind::WildPointer`] where the module has no memory yet.
#[inline]
pub(crate) fn guest<'a>(
    caller: &'a mut Caller<'_, HostState>,
    function: HostFunction,
) -> Result<GuestMemory<'a>, FaultKind> {
    let (private, host) = memory(caller, function)?.data_and_store_mut(caller);
    if host.overrun.load(Ordering::Relaxed) {
        return Err(FaultKind::Overrun);
    }
    Ok(GuestMemory { private, host, function })
}

impl GuestMemory<'_> {
    /// Hands the bytes `address..address + len` of the module to `act`, together with the host's state.
    ///
    /// Bytes of its private memory are lent as they are: nothing else runs in the sandbox meanwhile. Packets and descriptors can change
    /// while they are read (another process writes the file, another thread fills the next block), so they are copied first, each byte
    /// read once. So are tables.
    ///
    /// # Errors
    /// [`FaultKind::WildPointer`] where the range is not wholly inside one of the areas that it may read, or longer than a host function reads.
    #[inline]
    pub(crate) fn bytes<R>(
        &mut self,
        address: u32,
        len: u32,
        act: impl FnOnce(&[u8], &mut HostState) -> R,
    ) -> Result<R, FaultKind> {
        let wild = FaultKind::WildPointer { function: self.function.name() };
        if len > limit::HOST_READ_BYTES {
            // A call of the host must stay short, and its copy small.
            return Err(wild);
        }
        let (start, len) = (address as usize, len as usize);
        if let Some(bytes) = self.private.get(start..start.saturating_add(len)) {
            return Ok(act(bytes, self.host));
        }
        let base = self.private.as_ptr();
        let from = base.addr() + start;
        let inside = |area: &Range<usize>| area.start <= from && from.saturating_add(len) <= area.end;
        let HostState { packets, descriptors, tables, .. } = &*self.host;
        if !inside(packets) && !inside(descriptors) && !tables.iter().any(inside) {
            return Err(wild);
        }
        let mut copy = std::mem::take(&mut self.host.scratch);
        copy.clear();
        copy.reserve(len);
        // SAFETY: `from` is inside an area that this module's `Instance` mapped readable at this place of its reservation, which has the
        // same provenance as the private memory (`Space` made both in one mapping); `copy` has room for `len` bytes, all of which are written.
        unsafe {
            copy_once(base.add(start), copy.as_mut_ptr(), len);
            copy.set_len(len);
        }
        let result = act(&copy, self.host);
        self.host.scratch = copy;
        Ok(result)
    }

    /// The descriptor at this address, whole or not at all.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub(crate) fn descriptor(&mut self, address: u32) -> Result<Descriptor, FaultKind> {
        let wild = FaultKind::WildPointer { function: self.function.name() };
        let len = u32::try_from(DESCRIPTOR_BYTES).unwrap_or(u32::MAX);
        self.bytes(address, len, |bytes, _| bytes.first_chunk().map(Descriptor::from_bytes))?.ok_or(wild)
    }
}

/// [`GuestMemory::bytes`] where one range is all that a host function reads.
///
/// # Errors
/// As [`guest`] and [`GuestMemory::bytes`].
#[inline]
pub(crate) fn with_bytes<R>(
    caller: &mut Caller<'_, HostState>,
    function: HostFunction,
    address: u32,
    len: u32,
    act: impl FnOnce(&[u8], &mut HostState) -> R,
) -> Result<R, FaultKind> {
    guest(caller, function)?.bytes(address, len, act)
}

/// Copies `bytes` to `address` in the private memory of the calling module, as much as `room` allows.
///
/// # Errors
/// [`FaultKind::WildPointer`] where `room` bytes are not there.
pub(crate) fn write_bytes(
    caller: &mut Caller<'_, HostState>,
    function: HostFunction,
    address: u32,
    room: u32,
    bytes: &[u8],
) -> Result<usize, FaultKind> {
    let memory = memory(caller, function)?;
    let (start, room) = (address as usize, room as usize);
    let to = memory.data_mut(caller).get_mut(start..start.saturating_add(room));
    let to = to.ok_or(FaultKind::WildPointer { function: function.name() })?;
    let fits = bytes.len().min(room);
    to[..fits].copy_from_slice(&bytes[..fits]);
    Ok(bytes.len())
}

#[inline]
fn memory(caller: &mut Caller<'_, HostState>, function: HostFunction) -> Result<Memory, FaultKind> {
    match caller.data().memory {
        Some(memory) => Ok(memory),
        None => exported(caller, function),
    }
}

/// Only in a WebAssembly start function: the instance is not there yet.
#[cold]
fn exported(caller: &mut Caller<'_, HostState>, function: HostFunction) -> Result<Memory, FaultKind> {
    match caller.get_export(export::MEMORY) {
        Some(Extern::Memory(memory)) => Ok(memory),
        _ => Err(FaultKind::WildPointer { function: function.name() }),
    }
}
