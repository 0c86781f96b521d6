//! The page of the host below the memory of a sandbox, and the thread's current sandbox.
//!
//! Verified code does not access the page. The code that enters and leaves a module finds it by its distance from the base
//! of GS.

use crate::sandbox::{HostCalls, NativeTrap};
use std::cell::Cell;
use std::ops::Range;
use std::ptr;

/// The state of a sandbox that the code which enters and leaves it uses. The first fields are known to assembler code by their
/// offsets.
#[repr(C)]
pub(crate) struct Control {
    /// The stack pointer of the host, while code of the module runs.
    pub(crate) host_stack: usize,
    /// The stack pointer of the module, while a host function runs or the call is suspended.
    pub(crate) guest_stack: usize,
    /// The registers of a suspended call that a function preserves: rbx, rbp, r12, r13, r14, r15.
    pub(crate) saved: [usize; 6],
    /// The address of this value.
    pub(crate) address: *mut Control,
    /// The upper end of the module's stack.
    pub(crate) stack_top: usize,
    /// The addresses of the module's functions.
    pub(crate) code: Range<usize>,
    /// The addresses below the stack that are inaccessible.
    pub(crate) stack_guard: Range<usize>,
    /// The trap that has ended the call.
    pub(crate) trap: Option<NativeTrap>,
    /// The host functions of the current call.
    pub(crate) host: Option<*mut dyn HostCalls>,
}

/// The way in which a module's code was left, as a number, and the value that belongs to it.
#[repr(C)]
pub(crate) struct Exit {
    pub(crate) status: u64,
    pub(crate) value: u64,
}

/// The code has returned; the value is its result.
pub(crate) const RETURNED: u64 = 0;
/// A host function has suspended the call.
pub(crate) const SUSPENDED: u64 = 1;
/// A host function has aborted the call.
pub(crate) const ABORTED: u64 = 2;
/// The code has trapped.
#[cfg(target_arch = "x86_64")]
pub(crate) const TRAPPED: u64 = 3;

impl Control {
    /// Returns the offset in the code to which a host function would have returned.
    pub(crate) fn return_offset(&self) -> usize {
        let stack = self.stack_guard.end..self.stack_top;
        if !stack.contains(&self.guest_stack) {
            return 0;
        }
        // SAFETY: inside the module's stack, which is readable, and aligned, as at each call. No code of the module runs.
        let address = unsafe { ptr::with_exposed_provenance::<usize>(self.guest_stack).read_unaligned() };
        address.saturating_sub(self.code.start)
    }
}

thread_local! {
    /// The sandbox whose code the thread runs. Signal handlers read it.
    static CURRENT: Cell<*mut Control> = const { Cell::new(ptr::null_mut()) };
}

/// Returns the sandbox whose code the thread runs; null if there is none.
#[cfg(target_arch = "x86_64")]
pub(crate) fn current() -> *mut Control {
    CURRENT.get()
}

/// Sets the sandbox whose code the thread runs. Returns the one before.
pub(crate) fn replace_current(control: *mut Control) -> *mut Control {
    CURRENT.replace(control)
}
