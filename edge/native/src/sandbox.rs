//! A sandbox that runs verified code.

use crate::code::NativeCode;
use crate::control::{ABORTED, Control, Exit, RETURNED, SUSPENDED, replace_current};
use crate::enter;
use crate::globals::NativeGlobals;
use crate::layout::{BELOW, CONTROL_BYTES, GLOBALS_MAX};
use crate::stack::GuestStack;
use std::sync::Arc;
use std::{io, mem};
use weir_lower::TrapCode;

/// The host functions of a call.
pub trait HostCalls {
    /// Calls the host function with this number. The arguments are the values of the six registers for integers, of which
    /// only those of the function's type have a meaning; of an i32 only the low half has.
    fn call(&mut self, thunk: u32, arguments: &[u64; 6], globals: NativeGlobals<'_>) -> HostAnswer;
}

/// The answer of a host function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostAnswer {
    /// The result: an integer, or the bits of a float.
    Value(u64),
    /// The call is suspended. [`NativeSandbox::resume`] gives the result.
    Suspend,
    /// The call is aborted.
    Abort,
}

/// The way in which code of a module was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NativeExit {
    /// The function has returned; the value is its result.
    Returned(u64),
    /// A host function has suspended the call.
    Suspended,
    /// A host function has aborted the call.
    Aborted {
        /// The offset in the code of the instruction behind the call of the host function.
        offset: usize,
    },
    /// The code has trapped.
    Trapped(NativeTrap),
}

/// A trap of a module's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeTrap {
    /// The cause.
    pub kind: TrapKind,
    /// The offset of the instruction in the code.
    pub offset: usize,
}

/// The cause of a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrapKind {
    /// The code has found the cause itself.
    Code(TrapCode),
    /// An access to this address, which is not accessible.
    Access(usize),
    /// The stack is used up.
    StackOverflow,
    /// A signal handler has [interrupted](crate::interrupt) the call.
    Interrupted,
    /// The trapping instruction has no known cause.
    Unknown,
}

/// Verified code with a stack and a memory of its own.
#[derive(Debug)]
pub struct NativeSandbox {
    control: *mut Control,
    code: Arc<NativeCode>,
    _stack: GuestStack,
    is_suspended: bool,
}

// SAFETY: the control and the stack belong to this value alone. They hold no address of a thread's own stack or data between
// two calls.
unsafe impl Send for NativeSandbox {}

impl NativeSandbox {
    /// Creates a sandbox for code, whose memory begins at `base`, with a stack of `stack_bytes`.
    ///
    /// # Errors
    /// The system has no memory.
    ///
    /// # Safety
    /// The 4 GiB from `base` on, a guard as long as the one that the code was verified for, and [`BELOW`] bytes below `base`
    /// belong to the module until the value is dropped: no other code relies on their contents. The bytes below are inaccessible,
    /// and no other sandbox uses them. What the module must not write is not writable.
    pub unsafe fn new(base: *mut u8, code: Arc<NativeCode>, stack_bytes: usize) -> io::Result<Self> {
        let stack = GuestStack::new(stack_bytes)?;
        let control = base.wrapping_sub(BELOW);
        let globals = base.wrapping_sub(GLOBALS_MAX as usize);
        for (place, bytes) in [(control, CONTROL_BYTES), (globals, GLOBALS_MAX as usize)] {
            // SAFETY: the pages are reserved for this sandbox, by this function's contract.
            let done = unsafe { libc::mprotect(place.cast(), bytes, libc::PROT_READ | libc::PROT_WRITE) };
            if done != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let control = control.cast::<Control>();
        let state = Control {
            host_stack: 0,
            guest_stack: 0,
            saved: [0; 6],
            address: control,
            stack_top: stack.top(),
            code: code.addresses(),
            stack_guard: stack.guard(),
            trap: None,
            host: None,
        };
        const { assert!(size_of::<Control>() <= CONTROL_BYTES) };
        // SAFETY: the page is writable now, aligned, and long enough.
        unsafe { control.write(state) };
        Ok(Self { control, code, _stack: stack, is_suspended: false })
    }

    /// Calls a function, by its index in the verified code, with up to six integers.
    ///
    /// # Panics
    /// The call before is suspended, or the function does not exist, or it has arguments on the stack. The host finds functions by
    /// the module's exports, so this is a fault in weir.
    pub fn call(&mut self, function: u32, arguments: &[u64], host: &mut dyn HostCalls) -> NativeExit {
        assert!(!self.is_suspended, "a call is suspended");
        let address = self.code.address(function).expect("an entry point has its arguments in registers");
        let mut registers = [0; 6];
        registers[..arguments.len()].copy_from_slice(arguments);
        // SAFETY: the control is that of this sandbox, and the address that of a verified function.
        self.run(host, |control| unsafe { enter::enter(control, address, &registers) })
    }

    /// Continues a suspended call, whose host function returns `value`.
    ///
    /// # Panics
    /// No call is suspended.
    pub fn resume(&mut self, value: u64, host: &mut dyn HostCalls) -> NativeExit {
        assert!(mem::take(&mut self.is_suspended), "no call is suspended");
        // SAFETY: the control is that of this sandbox, whose call is suspended.
        self.run(host, |control| unsafe { enter::resume(control, value) })
    }

    fn run(&mut self, host: &mut dyn HostCalls, enter: impl FnOnce(*mut Control) -> Exit) -> NativeExit {
        let control = self.control;
        // SAFETY: removes the lifetime of the reference. The pointer is removed before this function returns.
        let host =
            unsafe { mem::transmute::<*mut (dyn HostCalls + '_), *mut (dyn HostCalls + 'static)>(host) };
        // SAFETY: the control belongs to this value, and no code of the module runs.
        unsafe { (*control).host = Some(host) };
        let before = replace_current(control);
        let exit = enter(control);
        replace_current(before);
        // SAFETY: as above.
        let control = unsafe { &mut *control };
        control.host = None;
        match exit.status {
            RETURNED => NativeExit::Returned(exit.value),
            SUSPENDED => {
                self.is_suspended = true;
                NativeExit::Suspended
            }
            ABORTED => NativeExit::Aborted { offset: control.return_offset() },
            _ => {
                let unknown = NativeTrap { kind: TrapKind::Unknown, offset: 0 };
                NativeExit::Trapped(control.trap.take().unwrap_or(unknown))
            }
        }
    }

    /// Abandons the suspended call. Returns the offset in the code of the instruction behind the call of the host function
    /// that has suspended it.
    pub fn abandon(&mut self) -> usize {
        self.is_suspended = false;
        // SAFETY: the control belongs to this value, and no code of the module runs.
        unsafe { (*self.control).return_offset() }
    }

    /// Returns true if a call is suspended.
    pub fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    /// Returns the module's globals.
    pub fn globals(&mut self) -> NativeGlobals<'_> {
        // SAFETY: the control is that of this sandbox, which is borrowed, and no code of the module runs.
        unsafe { NativeGlobals::of(self.control) }
    }
}
