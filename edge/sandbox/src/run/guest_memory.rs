//! The host's access to memory at addresses that a module passes. No other file reads or writes such memory; the search
//! of [`crate::run::prefilter`] gets its text from here.

use crate::run::fault::FaultKind;
use crate::run::host::{HostPhase, HostState};
use std::ops::Range;
use std::sync::atomic::Ordering;
use weir_abi::host::HostFunction;
use weir_abi::{DESCRIPTOR_BYTES, Descriptor, limit};
use weir_os::memory::copy_once;

/// The private memory of an instance: where it begins, and how long it is. Host functions use this instead of wasmtime's
/// memory, which they would have to look up in the store.
#[derive(Debug)]
pub(crate) struct PrivateMemory {
    /// The beginning of the sandbox's address space, whose first bytes are the private memory; dangling during
    /// instantiation.
    base: *mut u8,
    /// The length in bytes. WebAssembly memory never shrinks.
    len: usize,
}

// SAFETY: the pointer is to the address space that the instance's store owns. The store also owns this value, and does not
// move the space when it moves between threads.
unsafe impl Send for PrivateMemory {}
// SAFETY: as for `Send`; a shared reference gives access to no byte of the memory.
unsafe impl Sync for PrivateMemory {}

impl Default for PrivateMemory {
    fn default() -> Self {
        Self { base: std::ptr::dangling_mut(), len: 0 }
    }
}

impl PrivateMemory {
    /// The private memory of an instance that has been made.
    ///
    /// # Safety
    /// The sandbox's address space begins at `base`, of which `len` bytes are private memory. The space lives as long as
    /// the value, and no other code of the host refers to the memory while a host function runs.
    pub(crate) unsafe fn new(base: *mut u8, len: usize) -> Self {
        Self { base, len }
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Notes that the memory grows to `len` bytes, before any code of the module can run. Returns the present length.
    pub(crate) fn begin_growth(&mut self, len: usize) -> usize {
        // Instantiation, too, is a growth, of a memory whose place is not known yet.
        if self.base == std::ptr::dangling_mut() { self.len } else { std::mem::replace(&mut self.len, len) }
    }

    /// Notes that a growth failed, after which the memory has `len` bytes as before.
    pub(crate) fn undo_growth(&mut self, len: usize) {
        self.len = len;
    }
}

/// The bytes that a module passes to a host function.
enum Place<'a> {
    /// Bytes that do not change during the call.
    Fixed(&'a [u8]),
    /// The address of bytes that can change while they are read.
    Shared(*const u8),
}

/// Access to a module's memory and to the host's state during one call of a host function.
pub(crate) struct GuestMemory<'a> {
    pub(crate) host: &'a mut HostState,
    function: HostFunction,
    /// The index in the batch of the current packet.
    current: Option<u32>,
}

/// Returns access to the memory of the calling module for the host function `function`. The result can be used for several
/// ranges.
///
/// # Errors
/// [`FaultKind::TimeOverrun`] if the watchdog interrupts the call.
#[inline]
pub(crate) fn guest_memory<'a>(
    host: &'a mut HostState,
    function: HostFunction,
) -> Result<GuestMemory<'a>, FaultKind> {
    if host.must_interrupt.load(Ordering::Relaxed) {
        return Err(FaultKind::TimeOverrun);
    }
    Ok(GuestMemory { host, function, current: None })
}

impl GuestMemory<'_> {
    /// Access during a call that the module makes for packet `current` of the batch, whose bytes are read in place if
    /// nothing changes them.
    #[inline]
    pub(crate) fn for_packet(self, current: Option<u32>) -> Self {
        Self { current, ..self }
    }

    /// Finds the bytes `address..address + len` of the module.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    #[inline]
    fn place<'p>(&self, address: u32, len: u32) -> Result<Place<'p>, FaultKind> {
        let private = &self.host.private;
        let (start, len) = (address as usize, len as usize);
        // Two 32-bit numbers do not overflow a 64-bit one.
        if start + len <= private.len && len <= limit::HOST_READ_BYTES as usize {
            // SAFETY: the bytes are inside the private memory by this check. No code of the sandbox runs, and nothing else
            // refers to the memory mutably, until the host function returns; `place` is private to this file, whose
            // functions use the slice only until then.
            return Ok(Place::Fixed(unsafe { std::slice::from_raw_parts(private.base.add(start), len) }));
        }
        self.shared_place(start, len)
    }

    /// Finds bytes outside of the private memory.
    #[inline]
    fn shared_place<'p>(&self, start: usize, len: usize) -> Result<Place<'p>, FaultKind> {
        let from = self.host.private.base.addr() + start;
        let is_inside = |area: &Range<usize>| area.start <= from && from.saturating_add(len) <= area.end;
        let HostState { packets, descriptors, tables, stream_window, .. } = &*self.host;
        let is_readable = is_inside(packets)
            || is_inside(descriptors)
            || is_inside(stream_window)
            || tables.iter().any(is_inside);
        // The limit bounds the time of the host function, and the size of the copy.
        if !is_readable || len > limit::HOST_READ_BYTES as usize {
            return Err(FaultKind::WildPointer { function: self.function.name() });
        }
        // SAFETY: inside an area that this module's `Instance` has mapped readable in its reserved address range. The range
        // has the same provenance as the private memory, because `crate::run::space::SandboxSpace` created both by one mapping.
        let from = unsafe { self.host.private.base.add(start) };
        if self.host.has_fixed_packets && self.is_in_current_packet(start, len) && is_inside(packets) {
            // SAFETY: readable as above. `Area::is_fixed` promises that nothing changes the packet during the call, and host
            // functions use the slice only until they return.
            return Ok(Place::Fixed(unsafe { std::slice::from_raw_parts(from, len) }));
        }
        Ok(Place::Shared(from))
    }

    /// Returns true if bytes belong to the current packet. Other packets may be outside of all blocks in use, where the
    /// next packets are written.
    #[inline]
    fn is_in_current_packet(&self, start: usize, len: usize) -> bool {
        let (HostPhase::Batch { descriptors, mask, .. }, Some(current)) = (self.host.phase, self.current)
        else {
            return false;
        };
        let distance = current.saturating_mul(u32::try_from(DESCRIPTOR_BYTES).unwrap_or(u32::MAX));
        if mask.checked_shr(current).is_none_or(|rest| rest & 1 == 0) {
            return false;
        }
        let Ok(packet) = self.batch_descriptor(descriptors.saturating_add(distance)) else { return false };
        let data = packet.data as usize;
        data <= start && start + len <= data + packet.cap_len as usize
    }

    /// Checks that the module passed readable bytes.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    #[inline]
    pub(crate) fn check(&self, address: u32, len: u32) -> Result<(), FaultKind> {
        self.place(address, len).map(|_| ())
    }

    /// Calls `act` with the bytes `address..address + len` of the module, and with the host's state.
    ///
    /// Bytes of the private memory are borrowed in place, because no code of the sandbox runs during `act`, and so are
    /// those of the current packet in memory that nothing else writes. Other packets, descriptors and tables are copied
    /// first, and each byte is read once, because they can change while they are read: another process can write the
    /// file, and another thread fills the next block.
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
        match self.place(address, len)? {
            Place::Fixed(bytes) => Ok(act(bytes, self.host)),
            // SAFETY: `place` has found `len` readable bytes.
            Place::Shared(from) => Ok(unsafe { self.with_copy(from, len as usize, act) }),
        }
    }

    /// Appends the bytes `address..address + len` of the module to `to`. Each byte is read once.
    ///
    /// # Errors
    /// As [`Self::bytes`]; then `to` is unchanged.
    pub(crate) fn append(&self, address: u32, len: u32, to: &mut Vec<u8>) -> Result<(), FaultKind> {
        match self.place(address, len)? {
            Place::Fixed(bytes) => to.extend_from_slice(bytes),
            Place::Shared(from) => {
                let (before, len) = (to.len(), len as usize);
                to.reserve(len);
                // SAFETY: `place` has found `len` readable bytes; `to` has capacity for `len` bytes after `before`, all of
                // which are written.
                unsafe {
                    copy_once(from, to.as_mut_ptr().add(before), len);
                    to.set_len(before + len);
                }
            }
        }
        Ok(())
    }

    /// Finds the place of `capacity` bytes in the private memory, the only memory that a module can write.
    ///
    /// # Errors
    /// [`FaultKind::WildPointer`] if `address..address + capacity` is not inside the private memory.
    fn writable(&self, address: u32, capacity: u32) -> Result<*mut u8, FaultKind> {
        let (private, start) = (&self.host.private, address as usize);
        if start + capacity as usize > private.len {
            return Err(FaultKind::WildPointer { function: self.function.name() });
        }
        // SAFETY: inside the private memory, or at its end, by this check.
        Ok(unsafe { private.base.add(start) })
    }

    /// Checks that the module passed bytes that it can write.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(crate) fn check_writable(&self, address: u32, capacity: u32) -> Result<(), FaultKind> {
        self.writable(address, capacity).map(|_| ())
    }

    /// Copies at most the first `capacity` bytes of `bytes` to `address` in the private memory of the module.
    ///
    /// # Errors
    /// [`FaultKind::WildPointer`] if `address..address + capacity` is not inside the private memory.
    pub(crate) fn write(&mut self, address: u32, capacity: u32, bytes: &[u8]) -> Result<(), FaultKind> {
        let to = self.writable(address, capacity)?;
        let copied = bytes.len().min(capacity as usize);
        // SAFETY: `writable` has found `capacity` bytes of the private memory; `bytes` is memory of the host. No code of the
        // sandbox runs, and nothing else refers to the private memory.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, copied) };
        Ok(())
    }

    /// Returns the descriptor of a packet of the current batch, in place. The block of the batch is in use during the call,
    /// so its descriptors do not change.
    ///
    /// # Errors
    /// [`FaultKind::WildPointer`] if there are no descriptors at this address.
    #[inline]
    pub(crate) fn batch_descriptor<'d>(&self, address: u32) -> Result<&'d Descriptor, FaultKind> {
        let wild = FaultKind::WildPointer { function: self.function.name() };
        packet_descriptor(self.host, address).ok_or(wild)
    }

    /// Calls `act` with a copy of shared bytes.
    ///
    /// # Safety
    /// `len` bytes are readable at `from`.
    #[inline]
    unsafe fn with_copy<R>(
        &mut self,
        from: *const u8,
        len: usize,
        act: impl FnOnce(&[u8], &mut HostState) -> R,
    ) -> R {
        let mut copy = std::mem::take(&mut self.host.scratch);
        copy.clear();
        copy.reserve(len);
        // SAFETY: readable by the promise of the caller; `copy` has capacity for `len` bytes, all of which are written.
        unsafe {
            copy_once(from, copy.as_mut_ptr(), len);
            copy.set_len(len);
        }
        let result = act(&copy, self.host);
        self.host.scratch = copy;
        result
    }

    /// Searches bytes for a pattern of the set `handle`, as [`Patterns::find`](crate::run::pattern::Patterns::find) does.
    /// `None` also for an unknown handle.
    ///
    /// In shared bytes the search looks for the first place where a pattern may begin, without a copy. Most packets have
    /// none. Otherwise the bytes from there on are copied, and the copy is searched.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    #[inline]
    pub(crate) fn find(
        &mut self,
        handle: u32,
        address: u32,
        len: u32,
    ) -> Result<Option<(u32, u32)>, FaultKind> {
        let place = self.place(address, len)?;
        let Some(patterns) = self.host.patterns.get(handle as usize) else { return Ok(None) };
        let from = match place {
            Place::Fixed(bytes) => return Ok(patterns.find(bytes)),
            Place::Shared(from) => from,
        };
        let len = len as usize;
        // SAFETY: `place` has found `len` readable bytes.
        let Some(skipped) = (unsafe { patterns.first_candidate(from, len) }) else { return Ok(None) };
        // SAFETY: the candidate is inside the text.
        let from = unsafe { from.add(skipped) };
        let find = |bytes: &[u8], host: &mut HostState| {
            let found = host.patterns.get(handle as usize).and_then(|patterns| patterns.find(bytes));
            found.map(|(pattern, at)| (pattern, at + u32::try_from(skipped).unwrap_or(u32::MAX)))
        };
        // SAFETY: the rest of the text is readable.
        Ok(unsafe { self.with_copy(from, len - skipped, find) })
    }
}

/// Returns the descriptor at a guest address, in place; `None` if there is none. The descriptor must be that of a packet of
/// the current batch, whose block is in use during the call, so that it does not change.
#[inline]
pub(crate) fn packet_descriptor<'d>(host: &HostState, address: u32) -> Option<&'d Descriptor> {
    let start = address as usize;
    let from = host.private.base.addr() + start;
    let area = &host.descriptors;
    if from < area.start || from + DESCRIPTOR_BYTES > area.end || !start.is_multiple_of(DESCRIPTOR_BYTES) {
        return None;
    }
    // SAFETY: inside the mapped descriptors by this check, and aligned, because areas are page-aligned. Any bytes are a
    // valid descriptor. It belongs to the batch of the call, so nothing writes it until the call ends, and host functions
    // use the reference only until they return.
    Some(unsafe { &*host.private.base.add(start).cast_const().cast::<Descriptor>() })
}

/// Copies bytes of packets from a guest address on. Each byte is read once, because other processes can change it. Returns
/// false if the bytes are not wholly inside the mapped packets.
#[inline]
pub(crate) fn read_packet(host: &HostState, address: u32, out: &mut [u8]) -> bool {
    let from = host.private.base.addr() + address as usize;
    if from < host.packets.start || from.saturating_add(out.len()) > host.packets.end {
        return false;
    }
    // SAFETY: inside the packets that this module's `Instance` has mapped readable in its reserved address range, which has
    // the provenance of the private memory; `out` is memory of the host.
    unsafe { copy_once(host.private.base.add(address as usize), out.as_mut_ptr(), out.len()) };
    true
}

/// Calls `act` with the bytes of one range, as [`GuestMemory::bytes`] does.
///
/// # Errors
/// As [`guest_memory`] and [`GuestMemory::bytes`].
#[inline]
pub(crate) fn with_bytes<R>(
    host: &mut HostState,
    function: HostFunction,
    address: u32,
    len: u32,
    act: impl FnOnce(&[u8], &mut HostState) -> R,
) -> Result<R, FaultKind> {
    guest_memory(host, function)?.bytes(address, len, act)
}

/// Copies at most the first `capacity` bytes of `bytes` to `address` in the private memory of the calling module. Returns
/// the length of all of `bytes`.
///
/// # Errors
/// [`FaultKind::WildPointer`] if `address..address + capacity` is not inside the private memory.
pub(crate) fn write_bytes(
    host: &mut HostState,
    function: HostFunction,
    address: u32,
    capacity: u32,
    bytes: &[u8],
) -> Result<usize, FaultKind> {
    GuestMemory { host, function, current: None }.write(address, capacity, bytes)?;
    Ok(bytes.len())
}
