//! Object files with changed bits: the verifier rejects the code, or the code runs without an access outside its memory.
//!
//! The files of `objects` are modules as the loader rewrites them, and clang's object files of them. The ignored
//! test `prebuilt_objects_are_written` of edge/sandbox writes them anew.

use crate::support::Space;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{mem, ptr};
use weir_lower::{LinkedObject, Lowered, link, lower};
use weir_native::{
    CODE_MAX, HostAnswer, HostCalls, NativeCode, NativeExit, NativeGlobals, NativeSandbox, TrapKind,
    verify_limits,
};
use weir_verify::{VerifiedCode, verify};

/// The bits that are flipped one after the other without `WEIR_FLIPS=all`, of each file.
const SAMPLE: usize = 3000;
/// The calls of each exported function.
const CALLS: u64 = 3;
/// The host calls after which a call of the module is aborted.
const HOST_CALLS: u32 = 200;

/// A name, the rewritten module, and its object file.
fn objects() -> [(&'static str, &'static [u8], &'static [u8]); 2] {
    [
        ("rtt", include_bytes!("objects/rtt.wasm"), include_bytes!("objects/rtt.o")),
        ("http", include_bytes!("objects/http.wasm"), include_bytes!("objects/http.o")),
    ]
}

fn verified(object: &[u8], lowered: &Lowered) -> Result<(VerifiedCode, Vec<u32>), String> {
    let LinkedObject { image, functions } =
        link(object, lowered, CODE_MAX).map_err(|error| error.to_string())?;
    let verified = verify(image, &verify_limits(lowered.thunks.len())).map_err(|error| error.to_string())?;
    Ok((verified, functions))
}

#[test]
fn prebuilt_objects_are_verified() {
    for (name, wasm, object) in objects() {
        let lowered = lower(wasm).unwrap();
        let (code, functions) = verified(object, &lowered).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(functions.len(), code.functions().len());
        assert!(code.code().len() > 4000 && code.stack_bound().is_some(), "{name}");
    }
}

#[test]
fn objects_for_other_machines_and_of_other_kinds_are_refused() {
    let (_, wasm, object) = objects()[0];
    let lowered = lower(wasm).unwrap();
    let changed = |at: usize, bytes: &[u8]| {
        let mut object = object.to_vec();
        object[at..at + bytes.len()].copy_from_slice(bytes);
        verified(&object, &lowered).unwrap_err()
    };
    // The machine AArch64, the kind of a program, 32 bits, another byte order.
    assert!(changed(18, &183_u16.to_le_bytes()).contains("x86-64"));
    assert!(changed(16, &2_u16.to_le_bytes()).contains("relocatable"));
    assert!(changed(4, &[1]).contains("not an object file"));
    assert!(changed(5, &[2]).contains("not an object file") || changed(5, &[2]).contains("x86-64"));
    assert!(verified(&object[..object.len() / 2], &lowered).is_err());
    assert!(verified(&[], &lowered).is_err());
    // That of another module.
    assert!(verified(objects()[1].2, &lowered).is_err());
}

/// Answers of the host that depend on nothing but the number of the call.
struct Answers {
    calls: u32,
}

impl HostCalls for Answers {
    fn call(&mut self, _: u32, arguments: &[u64; 6], _: NativeGlobals<'_>) -> HostAnswer {
        self.calls += 1;
        match self.calls {
            HOST_CALLS.. => HostAnswer::Abort,
            calls => HostAnswer::Value(arguments[0].wrapping_mul(0x9e37_79b9).rotate_left(calls)),
        }
    }
}

/// Interrupts the code of a thread again and again, until it is dropped.
struct Interrupter {
    is_over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Interrupter {
    /// Begins to interrupt the calling thread.
    fn start() -> Self {
        extern "C" fn on_signal(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
            // SAFETY: the kernel passes the interrupted context, as requested by SA_SIGINFO.
            weir_native::interrupt(unsafe { &mut *context.cast::<libc::ucontext_t>() });
        }
        // SAFETY: sigaction is a plain C struct for which all zeros are a value.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: the pointer is to a live local, and the handler is async-signal-safe.
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut()) }, 0);
        // SAFETY: has no conditions.
        let target = unsafe { libc::pthread_self() };
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(2));
                // SAFETY: the thread lives until this one has been joined.
                unsafe { libc::pthread_kill(target, libc::SIGUSR1) };
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Interrupter {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// Calls all exported functions with various arguments. Returns the number of traps.
///
/// # Errors
/// An access outside the module's memory, to an address without memory.
fn run(code: VerifiedCode, functions: &[u32], lowered: &Lowered, space: &Space) -> Result<u32, String> {
    let code = Arc::new(NativeCode::new(code, lowered.thunks.len()).unwrap());
    // SAFETY: no other sandbox uses the space now, and it is dropped after this one.
    let mut sandbox = unsafe { NativeSandbox::new(space.base(), code, 1 << 20).unwrap() };
    let mut traps = 0;
    for (export, function) in &lowered.exports {
        let Some(function) = function.checked_sub(lowered.imported) else { continue };
        for call in 0..CALLS {
            let arguments = [64 * call, 0x7f_ffff >> (8 * call), 300 * call, u64::MAX, 5, call];
            let exit = sandbox.call(functions[function as usize], &arguments, &mut Answers { calls: 0 });
            if let NativeExit::Trapped(trap) = exit {
                traps += 1;
                if let TrapKind::Access(address) = trap.kind
                    && !space.contains(address)
                {
                    return Err(format!("`{export}` accesses {address:#x} at {:#x}", trap.offset));
                }
            }
        }
    }
    Ok(traps)
}

#[test]
fn objects_with_a_flipped_bit_are_rejected_or_stay_in_their_memory() {
    if !weir_native::is_supported() {
        _ = writeln!(std::io::stderr(), "SKIPPED: this machine cannot run native code");
        return;
    }
    let all = std::env::var("WEIR_FLIPS").is_ok_and(|which| which == "all");
    let space = Space::new(1 << 20);
    let _interrupter = Interrupter::start();
    for (name, wasm, object) in objects() {
        let lowered = lower(wasm).unwrap();
        let bits = object.len() * 8;
        // The step has no common divisor with a number of bits that is a multiple of 8, so a sample spreads over the file.
        let step = (bits / SAMPLE) | 1;
        let flipped: Vec<usize> = if all { (0..bits).collect() } else { (0..bits).step_by(step).collect() };
        let (original, _) = verified(object, &lowered).unwrap();
        let (mut rejected, mut unchanged, mut accepted, mut traps) = (0, 0, 0, 0);
        for bit in &flipped {
            let mut object = object.to_vec();
            object[bit / 8] ^= 1 << (bit % 8);
            match verified(&object, &lowered) {
                Err(_) => rejected += 1,
                // The bit is one of the symbols or debug lines.
                Ok((code, _))
                    if code.code() == original.code() && code.constants() == original.constants() =>
                {
                    unchanged += 1;
                }
                Ok((code, functions)) => {
                    accepted += 1;
                    traps += run(code, &functions, &lowered, &space)
                        .unwrap_or_else(|error| panic!("{name}, bit {bit}: {error}"));
                }
            }
        }
        println!(
            "{name}: {rejected} rejected, {accepted} accepted with {traps} traps, {unchanged} without effect"
        );
        assert!(rejected > flipped.len() / 20 && accepted > flipped.len() / 50 && traps > 0, "{name}");
    }
}
