//! The function that stands in place of `memory.copy`.
//!
//! Bulk instructions reach only what belongs to the memory's size, so by themselves they trap where they are to copy out of a packet or a
//! descriptor: those are mapped above it. Whoever copies from there has the bytes read and written by ordinary instructions.

use crate::load::meter::{MeteredBody, Scratch};
use wasm_encoder::{BlockType, MemArg, MemArgTarget};
use weir_abi::ARENA_BASE;

/// Parameters of `memory.copy`, and what follows them.
const TO: u32 = 0;
const FROM: u32 = 1;
const LENGTH: u32 = 2;
const AT: u32 = 3;
const LAST: u32 = 4;

/// Bytes that one step of the loop copies.
const STEP: i32 = 16;

/// `(to: i32, from: i32, length: i32)`. What it is charged is charged where the instruction stood.
///
/// As the instruction it writes nothing where `to` is not the module's to write as far as it is to go, because the last bytes are copied first;
/// so a length that is charged as nothing, because nothing is so long, is also worked on as nothing. Source and destination cannot overlap.
pub(crate) fn function() -> MeteredBody {
    let mut body = MeteredBody::new([(2, wasm_encoder::ValType::I32)], Scratch::after(LAST + 1));
    let arena = ARENA_BASE.cast_signed();
    let mut code = body.code.instructions();
    // The module's own memory; or a destination or an end that no address has, which is the instruction's to refuse.
    code.local_get(FROM).i32_const(arena).i32_lt_u();
    code.local_get(TO).local_get(LENGTH).i32_or().i32_const(arena).i32_ge_u().i32_or();
    code.local_get(FROM).local_get(LENGTH).i32_add().local_get(FROM).i32_lt_u().i32_or();
    code.if_(BlockType::Empty);
    code.local_get(TO).local_get(FROM).local_get(LENGTH).memory_copy(0, 0).return_().end();

    code.local_get(LENGTH).i32_const(STEP).i32_lt_u().if_(BlockType::Empty);
    // Fewer bytes than a step has: two pieces that may overlap.
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

/// Copies so many bytes from an offset on, which is in a local.
fn piece(body: &mut MeteredBody, size: i32, at: Option<u32>) {
    let there = MemArg { offset: 0, align: 0, target: MemArgTarget::Memory(0), ordering: None };
    let mut code = body.code.instructions();
    for base in [TO, FROM] {
        code.local_get(base);
        if let Some(at) = at {
            code.local_get(at).i32_add();
        }
    }
    match size {
        STEP => code.v128_load(there).v128_store(there),
        8 => code.i64_load(there).i64_store(there),
        4 => code.i32_load(there).i32_store(there),
        2 => code.i32_load16_u(there).i32_store16(there),
        _ => code.i32_load8_u(there).i32_store8(there),
    };
}
