//! The globals of a module, below its memory.

use crate::control::Control;
use crate::layout::{BELOW, GLOBALS_MAX};
use std::marker::PhantomData;
use std::ptr;

/// The globals of a sandbox, while no code of the module runs.
#[derive(Debug)]
pub struct NativeGlobals<'a> {
    /// The beginning of the memory.
    base: *mut u8,
    sandbox: PhantomData<&'a mut ()>,
}

impl NativeGlobals<'_> {
    /// Returns the globals of the sandbox with this control.
    ///
    /// # Safety
    /// The sandbox lives as long as the returned value. Its code does not run, and nothing else uses its globals.
    pub(crate) unsafe fn of(control: *mut Control) -> Self {
        Self { base: control.cast::<u8>().wrapping_add(BELOW), sandbox: PhantomData }
    }

    fn place(&self, below: u32) -> *mut u8 {
        assert!((8..=GLOBALS_MAX).contains(&below), "a global is in its area");
        self.base.wrapping_sub(below as usize)
    }

    /// Returns the value of a global of at most 64 bits, which is this number of bytes below the memory.
    ///
    /// # Panics
    /// The number is outside the area of globals.
    pub fn get(&self, below: u32) -> u64 {
        // SAFETY: the place is in the area of globals, which is readable, and no code of the module runs.
        unsafe { ptr::read_unaligned(self.place(below).cast()) }
    }

    /// Sets the first bytes of a global, which is this number of bytes below the memory.
    ///
    /// # Panics
    /// The bytes are not in the area of globals.
    pub fn set(&mut self, below: u32, value: &[u8]) {
        assert!(value.len() <= below as usize, "a global is below the memory");
        // SAFETY: the place is in the area of globals, which is writable, and no code of the module runs.
        unsafe { ptr::copy_nonoverlapping(value.as_ptr(), self.place(below), value.len()) };
    }
}
