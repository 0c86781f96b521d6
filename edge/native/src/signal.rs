//! Traps: the signals that the processor's faults raise while code of a module runs.
//!
//! The handlers are installed after those of other parts of the program, and so get the signals first. A signal that no
//! module's code has raised goes to the handler before. Handlers run on the thread's alternate stack, which Rust's standard library
//! gives to each thread that it starts: a module whose stack is used up leaves no room on it.

use crate::control::{Control, current};
use crate::enter::leave_after_trap;
use crate::sandbox::{NativeTrap, TrapKind};
use std::cell::UnsafeCell;
use std::sync::OnceLock;
use std::{io, mem, ptr};
use weir_lower::TrapCode;

/// The signals of faults. SIGBUS is not among them: it means that a file which is mapped for the module has become shorter,
/// and the handler of the file's reader maps zeros.
const SIGNALS: [libc::c_int; 3] = [libc::SIGSEGV, libc::SIGILL, libc::SIGFPE];

/// The actions that were set before.
struct PreviousActions(UnsafeCell<[mem::MaybeUninit<libc::sigaction>; SIGNALS.len()]>);

// SAFETY: written once before the handlers are installed, and only read afterwards.
unsafe impl Sync for PreviousActions {}

static PREVIOUS: PreviousActions =
    PreviousActions(UnsafeCell::new([const { mem::MaybeUninit::zeroed() }; SIGNALS.len()]));

/// Installs the handlers, once in a process.
pub(crate) fn install_handlers() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let install = || -> io::Result<()> {
        for (index, signal) in SIGNALS.iter().enumerate() {
            // SAFETY: sigaction is a plain C struct for which all zeros are a value.
            let mut action: libc::sigaction = unsafe { mem::zeroed() };
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            // SAFETY: no handler of this file reads the entry before it is installed, and this code runs once.
            let previous = unsafe { (*PREVIOUS.0.get())[index].as_mut_ptr() };
            // SAFETY: reads the action that is set now into the entry.
            if unsafe { libc::sigaction(*signal, ptr::null(), previous) } != 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the pointer is to a live local, and the handler is async-signal-safe.
            if unsafe { libc::sigaction(*signal, &raw const action, ptr::null_mut()) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    let result = INSTALLED.get_or_init(|| install().map_err(|error| error.raw_os_error().unwrap_or(0)));
    result.map_err(io::Error::from_raw_os_error)
}

extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes the interrupted context and the signal's data, as requested by SA_SIGINFO. `current` is null
    // or the control of a sandbox that is alive.
    let is_handled = unsafe { end_call(signal, &*info, &mut *context.cast::<libc::ucontext_t>(), current()) };
    if !is_handled {
        // SAFETY: the arguments are those of this handler.
        unsafe { pass_on(signal, info, context) };
    }
}

/// Ends the call of the interrupted thread if it executes code of a module, and returns the offset of the instruction. For the
/// handler of a signal that another thread sends; the call then ends with [`TrapKind::Interrupted`].
pub fn interrupt(context: &mut libc::ucontext_t) -> Option<usize> {
    // SAFETY: null or the control of a sandbox that is alive, by `NativeSandbox::run`.
    unsafe { stop_at(context, current(), |_, _| TrapKind::Interrupted) }
}

/// Ends the call of the thread's sandbox if its code has raised the signal. Returns false if it has not.
///
/// # Safety
/// `control` is null or points to the control of the thread's current sandbox.
unsafe fn end_call(
    signal: libc::c_int,
    info: &libc::siginfo_t,
    context: &mut libc::ucontext_t,
    control: *mut Control,
) -> bool {
    let kind = |at: usize, control: &Control| match signal {
        libc::SIGSEGV => {
            // SAFETY: for this signal the kernel sets the address.
            let address = unsafe { info.si_addr() }.addr();
            if control.stack_guard.contains(&address) {
                TrapKind::StackOverflow
            } else {
                TrapKind::Access(address)
            }
        }
        // SAFETY: the instruction at this address has just been executed.
        libc::SIGILL => unsafe { trap_code(at, control.code.end) }.map_or(TrapKind::Unknown, TrapKind::Code),
        _ => TrapKind::Code(TrapCode::Arithmetic),
    };
    // SAFETY: by this function's contract.
    unsafe { stop_at(context, control, kind) }.is_some()
}

/// Makes the thread leave the module's code, if it executes an instruction of it. `kind` gets the address of the instruction.
/// Returns the offset of the instruction in the code.
///
/// # Safety
/// As [`end_call`].
unsafe fn stop_at(
    context: &mut libc::ucontext_t,
    control: *mut Control,
    kind: impl FnOnce(usize, &Control) -> TrapKind,
) -> Option<usize> {
    // SAFETY: by this function's contract. The thread is interrupted in code of the module, or in other code that does not
    // hold a reference to the control.
    let control = unsafe { control.as_mut() }?;
    let registers = &mut context.uc_mcontext.gregs;
    let at = usize::try_from(registers[libc::REG_RIP as usize]).unwrap_or(0);
    if !control.code.contains(&at) {
        return None;
    }
    let (kind, offset) = (kind(at, control), at - control.code.start);
    control.trap = Some(NativeTrap { kind, offset });
    registers[libc::REG_RIP as usize] =
        libc::greg_t::try_from(leave_after_trap as *const () as usize).unwrap_or(0);
    Some(offset)
}

/// Returns the cause in the operand of the trapping instruction `ud1 eax, [eax + CAUSE]` at an address.
///
/// # Safety
/// The bytes from `at` to `end` are readable.
unsafe fn trap_code(at: usize, end: usize) -> Option<TrapCode> {
    const UD1: [u8; 4] = [0x67, 0x0f, 0xb9, 0x40];
    if end - at <= UD1.len() {
        return None;
    }
    // SAFETY: inside the code, by the comparison above.
    let bytes = unsafe { ptr::without_provenance::<[u8; 5]>(at).read() };
    let [start @ .., code] = bytes;
    (start == UD1).then(|| TrapCode::from_number(code)).flatten()
}

/// Calls the handler that was set before, or ends the process as without a handler.
///
/// # Safety
/// The arguments are those of a signal handler.
unsafe fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(index) = SIGNALS.iter().position(|known| *known == signal) else { return };
    // SAFETY: written before the handler was installed.
    let previous = unsafe { (*PREVIOUS.0.get())[index].assume_init_ref() };
    match previous.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // The instruction is executed again, and the default action ends the process.
            // SAFETY: the default action for a signal.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with this flag, the value is a function with these arguments.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without this flag, the value is a function with this argument.
            let handler: extern "C" fn(libc::c_int) = unsafe { mem::transmute(handler) };
            handler(signal);
        }
    }
}
