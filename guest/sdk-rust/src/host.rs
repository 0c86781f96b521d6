//! The host functions, without wrappers.

/// The reason why a host function failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A limit is reached, or there is no memory for a table.
    Full,
    /// Outside the packet, or outside the range of a patch; a frame that is too long or too short; a table that is
    /// longer than declared; in a list of patterns, a length beyond its end.
    Range,
    /// A field that affects parsing, or a checksum; a right that the module's session lacks; an output that leads
    /// nowhere; a packet that cannot be kept; a table without readers.
    Denied,
    /// Not at this time: a pattern compiled after start, a patch outside a packet, a frame sent at start.
    When,
    /// No such parameter, stream, output, table, pattern or kept packet.
    Unknown,
    /// An authentication tag that does not match.
    Forged,
    /// A code that this crate does not know.
    Other(i32),
}

impl Error {
    /// Converts the result of a host function: at or above 0 it is a success.
    pub(crate) fn check(code: i32) -> Result<i32, Error> {
        if code >= 0 {
            Ok(code)
        } else {
            Err(Error::of(code))
        }
    }

    /// Converts a code below 0.
    pub(crate) fn of(code: i32) -> Error {
        match code {
            -1 => Error::Full,
            -2 => Error::Range,
            -3 => Error::Denied,
            -4 => Error::When,
            -5 => Error::Unknown,
            -6 => Error::Forged,
            other => Error::Other(other),
        }
    }
}

// The declarations of the host functions; those of `weir test`, in its native builds; and stubs of a host without resources, so that modules can be checked, and code
// without host calls tested, on the author's own machine. host functions: begin
#[cfg(target_arch = "wasm32")]
#[link(wasm_import_module = "weir")]
#[rustfmt::skip]
extern "C" {
    pub(crate) fn emit(stream: u32, row: *const u8, len: u32) -> i32;
    pub(crate) fn patch(descriptor: *const crate::Descriptor, offset: u32, bytes: *const u8, len: u32) -> i32;
    pub(crate) fn send(output: u32, bytes: *const u8, len: u32) -> i32;
    pub(crate) fn keep(descriptor: *const crate::Descriptor) -> i32;
    pub(crate) fn release(handle: i32) -> i32;
    pub(crate) fn find_compile(list: *const u8, len: u32, flags: u32) -> i32;
    pub(crate) fn find(handle: i32, bytes: *const u8, len: u32) -> i64;
    pub(crate) fn hash(bytes: *const u8, len: u32, seed: u64) -> u64;
    pub(crate) fn digest(algorithm: u32, bytes: *const u8, len: u32, destination: *mut u8) -> i32;
    pub(crate) fn log(level: u32, text: *const u8, len: u32) -> i32;
    pub(crate) fn param_int(index: u32) -> i64;
    pub(crate) fn param_float(index: u32) -> f64;
    pub(crate) fn param_bytes(index: u32, destination: *mut u8, room: u32) -> i32;
    pub(crate) fn reserve(bytes: i64) -> i64;
    pub(crate) fn call(service: u32, bytes: *const u8, len: u32, deadline: u64) -> i64;
    pub(crate) fn message(destination: *mut u8, room: u32) -> i32;
    pub(crate) fn reply(call: u64, bytes: *const u8, len: u32) -> i32;
    pub(crate) fn publish(table: u32, bytes: *const u8, len: u32) -> i32;
    pub(crate) fn hmac(request: *const crate::crypto::CryptoRequest, len: u32) -> i32;
    pub(crate) fn hkdf(request: *const crate::crypto::CryptoRequest, len: u32) -> i32;
    pub(crate) fn aead_open(request: *const crate::crypto::CryptoRequest, len: u32) -> i32;
    pub(crate) fn aes_block(request: *const crate::crypto::CryptoRequest) -> i32;
}

#[cfg(weir_native)]
#[rustfmt::skip]
extern "C" {
    #[link_name = "weir_host_emit"] pub(crate) fn emit(stream: u32, row: *const u8, len: u32) -> i32;
    #[link_name = "weir_host_patch"] pub(crate) fn patch(descriptor: *const crate::Descriptor, offset: u32, bytes: *const u8, len: u32) -> i32;
    #[link_name = "weir_host_send"] pub(crate) fn send(output: u32, bytes: *const u8, len: u32) -> i32;
    #[link_name = "weir_host_keep"] pub(crate) fn keep(descriptor: *const crate::Descriptor) -> i32;
    #[link_name = "weir_host_release"] pub(crate) fn release(handle: i32) -> i32;
    #[link_name = "weir_host_find_compile"] pub(crate) fn find_compile(list: *const u8, len: u32, flags: u32) -> i32;
    #[link_name = "weir_host_find"] pub(crate) fn find(handle: i32, bytes: *const u8, len: u32) -> i64;
    #[link_name = "weir_host_hash"] pub(crate) fn hash(bytes: *const u8, len: u32, seed: u64) -> u64;
    #[link_name = "weir_host_digest"] pub(crate) fn digest(algorithm: u32, bytes: *const u8, len: u32, destination: *mut u8) -> i32;
    #[link_name = "weir_host_log"] pub(crate) fn log(level: u32, text: *const u8, len: u32) -> i32;
    #[link_name = "weir_host_param_int"] pub(crate) fn param_int(index: u32) -> i64;
    #[link_name = "weir_host_param_float"] pub(crate) fn param_float(index: u32) -> f64;
    #[link_name = "weir_host_param_bytes"] pub(crate) fn param_bytes(index: u32, destination: *mut u8, room: u32) -> i32;
    #[link_name = "weir_host_reserve"] pub(crate) fn reserve(bytes: i64) -> i64;
    #[link_name = "weir_host_call"] pub(crate) fn call(service: u32, bytes: *const u8, len: u32, deadline: u64) -> i64;
    #[link_name = "weir_host_message"] pub(crate) fn message(destination: *mut u8, room: u32) -> i32;
    #[link_name = "weir_host_reply"] pub(crate) fn reply(call: u64, bytes: *const u8, len: u32) -> i32;
    #[link_name = "weir_host_publish"] pub(crate) fn publish(table: u32, bytes: *const u8, len: u32) -> i32;
    #[link_name = "weir_host_hmac"] pub(crate) fn hmac(request: *const crate::crypto::CryptoRequest, len: u32) -> i32;
    #[link_name = "weir_host_hkdf"] pub(crate) fn hkdf(request: *const crate::crypto::CryptoRequest, len: u32) -> i32;
    #[link_name = "weir_host_aead_open"] pub(crate) fn aead_open(request: *const crate::crypto::CryptoRequest, len: u32) -> i32;
    #[link_name = "weir_host_aes_block"] pub(crate) fn aes_block(request: *const crate::crypto::CryptoRequest) -> i32;
}

#[cfg(not(any(target_arch = "wasm32", weir_native)))]
#[rustfmt::skip]
mod absent {
    pub(crate) unsafe fn emit(_stream: u32, _row: *const u8, _len: u32) -> i32 { -5 }
    pub(crate) unsafe fn patch(_descriptor: *const crate::Descriptor, _offset: u32, _bytes: *const u8, _len: u32) -> i32 { -3 }
    pub(crate) unsafe fn send(_output: u32, _bytes: *const u8, _len: u32) -> i32 { -3 }
    pub(crate) unsafe fn keep(_descriptor: *const crate::Descriptor) -> i32 { -3 }
    pub(crate) unsafe fn release(_handle: i32) -> i32 { -5 }
    pub(crate) unsafe fn find_compile(_list: *const u8, _len: u32, _flags: u32) -> i32 { -5 }
    pub(crate) unsafe fn find(_handle: i32, _bytes: *const u8, _len: u32) -> i64 { -5 }
    pub(crate) unsafe fn hash(_bytes: *const u8, _len: u32, _seed: u64) -> u64 { 0 }
    pub(crate) unsafe fn digest(_algorithm: u32, _bytes: *const u8, _len: u32, _destination: *mut u8) -> i32 { -5 }
    pub(crate) unsafe fn log(_level: u32, _text: *const u8, _len: u32) -> i32 { -5 }
    pub(crate) unsafe fn param_int(_index: u32) -> i64 { 0 }
    pub(crate) unsafe fn param_float(_index: u32) -> f64 { 0.0 }
    pub(crate) unsafe fn param_bytes(_index: u32, _destination: *mut u8, _room: u32) -> i32 { 0 }
    pub(crate) unsafe fn reserve(_bytes: i64) -> i64 { -3 }
    pub(crate) unsafe fn call(_service: u32, _bytes: *const u8, _len: u32, _deadline: u64) -> i64 { -3 }
    pub(crate) unsafe fn message(_destination: *mut u8, _room: u32) -> i32 { -5 }
    pub(crate) unsafe fn reply(_call: u64, _bytes: *const u8, _len: u32) -> i32 { -5 }
    pub(crate) unsafe fn publish(_table: u32, _bytes: *const u8, _len: u32) -> i32 { -3 }
    pub(crate) unsafe fn hmac(_request: *const crate::crypto::CryptoRequest, _len: u32) -> i32 { -5 }
    pub(crate) unsafe fn hkdf(_request: *const crate::crypto::CryptoRequest, _len: u32) -> i32 { -5 }
    pub(crate) unsafe fn aead_open(_request: *const crate::crypto::CryptoRequest, _len: u32) -> i32 { -5 }
    pub(crate) unsafe fn aes_block(_request: *const crate::crypto::CryptoRequest) -> i32 { -5 }
}
// host functions: end

#[cfg(not(any(target_arch = "wasm32", weir_native)))]
pub(crate) use absent::*;
