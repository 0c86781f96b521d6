//! Modules in verified code of LLVM outside weir's sandbox. Memory and tables are those of an instance in wasmtime.

#[path = "../../../native/tests/compile.rs"]
pub mod compile;

use crate::oracle::space::BELOW;
use crate::suite::adapters::{Adapters, adapter_name, value_name};
use compile::{Compiled, compile_with};
use std::collections::BTreeMap;
use std::sync::Arc;
use wasmparser::ValType;
use wasmtime::{Instance, Memory, Store, Val};
use weir_lower::{Constant, GuestThunk, IsolatedAccesses, Lowered, Thunk, TrapCode, Unsupported};
use weir_native::{HostAnswer, HostCalls, NativeCode, NativeExit, NativeGlobals, NativeSandbox, TrapKind};

const _: () = assert!(BELOW == weir_native::layout::BELOW);

/// Bytes of the stack.
const STACK: usize = 1 << 20;

/// A module in machine code, compiled once for all its instances.
pub struct LlvmModule {
    lowered: Lowered,
    functions: Vec<u32>,
    code: Arc<NativeCode>,
    adapters: Adapters,
}

impl LlvmModule {
    /// Compiles and verifies a module with adapters. `None` without clang, or on a machine that cannot run its code.
    pub fn new(
        bytes: &[u8],
        adapters: &Adapters,
        isolated: IsolatedAccesses,
    ) -> Option<Result<Self, Unsupported>> {
        if !weir_native::is_supported() {
            return None;
        }
        Some(compile_with(bytes, isolated)?.map(|Compiled { lowered, functions, code }| {
            let code = NativeCode::new(code, lowered.thunks.len()).expect("there is room");
            Self { lowered, functions, code: Arc::new(code), adapters: adapters.clone() }
        }))
    }

    /// The indices of the mutable globals.
    pub fn mutable_globals(&self) -> Vec<u32> {
        self.lowered.globals.keys().copied().collect()
    }
}

/// An instance in machine code.
pub struct LlvmInstance {
    // Dropped before the store, whose memory it uses.
    sandbox: NativeSandbox,
    module: LlvmModule,
    memory: Memory,
}

struct Host<'a, T: 'static> {
    store: &'a mut Store<T>,
    memory: Memory,
    lowered: &'a Lowered,
    /// The fuel that the meter's host functions grant; `None` if they end the call.
    granted: Option<i64>,
    /// The trap of a host function.
    trap: &'static str,
}

impl<T: 'static> HostCalls for Host<'_, T> {
    fn call(&mut self, thunk: u32, registers: &[u64; 6], _: NativeGlobals<'_>) -> HostAnswer {
        #[expect(clippy::cast_possible_truncation, reason = "the register of an i32")]
        let [a, b, c] = [registers[0] as u32, registers[1] as u32, registers[2] as u32];
        let [start, other, len] = [a as usize, b as usize, c as usize];
        let guest = match self.lowered.thunks[thunk as usize] {
            Thunk::Import(index) => match self.lowered.imports[index as usize].1.as_str() {
                "limit" | "suspend" => {
                    self.trap = LIMIT;
                    return match self.granted {
                        Some(fuel) => HostAnswer::Value(fuel.cast_unsigned()),
                        None => HostAnswer::Abort,
                    };
                }
                other => panic!("`{other}` is called"),
            },
            Thunk::Guest(guest) => guest,
        };
        let done = match guest {
            GuestThunk::MemorySize => Some(self.memory.size(&*self.store)),
            GuestThunk::MemoryGrow => {
                Some(self.memory.grow(&mut *self.store, a.into()).unwrap_or(u32::MAX.into()))
            }
            GuestThunk::MemoryFill => {
                let memory = self.memory.data_mut(&mut *self.store).get_mut(start..);
                memory.and_then(|rest| rest.get_mut(..len)).map(|place| {
                    place.fill(b.to_le_bytes()[0]);
                    0
                })
            }
            GuestThunk::MemoryCopy => {
                let memory = self.memory.data_mut(&mut *self.store);
                let is_inside = [start, other].iter().all(|start| start + len <= memory.len());
                is_inside.then(|| {
                    memory.copy_within(other..other + len, start);
                    0
                })
            }
        };
        done.map_or_else(
            || {
                self.trap = OUT_OF_BOUNDS;
                HostAnswer::Abort
            },
            HostAnswer::Value,
        )
    }
}

/// Kinds of traps, as machine code tells them apart.
const OUT_OF_BOUNDS: &str = "out of bounds";
const UNREACHABLE: &str = "unreachable";
const ARITHMETIC: &str = "arithmetic";
const INDIRECT_CALL: &str = "indirect call";
const STACK_OVERFLOW: &str = "stack overflow";
const LIMIT: &str = "limit";

/// The kind of a trap in wasmtime.
pub fn kind(error: &wasmtime::Error) -> &'static str {
    use wasmtime::Trap;
    match error.downcast_ref::<Trap>() {
        Some(Trap::MemoryOutOfBounds) => OUT_OF_BOUNDS,
        Some(Trap::UnreachableCodeReached) => UNREACHABLE,
        Some(Trap::IntegerDivisionByZero | Trap::IntegerOverflow | Trap::BadConversionToInteger) => {
            ARITHMETIC
        }
        Some(Trap::TableOutOfBounds | Trap::IndirectCallToNull | Trap::BadSignature) => INDIRECT_CALL,
        Some(Trap::StackOverflow) => STACK_OVERFLOW,
        Some(other) => panic!("{other}"),
        None => LIMIT,
    }
}

impl LlvmInstance {
    /// Starts a module beside an instance of the same module in wasmtime, none of whose functions has been called. The memory
    /// is that of a [`Creator`](crate::oracle::space::Creator). The start function has not run.
    pub fn new<T: 'static>(module: LlvmModule, store: &mut Store<T>, instance: &Instance) -> Self {
        let memory = instance.get_memory(&mut *store, "memory").expect("it is exported");
        let base = memory.data_ptr(&*store);
        // SAFETY: the creator reserves the bytes below the memory, and no other sandbox uses them. The owner drops this value
        // before the store.
        let mut sandbox = unsafe { NativeSandbox::new(base, Arc::clone(&module.code), STACK).unwrap() };
        for (below, value) in module.lowered.globals.values() {
            let bytes: &[u8] = match value {
                Constant::I32(value) => &value.to_le_bytes(),
                Constant::I64(value) => &value.to_le_bytes(),
                Constant::F32(bits) => &bits.to_le_bytes(),
                Constant::F64(bits) => &bits.to_le_bytes(),
                Constant::V128(bytes) => bytes,
            };
            sandbox.globals().set(*below, bytes);
        }
        Self { sandbox, module, memory }
    }

    /// The place of a mutable global, by its export.
    fn below(&self, export: &str) -> Option<u32> {
        let index = self.module.lowered.global_exports.get(export)?;
        Some(self.module.lowered.globals.get(index)?.0)
    }

    /// Sets a global, if there is one of this name. It is mutable.
    pub fn set(&mut self, export: &str, value: &Val) {
        let Some(below) = self.below(export) else { return };
        let bytes: &[u8] = match value {
            Val::I32(value) => &value.to_le_bytes(),
            Val::I64(value) => &value.to_le_bytes(),
            Val::F32(bits) => &bits.to_le_bytes(),
            Val::F64(bits) => &bits.to_le_bytes(),
            Val::V128(value) => &value.as_u128().to_le_bytes(),
            _ => panic!("globals have no references"),
        };
        self.sandbox.globals().set(below, bytes);
    }

    /// The value of a mutable global of this type.
    #[expect(clippy::cast_possible_truncation, reason = "the low half has the value")]
    pub fn get(&mut self, export: &str, ty: ValType) -> Option<Val> {
        let below = self.below(export)?;
        let globals = self.sandbox.globals();
        let low = globals.get(below);
        Some(match ty {
            ValType::I32 => Val::I32((low as u32).cast_signed()),
            ValType::I64 => Val::I64(low.cast_signed()),
            ValType::F32 => Val::F32(low as u32),
            ValType::F64 => Val::F64(low),
            ValType::V128 => Val::V128((u128::from(globals.get(below - 8)) << 64 | u128::from(low)).into()),
            ValType::Ref(_) => return None,
        })
    }

    /// Calls an exported function without parameters and results, if there is one of this name.
    pub fn enter<T: 'static>(
        &mut self,
        store: &mut Store<T>,
        export: &str,
        granted: Option<i64>,
    ) -> Option<Result<(), String>> {
        let lowered = &self.module.lowered;
        let function = *lowered.exports.get(export)?;
        let function = self.module.functions[(function - lowered.imported) as usize];
        let mut host = Host { store, memory: self.memory, lowered, granted, trap: "" };
        let exit = self.sandbox.call(function, &[], &mut host);
        let trap = match exit {
            NativeExit::Returned(_) => return Some(Ok(())),
            NativeExit::Aborted { .. } => host.trap,
            NativeExit::Suspended => panic!("no call is suspended"),
            NativeExit::Trapped(trap) => match trap.kind {
                TrapKind::Access(_) | TrapKind::Code(TrapCode::OutOfBounds) => OUT_OF_BOUNDS,
                TrapKind::Code(TrapCode::Unreachable) => UNREACHABLE,
                TrapKind::Code(TrapCode::Arithmetic) => ARITHMETIC,
                TrapKind::Code(TrapCode::IndirectCall) => INDIRECT_CALL,
                TrapKind::StackOverflow => STACK_OVERFLOW,
                TrapKind::Interrupted | TrapKind::Unknown => panic!("{trap:?}"),
            },
        };
        Some(Err(trap.to_owned()))
    }

    /// Calls an exported function through its adapter; nothing if it has none.
    pub fn call<T: 'static>(
        &mut self,
        store: &mut Store<T>,
        name: &str,
        arguments: &[Val],
        granted: Option<i64>,
    ) -> Option<Result<Vec<Val>, String>> {
        let ty = self.module.adapters.get(name)?.clone();
        for (index, (argument, ty)) in (1..).zip(arguments.iter().zip(ty.params())) {
            self.set(&value_name(index, *ty), argument);
        }
        let called = self.enter(store, &adapter_name(name), granted)?;
        let mut result = |ty: &ValType| self.get(&value_name(0, *ty), *ty).expect("it has this type");
        Some(called.map(|()| ty.results().iter().map(&mut result).collect()))
    }

    /// The values of all mutable globals, by index.
    pub fn globals(&mut self) -> BTreeMap<u32, u64> {
        let places = self.module.lowered.globals.clone();
        places
            .into_iter()
            .map(|(index, (below, value))| {
                let word = self.sandbox.globals().get(below);
                let is_short = matches!(value, Constant::I32(_) | Constant::F32(_));
                (index, if is_short { word & u64::from(u32::MAX) } else { word })
            })
            .collect()
    }
}
