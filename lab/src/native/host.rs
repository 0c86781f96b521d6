//! The functions `weir_host_*` for natively built modules. They do the same work with the same libraries as those of the sandbox; what
//! they leave out is what makes a sandbox: no check of a pointer, no copy of what could change meanwhile, no limit.

use super::Space;
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind, packed};
use memchr::memmem::Finder;
use std::ffi::c_void;
use std::ptr::NonNull;
use weir_abi::{Descriptor, code};
use weir_sandbox::Patch;
use weir_session::{Manifest, Order, Records, Value};
use weir_wire::{PEEK_MAX, PatchError};

/// What `struct lab_host` of lab/native/host.c is.
#[repr(C)]
pub(super) struct Table {
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
}

/// The state of one natively built module's host.
pub(super) struct Host<'a> {
    pub(super) space: &'a Space,
    pub(super) manifest: Manifest,
    pub(super) values: Vec<Value>,
    pub(super) records: Records,
    pub(super) patches: Vec<Patch>,
    /// Index in the block of the batch's first packet, and where its descriptors begin.
    pub(super) first: u32,
    pub(super) descriptors: *const Descriptor,
    patterns: Vec<Patterns>,
    strings: usize,
}

/// What edge/sandbox/src/pattern.rs chooses, chosen as there: both sides must use the same search for the comparison to be fair.
enum Patterns {
    One(Box<Finder<'static>>),
    Few(Box<packed::Searcher>),
    Many(AhoCorasick),
}

impl<'a> Host<'a> {
    pub(super) fn new(space: &'a Space, manifest: Manifest, values: Vec<Value>) -> Self {
        Self {
            space,
            manifest,
            values,
            records: Records::default(),
            patches: Vec::new(),
            first: 0,
            descriptors: std::ptr::null(),
            patterns: Vec::new(),
            strings: 0,
        }
    }

    /// The functions, for a host that stays where it is as long as the module is used.
    pub(super) fn table(host: NonNull<Self>) -> Table {
        // SAFETY: `host` was just made by the caller, who has no other reference to it.
        let base = unsafe { host.as_ref() }.space.base();
        Table {
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

/// What a module points to.
///
/// # Safety
/// `len` bytes are readable at `bytes`: the modules that are built natively are trusted.
unsafe fn given<'b>(bytes: *const u8, len: u32) -> &'b [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: by the promise of the caller.
    unsafe { std::slice::from_raw_parts(bytes, len as usize) }
}

unsafe extern "C" fn emit(context: *mut c_void, stream: u32, row: *const u8, len: u32) -> i32 {
    // SAFETY: `Native` calls the module only while nothing else uses the host; module and row are trusted.
    let (host, row) = unsafe { (host(context), given(row, len)) };
    let Some(declared) = host.manifest.streams.get(stream as usize) else { return code::UNKNOWN };
    let Ok(stream) = u16::try_from(stream) else { return code::UNKNOWN };
    host.records.begin(Order::packet(host.first), stream, row);
    for field in declared.fields.iter().filter(|field| field.ty.is_indirect()) {
        let word =
            |at: usize| row.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
        let text = host.space.copy(word(field.offset), word(field.offset + 4)).unwrap_or_default();
        host.records.tail(field.offset, &text);
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
        (host, *descriptor, given(bytes, len), index)
    };
    // SAFETY: where the descriptor says, the packet is mapped in the space.
    let head = unsafe {
        let peek = u32::try_from(PEEK_MAX).unwrap_or(u32::MAX);
        given(host.space.base().add(described.data as usize), described.cap_len.min(peek))
    };
    match weir_wire::patch::check(head, &described, offset, wanted) {
        Ok(()) => {
            let packet = host.first + u32::try_from(index).unwrap_or(0);
            host.patches.push(Patch { packet, offset, bytes: wanted.to_vec() });
            code::OK
        }
        Err(PatchError::Range { .. }) => code::RANGE,
        Err(PatchError::Denied { .. }) => code::DENIED,
    }
}

unsafe extern "C" fn find_compile(context: *mut c_void, list: *const u8, len: u32, flags: u32) -> i32 {
    // SAFETY: as in `emit`.
    let (host, mut rest) = unsafe { (host(context), given(list, len)) };
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
    if !ignore_case && patterns.len() <= 32 && patterns.iter().all(|pattern| pattern.len() >= 3) {
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
    let (host, bytes) = unsafe { (host(context), given(bytes, len)) };
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
    xxhash_rust::xxh3::xxh3_64_with_seed(unsafe { given(bytes, len) }, seed)
}

/// A native module's log goes nowhere: with the default parameters none has anything to say.
unsafe extern "C" fn log(_: *mut c_void, _: u32, _: *const u8, _: u32) -> i32 {
    code::OK
}

unsafe extern "C" fn param_int(context: *mut c_void, index: u32) -> i64 {
    // SAFETY: as in `emit`.
    let host = unsafe { host(context) };
    host.values.get(index as usize).and_then(Value::as_int).unwrap_or(0)
}

unsafe extern "C" fn param_float(context: *mut c_void, index: u32) -> f64 {
    // SAFETY: as in `emit`.
    let host = unsafe { host(context) };
    host.values.get(index as usize).and_then(Value::as_float).unwrap_or(0.0)
}

unsafe extern "C" fn param_bytes(context: *mut c_void, index: u32, to: *mut u8, room: u32) -> i32 {
    // SAFETY: as in `emit`.
    let host = unsafe { host(context) };
    let Some(value) = host.values.get(index as usize) else { return code::UNKNOWN };
    let bytes = value.encoded();
    let fits = bytes.len().min(room as usize);
    // SAFETY: the module has `room` bytes there, and they are not those that were just made.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, fits) };
    i32::try_from(bytes.len()).unwrap_or(i32::MAX)
}

unsafe extern "C" fn address(context: *mut c_void, bytes: *const u8, len: u32) -> u32 {
    // SAFETY: as in `emit`.
    let (host, bytes) = unsafe { (host(context), given(bytes, len)) };
    let Some(address) = host.space.keep(bytes, host.strings) else { return 0 };
    host.strings += bytes.len();
    address
}
