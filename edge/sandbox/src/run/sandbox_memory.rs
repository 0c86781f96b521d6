//! The private memory of an instance: a memory of wasmtime, or, for an instance that runs in verified code alone, a space
//! that the host's state owns.

use crate::load::initial_memory::{InitialMemory, PAGE};
use crate::run::fault::FaultKind;
use crate::run::host::HostState;
use crate::run::space::{SandboxSpace, Spaces};
use std::sync::Arc;
use wasmtime::{Memory, ResourceLimiter as _, Store};

/// The private memory of an instance.
#[derive(Clone, Copy)]
pub(crate) enum SandboxMemory {
    /// A memory of wasmtime.
    Wasmtime(Memory),
    /// [`HostState::own_memory`].
    Own,
}

/// A space that is no memory of wasmtime.
pub(crate) struct OwnMemory {
    space: SandboxSpace,
    pages_max: u64,
}

impl OwnMemory {
    /// Makes the memory that a module begins with, and writes the data segments of `module` to it. The memory counts as that
    /// of wasmtime does.
    ///
    /// # Errors
    /// The session or the system has no memory, or a data segment does not fit.
    pub(crate) fn make(
        store: &mut Store<HostState>,
        spaces: &Arc<Spaces>,
        initial: &InitialMemory,
        module: &[u8],
    ) -> wasmtime::Result<()> {
        let host = store.data_mut();
        let size = bytes(initial.pages).ok_or_else(|| wasmtime::Error::msg("its memory is too large"))?;
        if !host.memory_growing(0, size, bytes(initial.pages_max))? {
            return Err(wasmtime::Error::msg(format!("its first memory, {size} bytes, is over its limit")));
        }
        let space = SandboxSpace::new(size, Arc::clone(spaces))?;
        let memory = host.own_memory.insert(Self { space, pages_max: initial.pages_max });
        if initial.write(module, memory.space.bytes_mut()) {
            Ok(())
        } else {
            Err(FaultKind::OutOfBounds.into())
        }
    }
}

impl SandboxMemory {
    /// Returns the address of the first byte; null if the instance has no memory.
    pub(crate) fn base(self, store: &Store<HostState>) -> *mut u8 {
        match self {
            Self::Wasmtime(memory) => memory.data_ptr(store),
            Self::Own => {
                store.data().own_memory.as_ref().map_or(std::ptr::null_mut(), |own| own.space.base())
            }
        }
    }

    /// Returns the size in bytes.
    pub(crate) fn size(self, store: &Store<HostState>) -> usize {
        match self {
            Self::Wasmtime(memory) => memory.data_size(store),
            Self::Own => store.data().own_memory.as_ref().map_or(0, |own| own.space.size()),
        }
    }

    /// Grows the memory by a number of pages. Returns the pages before; `None` if the memory is not grown.
    pub(crate) fn grow(self, store: &mut Store<HostState>, pages: u32) -> Option<u64> {
        let Self::Wasmtime(memory) = self else { return grow_own(store.data_mut(), pages.into()) };
        memory.grow(store, pages.into()).ok()
    }

    /// Returns the bytes.
    pub(crate) fn bytes_mut(self, store: &mut Store<HostState>) -> &mut [u8] {
        match self {
            Self::Wasmtime(memory) => memory.data_mut(store),
            Self::Own => store.data_mut().own_memory.as_mut().map_or(&mut [], |own| own.space.bytes_mut()),
        }
    }
}

fn grow_own(host: &mut HostState, more: u64) -> Option<u64> {
    let own = host.own_memory.as_ref()?;
    let (size, pages_max) = (own.space.size(), own.pages_max);
    let pages = size as u64 / PAGE;
    let wanted = pages.checked_add(more).filter(|wanted| *wanted <= pages_max)?;
    if more == 0 {
        return Some(pages);
    }
    let wanted = bytes(wanted)?;
    if !host.memory_growing(size, wanted, bytes(pages_max)).ok()? {
        return None;
    }
    match host.own_memory.as_mut()?.space.enlarge(wanted) {
        Ok(()) => Some(pages),
        Err(error) => {
            _ = host.memory_grow_failed(error.into());
            None
        }
    }
}

fn bytes(pages: u64) -> Option<usize> {
    usize::try_from(pages.checked_mul(PAGE)?).ok()
}
