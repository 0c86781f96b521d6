//! The function that replaces `memory.copy`.
//!
//! The `memory.copy` instruction checks its operands against the memory's size. Packets and descriptors are mapped above
//! that size, so copying out of them would trap. This function copies from them with ordinary loads and stores.

use crate::load::meter::{MeteredBody, Scratch};
use wasm_encoder::{BlockType, MemArg, MemArgTarget};
use weir_abi::ARENA_BASE;

/// The indices of the parameters, which are those of `memory.copy`, and of two locals.
const TO: u32 = 0;
const FROM: u32 = 1;
const LENGTH: u32 = 2;
const AT: u32 = 3;
const LAST: u32 = 4;

/// Bytes that one step of the loop copies.
const STEP: i32 = 16;

/// Builds the function with the parameters `(to: i32, from: i32, length: i32)`. It makes no charge: the charge is made
/// where the replaced instruction was.
///
/// Like the instruction, the function writes nothing unless all of `to..to + length` is writable: it copies the last
/// bytes first. A length larger than any area is charged as 0, and nothing is copied. A source outside the private
/// memory and a destination cannot overlap.
pub(crate) fn function() -> MeteredBody {
    let mut body = MeteredBody::new([(2, wasm_encoder::ValType::I32)], Scratch::after(LAST + 1));
    let arena = ARENA_BASE.cast_signed();
    let mut code = body.code.instructions();
    // The instruction itself copies from the private memory. It also traps on a destination or an end that is out of
    // range.
    code.local_get(FROM).i32_const(arena).i32_lt_u();
    code.local_get(TO).local_get(LENGTH).i32_or().i32_const(arena).i32_ge_u().i32_or();
    code.local_get(FROM).local_get(LENGTH).i32_add().local_get(FROM).i32_lt_u().i32_or();
    code.if_(BlockType::Empty);
    code.local_get(TO).local_get(FROM).local_get(LENGTH).memory_copy(0, 0).return_().end();

    code.local_get(LENGTH).i32_const(STEP).i32_lt_u().if_(BlockType::Empty);
    // Less than one step: two pieces that may overlap.
    for size in [8, 4, 2, 1] {
        let mut code = body.code.instructions();
        code.local_get(LENGTH).i32_const(size).i32_ge_u().if_(BlockType::Empty);
        code.local_get(LENGTH).i32_const(size).i32_sub().local_set(AT);
        piece(&mut body, size, Some(AT));
        piece(&mut body, size, None);
        body.code.instructions().return_().end();
    }
    let mut code = body.code.instructions();
    code.return_().end();

    code.local_get(LENGTH).i32_const(STEP).i32_sub().local_set(LAST);
    piece(&mut body, STEP, Some(LAST));
    body.code.instructions().loop_(BlockType::Empty);
    piece(&mut body, STEP, Some(AT));
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

/// Writes code that copies `size` bytes at the offset in local `at`; without it, at offset 0.
fn piece(body: &mut MeteredBody, size: i32, at: Option<u32>) {
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
