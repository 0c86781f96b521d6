//! A proof that x86-64 machine code of a module is memory-safe, before it runs.
//!
//! An untrusted process compiles a module. [`verify()`] reads the machine code that it returns, and accepts only code
//! for which the argument below holds. Nothing else is trusted of the compiler: the code may come from an attacker.
//!
//! # The property
//!
//! Verified code reads and writes memory only in these places:
//!
//! - the *region* of its instance: from `globals_bytes` below the base of the linear memory, which is in GS, to 4 GiB
//!   and `guard_bytes` above it;
//! - the *frame* of the running function: from the stack pointer up to its value at entry. The return address and the
//!   stack arguments above it are not written; of the two, only the arguments are read, apart from `ret` itself;
//! - the *constants* of the image, which it only reads.
//!
//! It executes only instructions of the image on the allow-list, each from its first byte, and enters a granted thunk
//! only at its start. It leaves every callee-saved register, the direction flag, MXCSR's control bits, the x87 state,
//! segment bases and protection keys as they were.
//!
//! # What the environment must do
//!
//! - The code is mapped at one address, the constants at the next page ([`VerifiedCode::constants_start`]), and the
//!   thunks at [`THUNK_BYTES`] apart below the code. The code is executable and not writable, the constants are neither.
//! - The whole region belongs to the instance, or traps, and does not contain the stack, the code or the constants.
//! - Below the stack are at least `frame_max + 8` inaccessible bytes. Nothing but the code writes to the stack between
//!   two of its instructions: signals use another stack.
//! - A call from outside enters a function at its start with the direction flag clear, the stack pointer 8 above a
//!   multiple of 16, the return address there, and [`ImageFunction::stack_arguments`] readable bytes above it. This
//!   number comes from the compiler.
//! - Thunks preserve callee-saved registers, the direction flag and GS. They may change their stack arguments and
//!   everything below them.
//! - A trap (a page fault, division, an alignment fault, `ud2`) ends the call.
//! - Registers and vector registers hold no secrets when the code is entered, and the stack holds only values of this
//!   module, because the code may read what it has not written. Image and stack addresses are not secret.
//!
//! # The argument
//!
//! 1. *Every executed instruction is known.* The sweep (`decode`) divides each function into instructions without gap or
//!    overlap. Each is on the allow-list (`allow`), has usual prefixes (`prefix`) and operands of known kinds. Jumps lead
//!    to instructions of the same function (`flow`); calls lead to functions and granted thunks; there are no indirect
//!    jumps, and no path passes the end of a function. Returns are covered by 3.
//! 2. *Every access is in an allowed place.* The analysis (`function`) computes, for each instruction, a state that
//!    covers all executions: each register is a number in an interval, or an interval relative to the stack pointer at
//!    entry, to the image, or to the entry value of a callee-saved register (`value`). The same holds for values that
//!    are spilled to the frame (`state`). It starts with arbitrary arguments and follows all edges until no state
//!    changes. `transfer` assumes nothing about flags. The place of each memory operand follows from its address
//!    (`access`); with the address-size prefix, it is any number below 2^32. Other instructions than those that push, pop,
//!    call and return access no other memory.
//! 3. *Calls and returns are nested.* In each function the stack pointer is a known distance below its value at entry.
//!    Writes to the stack lie in the frame, so they are below the return addresses of the function and of all its
//!    callers. A function returns with the stack pointer of entry, so `ret` uses its own return address. Thus a
//!    caller may assume that a call keeps its frame and the callee-saved registers; this is induction over the
//!    length of the execution.
//! 4. *The stack has an end.* No frame has more than `frame_max` bytes. Each call writes a return address, and no access
//!    is further from the last one than a frame, so a stack that is too small runs into the inaccessible bytes below it.
//!    [`VerifiedCode::stack_bound`] tells how much is needed without recursion.
//!
//! Loops terminate or not; time is bounded by the meter in the code, which is the compiler's. Speculative execution is
//! not covered.
//!
//! The crate is pure: bytes in, proof or rejections out. No input causes a panic, and time and memory are bounded by the
//! size of the image.

#![forbid(unsafe_code)]

mod access;
mod allow;
mod calls;
mod decode;
mod flow;
mod function;
mod image;
mod observe;
mod prefix;
mod rule;
mod state;
#[cfg(test)]
mod tests;
mod transfer;
mod value;

pub use access::Place;
pub use image::{
    CONSTANTS_ALIGNMENT, Callee, CodeImage, CpuFeatures, FunctionFacts, ImageFunction, PADDING, THUNK_BYTES,
    VerifiedCode, VerifyLimits,
};
pub use observe::{ObservedAccess, ObservedInstruction};
pub use rule::{REJECTIONS_MAX, Rejection, Rejections, Rule};

use function::{FunctionSubject, FunctionVerifier};
use image::Surroundings;

/// Proves that the code of an image is memory-safe within an environment.
///
/// # Errors
///
/// Returns up to [`REJECTIONS_MAX`] places that break a [`Rule`]. A compiler may replace accesses that are not proved
/// ([`Rule::is_access`]) by checked ones, and submit the image again.
pub fn verify(image: CodeImage, limits: &VerifyLimits) -> Result<VerifiedCode, Rejections> {
    verify_each(image, limits, |_, _, _| {})
}

/// Verifies an image as [`verify()`] does, and calls `observe` for each instruction, in their order, with the facts on which
/// the verdict rests. Code that is rejected is observed up to the function with the last rejection of the list.
///
/// # Errors
///
/// As [`verify()`].
pub fn explain(
    image: CodeImage,
    limits: &VerifyLimits,
    mut observe: impl FnMut(ObservedInstruction),
) -> Result<VerifiedCode, Rejections> {
    verify_each(image, limits, |verifier, index, subject| verifier.observe(index, subject, &mut observe))
}

/// Verifies an image. Calls `examine` after each function, with the verifier, and the function with its index.
fn verify_each(
    image: CodeImage,
    limits: &VerifyLimits,
    mut examine: impl FnMut(&mut FunctionVerifier, u32, FunctionSubject<'_>),
) -> Result<VerifiedCode, Rejections> {
    let surroundings = Surroundings::of(&image, limits)?;
    let mut verifier = FunctionVerifier::new(limits.features);
    let mut facts = Vec::with_capacity(image.functions.len());
    let mut rejected = Vec::new();
    let ends = image.functions.iter().skip(1).map(|next| next.offset as usize).chain([image.code.len()]);
    for (index, (function, end)) in (0..).zip(image.functions.iter().zip(ends)) {
        // `Surroundings` has checked the offsets.
        let code = image.code.get(function.offset as usize..end).unwrap_or_default();
        let subject = FunctionSubject { function: *function, code, surroundings: &surroundings };
        facts.push(verifier.verify(subject));
        examine(&mut verifier, index, subject);
        verifier.report.drain_into(index, &mut rejected);
        if rejected.len() >= REJECTIONS_MAX {
            break;
        }
    }
    if let Some(rejections) = Rejections::from_list(rejected) {
        return Err(rejections);
    }
    calls::bound_stacks(&mut facts);
    Ok(VerifiedCode::new(image, facts))
}
