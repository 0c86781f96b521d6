//! The host functions, and the state that they work on.

use crate::load::rewrite::{LIMIT, SUSPEND};
use crate::run::allowance::{CallUsage, CountBytesMax};
use crate::run::event::MessageHandler;
use crate::run::fault::FaultKind;
use crate::run::guest::{guest, with_bytes, write_bytes};
use crate::run::kept::{Kept, keep, release};
use crate::run::outgoing::{SentPackets, send};
use crate::run::pattern::{PatternError, Patterns};
use crate::run::rights::WriteRights;
use crate::run::slice::{self, CallCounter, SliceState};
use crate::run::table::{TablePublisher, publish};
use sha1::Sha1;
use sha2::Sha256;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use wasmtime::{Caller, Linker, Memory, ResourceLimiter};
use weir_abi::host::{self, HOST_FUNCTIONS, HostDefinition, HostFunction, algorithm};
use weir_abi::{BATCH_BYTES, BATCH_PACKETS, DESCRIPTOR_BYTES, code, limit};
use weir_units::{Bytes, Nanos};
use weir_wire::{PEEK_MAX, PatchError, WriteFields};
use {
    weir_admission::{Admitted, ParameterValue, TABLE_ELEMENTS_MAX, is_plain},
    weir_session::{Holding, RecordOrder, Records},
};

/// What a module's call may do just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostPhase {
    /// `_initialize` and `weir_start`.
    Start,
    /// A batch: guest address of its descriptors, the packet number in the block of its first, and the mask.
    Batch { descriptors: u32, first: u32, mask: u64, one_by_one: bool },
    /// `weir_tick` before packet `before` of the block, or `weir_stop`.
    Periodic { before: u32 },
}

/// A line that a module logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// 0 error, 1 warning, 2 information.
    pub level: u8,
    /// The text: control characters are escaped, so that it cannot disturb a terminal or forge another line.
    pub text: String,
}

/// A patch that a module made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The packet's index in its block.
    pub packet: u32,
    /// Offset in the packet.
    pub offset: u32,
    /// What is written there.
    pub bytes: Vec<u8>,
    /// The fields that it was allowed to write: whoever makes the patch checks it by these again.
    pub fields: WriteFields,
}

/// Per instance; wasmtime keeps it in the store.
pub(crate) struct HostState {
    pub(crate) admitted: Arc<Admitted>,
    pub(crate) memory: Option<Memory>,
    pub(crate) packets: Range<usize>,
    pub(crate) descriptors: Range<usize>,
    /// Where the tables are that it reads, by their places in the manifest.
    pub(crate) tables: Vec<Range<usize>>,
    pub(crate) scratch: Vec<u8>,
    pub(crate) phase: HostPhase,
    pub(crate) records: Records,
    pub(crate) records_dropped: u64,
    pub(crate) patches: Vec<Patch>,
    /// Whether anybody will take the patches: else they are checked and answered, but not kept.
    pub(crate) keeps_patches: bool,
    /// What they may write; without it whatever can be written.
    pub(crate) rights: Option<Arc<WriteRights>>,
    pub(crate) log: Vec<LogLine>,
    pub(crate) log_dropped: u64,
    /// What it has sent.
    pub(crate) outgoing: SentPackets,
    /// What it keeps.
    pub(crate) kept: Kept,
    /// Records that it has asked for.
    emitted: CallUsage,
    /// How often each packet of the batch has been patched.
    patched: [u8; BATCH_PACKETS],
    table_elements: usize,
    patterns: Vec<Patterns>,
    logged: u32,
    /// Whether calls that are over their limit go on.
    pub(crate) goes_on: bool,
    /// Packets and other calls over their limit since this was last looked at.
    exceeded: u32,
    /// Where a call that can be suspended is counted, and what it and the world outside tell each other.
    pub(crate) counter: Option<CallCounter>,
    pub(crate) slice: Arc<Mutex<SliceState>>,
    /// The packets still to do when a call that goes on was last over its limit.
    exceeded_at: Option<u64>,
    /// What strings cost that the packet at hand, or the call, has emitted: only the host sees them.
    pub(crate) strings: u64,
    /// Whether the call is to be broken off.
    pub(crate) overrun: Arc<AtomicBool>,
    /// Values of the parameters, as `param_bytes` gives them.
    encoded: Vec<Vec<u8>>,
    /// How it calls services of others.
    pub(crate) post: Option<Arc<dyn MessageHandler>>,
    /// Who takes what it publishes.
    pub(crate) press: Option<Arc<dyn TablePublisher>>,
    /// What it is being told.
    pub(crate) message: Vec<u8>,
    /// What its private memory has of its session's; and what that was before it grew last.
    pub(crate) holding: Option<Holding>,
    before: Bytes,
}

impl HostState {
    pub(crate) fn new(admitted: Arc<Admitted>) -> Self {
        Self {
            encoded: admitted.values().iter().map(ParameterValue::encoded).collect(),
            goes_on: false,
            exceeded: 0,
            counter: None,
            slice: Arc::default(),
            exceeded_at: None,
            strings: 0,
            overrun: Arc::default(),
            post: None,
            press: None,
            message: Vec::new(),
            holding: None,
            before: Bytes(0),
            admitted,
            memory: None,
            packets: 0..0,
            descriptors: 0..0,
            tables: Vec::new(),
            scratch: Vec::new(),
            phase: HostPhase::Start,
            records: Records::default(),
            records_dropped: 0,
            patches: Vec::new(),
            keeps_patches: true,
            rights: None,
            log: Vec::new(),
            log_dropped: 0,
            outgoing: SentPackets::default(),
            kept: Kept::default(),
            emitted: CallUsage::default(),
            patched: [0; BATCH_PACKETS],
            table_elements: 0,
            patterns: Vec::new(),
            logged: 0,
        }
    }

    /// Begins a call: its allowance is whole again.
    pub(crate) fn enter(&mut self, phase: HostPhase) {
        self.phase = phase;
        self.records.settle();
        self.outgoing.frames.settle();
        self.emitted.enter();
        self.outgoing.asked.enter();
        self.kept.enter();
        self.patched = [0; BATCH_PACKETS];
        self.strings = 0;
        self.exceeded_at = None;
    }

    /// A call that can be suspended is over its limit, with these packets still to do: a packet is counted once.
    pub(crate) fn run_out_at(&mut self, rest: u64) -> Result<(), FaultKind> {
        if self.exceeded_at.replace(rest) == Some(rest) { Ok(()) } else { self.run_out() }
    }

    /// A call is over its limit.
    fn run_out(&mut self) -> Result<(), FaultKind> {
        if !self.goes_on {
            return Err(FaultKind::Limit);
        }
        self.exceeded += 1;
        Ok(())
    }

    /// How many packets and other calls were over their limit since the last time.
    pub(crate) fn take_exceeded(&mut self) -> u32 {
        std::mem::take(&mut self.exceeded)
    }

    /// Forgets what the module said and emitted at its start: another instance of it has said the same.
    pub(crate) fn forget_start(&mut self) {
        self.records.clear();
        self.records_dropped = 0;
        self.log.clear();
        self.log_dropped = 0;
    }

    /// Begins a block: ticks have a whole allowance again.
    pub(crate) fn begin_block(&mut self) {
        self.emitted.begin_block();
        self.outgoing.asked.begin_block();
    }

    /// Takes back what a lost call emitted, sent and kept, the last of it, as long as it is of this order.
    pub(crate) fn abandon(&mut self, order: RecordOrder) {
        self.records.abandon(order);
        self.outgoing.frames.abandon(order);
        self.keep_none_of(order);
    }

    /// Has the session's reservation be so much; 0 asks what it is. Outside of a session there is the module's own ceiling.
    fn reserve(&self, bytes: i64) -> i64 {
        let (Ok(wanted), denied) = (u64::try_from(bytes), i64::from(code::DENIED)) else {
            return i64::from(code::DENIED);
        };
        let Some(holding) = &self.holding else {
            let ceiling = self.admitted.memory().0;
            return if wanted <= ceiling { ceiling.cast_signed() } else { denied };
        };
        let reservation = holding.reservation();
        let reserved = match wanted {
            0 => Ok(reservation.state().reserved),
            _ => reservation.ask(Bytes(wanted)),
        };
        reserved.map_or(denied, |reserved| i64::try_from(reserved.0).unwrap_or(i64::MAX))
    }

    /// Whether one more record of `bytes` is allowed; counts it.
    fn charge_record(&mut self, order: RecordOrder, bytes: usize) -> bool {
        let profile = self.admitted.profile();
        let packet = CountBytesMax {
            number: profile.records.min(limit::RECORDS_PER_PACKET),
            bytes: limit::RECORD_BYTES_PER_PACKET,
        };
        let call = CountBytesMax {
            number: profile.call_records.min(limit::RECORDS_PER_CALL),
            bytes: limit::RECORD_BYTES_PER_CALL,
        };
        if self.emitted.is_new(self.phase, order) {
            self.strings = 0;
        }
        let is_taken = self.emitted.charge(self.phase, order, bytes, packet, call);
        self.records_dropped += u64::from(!is_taken);
        is_taken
    }
}

/// The ceiling of a module's private memory and tables.
impl ResourceLimiter for HostState {
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _max: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // What it keeps is memory, too.
        let wanted = Bytes((desired as u64).saturating_add(self.kept.bytes().0));
        if wanted > self.admitted.memory() {
            return Ok(false);
        }
        let Some(holding) = &mut self.holding else { return Ok(true) };
        // What it begins with has been taken already.
        self.before = holding.bytes();
        Ok(wanted <= self.before || holding.set(wanted))
    }

    /// There are no pages for it: what was taken for them is given back.
    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        if let Some(holding) = &mut self.holding {
            // Less than it holds is always there.
            _ = holding.set(self.before);
        }
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _max: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // All tables of the module together.
        let all = self.table_elements.saturating_add(desired.saturating_sub(current));
        let is_allowed = all <= TABLE_ELEMENTS_MAX;
        if is_allowed {
            self.table_elements = all;
        }
        Ok(is_allowed)
    }
}

/// The packet that is being processed, by its index in the batch, from the mask of those still to do.
fn current(rest: u64) -> Option<u32> {
    (rest != 0).then(|| rest.trailing_zeros())
}

/// Where in the block the module is now.
pub(crate) fn order_of(phase: HostPhase, current: Option<u32>) -> RecordOrder {
    match phase {
        HostPhase::Start => RecordOrder::tick(0),
        HostPhase::Periodic { before } => RecordOrder::tick(before),
        HostPhase::Batch { first, one_by_one: true, .. } => RecordOrder::packet(first + current.unwrap_or(0)),
        HostPhase::Batch { first, mask, .. } => RecordOrder::packet(first + mask.trailing_zeros().min(63)),
    }
}

/// Which packet of the batch has this descriptor, and where in the block the module is; nothing where it is not one that it is called for.
pub(crate) fn packet_at(
    phase: HostPhase,
    descriptor: u32,
    current: Option<u32>,
) -> Option<(u32, RecordOrder)> {
    let HostPhase::Batch { descriptors, mask, one_by_one, .. } = phase else { return None };
    let distance = descriptor.wrapping_sub(descriptors);
    if distance as usize >= BATCH_BYTES || !(distance as usize).is_multiple_of(DESCRIPTOR_BYTES) {
        return None;
    }
    let index = distance / u32::try_from(DESCRIPTOR_BYTES).unwrap_or(u32::MAX);
    let is_at_hand = if one_by_one { current == Some(index) } else { mask >> index & 1 == 1 };
    is_at_hand.then(|| (index, order_of(phase, current)))
}

/// A value of type i32 as the address or length that it is.
const fn unsigned(value: i32) -> u32 {
    value.cast_unsigned()
}

/// Defines all host functions, and those that the loader imports itself.
pub(crate) fn define(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.func_wrap(host::MODULE, LIMIT, |mut caller: Caller<'_, HostState>| {
        caller.data_mut().run_out().map_err(wasmtime::Error::from)
    })?;
    linker.func_wrap_async(host::MODULE, SUSPEND, |caller: Caller<'_, HostState>, (left,): (i64,)| {
        Box::new(slice::run_out(caller, left))
    })?;
    HOST_FUNCTIONS.iter().try_for_each(|definition| define_one(linker, definition))
}

/// Defines a host function. The loader gives those that are told of packets the mask of packets still to do as their last argument.
fn define_one(linker: &mut Linker<HostState>, definition: &'static HostDefinition) -> wasmtime::Result<()> {
    type Call<'a> = Caller<'a, HostState>;
    let (module, name) = (host::MODULE, definition.name);
    match definition.function {
        HostFunction::Emit => linker.func_wrap(
            module,
            name,
            |mut caller: Call<'_>, stream: i32, row: i32, len: i32, rest: i64| {
                let current = current(rest.cast_unsigned());
                emit(&mut caller, unsigned(stream), unsigned(row), unsigned(len), current)
                    .map_err(wasmtime::Error::from)
            },
        ),
        HostFunction::Patch => linker.func_wrap(
            module,
            name,
            |mut caller: Call<'_>, descriptor: i32, offset: i32, bytes: i32, len: i32, rest: i64| {
                let bytes = (unsigned(bytes), unsigned(len));
                let current = current(rest.cast_unsigned());
                patch(&mut caller, unsigned(descriptor), unsigned(offset), bytes, current)
                    .map_err(wasmtime::Error::from)
            },
        ),
        HostFunction::Send => linker.func_wrap(
            module,
            name,
            |mut caller: Call<'_>, output: i32, bytes: i32, len: i32, rest: i64| {
                let bytes = (unsigned(bytes), unsigned(len));
                send(&mut caller, unsigned(output), bytes, current(rest.cast_unsigned()))
                    .map_err(wasmtime::Error::from)
            },
        ),
        HostFunction::Keep => {
            linker.func_wrap(module, name, |mut caller: Call<'_>, descriptor: i32, rest: i64| {
                keep(&mut caller, unsigned(descriptor), current(rest.cast_unsigned()))
                    .map_err(wasmtime::Error::from)
            })
        }
        HostFunction::Release => linker
            .func_wrap(module, name, |mut caller: Call<'_>, handle: i32| release(caller.data_mut(), handle)),
        HostFunction::FindCompile => {
            linker.func_wrap(module, name, |mut caller: Call<'_>, list: i32, len: i32, flags: i32| {
                find_compile(&mut caller, unsigned(list), unsigned(len), flags).map_err(wasmtime::Error::from)
            })
        }
        HostFunction::Find => {
            linker.func_wrap(module, name, |mut caller: Call<'_>, handle: i32, bytes: i32, len: i32| {
                find(&mut caller, handle, unsigned(bytes), unsigned(len)).map_err(wasmtime::Error::from)
            })
        }
        HostFunction::Hash => {
            linker.func_wrap(module, name, |mut caller: Call<'_>, bytes: i32, len: i32, seed: i64| {
                with_bytes(&mut caller, HostFunction::Hash, unsigned(bytes), unsigned(len), |bytes, _| {
                    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed.cast_unsigned()).cast_signed()
                })
                .map_err(wasmtime::Error::from)
            })
        }
        HostFunction::Digest => linker.func_wrap(
            module,
            name,
            |mut caller: Call<'_>, algorithm: i32, bytes: i32, len: i32, to: i32| {
                digest(&mut caller, unsigned(algorithm), (unsigned(bytes), unsigned(len)), unsigned(to))
                    .map_err(wasmtime::Error::from)
            },
        ),
        HostFunction::Log => {
            linker.func_wrap(module, name, |mut caller: Call<'_>, level: i32, text: i32, len: i32| {
                let len = unsigned(len).min(limit::LOG_BYTES);
                with_bytes(&mut caller, HostFunction::Log, unsigned(text), len, |text, host| {
                    log(host, level, text)
                })
                .map_err(wasmtime::Error::from)
            })
        }
        HostFunction::ParamInt => linker.func_wrap(module, name, |caller: Call<'_>, index: i32| {
            let value = caller.data().admitted.values().get(unsigned(index) as usize);
            value.and_then(ParameterValue::as_int).unwrap_or(0)
        }),
        HostFunction::ParamFloat => linker.func_wrap(module, name, |caller: Call<'_>, index: i32| {
            let value = caller.data().admitted.values().get(unsigned(index) as usize);
            value.and_then(ParameterValue::as_float).unwrap_or(0.0)
        }),
        HostFunction::ParamBytes => {
            linker.func_wrap(module, name, |mut caller: Call<'_>, index: i32, to: i32, room: i32| {
                param_bytes(&mut caller, unsigned(index), unsigned(to), unsigned(room))
                    .map_err(wasmtime::Error::from)
            })
        }
        HostFunction::Reserve => {
            linker.func_wrap(module, name, |caller: Call<'_>, bytes: i64| caller.data().reserve(bytes))
        }
        HostFunction::Call => linker.func_wrap(
            module,
            name,
            |mut caller: Call<'_>, service: i32, bytes: i32, len: i32, within: i64| {
                call_service(&mut caller, unsigned(service), (unsigned(bytes), unsigned(len)), within)
                    .map_err(wasmtime::Error::from)
            },
        ),
        HostFunction::Message => {
            linker.func_wrap(module, name, |mut caller: Call<'_>, to: i32, room: i32| {
                message(&mut caller, unsigned(to), unsigned(room)).map_err(wasmtime::Error::from)
            })
        }
        HostFunction::Reply => {
            linker.func_wrap(module, name, |mut caller: Call<'_>, call: i64, bytes: i32, len: i32| {
                reply(&mut caller, call.cast_unsigned(), (unsigned(bytes), unsigned(len)))
                    .map_err(wasmtime::Error::from)
            })
        }
        HostFunction::Publish => {
            linker.func_wrap(module, name, |mut caller: Call<'_>, table: i32, bytes: i32, len: i32| {
                publish(&mut caller, unsigned(table), (unsigned(bytes), unsigned(len)))
                    .map_err(wasmtime::Error::from)
            })
        }
    }?;
    Ok(())
}

fn find(caller: &mut Caller<'_, HostState>, handle: i32, bytes: u32, len: u32) -> Result<i64, FaultKind> {
    with_bytes(caller, HostFunction::Find, bytes, len, |bytes, host| {
        let patterns = host.patterns.get(unsigned(handle) as usize);
        match patterns.and_then(|patterns| patterns.find(bytes)) {
            Some((pattern, at)) => (i64::from(pattern) << 32) | i64::from(at),
            None => -1,
        }
    })
}

fn digest(
    caller: &mut Caller<'_, HostState>,
    algorithm: u32,
    bytes: (u32, u32),
    to: u32,
) -> Result<i32, FaultKind> {
    if bytes.1 > algorithm::BYTES {
        return Ok(code::RANGE);
    }
    match algorithm {
        algorithm::SHA1 => digest_by::<Sha1>(caller, bytes, to),
        algorithm::SHA256 => digest_by::<Sha256>(caller, bytes, to),
        _ => Ok(code::UNKNOWN),
    }
}

/// Writes a digest after its bytes are read, so that the two may overlap.
fn digest_by<D: sha2::Digest>(
    caller: &mut Caller<'_, HostState>,
    (bytes, len): (u32, u32),
    to: u32,
) -> Result<i32, FaultKind> {
    let digest = with_bytes(caller, HostFunction::Digest, bytes, len, |bytes, _| D::digest(bytes))?;
    let room = u32::try_from(digest.len()).unwrap_or(u32::MAX);
    let written = write_bytes(caller, HostFunction::Digest, to, room, &digest)?;
    Ok(i32::try_from(written).unwrap_or(i32::MAX))
}

fn param_bytes(caller: &mut Caller<'_, HostState>, index: u32, to: u32, room: u32) -> Result<i32, FaultKind> {
    let Some(value) = caller.data_mut().encoded.get_mut(index as usize).map(std::mem::take) else {
        return Ok(code::UNKNOWN);
    };
    let written = write_bytes(caller, HostFunction::ParamBytes, to, room, &value);
    if let Some(place) = caller.data_mut().encoded.get_mut(index as usize) {
        *place = value;
    }
    written.map(|len| i32::try_from(len).unwrap_or(i32::MAX))
}

fn message(caller: &mut Caller<'_, HostState>, to: u32, room: u32) -> Result<i32, FaultKind> {
    let message = std::mem::take(&mut caller.data_mut().message);
    let written = write_bytes(caller, HostFunction::Message, to, room, &message);
    caller.data_mut().message = message;
    written.map(|len| i32::try_from(len).unwrap_or(i32::MAX))
}

fn reply(caller: &mut Caller<'_, HostState>, call: u64, (bytes, len): (u32, u32)) -> Result<i32, FaultKind> {
    if len > limit::MESSAGE_BYTES {
        return Ok(code::RANGE);
    }
    with_bytes(caller, HostFunction::Reply, bytes, len, |bytes, host| {
        host.post.as_ref().map_or(code::UNKNOWN, |post| post.reply(call, bytes))
    })
}

fn call_service(
    caller: &mut Caller<'_, HostState>,
    service: u32,
    (bytes, len): (u32, u32),
    within: i64,
) -> Result<i64, FaultKind> {
    let Ok(within) = u64::try_from(within) else { return Ok(code::RANGE.into()) };
    if len > limit::MESSAGE_BYTES {
        return Ok(code::RANGE.into());
    }
    with_bytes(caller, HostFunction::Call, bytes, len, |bytes, host| {
        host.post.as_ref().map_or(code::DENIED.into(), |post| post.call(service, bytes, Nanos(within)))
    })
}

fn emit(
    caller: &mut Caller<'_, HostState>,
    stream: u32,
    row: u32,
    len: u32,
    current: Option<u32>,
) -> Result<i32, FaultKind> {
    let order = order_of(caller.data().phase, current);
    let admitted = Arc::clone(&caller.data().admitted);
    let Some(declared) = admitted.manifest().streams.get(stream as usize) else { return Ok(code::UNKNOWN) };
    let Ok(stream) = u16::try_from(stream) else { return Ok(code::UNKNOWN) };
    if len as usize != declared.row_bytes() {
        return Err(FaultKind::RowSize);
    }
    let mut guest = guest(caller, HostFunction::Emit)?;
    // The strings first, so that a wild pointer leaves no half-made record. Where they are is read once, from a copy of their (address, length).
    let mut strings: Vec<(usize, Vec<u8>)> = Vec::new();
    let mut string_bytes = 0u64;
    for field in declared.fields.iter().filter(|field| field.ty.is_indirect()) {
        let at = row.checked_add(u32::try_from(field.offset).unwrap_or(u32::MAX));
        let at = at.ok_or(FaultKind::WildPointer { function: HostFunction::Emit.name() })?;
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        let place = guest.bytes(at, 8, |bytes, _| (word(bytes), word(bytes.get(4..).unwrap_or_default())));
        let (address, len) = place?;
        string_bytes += u64::from(len);
        if string_bytes > u64::from(limit::RECORD_STRING_BYTES) {
            guest.host.records_dropped += 1;
            return Ok(code::FULL);
        }
        strings.push((field.offset, guest.bytes(address, len, |bytes, _| bytes.to_vec())?));
    }
    guest.bytes(row, len, |row, host| {
        let bytes = row.len() + usize::try_from(string_bytes).unwrap_or(usize::MAX);
        let is_taken = host.charge_record(order, bytes);
        host.strings = host.strings.saturating_add(string_bytes);
        if !is_taken {
            return code::FULL;
        }
        host.records.begin(order, stream, row);
        host.records.blank(declared.padding());
        for (offset, bytes) in &strings {
            host.records.tail(*offset, bytes);
        }
        code::OK
    })
}

fn patch(
    caller: &mut Caller<'_, HostState>,
    descriptor: u32,
    offset: u32,
    (bytes, len): (u32, u32),
    current: Option<u32>,
) -> Result<i32, FaultKind> {
    let Some((index, _)) = packet_at(caller.data().phase, descriptor, current) else { return Ok(code::WHEN) };
    let HostPhase::Batch { first, .. } = caller.data().phase else { return Ok(code::WHEN) };
    if len > limit::PATCH_BYTES {
        return Ok(code::RANGE);
    }
    let mut guest = guest(caller, HostFunction::Patch)?;
    let described = guest.descriptor(descriptor)?;
    let mut wanted = [0; limit::PATCH_BYTES as usize];
    guest.bytes(bytes, len, |bytes, _| wanted[..bytes.len()].copy_from_slice(bytes))?;
    let wanted = &wanted[..len as usize];
    // Headers end where the payload begins, where the classifier found that; else they may be as long as it looks.
    let has_payload = described.flags & weir_abi::flag::L4 != 0;
    let most = if has_payload { usize::from(described.payload_offset) } else { PEEK_MAX };
    let head = described.cap_len.min(u32::try_from(most).unwrap_or(u32::MAX));
    let packet = first + index;
    guest.bytes(described.data, head, |head, host| {
        let fields = host.rights.as_ref().map_or(WriteFields::ALL, |rights| rights.fields());
        match fields.check(head, &described, offset, wanted) {
            Ok(()) => {
                let Some(made) = host.patched.get_mut(index as usize) else { return code::WHEN };
                if u32::from(*made) >= host.admitted.profile().patches.min(limit::PATCHES_PER_PACKET) {
                    return code::FULL;
                }
                *made += 1;
                if host.keeps_patches {
                    host.patches.push(Patch { packet, offset, bytes: wanted.to_vec(), fields });
                }
                code::OK
            }
            Err(PatchError::Range { .. }) => code::RANGE,
            Err(PatchError::Denied { .. }) => code::DENIED,
            Err(PatchError::Withheld { .. }) => {
                if let Some(rights) = &host.rights {
                    rights.refuse();
                }
                code::DENIED
            }
        }
    })
}

fn find_compile(
    caller: &mut Caller<'_, HostState>,
    list: u32,
    len: u32,
    flags: i32,
) -> Result<i32, FaultKind> {
    if caller.data().phase != HostPhase::Start {
        return Ok(code::WHEN);
    }
    if len > limit::PATTERN_BYTES + 4 * limit::PATTERNS {
        return Ok(code::FULL);
    }
    with_bytes(caller, HostFunction::FindCompile, list, len, |list, host| {
        if host.patterns.len() >= limit::PATTERN_SETS as usize {
            return code::FULL;
        }
        match Patterns::compile(list, flags & 1 == 1) {
            Ok(patterns) => {
                host.patterns.push(patterns);
                i32::try_from(host.patterns.len() - 1).unwrap_or(code::FULL)
            }
            Err(PatternError::TooMany) => code::FULL,
            Err(PatternError::Malformed) => code::RANGE,
        }
    })
}

fn log(host: &mut HostState, level: i32, text: &[u8]) -> i32 {
    if host.logged >= limit::LOG_MESSAGES {
        host.log_dropped += 1;
        return code::FULL;
    }
    host.logged += 1;
    let text = String::from_utf8_lossy(text);
    let escape = |c: char| if is_plain(c) { String::from(c) } else { c.escape_default().collect() };
    host.log.push(LogLine {
        level: u8::try_from(level.clamp(0, 2)).unwrap_or(2),
        text: text.chars().map(escape).collect(),
    });
    code::OK
}
