//! A sandbox for modules in the text format.

use crate::compile::{Compiled, compile};
use std::io::Write;
use std::ptr;
use std::sync::Arc;
use weir_lower::{GUARD, Lowered};
use weir_native::layout::BELOW;
use weir_native::{HostAnswer, HostCalls, NativeCode, NativeExit, NativeGlobals, NativeSandbox};

const SPACE: usize = (4 << 30) + GUARD as usize;

/// The addresses of a memory, with what is reserved below and behind.
pub struct Space(*mut u8);

impl Space {
    /// Reserves the addresses, with a memory of so many bytes.
    pub fn new(bytes: usize) -> Self {
        // SAFETY: a new anonymous mapping at an address that the kernel chooses touches nothing that exists.
        let mapping = unsafe {
            libc::mmap(
                ptr::null_mut(),
                BELOW + SPACE,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert_ne!(mapping, libc::MAP_FAILED);
        let base = mapping.cast::<u8>().wrapping_add(BELOW);
        // SAFETY: a part of the new mapping.
        assert_eq!(unsafe { libc::mprotect(base.cast(), bytes, libc::PROT_READ | libc::PROT_WRITE) }, 0);
        Self(base)
    }

    /// The beginning of the memory.
    pub fn base(&self) -> *mut u8 {
        self.0
    }

    /// Returns true for an address in the memory, or below it or behind it, where nothing else is.
    pub fn contains(&self, address: usize) -> bool {
        let base = self.0.addr();
        (base - BELOW..base + SPACE).contains(&address)
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new`.
        unsafe { libc::munmap(self.0.wrapping_sub(BELOW).cast(), BELOW + SPACE) };
    }
}

/// A module that runs natively.
pub struct Native {
    pub sandbox: NativeSandbox,
    pub lowered: Lowered,
    functions: Vec<u32>,
    space: Space,
}

impl Native {
    /// Compiles a module with one page of memory; `None` without clang or on a machine that cannot run native code.
    pub fn new(text: &str) -> Option<Self> {
        let Compiled { lowered, functions, code } = compile(&wat::parse_str(text).unwrap())?.unwrap();
        if !weir_native::is_supported() {
            _ = writeln!(std::io::stderr(), "SKIPPED: this machine cannot run native code");
            return None;
        }
        let code = Arc::new(NativeCode::new(code, lowered.thunks.len()).unwrap());
        let space = Space::new(65_536);
        // SAFETY: the space is new, and dropped after the sandbox.
        let mut sandbox = unsafe { NativeSandbox::new(space.0, code, 1 << 20).unwrap() };
        for (below, value) in lowered.globals.values() {
            let bits = match *value {
                weir_lower::Constant::I32(value) => value.cast_unsigned().into(),
                weir_lower::Constant::I64(value) => value.cast_unsigned(),
                weir_lower::Constant::F32(bits) => bits.into(),
                weir_lower::Constant::F64(bits) => bits,
                weir_lower::Constant::V128(_) => continue,
            };
            sandbox.globals().set(*below, &bits.to_le_bytes());
        }
        Some(Self { sandbox, lowered, functions, space })
    }

    /// Calls an exported function.
    pub fn call(&mut self, export: &str, arguments: &[u64], host: &mut dyn HostCalls) -> NativeExit {
        let function = self.lowered.exports[export] - self.lowered.imported;
        self.sandbox.call(self.functions[function as usize], arguments, host)
    }

    /// The first bytes of the memory.
    pub fn memory(&self) -> &[u8] {
        // SAFETY: the space has a page of memory, and no code of the module runs.
        unsafe { std::slice::from_raw_parts(self.space.0, 65_536) }
    }
}

/// Host functions by a closure.
pub struct Calls<F>(pub F);

impl<F: FnMut(u32, &[u64; 6]) -> HostAnswer> HostCalls for Calls<F> {
    fn call(&mut self, thunk: u32, arguments: &[u64; 6], _: NativeGlobals<'_>) -> HostAnswer {
        self.0(thunk, arguments)
    }
}

/// Host functions of which none is called.
pub fn no_calls() -> impl HostCalls {
    Calls(|thunk, _: &[u64; 6]| panic!("host function {thunk} is called"))
}
