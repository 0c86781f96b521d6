//! The mapping of verified code.

use crate::enter::call_host;
use crate::layout::{FRAME_MAX, GLOBALS_MAX};
use crate::signal;
use std::ops::Range;
use std::{io, ptr};
use weir_lower::GUARD;
use weir_verify::{CONSTANTS_ALIGNMENT, CpuFeatures, PADDING, THUNK_BYTES, VerifiedCode, VerifyLimits};

/// The most thunks of a module.
const THUNKS_MAX: usize = 200;

/// The most bytes of code, and of constants.
pub const CODE_MAX: u32 = 64 << 20;
/// The most functions of a module.
const FUNCTIONS_MAX: u32 = 50_000;

/// Returns the limits for code that [`NativeCode`] maps, which calls this number of thunks.
pub fn verify_limits(thunks: usize) -> VerifyLimits {
    VerifyLimits {
        thunks: vec![0; thunks],
        globals_bytes: GLOBALS_MAX,
        guard_bytes: GUARD,
        frame_max: FRAME_MAX,
        code_max: CODE_MAX,
        functions_max: FUNCTIONS_MAX,
        features: cpu_features(),
    }
}

/// Returns the CPU features of this machine that code may use. Code with AVX is not run: entering a module does not clear the
/// upper halves of the vector registers.
pub fn cpu_features() -> CpuFeatures {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("movbe")
    {
        return CpuFeatures::BitManipulation;
    }
    CpuFeatures::Baseline
}

/// Verified code in memory: thunks, functions and constants. All sandboxes of a module share it.
#[derive(Debug)]
pub struct NativeCode {
    mapping: *mut u8,
    mapped_bytes: usize,
    verified: VerifiedCode,
    /// The addresses of the functions.
    code: Range<usize>,
}

/// The reason why verified code cannot be mapped.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    /// The system has no memory.
    #[error("no memory for the code: {0}")]
    Memory(#[from] io::Error),
    /// The module has too many thunks.
    #[error("the code calls {0} functions of the host; at most 200 are possible")]
    Thunks(usize),
    /// The machine cannot run native code.
    #[error("this machine lacks the instructions that set the base of GS (FSGSBASE)")]
    Machine,
}

// SAFETY: the mapping belongs to this value, and nothing changes it.
unsafe impl Send for NativeCode {}
// SAFETY: as above.
unsafe impl Sync for NativeCode {}

impl NativeCode {
    /// Maps verified code, whose thunks have the numbers below `thunks`. No page is writable and executable at any time.
    ///
    /// # Errors
    /// [`CodeError`].
    pub fn new(verified: VerifiedCode, thunks: usize) -> Result<Self, CodeError> {
        if thunks > THUNKS_MAX {
            return Err(CodeError::Thunks(thunks));
        }
        if !crate::is_supported() {
            return Err(CodeError::Machine);
        }
        signal::install_handlers()?;
        let page = CONSTANTS_ALIGNMENT as usize;
        let (code_bytes, constants_bytes) = (verified.code().len(), verified.constants().len());
        let code_pages = code_bytes.next_multiple_of(page);
        let executable = page + code_pages;
        let mapped_bytes = executable + constants_bytes.next_multiple_of(page);
        // SAFETY: a new anonymous mapping at an address that the kernel chooses touches nothing that exists.
        let mapping = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        let mapping = mapping.cast::<u8>();
        // From here on, dropping the value removes the mapping.
        let start = mapping.addr() + page;
        let this = Self { mapping, mapped_bytes, verified, code: start..start + code_bytes };
        // SAFETY: all writes are inside the mapping, which is new and writable: thunks in its first page, then the
        // functions, then the constants.
        unsafe {
            ptr::write_bytes(mapping, PADDING, executable);
            write_thunks(mapping, page, thunks);
            ptr::copy_nonoverlapping(this.verified.code().as_ptr(), mapping.add(page), code_bytes);
            ptr::copy_nonoverlapping(
                this.verified.constants().as_ptr(),
                mapping.add(executable),
                constants_bytes,
            );
        }
        let protect = |from: usize, bytes: usize, protection| {
            // SAFETY: a part of the mapping above, which no reference points into.
            let done = unsafe { libc::mprotect(mapping.add(from).cast(), bytes, protection) };
            if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        };
        protect(0, executable, libc::PROT_READ | libc::PROT_EXEC)?;
        if constants_bytes > 0 {
            protect(executable, mapped_bytes - executable, libc::PROT_READ)?;
        }
        Ok(this)
    }

    /// Returns the memory range of everything that is executable.
    pub fn executable(&self) -> Range<*const u8> {
        let mapping = self.mapping.cast_const();
        mapping..mapping.wrapping_add(self.code.end - mapping.addr())
    }

    /// Returns the address of the code at an offset.
    pub fn address_at(&self, offset: u32) -> usize {
        self.code.start.saturating_add(offset as usize)
    }

    /// Returns the addresses of the functions.
    pub(crate) fn addresses(&self) -> Range<usize> {
        self.code.clone()
    }

    /// Returns the address of a function that has no arguments on the stack.
    pub(crate) fn address(&self, function: u32) -> Option<usize> {
        let function = self.verified.functions().get(function as usize)?;
        (function.stack_arguments == 0).then_some(self.code.start + function.offset as usize)
    }
}

impl Drop for NativeCode {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` and belongs to this value. Sandboxes hold a reference to the value.
        unsafe { libc::munmap(self.mapping.cast(), self.mapped_bytes) };
    }
}

/// Writes the thunks so that they end `page` bytes behind `mapping`, where the code begins. Each loads its number and jumps to a
/// common part, which jumps to [`call_host`].
///
/// # Safety
/// `page` bytes are writable from `mapping` on, which is enough for `thunks` thunks and the common part.
unsafe fn write_thunks(mapping: *mut u8, page: usize, thunks: usize) {
    const THUNK: usize = THUNK_BYTES as usize;
    // mov r11, imm64; jmp r11
    let mut common = vec![0x49, 0xbb];
    common.extend((call_host as *const () as usize).to_le_bytes());
    common.extend([0x41, 0xff, 0xe3]);
    // SAFETY: inside the page.
    unsafe { ptr::copy_nonoverlapping(common.as_ptr(), mapping, common.len()) };
    for thunk in 0..thunks {
        let at = page - THUNK * (thunk + 1);
        // mov eax, imm32; jmp rel32
        let mut bytes = vec![0xb8];
        bytes.extend(u32::try_from(thunk).unwrap_or(u32::MAX).to_le_bytes());
        bytes.push(0xe9);
        let distance = i32::try_from(at + 10).unwrap_or(0);
        bytes.extend((-distance).to_le_bytes());
        // SAFETY: inside the page.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), mapping.add(at), bytes.len()) };
    }
}
