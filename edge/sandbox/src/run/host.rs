//! The host functions that modules import, and [`HostState`], the host's state of an instance, which they use.

use crate::load::rewrite::{LIMIT, SUSPEND};
use crate::run::call_usage::{CallUsage, OutputAllowance};
use crate::run::crypto::run_cipher;
use crate::run::emit::emit;
use crate::run::event::MessageHandler;
use crate::run::fault::FaultKind;
use crate::run::guest_memory::{PrivateMemory, guest_memory, with_bytes, write_bytes};
use crate::run::kept::{Kept, keep, release};
use crate::run::outgoing::{SentFrames, send};
use crate::run::patching::{Patch, patch};
use crate::run::pattern::{PatternError, Patterns};
use crate::run::rights::WriteRights;
use crate::run::sandbox_memory::OwnMemory;
use crate::run::slice::{self, CallCounter, SliceState};
use crate::run::streams::{self, InstanceStreams};
use crate::run::table::{TablePublisher, publish};
use crate::run::trace::{TraceStep, define_traced};
use sha1::Sha1;
use sha2::Sha256;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use wasmtime::{Caller, Linker, ResourceLimiter};
use weir_abi::host::{self, HOST_FUNCTIONS, HostDefinition, HostFunction, algorithm};
use weir_abi::{BATCH_BYTES, BATCH_PACKETS, DESCRIPTOR_BYTES, code, crypto, limit};
use weir_units::{Bytes, Nanos};
use {
    weir_admission::{Admitted, ParameterValue, TABLE_ELEMENTS_MAX, is_plain},
    weir_session::{HeldMemory, RecordOrder, Records},
};

/// The kind of the current call. It determines the host functions that the module can call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostPhase {
    /// `_initialize` and `weir_start`.
    Start,
    /// A batch: the guest address of its descriptors, the index of its first packet in the block, and the mask of its
    /// packets. `has_packet_function` is true if the module has a packet function, and false if it has a batch function.
    Batch { descriptors: u32, first: u32, mask: u64, has_packet_function: bool },
    /// A call without packets: `weir_tick` or `weir_lost` before packet `before` of the block, `weir_stop` or an event.
    Periodic { before: u32 },
}

/// A line that a module logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The level: 0 for an error, 1 for a warning, 2 for information.
    pub level: u8,
    /// The text, with control characters escaped, so that it cannot disturb a terminal or forge a line.
    pub text: String,
}

/// The host's state of an instance, kept in the wasmtime store.
pub(crate) struct HostState {
    pub(crate) admitted: Arc<Admitted>,
    /// The private memory.
    pub(crate) private: PrivateMemory,
    /// The host addresses of the mapped packets.
    pub(crate) packets: Range<usize>,
    /// True if nothing changes the bytes of a batch's packets during its calls.
    pub(crate) has_fixed_packets: bool,
    /// The host addresses of the mapped descriptors.
    pub(crate) descriptors: Range<usize>,
    /// The host addresses of the mapped tables, by their index in the manifest.
    pub(crate) tables: Vec<Range<usize>>,
    /// The TCP streams, if the module follows them.
    pub(crate) streams: Option<Box<InstanceStreams>>,
    /// The host addresses at which the module sees the events of TCP streams.
    pub(crate) stream_window: Range<usize>,
    /// A buffer for copies of packets, descriptors and tables.
    pub(crate) scratch: Vec<u8>,
    /// A buffer for the key and the other bytes of a cryptographic request.
    pub(crate) cipher_bytes: Vec<u8>,
    pub(crate) phase: HostPhase,
    /// The records that the host has not taken yet.
    pub(crate) records: Records,
    /// The number of records refused because of a limit.
    pub(crate) records_dropped: u64,
    /// The number of discarded records of aborted calls.
    pub(crate) records_discarded: u64,
    /// The patches that the host has not taken yet.
    pub(crate) patches: Vec<Patch>,
    /// True if patches are stored. Otherwise they are checked and answered, but not stored.
    pub(crate) keeps_patches: bool,
    /// The session's write rights. With `None`, all writable fields may be written.
    pub(crate) rights: Option<Arc<WriteRights>>,
    /// The log lines that the host has not taken yet.
    pub(crate) log: Vec<LogLine>,
    /// The number of log lines refused because of a limit.
    pub(crate) log_dropped: u64,
    /// The frames that the module has sent.
    pub(crate) outgoing: SentFrames,
    /// The packets that the module keeps.
    pub(crate) kept: Kept,
    /// The number and bytes of the records emitted in the current call.
    pub(crate) emitted: CallUsage,
    /// The number of patches of each packet of the batch.
    pub(crate) patch_counts: [u8; BATCH_PACKETS],
    /// The number of elements in all WebAssembly tables of the module.
    table_elements: usize,
    /// The compiled pattern sets, by their handles.
    pub(crate) patterns: Vec<Patterns>,
    /// The places of the strings of a row: offset of the field in the row, address and length.
    pub(crate) string_places: Vec<(usize, u32, u32)>,
    /// The most records of a packet and of a call.
    pub(crate) record_allowance: OutputAllowance,
    /// The most patches of a packet.
    pub(crate) patches_max: u32,
    /// The number of log lines of the module so far.
    lines_logged: u32,
    /// True if calls over their limit continue, as in a supervised module.
    pub(crate) continues_over_limit: bool,
    /// The number of packets and other calls over their limit since the last [`Self::take_exceeded`].
    exceeded: u32,
    /// The fuel counter of suspendable calls.
    pub(crate) counter: Option<CallCounter>,
    /// The slice of the current call, shared with the thread that runs the call.
    pub(crate) slice: Arc<Mutex<SliceState>>,
    /// The mask of remaining packets when the current call was last over its limit, if it continued.
    exceeded_at_mask: Option<u64>,
    /// Bytes of strings emitted in the current packet or call. The meter does not charge for strings, so the host adds their
    /// cost where it reports exact fuel.
    pub(crate) string_bytes: u64,
    /// True if the call is to be interrupted.
    pub(crate) must_interrupt: Arc<AtomicBool>,
    /// Encoded values of the parameters, as returned by `param_bytes`.
    encoded_parameters: Vec<Vec<u8>>,
    /// Calls services of other modules, and replies to their calls.
    pub(crate) messages: Option<Arc<dyn MessageHandler>>,
    /// Publishes the module's tables.
    pub(crate) publisher: Option<Arc<dyn TablePublisher>>,
    /// The message of the current event.
    pub(crate) message: Vec<u8>,
    /// The part of the session's memory reservation that the instance uses.
    pub(crate) held_memory: Option<HeldMemory>,
    /// The size of `held_memory` and of the private memory before the last growth of the memory.
    before_growth: (Bytes, usize),
    /// The steps of the instance that the host has not taken yet, if the engine traces.
    pub(crate) trace: Option<Vec<TraceStep>>,
    /// The private memory, if it is no memory of wasmtime. Dropped last, because other fields have addresses in it.
    pub(crate) own_memory: Option<OwnMemory>,
}

impl HostState {
    pub(crate) fn new(admitted: Arc<Admitted>) -> Self {
        Self {
            record_allowance: OutputAllowance::of_records(admitted.profile()),
            patches_max: admitted.profile().patches.min(limit::PATCHES_PER_PACKET),
            encoded_parameters: admitted.values().iter().map(ParameterValue::encoded).collect(),
            continues_over_limit: false,
            exceeded: 0,
            counter: None,
            slice: Arc::default(),
            exceeded_at_mask: None,
            string_bytes: 0,
            must_interrupt: Arc::default(),
            messages: None,
            publisher: None,
            message: Vec::new(),
            held_memory: None,
            before_growth: (Bytes(0), 0),
            admitted,
            private: PrivateMemory::default(),
            packets: 0..0,
            has_fixed_packets: false,
            descriptors: 0..0,
            tables: Vec::new(),
            streams: None,
            stream_window: 0..0,
            scratch: Vec::new(),
            cipher_bytes: Vec::new(),
            phase: HostPhase::Start,
            records: Records::default(),
            records_dropped: 0,
            records_discarded: 0,
            patches: Vec::new(),
            keeps_patches: true,
            rights: None,
            log: Vec::new(),
            log_dropped: 0,
            outgoing: SentFrames::default(),
            kept: Kept::default(),
            emitted: CallUsage::default(),
            patch_counts: [0; BATCH_PACKETS],
            table_elements: 0,
            patterns: Vec::new(),
            string_places: Vec::new(),
            lines_logged: 0,
            trace: None,
            own_memory: None,
        }
    }

    /// Begins a call of this kind, with full allowances.
    pub(crate) fn begin_call(&mut self, phase: HostPhase) {
        self.phase = phase;
        self.records.begin_call();
        self.outgoing.frames.begin_call();
        self.emitted.begin_call();
        self.outgoing.usage.begin_call();
        self.kept.begin_call();
        self.patch_counts = [0; BATCH_PACKETS];
        self.string_bytes = 0;
        self.exceeded_at_mask = None;
        if let Some(mut streams) = self.streams.take() {
            match phase {
                HostPhase::Batch { descriptors, mask, .. } => streams.begin_batch(self, descriptors, mask),
                _ => streams.begin_call(),
            }
            self.streams = Some(streams);
        }
    }

    /// Returns the packets of the batch that may have events of TCP streams.
    #[inline]
    pub(crate) fn packets_with_events(&self) -> u64 {
        self.streams.as_ref().map_or(0, |streams| streams.wanted())
    }

    /// Returns the memory of the TCP streams.
    pub(crate) fn stream_memory(&self) -> Bytes {
        self.admitted.tcp().map_or(Bytes(0), |tcp| tcp.config.memory())
    }

    /// Counts a suspendable call as over its limit. `rest` is the mask of remaining packets, by which each packet is counted
    /// once.
    ///
    /// # Errors
    /// The call must be aborted.
    pub(crate) fn count_exceeded_at(&mut self, rest: u64) -> Result<(), FaultKind> {
        if self.exceeded_at_mask.replace(rest) == Some(rest) { Ok(()) } else { self.count_exceeded() }
    }

    /// Counts a call as over its limit.
    ///
    /// # Errors
    /// The call must be aborted.
    pub(crate) fn count_exceeded(&mut self) -> Result<(), FaultKind> {
        if !self.continues_over_limit {
            return Err(FaultKind::Limit);
        }
        self.exceeded += 1;
        Ok(())
    }

    /// Returns the number of packets and other calls over their limit since the last call of this function.
    pub(crate) fn take_exceeded(&mut self) -> u32 {
        std::mem::take(&mut self.exceeded)
    }

    /// Discards the log lines and records of the module's start, which another instance of the module has produced, too.
    pub(crate) fn forget_start(&mut self) {
        self.records.clear();
        (self.records_dropped, self.records_discarded) = (0, 0);
        self.log.clear();
        self.log_dropped = 0;
    }

    /// Begins a block, whose ticks have a full allowance.
    pub(crate) fn begin_block(&mut self) {
        self.emitted.begin_block();
        self.outgoing.usage.begin_block();
    }

    /// Discards the effects of an aborted call: its records and frames, and the packets that it has kept. `order` is their
    /// position in the block.
    pub(crate) fn discard(&mut self, order: RecordOrder) {
        self.records_discarded += self.records.remove_lost(order);
        self.outgoing.frames.remove_lost(order);
        self.release_kept_at(order);
    }

    /// The host function `reserve`: sets the session's memory reservation to `bytes`, and returns its size. With 0 it
    /// returns the size without a change. Outside of a session, the module's own ceiling takes the place of the reservation.
    fn reserve(&self, bytes: i64) -> i64 {
        let (Ok(wanted), denied) = (u64::try_from(bytes), i64::from(code::DENIED)) else {
            return i64::from(code::DENIED);
        };
        let Some(held_memory) = &self.held_memory else {
            let ceiling = self.admitted.memory().0;
            return if wanted <= ceiling { ceiling.cast_signed() } else { denied };
        };
        let reservation = held_memory.reservation();
        let reserved = match wanted {
            0 => Ok(reservation.state().reserved),
            _ => reservation.request(Bytes(wanted)),
        };
        reserved.map_or(denied, |reserved| i64::try_from(reserved.0).unwrap_or(i64::MAX))
    }
}

/// Enforces the ceiling of a module's private memory and tables.
impl ResourceLimiter for HostState {
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _max: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // The memory of kept packets and of TCP streams counts as the module's memory.
        let others = self.kept.bytes().0.saturating_add(self.stream_memory().0);
        let wanted = Bytes((desired as u64).saturating_add(others));
        if wanted > self.admitted.memory() {
            return Ok(false);
        }
        // The initial memory has been reserved before instantiation, so a request for it succeeds without a reservation.
        let held = self.held_memory.as_ref().map_or(wanted, HeldMemory::bytes);
        let is_allowed =
            wanted <= held || self.held_memory.as_mut().is_none_or(|held_memory| held_memory.set(wanted));
        if is_allowed {
            self.before_growth = (held, self.private.begin_growth(desired));
        }
        Ok(is_allowed)
    }

    /// Gives the memory back to the session's reservation after a growth that failed because the system had no pages.
    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        let (held, private) = self.before_growth;
        self.private.undo_growth(private);
        if let Some(held_memory) = &mut self.held_memory {
            // A shrink always succeeds.
            _ = held_memory.set(held);
        }
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _max: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // The limit covers all WebAssembly tables of the module together.
        let all = self.table_elements.saturating_add(desired.saturating_sub(current));
        let is_allowed = all <= TABLE_ELEMENTS_MAX;
        if is_allowed {
            self.table_elements = all;
        }
        Ok(is_allowed)
    }
}

/// Returns the index of the current packet in the batch, from the mask of remaining packets.
fn current(rest: u64) -> Option<u32> {
    (rest != 0).then(|| rest.trailing_zeros())
}

/// Returns the position in the block that a record has which the module emits now. `current` is the index of the current
/// packet in the batch.
pub(crate) fn order_of(phase: HostPhase, current: Option<u32>) -> RecordOrder {
    match phase {
        HostPhase::Start => RecordOrder::tick(0),
        HostPhase::Periodic { before } => RecordOrder::tick(before),
        HostPhase::Batch { first, has_packet_function: true, .. } => {
            RecordOrder::packet(first + current.unwrap_or(0))
        }
        HostPhase::Batch { first, mask, .. } => RecordOrder::packet(first + mask.trailing_zeros().min(63)),
    }
}

/// Returns the index in the batch of the packet whose descriptor is at the guest address `descriptor`, and the current
/// position in the block.
///
/// Returns `None` for any address that is not a descriptor of a packet in the call. A packet function may only use the
/// descriptor of the current packet.
pub(crate) fn packet_at(
    phase: HostPhase,
    descriptor: u32,
    current: Option<u32>,
) -> Option<(u32, RecordOrder)> {
    let HostPhase::Batch { descriptors, mask, has_packet_function, .. } = phase else { return None };
    let distance = descriptor.wrapping_sub(descriptors);
    if distance as usize >= BATCH_BYTES || !(distance as usize).is_multiple_of(DESCRIPTOR_BYTES) {
        return None;
    }
    let index = distance / u32::try_from(DESCRIPTOR_BYTES).unwrap_or(u32::MAX);
    let is_accessible = if has_packet_function { current == Some(index) } else { mask >> index & 1 == 1 };
    is_accessible.then(|| (index, order_of(phase, current)))
}

/// Reinterprets an i32 as the unsigned address or length that it carries.
const fn unsigned(value: i32) -> u32 {
    value.cast_unsigned()
}

/// Defines all host functions, including those that only the loader imports; with tracing, if the engine traces.
pub(crate) fn define(linker: &mut Linker<HostState>, traces: bool) -> wasmtime::Result<()> {
    linker.func_wrap(host::MODULE, LIMIT, |mut caller: Caller<'_, HostState>| {
        caller.data_mut().count_exceeded().map_err(wasmtime::Error::from)
    })?;
    linker.func_wrap_async(host::MODULE, SUSPEND, |caller: Caller<'_, HostState>, (counter,): (i64,)| {
        Box::new(slice::handle_used_up_counter(caller, counter))
    })?;
    streams::define(linker)?;
    if traces {
        return define_traced(linker);
    }
    HOST_FUNCTIONS.iter().try_for_each(|definition| define_one(linker, definition))
}

/// A type of arguments and results of host functions. Machine code passes each in a register.
pub(crate) trait Register {
    fn from_register(register: u64) -> Self;
    fn to_register(self) -> u64;
}

impl Register for i32 {
    fn from_register(register: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the upper half of the register has no meaning")]
        let low = register as u32;
        low.cast_signed()
    }

    fn to_register(self) -> u64 {
        self.cast_unsigned().into()
    }
}

impl Register for i64 {
    fn from_register(register: u64) -> Self {
        register.cast_signed()
    }

    fn to_register(self) -> u64 {
        self.cast_unsigned()
    }
}

impl Register for f64 {
    fn from_register(register: u64) -> Self {
        Self::from_bits(register)
    }

    fn to_register(self) -> u64 {
        self.to_bits()
    }
}

/// No result.
impl Register for () {
    fn from_register(_: u64) -> Self {}

    fn to_register(self) -> u64 {
        0
    }
}

/// Makes the two ways to call each host function: `define_one` for modules that Cranelift has compiled, and `call_one` for machine
/// code.
macro_rules! host_functions {
    ($($variant:ident |$host:ident $(, $argument:ident: $type:ty)*| -> $result:ty { $body:expr })*) => {
        /// Defines a host function for modules.
        fn define_one(linker: &mut Linker<HostState>, definition: &'static HostDefinition) -> wasmtime::Result<()> {
            match definition.function {
                $(HostFunction::$variant => linker.func_wrap(
                    host::MODULE,
                    definition.name,
                    |mut caller: Caller<'_, HostState>, $($argument: $type),*| -> wasmtime::Result<$result> {
                        let $host = caller.data_mut();
                        let result: Result<$result, FaultKind> = $body;
                        result.map_err(wasmtime::Error::from)
                    },
                ),)*
            }?;
            Ok(())
        }

        /// Calls a host function for machine code, with its arguments in registers. Returns the register of the result.
        pub(crate) fn call_one(
            function: HostFunction,
            host: &mut HostState,
            registers: &[u64; 6],
        ) -> Result<u64, FaultKind> {
            match function {
                $(HostFunction::$variant => {
                    let mut registers = registers.iter().copied();
                    $(let $argument = <$type>::from_register(registers.next().unwrap_or(0));)*
                    _ = &mut registers;
                    let $host = host;
                    let result: Result<$result, FaultKind> = $body;
                    result.map(Register::to_register)
                })*
            }
        }
    };
}

// The last argument `rest` of a function that concerns a packet is the mask of remaining packets, which the loader appends.
host_functions! {
    Emit |host, stream: i32, row: i32, len: i32, rest: i64| -> i32 {
        emit(host, unsigned(stream), unsigned(row), unsigned(len), current(rest.cast_unsigned()))
    }
    Patch |host, descriptor: i32, offset: i32, bytes: i32, len: i32, rest: i64| -> i32 {{
        let bytes = (unsigned(bytes), unsigned(len));
        patch(host, unsigned(descriptor), unsigned(offset), bytes, current(rest.cast_unsigned()))
    }}
    Send |host, output: i32, bytes: i32, len: i32, rest: i64| -> i32 {
        send(host, unsigned(output), (unsigned(bytes), unsigned(len)), current(rest.cast_unsigned()))
    }
    Keep |host, descriptor: i32, rest: i64| -> i32 {
        keep(host, unsigned(descriptor), current(rest.cast_unsigned()))
    }
    Release |host, handle: i32| -> i32 { Ok(release(host, handle)) }
    FindCompile |host, list: i32, len: i32, flags: i32| -> i32 {
        find_compile(host, unsigned(list), unsigned(len), flags)
    }
    Find |host, handle: i32, bytes: i32, len: i32, rest: i64| -> i64 {
        find(host, handle, (unsigned(bytes), unsigned(len)), current(rest.cast_unsigned()))
    }
    Hash |host, bytes: i32, len: i32, seed: i64, rest: i64| -> i64 {
        hash(host, (unsigned(bytes), unsigned(len)), seed, current(rest.cast_unsigned()))
    }
    Digest |host, algorithm: i32, bytes: i32, len: i32, to: i32, rest: i64| -> i32 {{
        let bytes = (unsigned(bytes), unsigned(len));
        digest(host, unsigned(algorithm), bytes, unsigned(to), current(rest.cast_unsigned()))
    }}
    Log |host, level: i32, text: i32, len: i32| -> i32 {{
        let len = unsigned(len).min(limit::LOG_BYTES);
        with_bytes(host, HostFunction::Log, unsigned(text), len, |text, host| log(host, level, text))
    }}
    ParamInt |host, index: i32| -> i64 {{
        let value = host.admitted.values().get(unsigned(index) as usize);
        Ok(value.and_then(ParameterValue::as_int).unwrap_or(0))
    }}
    ParamFloat |host, index: i32| -> f64 {{
        let value = host.admitted.values().get(unsigned(index) as usize);
        Ok(value.and_then(ParameterValue::as_float).unwrap_or(0.0))
    }}
    ParamBytes |host, index: i32, to: i32, capacity: i32| -> i32 {
        param_bytes(host, unsigned(index), unsigned(to), unsigned(capacity))
    }
    Reserve |host, bytes: i64| -> i64 { Ok(host.reserve(bytes)) }
    Call |host, service: i32, bytes: i32, len: i32, within: i64| -> i64 {
        call_service(host, unsigned(service), (unsigned(bytes), unsigned(len)), within)
    }
    Message |host, to: i32, capacity: i32| -> i32 { message(host, unsigned(to), unsigned(capacity)) }
    Reply |host, call: i64, bytes: i32, len: i32| -> i32 {
        reply(host, call.cast_unsigned(), (unsigned(bytes), unsigned(len)))
    }
    Publish |host, table: i32, bytes: i32, len: i32| -> i32 {
        publish(host, unsigned(table), (unsigned(bytes), unsigned(len)))
    }
    Hmac |host, request: i32, len: i32| -> i32 {
        run_cipher(host, HostFunction::Hmac, unsigned(request), unsigned(len))
    }
    Hkdf |host, request: i32, len: i32| -> i32 {
        run_cipher(host, HostFunction::Hkdf, unsigned(request), unsigned(len))
    }
    AeadOpen |host, request: i32, len: i32| -> i32 {
        run_cipher(host, HostFunction::AeadOpen, unsigned(request), unsigned(len))
    }
    AesBlock |host, request: i32| -> i32 {
        run_cipher(host, HostFunction::AesBlock, unsigned(request), crypto::BYTES)
    }
}

fn hash(
    host: &mut HostState,
    (bytes, len): (u32, u32),
    seed: i64,
    current: Option<u32>,
) -> Result<i64, FaultKind> {
    let mut guest = guest_memory(host, HostFunction::Hash)?.for_packet(current);
    guest.bytes(bytes, len, |bytes, _| {
        xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed.cast_unsigned()).cast_signed()
    })
}

fn find(
    host: &mut HostState,
    handle: i32,
    (bytes, len): (u32, u32),
    current: Option<u32>,
) -> Result<i64, FaultKind> {
    let mut guest = guest_memory(host, HostFunction::Find)?.for_packet(current);
    let found = guest.find(unsigned(handle), bytes, len)?;
    Ok(found.map_or(-1, |(pattern, at)| (i64::from(pattern) << 32) | i64::from(at)))
}

fn digest(
    host: &mut HostState,
    algorithm: u32,
    bytes: (u32, u32),
    to: u32,
    current: Option<u32>,
) -> Result<i32, FaultKind> {
    if bytes.1 > algorithm::BYTES {
        return Ok(code::RANGE);
    }
    match algorithm {
        algorithm::SHA1 => digest_by::<Sha1>(host, bytes, to, current),
        algorithm::SHA256 => digest_by::<Sha256>(host, bytes, to, current),
        _ => Ok(code::UNKNOWN),
    }
}

/// Computes a digest, and writes it after the input has been read: output and input may overlap.
fn digest_by<D: sha2::Digest>(
    host: &mut HostState,
    (bytes, len): (u32, u32),
    to: u32,
    current: Option<u32>,
) -> Result<i32, FaultKind> {
    let mut guest = guest_memory(host, HostFunction::Digest)?.for_packet(current);
    let digest = guest.bytes(bytes, len, |bytes, _| D::digest(bytes))?;
    let capacity = u32::try_from(digest.len()).unwrap_or(u32::MAX);
    let written = write_bytes(host, HostFunction::Digest, to, capacity, &digest)?;
    Ok(i32::try_from(written).unwrap_or(i32::MAX))
}

fn param_bytes(host: &mut HostState, index: u32, to: u32, capacity: u32) -> Result<i32, FaultKind> {
    let Some(value) = host.encoded_parameters.get_mut(index as usize).map(std::mem::take) else {
        return Ok(code::UNKNOWN);
    };
    let written = write_bytes(host, HostFunction::ParamBytes, to, capacity, &value);
    if let Some(place) = host.encoded_parameters.get_mut(index as usize) {
        *place = value;
    }
    written.map(|len| i32::try_from(len).unwrap_or(i32::MAX))
}

fn message(host: &mut HostState, to: u32, capacity: u32) -> Result<i32, FaultKind> {
    let message = std::mem::take(&mut host.message);
    let written = write_bytes(host, HostFunction::Message, to, capacity, &message);
    host.message = message;
    written.map(|len| i32::try_from(len).unwrap_or(i32::MAX))
}

fn reply(host: &mut HostState, call: u64, (bytes, len): (u32, u32)) -> Result<i32, FaultKind> {
    if len > limit::MESSAGE_BYTES {
        return Ok(code::RANGE);
    }
    with_bytes(host, HostFunction::Reply, bytes, len, |bytes, host| {
        host.messages.as_ref().map_or(code::UNKNOWN, |messages| messages.reply(call, bytes))
    })
}

fn call_service(
    host: &mut HostState,
    service: u32,
    (bytes, len): (u32, u32),
    within: i64,
) -> Result<i64, FaultKind> {
    let Ok(within) = u64::try_from(within) else { return Ok(code::RANGE.into()) };
    if len > limit::MESSAGE_BYTES {
        return Ok(code::RANGE.into());
    }
    with_bytes(host, HostFunction::Call, bytes, len, |bytes, host| {
        host.messages
            .as_ref()
            .map_or(code::DENIED.into(), |messages| messages.call(service, bytes, Nanos(within)))
    })
}

fn find_compile(host: &mut HostState, list: u32, len: u32, flags: i32) -> Result<i32, FaultKind> {
    if host.phase != HostPhase::Start {
        return Ok(code::WHEN);
    }
    if len > limit::PATTERN_BYTES + 4 * limit::PATTERNS {
        return Ok(code::FULL);
    }
    with_bytes(host, HostFunction::FindCompile, list, len, |list, host| {
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
    if host.lines_logged >= limit::LOG_MESSAGES {
        host.log_dropped += 1;
        return code::FULL;
    }
    host.lines_logged += 1;
    let text = String::from_utf8_lossy(text);
    let escape = |c: char| if is_plain(c) { String::from(c) } else { c.escape_default().collect() };
    host.log.push(LogLine {
        level: u8::try_from(level.clamp(0, 2)).unwrap_or(2),
        text: text.chars().map(escape).collect(),
    });
    code::OK
}
