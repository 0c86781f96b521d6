//! The places below a module's memory, in bytes from its beginning.

/// The bytes below the memory that a space must reserve: inaccessible but for the pages that [`crate::NativeSandbox`] maps.
pub const BELOW: usize = 64 << 10;

/// The page of the host, which begins [`BELOW`] bytes below the memory.
pub(crate) const CONTROL_BYTES: usize = 4096;

/// The most bytes of globals, which end where the memory begins. Between them and the page of the host is an inaccessible page.
pub const GLOBALS_MAX: u32 = 56 << 10;

const _: () = assert!(GLOBALS_MAX as usize + 2 * CONTROL_BYTES == BELOW);

/// The inaccessible bytes below a stack. No frame is larger, so none steps over them.
pub const STACK_GUARD: usize = 64 << 10;

/// The largest frame that the verifier may accept.
pub const FRAME_MAX: u32 = 60 << 10;

const _: () = assert!(FRAME_MAX as usize + 4096 == STACK_GUARD);
