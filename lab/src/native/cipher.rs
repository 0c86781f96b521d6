//! The cryptographic host functions for natively built modules, with the sandbox's own code.

use super::host::module_bytes;
use weir_abi::code;
use weir_abi::host::HostFunction;
use weir_sandbox::cipher::{self, CipherInput, CipherLengths};

/// `struct weir_crypto` of a native build, whose pointers have the machine's size.
#[repr(C)]
pub(super) struct CipherRequest {
    algorithm: u32,
    key_kind: u32,
    key: *const u8,
    key_len: u32,
    nonce: *const u8,
    nonce_len: u32,
    aad: *const u8,
    aad_len: u32,
    input: *const u8,
    input_len: u32,
    output: *mut u8,
    output_len: u32,
}

/// Runs a cryptographic host function.
///
/// # Safety
/// The request, and all that it points to, belong to the module, which does not run now.
pub(super) unsafe fn run_cipher(function: HostFunction, request: *const CipherRequest) -> i32 {
    // SAFETY: by the promise of the caller.
    let request = unsafe { &*request };
    if request.key_kind != weir_abi::crypto::key::BYTES {
        return code::UNKNOWN;
    }
    let lengths = CipherLengths {
        key: request.key_len,
        nonce: request.nonce_len,
        aad: request.aad_len,
        input: request.input_len,
        output: request.output_len,
    };
    let work = match cipher::work(function, request.algorithm, lengths) {
        Ok(work) if work.charged <= weir_abi::crypto::BYTES.into() => work,
        Ok(_) => return code::RANGE,
        Err(refused) => return refused,
    };
    // SAFETY: by the promise of the caller. The input is copied, as the output may overlap it.
    let (key, nonce, aad, mut input) = unsafe {
        (
            module_bytes(request.key, request.key_len),
            module_bytes(request.nonce, request.nonce_len),
            module_bytes(request.aad, request.aad_len),
            module_bytes(request.input, request.input_len).to_vec(),
        )
    };
    let algorithm = request.algorithm;
    let with = CipherInput { algorithm, key, nonce, aad, input: &mut input, output_len: work.written };
    if let Err(refused) = cipher::run(function, with) {
        return refused;
    }
    // SAFETY: the module's buffer at `output` has `output_len` bytes, at least as many as are written, and `input` is
    // memory of this function.
    unsafe { std::ptr::copy_nonoverlapping(input.as_ptr(), request.output, input.len()) };
    i32::try_from(work.written).unwrap_or(i32::MAX)
}
