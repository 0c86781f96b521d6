//! Writes the function that replaces `memory.copy` in a module.
//!
//! The `memory.copy` instruction checks its operands against the memory's size. Packets and descriptors are mapped above
//! that size, so the instruction would trap on them. The function copies them with ordinary loads and stores.

use crate::load::meter::{MeteredBody, Scratch};
use wasm_encoder::{BlockType, MemArg, MemArgTarget};
use weir_abi::ARENA_BASE;

// The indices of the parameters, which are the operands of `memory.copy`.
const TO: u32 = 0;
const FROM: u32 = 1;
const LENGTH: u32 = 2;
/// The index of the local with the offset of the next copied bytes.
const AT: u32 = 3;
/// The index of the local with the offset of the last step.
const LAST: u32 = 4;

/// Bytes that one step of the loop copies.
const STEP: i32 = 16;

/// Builds the function, with the parameters `(to: i32, from: i32, length: i32)`. Charges are made at the calls, in place of
/// the replaced instructions, and not in this function.
///
/// Like the instruction, the function writes nothing if a part of `to..to + length` is not writable, because it copies the
/// last bytes first. A length larger than any area is charged as 0, and the function then copies nothing. A source outside
/// the private memory cannot overlap with a destination.
pub(crate) fn function() -> MeteredBody {
    let mut body = MeteredBody::new([(2, wasm_encoder::ValType::I32)], Scratch::after(LAST + 1));
    let arena = ARENA_BASE.cast_signed();
    let mut code = body.code.instructions();
    // `memory.copy` itself is executed if the source is in the private memory. It is also executed if the destination or an
    // end is out of range, where it traps.
    code.local_get(FROM).i32_const(arena).i32_lt_u();
    code.local_get(TO).local_get(LENGTH).i32_or().i32_const(arena).i32_ge_u().i32_or();
    code.local_get(FROM).local_get(LENGTH).i32_add().local_get(FROM).i32_lt_u().i32_or();
    code.if_(BlockType::Empty);
    code.local_get(TO).local_get(FROM).local_get(LENGTH).memory_copy(0, 0).return_().end();

    code.local_get(LENGTH).i32_const(STEP).i32_lt_u().if_(BlockType::Empty);
    // Less than one step is copied in two parts that may overlap.
    for size in [8, 4, 2, 1] {
        let mut code = body.code.instructions();
        code.local_get(LENGTH).i32_const(size).i32_ge_u().if_(BlockType::Empty);
        code.local_get(LENGTH).i32_const(size).i32_sub().local_set(AT);
        copy_bytes(&mut body, size, Some(AT));
        copy_bytes(&mut body, size, None);
        body.code.instructions().return_().end();
    }
    let mut code = body.code.instructions();
    code.return_().end();

    code.local_get(LENGTH).i32_const(STEP).i32_sub().local_set(LAST);
    copy_bytes(&mut body, STEP, Some(LAST));
    body.code.instructions().loop_(BlockType::Empty);
    copy_bytes(&mut body, STEP, Some(AT));
    let mut code = body.code.instructions();
    code.local_get(AT)
        .i32_const(STEP)
        .i32_add()
        .local_tee(AT)
        .local_get(LAST)
        .i32_lt_u()
        .br_if(0)
        .end()
        .end();
    body
}

/// Writes code that copies `size` bytes at the offset in the local `at`. `None` stands for offset 0.
fn copy_bytes(body: &mut MeteredBody, size: i32, at: Option<u32>) {
    let operand = MemArg { offset: 0, align: 0, target: MemArgTarget::Memory(0), ordering: None };
    let mut code = body.code.instructions();
    for base in [TO, FROM] {
        code.local_get(base);
        if let Some(at) = at {
            code.local_get(at).i32_add();
        }
    }
    match size {
        STEP => code.v128_load(operand).v128_store(operand),
        8 => code.i64_load(operand).i64_store(operand),
        4 => code.i32_load(operand).i32_store(operand),
        2 => code.i32_load16_u(operand).i32_store16(operand),
        _ => code.i32_load8_u(operand).i32_store8(operand),
    };
}
