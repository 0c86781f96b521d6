//! The functions `weir_host_*` for natively built modules. They do the same work as the sandbox's host functions, with
//! the same libraries, but without pointer checks, and without the limits on the records, patches and frames for a
//! packet. The limit on the frames that a tick sends is kept, because the behaviour of a greedy sender depends on it.

use super::Space;
use super::cipher::{CipherRequest, run_cipher};
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind, packed};
use memchr::memmem::Finder;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::ffi::c_void;
use std::ptr::NonNull;
use weir_abi::host::{HostFunction, algorithm};
use weir_abi::{Descriptor, code, limit};
use weir_sandbox::{Patch, PatchBytes};
use weir_units::Bytes;
use weir_wire::{PEEK_MAX, PatchError, WriteFields};
use {
    weir_admission::{Admitted, Manifest, ParameterValue, TableAccess},
    weir_session::{RecordOrder, Records},
};

/// The host functions as `struct lab_host` of lab/native/host.c.
#[repr(C)]
pub(super) struct HostTable {
    context: *mut c_void,
    base: *mut u8,
    emit: unsafe extern "C" fn(*mut c_void, u32, *const u8, u32) -> i32,
    patch: unsafe extern "C" fn(*mut c_void, *const Descriptor, u32, *const u8, u32) -> i32,
    find_compile: unsafe extern "C" fn(*mut c_void, *const u8, u32, u32) -> i32,
    find: unsafe extern "C" fn(*mut c_void, i32, *const u8, u32) -> i64,
    hash: unsafe extern "C" fn(*mut c_void, *const u8, u32, u64) -> u64,
    log: unsafe extern "C" fn(*mut c_void, u32, *const u8, u32) -> i32,
    param_int: unsafe extern "C" fn(*mut c_void, u32) -> i64,
    param_float: unsafe extern "C" fn(*mut c_void, u32) -> f64,
    param_bytes: unsafe extern "C" fn(*mut c_void, u32, *mut u8, u32) -> i32,
    address: unsafe extern "C" fn(*mut c_void, *const u8, u32) -> u32,
    send: unsafe extern "C" fn(*mut c_void, u32, *const u8, u32) -> i32,
    keep: unsafe extern "C" fn(*mut c_void, *const Descriptor) -> i32,
    release: unsafe extern "C" fn(*mut c_void, i32) -> i32,
    publish: unsafe extern "C" fn(*mut c_void, u32, *const u8, u32) -> i32,
    reserve: unsafe extern "C" fn(*mut c_void, i64) -> i64,
    digest: unsafe extern "C" fn(*mut c_void, u32, *const u8, u32, *mut u8) -> i32,
    hmac: unsafe extern "C" fn(*mut c_void, *const CipherRequest) -> i32,
    hkdf: unsafe extern "C" fn(*mut c_void, *const CipherRequest) -> i32,
    aead_open: unsafe extern "C" fn(*mut c_void, *const CipherRequest) -> i32,
    aes_block: unsafe extern "C" fn(*mut c_void, *const CipherRequest) -> i32,
}

/// The kind of the call that runs now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Start,
    Packets,
    /// A call of `weir_tick` or `weir_stop`.
    Periodic,
}

/// A slot for a kept packet.
#[derive(Clone, Copy, Debug, Default)]
struct KeptSlot {
    /// The number of releases of this slot, which is part of the next handle.
    releases: i32,
    is_taken: bool,
}

/// The state of one natively built module's host.
pub(super) struct Host<'a> {
    /// The addresses that the module sees: packets, descriptors, and the area for strings that rows point to.
    pub(super) space: &'a Space,
    pub(super) manifest: Manifest,
    pub(super) values: Vec<ParameterValue>,
    pub(super) records: Records,
    pub(super) patches: Vec<Patch>,
    /// The index in the block of the batch's first packet.
    pub(super) first: u32,
    /// The descriptors of the batch.
    pub(super) descriptors: *const Descriptor,
    pub(super) phase: Phase,
    /// Sent frames. The field `stream` of each is the index of its output channel in the manifest.
    pub(super) frames: Records,
    /// Published tables: the index in the manifest, and the contents.
    pub(super) published: Vec<(u32, Vec<u8>)>,
    /// The module's own memory limit.
    memory: Bytes,
    /// The numbers of frames and bytes that ticks have sent in this block.
    sent: (u32, u32),
    kept: Vec<KeptSlot>,
    /// The indices of free slots in `kept`.
    free: Vec<usize>,
    patterns: Vec<Patterns>,
    /// The used bytes of the area of `space` for strings that rows point to.
    strings_used: usize,
    /// The used bytes of this area at the end of the start.
    start_strings: Option<usize>,
}

/// Compiled search patterns. The search algorithm is chosen as in edge/sandbox/src/run/pattern.rs, for a fair comparison.
enum Patterns {
    One(Box<Finder<'static>>),
    Few(Box<packed::Searcher>),
    Many(AhoCorasick),
}

impl<'a> Host<'a> {
    pub(super) fn new(space: &'a Space, admitted: &Admitted) -> Self {
        Self {
            space,
            manifest: admitted.manifest().clone(),
            values: admitted.values().to_vec(),
            phase: Phase::Start,
            frames: Records::default(),
            published: Vec::new(),
            memory: admitted.memory(),
            sent: (0, 0),
            kept: Vec::new(),
            free: Vec::new(),
            records: Records::default(),
            patches: Vec::new(),
            first: 0,
            descriptors: std::ptr::null(),
            patterns: Vec::new(),
            strings_used: 0,
            start_strings: None,
        }
    }

    /// Begins a block: ticks may send the full number of frames again.
    pub(super) fn begin_block(&mut self) {
        self.sent = (0, 0);
        // Strings of the start may be used later, those of packets only until the next block.
        self.strings_used = *self.start_strings.get_or_insert(self.strings_used);
    }

    /// The table of host functions. The host must not move while the module is used.
    pub(super) fn table(host: NonNull<Self>) -> HostTable {
        // SAFETY: `host` was just made by the caller, who has no other reference to it.
        let base = unsafe { host.as_ref() }.space.base();
        HostTable {
            context: host.as_ptr().cast(),
            base,
            emit,
            patch,
            find_compile,
            find,
            hash,
            log,
            param_int,
            param_float,
            param_bytes,
            address,
            send,
            keep,
            release,
            publish,
            reserve,
            digest,
            hmac,
            hkdf,
            aead_open,
            aes_block,
        }
    }
}

/// The host behind a context.
///
/// # Safety
/// `context` comes from [`Host::table`], the host has not moved since, and there is no other reference to it.
unsafe fn host<'h>(context: *mut c_void) -> &'h mut Host<'h> {
    // SAFETY: by the promise of the caller.
    unsafe { &mut *context.cast::<Host<'h>>() }
}

/// The bytes behind a module's pointer.
///
/// # Safety
/// `len` bytes are readable at `bytes`: the modules that are built natively are trusted.
pub(super) unsafe fn module_bytes<'b>(bytes: *const u8, len: u32) -> &'b [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: by the promise of the caller.
    unsafe { std::slice::from_raw_parts(bytes, len as usize) }
}

unsafe extern "C" fn emit(context: *mut c_void, stream: u32, row: *const u8, len: u32) -> i32 {
    // SAFETY: `Native` calls the module only while nothing else uses the host; module and row are trusted.
    let (host, row) = unsafe { (host(context), module_bytes(row, len)) };
    let Some(declared) = host.manifest.streams.get(stream as usize) else { return code::UNKNOWN };
    let Ok(stream) = u16::try_from(stream) else { return code::UNKNOWN };
    host.records.begin(RecordOrder::packet(host.first), stream, row);
    declared.normalise(host.records.last_row());
    for field in declared.fields.iter().filter(|field| field.ty.is_indirect() && !field.is_null(row)) {
        let word =
            |at: usize| row.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
        let text = host.space.copy_string(word(field.offset), word(field.offset + 4)).unwrap_or_default();
        host.records.append_tail(field.offset, &text);
    }
    code::OK
}

unsafe extern "C" fn patch(
    context: *mut c_void,
    descriptor: *const Descriptor,
    offset: u32,
    bytes: *const u8,
    len: u32,
) -> i32 {
    // SAFETY: as in `emit`; the descriptor is one of the batch that the module was called with.
    let (host, described, wanted, index) = unsafe {
        let host = host(context);
        let index = descriptor.offset_from(host.descriptors);
        (host, &*descriptor, module_bytes(bytes, len), index)
    };
    let packet = host.first + u32::try_from(index).unwrap_or(0);
    let base = host.space.base();
    let mut store = || {
        let bytes = PatchBytes::from_slice(wanted);
        host.patches.push(Patch { packet, offset, bytes, fields: WriteFields::ALL });
        code::OK
    };
    if WriteFields::ALL.check_common(described, offset, wanted) {
        return store();
    }
    // SAFETY: the packet is mapped in the space at the address that its descriptor has.
    let head = unsafe {
        let peek = u32::try_from(PEEK_MAX).unwrap_or(u32::MAX);
        module_bytes(base.add(described.data as usize), described.cap_len.min(peek))
    };
    match weir_wire::patch::check(head, described, offset, wanted) {
        Ok(()) => store(),
        Err(PatchError::Range { .. }) => code::RANGE,
        Err(PatchError::Denied { .. } | PatchError::Withheld { .. }) => code::DENIED,
    }
}

unsafe extern "C" fn find_compile(context: *mut c_void, list: *const u8, len: u32, flags: u32) -> i32 {
    // SAFETY: as in `emit`.
    let (host, mut rest) = unsafe { (host(context), module_bytes(list, len)) };
    let mut patterns = Vec::new();
    while let Some((len, tail)) = rest.split_first_chunk::<4>() {
        let Some((pattern, tail)) = tail.split_at_checked(u32::from_le_bytes(*len) as usize) else {
            return code::RANGE;
        };
        patterns.push(pattern);
        rest = tail;
    }
    let Some(compiled) = compile(&patterns, flags & 1 == 1) else { return code::FULL };
    host.patterns.push(compiled);
    i32::try_from(host.patterns.len() - 1).unwrap_or(code::FULL)
}

fn compile(patterns: &[&[u8]], ignore_case: bool) -> Option<Patterns> {
    if let ([pattern], false) = (patterns, ignore_case) {
        return Some(Patterns::One(Box::new(Finder::new(pattern).into_owned())));
    }
    let bytes: usize = patterns.iter().map(|pattern| pattern.len()).sum();
    if !ignore_case
        && patterns.len() <= 32
        && bytes <= 256
        && patterns.iter().all(|pattern| pattern.len() >= 3)
    {
        let mut config = packed::Config::new();
        let few = config.match_kind(packed::MatchKind::LeftmostLongest).builder().extend(patterns).build();
        if let Some(few) = few {
            return Some(Patterns::Few(Box::new(few)));
        }
    }
    AhoCorasick::builder()
        .kind(Some(AhoCorasickKind::ContiguousNFA))
        .match_kind(MatchKind::LeftmostLongest)
        .ascii_case_insensitive(ignore_case)
        .build(patterns)
        .map(Patterns::Many)
        .ok()
}

unsafe extern "C" fn find(context: *mut c_void, handle: i32, bytes: *const u8, len: u32) -> i64 {
    // SAFETY: as in `emit`.
    let (host, bytes) = unsafe { (host(context), module_bytes(bytes, len)) };
    let found = match host.patterns.get(handle.cast_unsigned() as usize) {
        Some(Patterns::One(finder)) => finder.find(bytes).map(|at| (0, at)),
        Some(Patterns::Few(searcher)) => searcher.find(bytes).map(|m| (m.pattern().as_usize(), m.start())),
        Some(Patterns::Many(automaton)) => automaton.find(bytes).map(|m| (m.pattern().as_usize(), m.start())),
        None => None,
    };
    let Some((pattern, at)) = found else { return -1 };
    match (i64::try_from(pattern), i64::try_from(at)) {
        (Ok(pattern), Ok(at)) => (pattern << 32) | at,
        _ => -1,
    }
}

unsafe extern "C" fn hash(_: *mut c_void, bytes: *const u8, len: u32, seed: u64) -> u64 {
    // SAFETY: as in `emit`.
    xxhash_rust::xxh3::xxh3_64_with_seed(unsafe { module_bytes(bytes, len) }, seed)
}

unsafe extern "C" fn digest(_: *mut c_void, algorithm: u32, bytes: *const u8, len: u32, to: *mut u8) -> i32 {
    if len > algorithm::BYTES {
        return code::RANGE;
    }
    // SAFETY: as in `emit`; the module's buffer at `to` has space for a digest of this algorithm.
    unsafe {
        match algorithm {
            algorithm::SHA1 => digest_by::<Sha1>(module_bytes(bytes, len), to),
            algorithm::SHA256 => digest_by::<Sha256>(module_bytes(bytes, len), to),
            _ => code::UNKNOWN,
        }
    }
}

/// Computes a digest, then writes it, as `bytes` and `to` may overlap.
///
/// # Safety
/// A digest of this algorithm fits at `to`. The caller does not use `bytes` after this call, which may overwrite them.
unsafe fn digest_by<D: Digest>(bytes: &[u8], to: *mut u8) -> i32 {
    let digest = D::digest(bytes);
    // SAFETY: by the promise of the caller; the digest is in other memory than `to`.
    unsafe { std::ptr::copy_nonoverlapping(digest.as_ptr(), to, digest.len()) };
    i32::try_from(digest.len()).unwrap_or(i32::MAX)
}

unsafe extern "C" fn hmac(_: *mut c_void, request: *const CipherRequest) -> i32 {
    // SAFETY: as in `emit`; the request and all that it points to belong to the module.
    unsafe { run_cipher(HostFunction::Hmac, request) }
}

unsafe extern "C" fn hkdf(_: *mut c_void, request: *const CipherRequest) -> i32 {
    // SAFETY: as in `hmac`.
    unsafe { run_cipher(HostFunction::Hkdf, request) }
}

unsafe extern "C" fn aead_open(_: *mut c_void, request: *const CipherRequest) -> i32 {
    // SAFETY: as in `hmac`.
    unsafe { run_cipher(HostFunction::AeadOpen, request) }
}

unsafe extern "C" fn aes_block(_: *mut c_void, request: *const CipherRequest) -> i32 {
    // SAFETY: as in `hmac`.
    unsafe { run_cipher(HostFunction::AesBlock, request) }
}

/// Discards log lines: with the default parameters no module writes any.
unsafe extern "C" fn log(_: *mut c_void, _: u32, _: *const u8, _: u32) -> i32 {
    code::OK
}

unsafe extern "C" fn param_int(context: *mut c_void, index: u32) -> i64 {
    // SAFETY: as in `emit`.
    let host = unsafe { host(context) };
    host.values.get(index as usize).and_then(ParameterValue::as_int).unwrap_or(0)
}

unsafe extern "C" fn param_float(context: *mut c_void, index: u32) -> f64 {
    // SAFETY: as in `emit`.
    let host = unsafe { host(context) };
    host.values.get(index as usize).and_then(ParameterValue::as_float).unwrap_or(0.0)
}

unsafe extern "C" fn param_bytes(context: *mut c_void, index: u32, to: *mut u8, room: u32) -> i32 {
    // SAFETY: as in `emit`.
    let host = unsafe { host(context) };
    let Some(value) = host.values.get(index as usize) else { return code::UNKNOWN };
    let bytes = value.encoded();
    let fits = bytes.len().min(room as usize);
    // SAFETY: the module's buffer at `to` has `room` bytes, which do not overlap the encoded value.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, fits) };
    i32::try_from(bytes.len()).unwrap_or(i32::MAX)
}

/// Copies a string into the area for strings that rows point to. Returns its 32-bit address, or 0 if the area is full.
unsafe extern "C" fn address(context: *mut c_void, bytes: *const u8, len: u32) -> u32 {
    // SAFETY: as in `emit`.
    let (host, bytes) = unsafe { (host(context), module_bytes(bytes, len)) };
    let Some(address) = host.space.store_string(bytes, host.strings_used) else { return 0 };
    host.strings_used += bytes.len();
    address
}

/// Stores a frame. The limit of frames per packet is not enforced, because no module of the benchmark reaches it.
unsafe extern "C" fn send(context: *mut c_void, output: u32, frame: *const u8, len: u32) -> i32 {
    // SAFETY: as in `emit`.
    let (host, frame) = unsafe { (host(context), module_bytes(frame, len)) };
    let outputs = host.manifest.outputs.len();
    let Some(output) = u16::try_from(output).ok().filter(|output| usize::from(*output) < outputs) else {
        return code::UNKNOWN;
    };
    if host.phase == Phase::Start {
        return code::WHEN;
    }
    if !(limit::FRAME_BYTES_MIN..=limit::FRAME_BYTES).contains(&len) {
        return code::RANGE;
    }
    if host.phase == Phase::Periodic {
        let (number, bytes) = (host.sent.0 + 1, host.sent.1.saturating_add(len));
        if number > limit::FRAMES_PER_CALL || bytes > limit::FRAME_BYTES_PER_CALL {
            return code::FULL;
        }
        host.sent = (number, bytes);
    }
    host.frames.begin(RecordOrder::packet(host.first), output, frame);
    code::OK
}

/// The number of bits of a handle that give the index of the slot, as in edge/sandbox/src/run/kept.rs.
const SLOT_BITS: u32 = limit::KEPT_PACKETS.trailing_zeros();

/// Returns a handle for the packet. Nothing else is needed, because all packets stay mapped.
unsafe extern "C" fn keep(context: *mut c_void, _: *const Descriptor) -> i32 {
    // SAFETY: as in `emit`.
    let host = unsafe { host(context) };
    if host.phase != Phase::Packets {
        return code::WHEN;
    }
    let kept_max = host.manifest.keep.min(limit::KEPT_PACKETS) as usize;
    if kept_max == 0 {
        return code::DENIED;
    }
    if host.kept.len() - host.free.len() >= kept_max {
        return code::FULL;
    }
    let index = host.free.pop().unwrap_or_else(|| {
        host.kept.push(KeptSlot::default());
        host.kept.len() - 1
    });
    host.kept[index].is_taken = true;
    host.kept[index].releases << SLOT_BITS | i32::try_from(index).unwrap_or(0)
}

unsafe extern "C" fn release(context: *mut c_void, handle: i32) -> i32 {
    // SAFETY: as in `emit`.
    let host = unsafe { host(context) };
    let Ok(index) = usize::try_from(handle & ((1 << SLOT_BITS) - 1)) else { return code::UNKNOWN };
    match host.kept.get_mut(index) {
        Some(slot) if handle >= 0 && slot.is_taken && slot.releases == handle >> SLOT_BITS => {
            *slot = KeptSlot { releases: slot.releases + 1, is_taken: false };
            host.free.push(index);
            code::OK
        }
        _ => code::UNKNOWN,
    }
}

unsafe extern "C" fn publish(context: *mut c_void, table: u32, bytes: *const u8, len: u32) -> i32 {
    // SAFETY: as in `emit`.
    let (host, bytes) = unsafe { (host(context), module_bytes(bytes, len)) };
    match host.manifest.tables.get(table as usize) {
        Some(declared) if declared.access == TableAccess::Publish && len <= declared.bytes => {
            host.published.push((table, bytes.to_vec()));
            code::OK
        }
        Some(declared) if declared.access == TableAccess::Publish => code::RANGE,
        _ => code::UNKNOWN,
    }
}

/// Grants memory up to the module's own limit, because there is no session with a limit.
unsafe extern "C" fn reserve(context: *mut c_void, bytes: i64) -> i64 {
    // SAFETY: as in `emit`.
    let host = unsafe { host(context) };
    match u64::try_from(bytes) {
        Ok(wanted) if wanted <= host.memory.0 => host.memory.0.cast_signed(),
        _ => code::DENIED.into(),
    }
}
