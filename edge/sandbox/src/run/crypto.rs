//! The host functions `hmac`, `hkdf`, `aead_open` and `aes_block`: reading a module's request, and writing the result.

use crate::run::cipher::{self, CipherInput, CipherLengths, CipherWork};
use crate::run::fault::FaultKind;
use crate::run::guest_memory::{GuestMemory, guest_memory};
use crate::run::host::HostState;
use weir_abi::code;
use weir_abi::crypto::{BYTES, CryptoRequest, REQUEST_BYTES, key};
use weir_abi::host::HostFunction;

/// Runs a cryptographic host function, whose request is at the address `request`. `len` is the number of bytes that the
/// call was charged for.
///
/// All addresses are checked before the work begins. The result is written after all has been read, so that it may
/// overlap the input, and only if the function succeeds.
///
/// # Errors
/// As [`guest_memory`] and [`GuestMemory::bytes`], for each address of the request.
pub(crate) fn run_cipher(
    host: &mut HostState,
    function: HostFunction,
    request: u32,
    len: u32,
) -> Result<i32, FaultKind> {
    if len > BYTES {
        return Ok(code::RANGE);
    }
    let mut guest = guest_memory(host, function)?;
    let size = u32::try_from(REQUEST_BYTES).unwrap_or(u32::MAX);
    // The request is copied: what was checked cannot change.
    let request =
        guest.bytes(request, size, |bytes, _| bytes.first_chunk().map(CryptoRequest::from_bytes))?;
    let Some(request) = request else { return Ok(code::RANGE) };
    let work = match check(function, &request, len) {
        Ok(work) => work,
        Err(refused) => return Ok(refused),
    };
    let mut bytes = std::mem::take(&mut guest.host.cipher_bytes);
    let result = answer(&mut guest, function, &request, work, &mut bytes);
    guest.host.cipher_bytes = bytes;
    result
}

/// Checks a request's numbers. Returns the work of the call.
fn check(function: HostFunction, request: &CryptoRequest, len: u32) -> Result<CipherWork, i32> {
    if request.key_kind != key::BYTES {
        return Err(code::UNKNOWN);
    }
    let lengths = CipherLengths {
        key: request.key_len,
        nonce: request.nonce_len,
        aad: request.aad_len,
        input: request.input_len,
        output: request.output_len,
    };
    let work = cipher::work(function, request.algorithm, lengths)?;
    if work.charged > len.into() { Err(code::RANGE) } else { Ok(work) }
}

/// Reads all that a request refers to into `bytes`, does the work, and writes the result.
fn answer(
    guest: &mut GuestMemory<'_>,
    function: HostFunction,
    request: &CryptoRequest,
    work: CipherWork,
    bytes: &mut Vec<u8>,
) -> Result<i32, FaultKind> {
    guest.check_writable(request.output, work.written)?;
    bytes.clear();
    guest.append(request.key, request.key_len, bytes)?;
    guest.append(request.nonce, request.nonce_len, bytes)?;
    guest.append(request.aad, request.aad_len, bytes)?;
    let mut input = Vec::with_capacity(request.input_len as usize);
    guest.append(request.input, request.input_len, &mut input)?;
    let (key, rest) = bytes.split_at_checked(request.key_len as usize).unwrap_or_default();
    let (nonce, aad) = rest.split_at_checked(request.nonce_len as usize).unwrap_or_default();
    let algorithm = request.algorithm;
    let with = CipherInput { algorithm, key, nonce, aad, input: &mut input, output_len: work.written };
    if let Err(refused) = cipher::run(function, with) {
        return Ok(refused);
    }
    guest.write(request.output, work.written, &input)?;
    Ok(i32::try_from(work.written).unwrap_or(i32::MAX))
}
