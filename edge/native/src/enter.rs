//! The code that enters and leaves a module: the only assembler code.
//!
//! The host calls [`enter`] or [`resume`], which switch to the stack of the module and set the base of GS. Code of the module
//! calls a thunk, which jumps to [`call_host`]; that switches to the stack of the host. All registers that could hold a value
//! of the host are cleared before code of the module runs.

use crate::control::{ABORTED, Control, Exit, RETURNED, SUSPENDED, TRAPPED};
use crate::globals::NativeGlobals;
use crate::layout::BELOW;
use crate::sandbox::HostAnswer;
use std::arch::naked_asm;
use std::mem::offset_of;

/// The offset of the host's page, which has the [`Control`], from the base of GS. While code of a module runs, the base of GS
/// is the beginning of the module's memory.
#[expect(clippy::cast_possible_wrap, clippy::cast_possible_truncation, reason = "64 KiB")]
const CONTROL: i32 = -(BELOW as i32);
/// The offset of a field of [`Control`] from the base of GS.
#[expect(clippy::cast_possible_wrap, clippy::cast_possible_truncation, reason = "less than a page")]
const fn field(offset: usize) -> i32 {
    CONTROL + offset as i32
}

const HOST_STACK: i32 = field(offset_of!(Control, host_stack));
const GUEST_STACK: i32 = field(offset_of!(Control, guest_stack));
const SAVED: i32 = field(offset_of!(Control, saved));
/// The field that has the address of the control itself, which is the first argument of [`dispatch`].
const CONTROL_ADDRESS: i32 = field(offset_of!(Control, address));

/// Clears the vector registers.
macro_rules! clear_vectors {
    () => {
        "pxor xmm0, xmm0
         pxor xmm1, xmm1
         pxor xmm2, xmm2
         pxor xmm3, xmm3
         pxor xmm4, xmm4
         pxor xmm5, xmm5
         pxor xmm6, xmm6
         pxor xmm7, xmm7
         pxor xmm8, xmm8
         pxor xmm9, xmm9
         pxor xmm10, xmm10
         pxor xmm11, xmm11
         pxor xmm12, xmm12
         pxor xmm13, xmm13
         pxor xmm14, xmm14
         pxor xmm15, xmm15"
    };
}

/// Pushes the registers that the host's calling convention preserves, and the base of GS. Then sets the base of GS to the
/// beginning of the module's memory; rdi has the address of the sandbox's control. Afterwards the stack pointer is a
/// multiple of 16, and is stored in the control.
macro_rules! leave_host {
    () => {
        "push rbp
         push rbx
         push r12
         push r13
         push r14
         push r15
         rdgsbase rax
         push rax
         lea rax, [rdi + {below}]
         wrgsbase rax
         mov gs:[{host_stack}], rsp"
    };
}

/// Calls a function of the module, at the address `function`, with six arguments.
///
/// # Safety
/// `control` is the control of a sandbox. The sandbox's memory begins [`BELOW`] bytes after `control`. `function` is the
/// address of a verified function of the sandbox's code, and this function takes no arguments on the stack.
// SAFETY: the assembler code keeps the calling convention, as the documentation of the file says.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn enter(control: *mut Control, function: usize, arguments: &[u64; 6]) -> Exit {
    naked_asm!(
        leave_host!(),
        "mov rsp, [rdi + {stack_top}]",
        "mov rax, rsi",
        "mov r10, rdx",
        "mov rdi, [r10]",
        "mov rsi, [r10 + 8]",
        "mov rdx, [r10 + 16]",
        "mov rcx, [r10 + 24]",
        "mov r8, [r10 + 32]",
        "mov r9, [r10 + 40]",
        "xor r10d, r10d",
        "xor r11d, r11d",
        "xor ebx, ebx",
        "xor ebp, ebp",
        "xor r12d, r12d",
        "xor r13d, r13d",
        "xor r14d, r14d",
        "xor r15d, r15d",
        clear_vectors!(),
        "call rax",
        "mov rdx, rax",
        "mov rsp, gs:[{host_stack}]",
        "mov eax, {returned}",
        "jmp {leave}",
        below = const BELOW,
        host_stack = const HOST_STACK,
        stack_top = const offset_of!(Control, stack_top),
        returned = const RETURNED,
        leave = sym return_to_host,
    )
}

/// Continues a call that a host function has suspended: returns `value` to the module as the result of the host function.
///
/// # Safety
/// `control` is the control of a sandbox whose call is suspended.
// SAFETY: the assembler code keeps the calling convention, as the documentation of the file says.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn resume(control: *mut Control, value: u64) -> Exit {
    naked_asm!(
        leave_host!(),
        "mov rax, rsi",
        "mov rbx, gs:[{saved}]",
        "mov rbp, gs:[{saved} + 8]",
        "mov r12, gs:[{saved} + 16]",
        "mov r13, gs:[{saved} + 24]",
        "mov r14, gs:[{saved} + 32]",
        "mov r15, gs:[{saved} + 40]",
        "jmp {answer}",
        below = const BELOW,
        host_stack = const HOST_STACK,
        saved = const SAVED,
        answer = sym return_to_guest,
    )
}

/// The code that every thunk jumps to, with its number in eax: calls the host function on the stack of the host.
// SAFETY: the assembler code keeps the calling convention, as the documentation of the file says.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call_host() {
    naked_asm!(
        "mov gs:[{guest_stack}], rsp",
        "mov rsp, gs:[{host_stack}]",
        "push r9",
        "push r8",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "mov rdi, gs:[{control_address}]",
        "mov esi, eax",
        "mov rdx, rsp",
        "call {dispatch}",
        "test eax, eax",
        "jnz 2f",
        "mov rax, rdx",
        "jmp {answer}",
        // The host's functions have preserved these registers.
        "2: mov gs:[{saved}], rbx",
        "mov gs:[{saved} + 8], rbp",
        "mov gs:[{saved} + 16], r12",
        "mov gs:[{saved} + 24], r13",
        "mov gs:[{saved} + 32], r14",
        "mov gs:[{saved} + 40], r15",
        "mov rsp, gs:[{host_stack}]",
        "jmp {leave}",
        guest_stack = const GUEST_STACK,
        host_stack = const HOST_STACK,
        control_address = const CONTROL_ADDRESS,
        saved = const SAVED,
        dispatch = sym dispatch,
        answer = sym return_to_guest,
        leave = sym return_to_host,
    )
}

/// Returns to the module from a thunk. rax has the result of the host function. It is copied to xmm0, because a module takes
/// a float from there.
// SAFETY: the assembler code keeps the calling convention, as the documentation of the file says.
#[unsafe(naked)]
unsafe extern "C" fn return_to_guest() {
    naked_asm!(
        "mov rsp, gs:[{guest_stack}]",
        "xor ecx, ecx",
        "xor edx, edx",
        "xor esi, esi",
        "xor edi, edi",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "xor r10d, r10d",
        "xor r11d, r11d",
        clear_vectors!(),
        "movq xmm0, rax",
        "ret",
        guest_stack = const GUEST_STACK,
    )
}

/// The code at which a thread continues after a trap.
// SAFETY: the assembler code keeps the calling convention, as the documentation of the file says.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn leave_after_trap() {
    naked_asm!(
        "mov rsp, gs:[{host_stack}]",
        "mov eax, {trapped}",
        "xor edx, edx",
        "jmp {leave}",
        host_stack = const HOST_STACK,
        trapped = const TRAPPED,
        leave = sym return_to_host,
    )
}

/// Returns to the caller of [`enter`] or [`resume`], with the exit in rax and rdx. The stack is that of the host.
// SAFETY: the assembler code keeps the calling convention, as the documentation of the file says.
#[unsafe(naked)]
unsafe extern "C" fn return_to_host() {
    naked_asm!(
        "pop rcx",
        "wrgsbase rcx",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Calls a host function with the arguments in its six registers.
unsafe extern "C" fn dispatch(control: *mut Control, thunk: u32, arguments: &[u64; 6]) -> Exit {
    // SAFETY: the control of the sandbox whose code runs on this thread. The code is in a call of `NativeSandbox`, which
    // uses the control only before and after.
    let host = unsafe { (*control).host };
    let answer = match host {
        // SAFETY: `NativeSandbox` borrows the host functions for the duration of the call. The module waits for the answer.
        Some(host) => unsafe { (*host).call(thunk, arguments, NativeGlobals::of(control)) },
        None => HostAnswer::Abort,
    };
    match answer {
        HostAnswer::Value(value) => Exit { status: RETURNED, value },
        HostAnswer::Suspend => Exit { status: SUSPENDED, value: 0 },
        HostAnswer::Abort => Exit { status: ABORTED, value: 0 },
    }
}
