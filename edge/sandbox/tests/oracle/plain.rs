//! Runs modules unchanged, with wasmtime's own fuel, and host functions that cost nothing and return any allowed
//! value.

use super::FUEL;
use super::generate;
use super::space::{ARENA, Creator, DESCRIPTORS, GUARD, RESERVED, Shown, TABLE};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use wasmtime::{
    Caller, Config, Engine, Extern, Instance, Linker, Module, OperatorCost, OptLevel, Store, Trap, Val,
};
use weir_abi::{ARENA_BASE, DESCRIPTOR_BYTES, DESCRIPTORS_BASE, limit};
use weir_bounds::EntryPoint;

/// The number of packets for each module.
pub const PACKETS: u32 = 6;

/// The most private memory, in bytes.
const MEMORY: usize = 1 << 20;

/// The size of the WebAssembly stack, in bytes.
pub const STACK: usize = 256 << 10;

/// The seed of packets and results.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    pub seed: u64,
}

/// The use of a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    pub fuel: u64,
    pub records: u64,
    pub patches: u64,
    pub frames: u64,
    pub pages: u64,
    pub packet_bytes: u64,
    pub trapped: bool,
    /// True if it ended because no fuel was left.
    pub exhausted: bool,
}

/// An engine for unchanged modules.
pub struct Plain {
    engine: Engine,
    linker: Linker<Host>,
    shown: Shown,
}

struct Host {
    state: u64,
    records: u64,
    patches: u64,
    frames: u64,
    shown: Shown,
}

impl Host {
    /// The next arbitrary number. It also changes the visible packets, as a file's mapping can change at any time.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(1);
        let bytes = generate::bytes(self.state, 16);
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let _ = self.shown.arena.write_at(&bytes[..4], number(8) % (ARENA as u64 / 8));
        number(0)
    }
}

impl Plain {
    /// An engine that charges bulk instructions by their length, as wasmtime does before it checks the length; or not
    /// at all.
    pub fn new(charges_bulk: bool) -> Self {
        let shown = Shown::new();
        let mut config = Config::new();
        if !charges_bulk {
            let mut costs = OperatorCost::new();
            costs.variable.memory_copy_per_byte = 0;
            costs.variable.memory_fill_per_byte = 0;
            costs.variable.memory_init_per_byte = 0;
            costs.variable.table_copy_per_element = 0;
            costs.variable.table_fill_per_element = 0;
            costs.variable.table_init_per_element = 0;
            costs.variable.table_grow_per_element = 0;
            config.operator_cost(costs);
        }
        config
            .consume_fuel(true)
            .with_host_memory(Arc::new(Creator { shown: Some(shown.clone()), most: MEMORY }))
            .memory_reservation(RESERVED as u64)
            .memory_guard_size(GUARD as u64)
            .memory_may_move(false)
            .guard_before_linear_memory(false)
            .memory_init_cow(false)
            .cranelift_opt_level(OptLevel::None)
            .max_wasm_stack(STACK);
        let engine = Engine::new(&config).unwrap_or_else(|error| panic!("{error:#}"));
        let mut linker = Linker::new(&engine);
        define(&mut linker).unwrap_or_else(|error| panic!("{error:#}"));
        Self { engine, linker, shown }
    }

    /// Compiles a module; nothing if it is too large for the compiler.
    pub fn compile(&self, module: &[u8]) -> Option<Module> {
        Module::new(&self.engine, module).ok()
    }

    /// Instantiates a module, without calling anything but its start function; nothing if that traps.
    pub fn start(&self, module: &Module, given: Given) -> Option<Running<'_>> {
        fill(&self.shown, given.seed);
        let host =
            Host { state: given.seed << 8, records: 0, patches: 0, frames: 0, shown: self.shown.clone() };
        let mut store = Store::new(&self.engine, host);
        store.set_fuel(FUEL).ok()?;
        let instance = self.linker.instantiate(&mut store, module).ok()?;
        Some(Running { plain: self, store, instance })
    }
}

/// Fills packets, descriptors and the table.
pub fn fill(shown: &Shown, seed: u64) {
    let mut arena = generate::bytes(seed ^ 0x5555, ARENA);
    if seed.is_multiple_of(3) {
        arena.fill(0xff);
    }
    let mut descriptors = vec![0; DESCRIPTORS];
    for (i, descriptor) in descriptors.chunks_exact_mut(DESCRIPTOR_BYTES).enumerate() {
        let number = (i as u64).wrapping_add(seed << 8);
        descriptor.copy_from_slice(&described(&generate::bytes(number, DESCRIPTOR_BYTES), i));
    }
    shown.arena.write_at(&arena, 0).unwrap_or_else(|error| panic!("{error}"));
    shown.descriptors.write_at(&descriptors, 0).unwrap_or_else(|error| panic!("{error}"));
    // The header too: a bound must not rely on its contents.
    let table = generate::bytes(seed ^ 0xaaaa, TABLE);
    shown.table.write_at(&table, 0).unwrap_or_else(|error| panic!("{error}"));
}

/// Captured bytes of a packet.
pub fn packet_bytes(shown: &Shown, packet: u32) -> u64 {
    let mut len = [0; 4];
    let at = u64::from(packet) * DESCRIPTOR_BYTES as u64 + 12;
    shown.descriptors.read_exact_at(&mut len, at).unwrap_or_else(|error| panic!("{error}"));
    u32::from_le_bytes(len).into()
}

/// A descriptor with arbitrary contents, except for impossible ones: missing bytes, and headers that end after the
/// packet.
fn described(arbitrary: &[u8], index: usize) -> [u8; DESCRIPTOR_BYTES] {
    let mut out: [u8; DESCRIPTOR_BYTES] = arbitrary.try_into().unwrap_or([0; DESCRIPTOR_BYTES]);
    let word = |at: usize| u32::from_le_bytes(arbitrary[at..at + 4].try_into().unwrap_or_default());
    let len = match index % 6 {
        0 => 60 + word(12) % 40,
        1 => word(12) % 4,
        2 => 1500,
        3 => word(12) % 2000,
        4 => 64 * (word(12) % 20),
        _ => 0,
    };
    let within = |value: u32| u16::try_from(value % (len.min(200) + 1)).unwrap_or(0);
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(8, &(ARENA_BASE + word(8) % 60_000).to_le_bytes());
    put(12, &len.to_le_bytes());
    put(16, &(len + word(16) % 100).to_le_bytes());
    for at in [32, 34, 36] {
        put(at, &within(word(at)).to_le_bytes());
    }
    put(40, &u32::from(within(word(40))).to_le_bytes());
    put(60, &u32::try_from(index).unwrap_or(0).to_le_bytes());
    out
}

/// An instantiated module.
pub struct Running<'a> {
    plain: &'a Plain,
    store: Store<Host>,
    instance: Instance,
}

impl Running<'_> {
    /// Calls an entry point, if the module has it.
    pub fn call(&mut self, entry: EntryPoint, packet: u32) -> Option<Used> {
        let function = self.instance.get_func(&mut self.store, entry.name())?;
        let memory = self.instance.get_memory(&mut self.store, "memory")?;
        let before = memory.size(&self.store);
        let descriptor = DESCRIPTORS_BASE + packet * u32::try_from(DESCRIPTOR_BYTES).unwrap_or(64);
        let mut longest = packet_bytes(&self.plain.shown, packet);
        let arguments = match entry {
            // An event has its length where a descriptor has it.
            EntryPoint::Packet | EntryPoint::Stream => vec![Val::I32(descriptor.cast_signed())],
            EntryPoint::Batch => {
                let all = 0..super::plain::PACKETS;
                longest = all.map(|packet| packet_bytes(&self.plain.shown, packet)).max().unwrap_or(0);
                vec![Val::I32(DESCRIPTORS_BASE.cast_signed()), Val::I64((1 << PACKETS) - 1)]
            }
            EntryPoint::Tick => vec![Val::I64(1_700_000_000_000_000_000), Val::I64(1 + i64::from(packet))],
            EntryPoint::Stop | EntryPoint::Rest => vec![Val::I64(1_700_000_000_000_000_000)],
            EntryPoint::Lost => vec![Val::I32(1)],
            EntryPoint::LowMemory => vec![Val::I64(65_536)],
            EntryPoint::Serve => vec![Val::I64(1), Val::I32(0), Val::I32(65_536)],
            EntryPoint::Answer => vec![Val::I64(1), Val::I32(0), Val::I32(65_536)],
            EntryPoint::StartFunction | EntryPoint::Initialize | EntryPoint::Start => Vec::new(),
        };
        let results = function.ty(&self.store).results().len();
        self.store.data_mut().records = 0;
        self.store.data_mut().patches = 0;
        self.store.data_mut().frames = 0;
        self.store.set_fuel(FUEL).ok()?;
        let outcome = function.call(&mut self.store, &arguments, &mut vec![Val::I32(0); results]);
        let host = self.store.data();
        // The host takes no more than this, whatever a module emits.
        let taken = match entry {
            EntryPoint::Packet => u64::from(limit::RECORDS_PER_PACKET),
            EntryPoint::Batch => u64::from(limit::RECORDS_PER_PACKET * PACKETS),
            _ => limit::RECORDS_PER_CALL.into(),
        };
        Some(Used {
            fuel: FUEL - self.store.get_fuel().ok()?,
            records: host.records.min(taken),
            patches: host.patches,
            frames: host.frames,
            pages: memory.size(&self.store) - before,
            packet_bytes: longest,
            trapped: outcome.is_err(),
            exhausted: outcome.is_err_and(|error| error.downcast_ref() == Some(&Trap::OutOfFuel)),
        })
    }
}

/// An error code of a host function, or 0.
fn answer_code(number: u64) -> i32 {
    [0, -1, -2, -3, -5][usize::try_from(number % 5).unwrap_or(0)]
}

fn define(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    let module = weir_abi::host::MODULE;
    let answer = |number: u64, of: &[i32]| of[usize::try_from(number % of.len() as u64).unwrap_or(0)];
    linker.func_wrap(module, "emit", move |mut caller: Caller<'_, Host>, _: i32, _: i32, _: i32| {
        caller.data_mut().records += 1;
        answer(caller.data_mut().next(), &[0, 0, -1])
    })?;
    linker.func_wrap(
        module,
        "patch",
        move |mut caller: Caller<'_, Host>, _: i32, _: i32, _: i32, _: i32| {
            caller.data_mut().patches += 1;
            answer(caller.data_mut().next(), &[0, 0, -1, -2, -3, -4])
        },
    )?;
    linker.func_wrap(module, "send", move |mut caller: Caller<'_, Host>, _: i32, _: i32, _: i32| {
        caller.data_mut().frames += 1;
        answer(caller.data_mut().next(), &[0, 0, -1, -2, -3, -5])
    })?;
    linker.func_wrap(module, "keep", move |mut caller: Caller<'_, Host>, _: i32| {
        answer(caller.data_mut().next(), &[0, 1, 1024, -1, -3, -4])
    })?;
    linker.func_wrap(module, "release", move |mut caller: Caller<'_, Host>, _: i32| {
        answer(caller.data_mut().next(), &[0, -5])
    })?;
    linker.func_wrap(
        module,
        "find_compile",
        move |mut caller: Caller<'_, Host>, _: i32, _: i32, _: i32| {
            answer(caller.data_mut().next(), &[0, 0, 1, -1, -2, -4])
        },
    )?;
    linker.func_wrap(module, "find", |mut caller: Caller<'_, Host>, _: i32, _: i32, len: i32| {
        let number = caller.data_mut().next();
        let at = number % u64::from(len.cast_unsigned().max(1));
        if number.is_multiple_of(3) { -1 } else { ((number >> 40) << 32 | at).cast_signed() }
    })?;
    linker.func_wrap(module, "hash", |mut caller: Caller<'_, Host>, _: i32, _: i32, _: i64| {
        caller.data_mut().next().cast_signed()
    })?;
    linker.func_wrap(
        module,
        "digest",
        |mut caller: Caller<'_, Host>, algorithm: i32, _: i32, _: i32, to: i32| -> wasmtime::Result<i32> {
            let number = caller.data_mut().next();
            let len = match algorithm {
                1 => 20,
                2 => 32,
                _ => return Ok(weir_abi::code::UNKNOWN),
            };
            let Some(Extern::Memory(memory)) = caller.get_export("memory") else { return Ok(0) };
            memory.write(&mut caller, to.cast_unsigned() as usize, &generate::bytes(number, len))?;
            Ok(i32::try_from(len).unwrap_or(0))
        },
    )?;
    for name in ["hmac", "hkdf", "aead_open"] {
        linker.func_wrap(module, name, move |mut caller: Caller<'_, Host>, _: i32, len: i32| {
            let number = caller.data_mut().next();
            if number.is_multiple_of(3) { len & 0xff } else { answer_code(number) }
        })?;
    }
    linker.func_wrap(module, "aes_block", move |mut caller: Caller<'_, Host>, _: i32| {
        answer(caller.data_mut().next(), &[16, -2, -5])
    })?;
    linker.func_wrap(module, "log", move |mut caller: Caller<'_, Host>, _: i32, _: i32, _: i32| {
        answer(caller.data_mut().next(), &[0, -1])
    })?;
    linker.func_wrap(module, "reserve", move |mut caller: Caller<'_, Host>, bytes: i64| {
        if caller.data_mut().next().is_multiple_of(2) { bytes } else { i64::from(weir_abi::code::DENIED) }
    })?;
    linker.func_wrap(module, "call", |mut caller: Caller<'_, Host>, _: i32, _: i32, _: i32, _: i64| {
        let number = caller.data_mut().next();
        if number.is_multiple_of(2) { (number >> 8).cast_signed() } else { i64::from(answer_code(number)) }
    })?;
    linker.func_wrap(module, "message", |mut caller: Caller<'_, Host>, _: i32, room: i32| {
        let number = caller.data_mut().next();
        if number.is_multiple_of(3) { 65_536 } else { room }
    })?;
    linker.func_wrap(module, "reply", |mut caller: Caller<'_, Host>, _: i64, _: i32, _: i32| {
        answer_code(caller.data_mut().next())
    })?;
    linker.func_wrap(module, "publish", |mut caller: Caller<'_, Host>, _: i32, _: i32, _: i32| {
        answer_code(caller.data_mut().next())
    })?;
    linker.func_wrap(module, "param_int", |index: i32| match index {
        0 => 9,
        3 => 4_294_967_299,
        _ => 0_i64,
    })?;
    linker.func_wrap(module, "param_float", |index: i32| if index == 2 { 0.5 } else { 0.0_f64 })?;
    linker.func_wrap(
        module,
        "param_bytes",
        |mut caller: Caller<'_, Host>, index: i32, to: i32, room: i32| -> wasmtime::Result<i32> {
            let text: &[u8] = match index {
                0..=3 => b"abc",
                _ => return Ok(weir_abi::code::UNKNOWN),
            };
            let Some(Extern::Memory(memory)) = caller.get_export("memory") else { return Ok(0) };
            let part = &text[..text.len().min(room.cast_unsigned() as usize)];
            memory.write(&mut caller, to.cast_unsigned() as usize, part)?;
            Ok(i32::try_from(text.len()).unwrap_or(0))
        },
    )?;
    Ok(())
}
