//! Interrupts a call in the middle of its module's code, without checks in the code. The watchdog uses this for calls that
//! do not end otherwise.
//!
//! The watchdog sends a signal to the calling thread. If the thread executes a function of the module when it gets the
//! signal, the signal handler makes it continue at a trapping instruction, and wasmtime ends the call as for any trap.
//! This is safe at every instruction of the function:
//!
//! - To leave the call, wasmtime needs an address, a stack pointer and a frame pointer, which the code that entered the
//!   call has stored. It needs no register and no stack content of the function.
//! - Host state is consistent, because it changes only in host functions.
//! - wasmtime finds the location of the fault by walking the frames from the frame pointer, which points to the frame of the
//!   function, or in the function's prologue and epilogue to the frame of its caller.
//!
//! If the thread executes other code, the handler does nothing, and the watchdog tries again. Other code cannot be
//! interrupted: host functions and bulk operations can hold locks, and the code that enters and leaves a module must be
//! completed.

use crate::watchdog::WatchEntry;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering, compiler_fence};
use std::{io, mem, ptr};
use wasmtime::Module;

/// The signal that interrupts a call. The default action for it is to ignore it, so a late signal is harmless.
const SIGNAL: libc::c_int = libc::SIGURG;

/// The addresses of a module's functions in Cranelift's code; empty if there is no such code.
#[derive(Default)]
pub(crate) struct CodeMap {
    module: Option<Module>,
    /// Address ranges of the functions, sorted.
    functions: Vec<Range<usize>>,
}

impl CodeMap {
    pub(crate) fn new(module: &Module) -> Self {
        let text = module.text().as_ptr().addr();
        let mut functions: Vec<_> =
            module.functions().map(|f| text + f.offset..text + f.offset + f.len).collect();
        functions.sort_unstable_by_key(|function| function.start);
        Self { module: Some(module.clone()), functions }
    }

    /// Returns true if the instruction at `pc` is in one of the module's functions. Returns false for the code that enters and
    /// leaves the functions.
    fn contains(&self, pc: usize) -> bool {
        let after = self.functions.partition_point(|function| function.start <= pc);
        after
            .checked_sub(1)
            .and_then(|at| self.functions.get(at))
            .is_some_and(|function| function.contains(&pc))
    }

    /// Returns the functions: index in the rewritten module, name, and addresses.
    pub(crate) fn symbols(&self) -> impl Iterator<Item = (u32, Option<String>, Range<usize>)> {
        self.module.iter().flat_map(|module| {
            let text = module.text().as_ptr().addr();
            module
                .functions()
                .map(move |f| (f.index.as_u32(), f.name, text + f.offset..text + f.offset + f.len))
        })
    }

    /// Returns the index and name of the function that contains an instruction.
    pub(crate) fn function_at(&self, pc: usize) -> Option<(u32, Option<String>)> {
        let module = self.module.as_ref()?;
        let offset = pc.checked_sub(module.text().as_ptr().addr())?;
        let mut functions = module.functions();
        let function = functions.find(|f| (f.offset..f.offset + f.len).contains(&offset))?;
        Some((function.index.as_u32(), function.name))
    }
}

thread_local! {
    /// The call in progress on this thread.
    static CURRENT_CALL: AtomicPtr<WatchEntry> = const { AtomicPtr::new(ptr::null_mut()) };
}

/// Sets the call in progress on this thread. The entry must stay in place until this function is called again.
#[inline]
pub(crate) fn set_current_call(watch: Option<&WatchEntry>) {
    let watch = watch.map_or(ptr::null(), ptr::from_ref).cast_mut();
    CURRENT_CALL.with(|current| current.store(watch, Ordering::Relaxed));
    // The handler runs on this thread, so a compiler fence orders its accesses.
    compiler_fence(Ordering::SeqCst);
}

/// Sends the signal to a thread, whose handler interrupts the thread's call if possible.
///
/// # Safety
/// The thread exists until this function returns.
pub(crate) unsafe fn send(thread: libc::pthread_t) {
    if can_interrupt() {
        // SAFETY: the thread exists, by this function's contract.
        unsafe { libc::pthread_kill(thread, SIGNAL) };
    }
}

/// Installs the handler of the signals that [`send`] sends.
pub(crate) fn install_handler() -> io::Result<()> {
    static PREPARED: OnceLock<Result<(), i32>> = OnceLock::new();
    let prepared = PREPARED.get_or_init(|| {
        if !can_interrupt() {
            return Ok(());
        }
        // SAFETY: sigaction is a plain C struct for which all zeros are a value.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: the pointer is to a live local, and the handler is async-signal-safe.
        if unsafe { libc::sigaction(SIGNAL, &raw const action, ptr::null_mut()) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error().raw_os_error().unwrap_or(0))
        }
    });
    prepared.map_err(io::Error::from_raw_os_error)
}

/// Makes the interrupted thread continue at a trap, if its call is to be interrupted and the thread was executing the
/// module's code. Accesses only atomics and data that do not change.
extern "C" fn on_signal(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let watch = CURRENT_CALL.with(|current| current.load(Ordering::Relaxed));
    // SAFETY: the pointer is null, or was set by this thread for a call that has not ended.
    let Some(watch) = (unsafe { watch.as_ref() }) else { return };
    let Some(code) = watch.code_to_interrupt() else { return };
    // SAFETY: the kernel passes the interrupted context, as requested by SA_SIGINFO.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let pc = pc(context);
    if weir_native::interrupt(context).is_some() {
        watch.set_interrupted_at(pc);
    } else if code.contains(pc)
        && let Some(target) = TRAP_TARGET.get().and_then(Option::as_ref)
    {
        watch.set_interrupted_at(pc);
        set_pc(context, target.address);
    }
}

/// The code at which interrupted calls continue: a function that only traps and is never called.
struct TrapTarget {
    _module: Module,
    /// The address of the trapping instruction.
    address: usize,
}

/// The [`TrapTarget`] of this process. Its value is `None` if calls cannot be interrupted on this processor.
static TRAP_TARGET: OnceLock<Option<TrapTarget>> = OnceLock::new();

/// Returns true if calls can be interrupted on this processor: those in Cranelift's code by way of the [`TrapTarget`], which
/// the first call of this function creates, and those in verified code.
fn can_interrupt() -> bool {
    trap_target().is_some() || weir_native::is_supported()
}

/// Code of Cranelift is not interrupted where there is no such compiler, because there is no such code.
#[cfg(not(feature = "cranelift"))]
fn trap_target() -> Option<&'static TrapTarget> {
    TRAP_TARGET.get_or_init(|| None).as_ref()
}

/// Returns the [`TrapTarget`] of this process, which the first call creates.
#[cfg(feature = "cranelift")]
fn trap_target() -> Option<&'static TrapTarget> {
    // A module with one function: `unreachable`.
    const MODULE: &[u8] = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x0a\x05\x01\x03\0\0\x0b";
    let make = || {
        let engine = wasmtime::Engine::default();
        let module = Module::new(&engine, MODULE).ok()?;
        let function = module.functions().next()?;
        let code = module.text().get(function.offset..function.offset + function.len)?;
        let trap = code.windows(TRAP.len()).position(|bytes| bytes == TRAP)?;
        let address = code.as_ptr().addr() + trap;
        Some(TrapTarget { _module: module, address })
    };
    TRAP_TARGET.get_or_init(|| if TRAP.is_empty() { None } else { make() }).as_ref()
}

/// The instruction `ud2`.
#[cfg(all(feature = "cranelift", target_arch = "x86_64"))]
const TRAP: &[u8] = &[0x0f, 0x0b];

#[cfg(target_arch = "x86_64")]
fn pc(context: &libc::ucontext_t) -> usize {
    usize::try_from(context.uc_mcontext.gregs[libc::REG_RIP as usize]).unwrap_or(0)
}

#[cfg(target_arch = "x86_64")]
fn set_pc(context: &mut libc::ucontext_t, pc: usize) {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = libc::greg_t::try_from(pc).unwrap_or(0);
}

/// Calls are not interrupted on other processors: no signal is sent.
#[cfg(all(feature = "cranelift", not(target_arch = "x86_64")))]
const TRAP: &[u8] = &[];

#[cfg(not(target_arch = "x86_64"))]
fn pc(_: &libc::ucontext_t) -> usize {
    0
}

#[cfg(not(target_arch = "x86_64"))]
fn set_pc(_: &mut libc::ucontext_t, _: usize) {}
