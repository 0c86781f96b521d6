//! Breaks a call off in the middle of its module's code. Code that runs pays nothing for that.
//!
//! The watchdog sends a signal to the calling thread. Where the signal finds the thread in a function of the module, its handler has the thread go
//! on at an instruction that traps, and wasmtime ends the call as it does for any trap. Compiled functions can trap nearly everywhere, so that is
//! nothing new to them; and what it needs is there at each of their instructions:
//!
//! - What leads out of a call (an address, a stack pointer and a frame pointer) was stored by the code that leads into it. No register and nothing on
//!   the stack of the function is needed. Functions keep nothing of the host's half-changed: that is done in calls of the host.
//! - To say where it was, frames are walked from the frame pointer. It is the function's own, or, where that comes and goes, its caller's.
//!
//! Where the thread is anywhere else, nothing happens: not in functions of the host and not in bulk operations, which can hold locks; and not in the code
//! that leads into a module and out of it. The watchdog tries again.

use crate::watchdog::WatchEntry;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering, compiler_fence};
use std::{io, mem, ptr};
use wasmtime::Module;

/// Ignored where nobody handles it, so that one that comes late harms nobody.
const SIGNAL: libc::c_int = libc::SIGURG;

/// Where the functions of a module are.
pub(crate) struct CodeMap {
    module: Module,
    /// Their addresses, in order.
    functions: Vec<Range<usize>>,
}

impl CodeMap {
    pub(crate) fn of(module: &Module) -> Self {
        let text = module.text().as_ptr().addr();
        let mut functions: Vec<_> =
            module.functions().map(|f| text + f.offset..text + f.offset + f.len).collect();
        functions.sort_unstable_by_key(|function| function.start);
        Self { module: module.clone(), functions }
    }

    /// Whether an instruction is in one of the module's functions, rather than in what leads into them or out of them.
    fn contains(&self, pc: usize) -> bool {
        let after = self.functions.partition_point(|function| function.start <= pc);
        after
            .checked_sub(1)
            .and_then(|at| self.functions.get(at))
            .is_some_and(|function| function.contains(&pc))
    }

    /// The index and the name of the function that an instruction is in.
    pub(crate) fn function_at(&self, pc: usize) -> Option<(u32, Option<String>)> {
        let offset = pc.checked_sub(self.module.text().as_ptr().addr())?;
        let mut functions = self.module.functions();
        let function = functions.find(|f| (f.offset..f.offset + f.len).contains(&offset))?;
        Some((function.index.as_u32(), function.name))
    }
}

thread_local! {
    /// The call that is under way on this thread.
    static UNDER_WAY: AtomicPtr<WatchEntry> = const { AtomicPtr::new(ptr::null_mut()) };
}

/// Notes which call is under way on this thread from now on. It has to stay where it is until another one, or none, is noted.
#[inline]
pub(crate) fn set_under_way(watch: Option<&WatchEntry>) {
    let watch = watch.map_or(ptr::null(), ptr::from_ref).cast_mut();
    UNDER_WAY.with(|under_way| under_way.store(watch, Ordering::Relaxed));
    // For the handler, which runs on this thread.
    compiler_fence(Ordering::SeqCst);
}

/// Has the handler look at a thread's call.
///
/// # Safety
/// The thread is there until this returns.
pub(crate) unsafe fn send(thread: libc::pthread_t) {
    if landing().is_some() {
        // SAFETY: the thread is there, by this function's contract.
        unsafe { libc::pthread_kill(thread, SIGNAL) };
    }
}

/// Makes ready for [`send`].
pub(crate) fn prepare() -> io::Result<()> {
    static PREPARED: OnceLock<Result<(), i32>> = OnceLock::new();
    let prepared = PREPARED.get_or_init(|| {
        if landing().is_none() {
            return Ok(());
        }
        // SAFETY: sigaction is a plain C struct for which all zeros are a value.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: the pointer is to a live local, and the handler does nothing that a handler may not.
        if unsafe { libc::sigaction(SIGNAL, &raw const action, ptr::null_mut()) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error().raw_os_error().unwrap_or(0))
        }
    });
    prepared.map_err(io::Error::from_raw_os_error)
}

/// Diverts the call under way, if it is to be broken off and its module's code was running. Reads and writes atomics, and nothing else.
extern "C" fn on_signal(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let watch = UNDER_WAY.with(|under_way| under_way.load(Ordering::Relaxed));
    // SAFETY: it is null, or was noted by this thread for a call that has not ended.
    let Some(watch) = (unsafe { watch.as_ref() }) else { return };
    let (Some(code), Some(landing)) = (watch.to_break(), LANDING.get().and_then(Option::as_ref)) else {
        return;
    };
    // SAFETY: the kernel passes the context of what was interrupted, since we asked for it with SA_SIGINFO.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let pc = pc(context);
    if code.contains(pc) {
        watch.broken_at(pc);
        set_pc(context, landing.trap);
    }
}

/// A function that does nothing but trap. It is never called; calls that are broken off go on at its trap.
struct Landing {
    _module: Module,
    trap: usize,
}

static LANDING: OnceLock<Option<Landing>> = OnceLock::new();

fn landing() -> Option<&'static Landing> {
    // A module with one function: `unreachable`.
    const MODULE: &[u8] = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x0a\x05\x01\x03\0\0\x0b";
    let make = || {
        let engine = wasmtime::Engine::default();
        let module = Module::new(&engine, MODULE).ok()?;
        let function = module.functions().next()?;
        let code = module.text().get(function.offset..function.offset + function.len)?;
        let trap = code.windows(TRAP.len()).position(|bytes| bytes == TRAP)?;
        let trap = code.as_ptr().addr() + trap;
        Some(Landing { _module: module, trap })
    };
    LANDING.get_or_init(|| if TRAP.is_empty() { None } else { make() }).as_ref()
}

/// The instruction `ud2`.
#[cfg(target_arch = "x86_64")]
const TRAP: &[u8] = &[0x0f, 0x0b];

#[cfg(target_arch = "x86_64")]
fn pc(context: &libc::ucontext_t) -> usize {
    usize::try_from(context.uc_mcontext.gregs[libc::REG_RIP as usize]).unwrap_or(0)
}

#[cfg(target_arch = "x86_64")]
fn set_pc(context: &mut libc::ucontext_t, pc: usize) {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = libc::greg_t::try_from(pc).unwrap_or(0);
}

/// On other processors calls are not broken off: no signal is sent.
#[cfg(not(target_arch = "x86_64"))]
const TRAP: &[u8] = &[];

#[cfg(not(target_arch = "x86_64"))]
fn pc(_: &libc::ucontext_t) -> usize {
    0
}

#[cfg(not(target_arch = "x86_64"))]
fn set_pc(_: &mut libc::ucontext_t, _: usize) {}
