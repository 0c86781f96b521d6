//! Memory for tables whose size is a parameter.

use crate::Error;

/// Allocates a slice of `len` copies of `value`, for the rest of the run; `None` if the manifest's ceiling (`memory`)
/// does not allow it. Call it at start: memory cannot be freed.
pub fn alloc<T: Copy + 'static>(len: usize, value: T) -> Option<&'static mut [T]> {
    // SAFETY: each call of `room` returns other memory, aligned to 64 bytes and of the requested size. The memory is
    // initialised here, before a reference to it exists.
    unsafe {
        if core::mem::align_of::<T>() > ALIGN {
            return None;
        }
        let first = room(core::mem::size_of::<T>().checked_mul(len)?)?.cast::<T>();
        for index in 0..len {
            first.add(index).write(value);
        }
        Some(core::slice::from_raw_parts_mut(first, len))
    }
}

/// Sets the memory reservation of the module's session, for all of its modules, to `bytes`; 0 changes nothing. Returns
/// the reservation.
///
/// # Errors
///
/// [`Error::Denied`] if `bytes` is more than the session may have or the node has left, or less than is in use. The
/// reservation is then unchanged.
pub fn reserve(bytes: u64) -> Result<u64, Error> {
    let wanted = i64::try_from(bytes).map_err(|_| Error::Denied)?;
    // SAFETY: the function takes and returns numbers only.
    let reserved = unsafe { crate::host::reserve(wanted) };
    u64::try_from(reserved).map_err(|_| Error::of(i32::try_from(reserved).unwrap_or(i32::MIN)))
}

/// The alignment of allocations: a cache line.
const ALIGN: usize = 64;

#[cfg(target_arch = "wasm32")]
fn room(bytes: usize) -> Option<*mut u8> {
    use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    const PAGE: usize = 65_536;
    const PRIVATE_MAX: usize = 0x3FF0_0000;
    static TOP: AtomicUsize = AtomicUsize::new(0);
    extern "C" {
        static __heap_base: u8;
    }
    // SAFETY (needed by compilers before 1.82): only the address is taken; the linker puts the symbol behind the module's data and stack.
    #[allow(unused_unsafe)]
    let base = unsafe { core::ptr::addr_of!(__heap_base) } as usize;
    let begin = TOP.load(Relaxed).max(base).checked_next_multiple_of(ALIGN)?;
    let end = begin.checked_add(bytes).filter(|end| *end <= PRIVATE_MAX)?;
    let have = core::arch::wasm32::memory_size(0) * PAGE;
    if end > have && core::arch::wasm32::memory_grow(0, (end - have).div_ceil(PAGE)) == usize::MAX {
        return None;
    }
    TOP.store(end, Relaxed);
    Some(begin as *mut u8)
}

#[cfg(not(target_arch = "wasm32"))]
fn room(bytes: usize) -> Option<*mut u8> {
    extern crate std;
    let layout = core::alloc::Layout::from_size_align(bytes.max(1), ALIGN).ok()?;
    // SAFETY: the layout's size is not 0.
    let memory = unsafe { std::alloc::alloc(layout) };
    (!memory.is_null()).then_some(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_allocation_has_its_own_memory_with_the_value_asked_for() {
        let a = alloc(100, 7u64).unwrap();
        let b = alloc(3, [1u8; 16]).unwrap();
        a.fill(9);
        assert!(b.iter().all(|x| *x == [1; 16]) && a.len() == 100);
        assert!(alloc(usize::MAX, 1u64).is_none());
        assert_eq!(alloc(0, 1u8).unwrap().len(), 0);
    }
}
