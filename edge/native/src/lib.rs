//! Runs machine code of modules that `weir-verify` has proved memory-safe.
//!
//! ```text
//! VerifiedCode ──map──► NativeCode ──new──► NativeSandbox ──call──► NativeExit
//! ```
//!
//! A [`NativeSandbox`] has a stack of its own, and the code of a module that all its sandboxes share. While the code runs, the
//! base of the segment GS is the beginning of the module's memory. The code leaves it in four ways: it returns, it traps, a
//! host function suspends the call, or a host function aborts it. Host functions run on the stack of the thread, not on that
//! of the module. So the module's stack holds no value of the host, and a suspended call can continue on another thread.
//!
//! Below the memory is the [area](layout) of the module's globals, and below that one the page of the host ([`control`]).

//!
//! On other processors than x86-64 the crate compiles, and maps no code.

mod code;
mod control;
#[cfg_attr(not(target_arch = "x86_64"), path = "enter_absent.rs")]
mod enter;
mod globals;
pub mod layout;
mod sandbox;
#[cfg_attr(not(target_arch = "x86_64"), path = "signal_absent.rs")]
mod signal;
mod stack;

pub use code::{CODE_MAX, CodeError, NativeCode, cpu_features, verify_limits};
pub use globals::NativeGlobals;
pub use sandbox::{HostAnswer, HostCalls, NativeExit, NativeSandbox, NativeTrap, TrapKind};
pub use signal::interrupt;

/// Returns true if this machine can run native code: user code must be able to set the base of GS.
pub fn is_supported() -> bool {
    const FSGSBASE: libc::c_ulong = 1 << 1;
    // SAFETY: reads a value that the kernel passed to the process.
    cfg!(target_arch = "x86_64") && unsafe { libc::getauxval(libc::AT_HWCAP2) & FSGSBASE != 0 }
}
