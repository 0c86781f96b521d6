//! In place of `signal.rs` on processors without native code.

use std::io;

pub(crate) fn install_handlers() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Interrupts no call, because none is in native code.
pub fn interrupt(_: &mut libc::ucontext_t) -> Option<usize> {
    None
}
