//! A module unchanged but for a plain loop over the batch: a proved module must not cost more.

use crate::appended::Appended;
use std::convert::Infallible;
use wasm_encoder::reencode::Error;
use wasm_encoder::{BlockType, Function};
use weir_admission::ModuleInfo;
use weir_bounds::EntryPoint;

/// Adds a function that takes a batch, and exports it in place of the packet function. Like the loader's, it has the remaining packets in a global. A
/// descriptor is at each multiple of `size` bytes.
pub fn with_batch(wasm: &[u8], facts: &ModuleInfo, size: usize) -> Result<Vec<u8>, Error<Infallible>> {
    const DESCRIPTORS: u32 = 0;
    const MASK: u32 = 1;
    let (rest, drops) = (facts.globals, facts.globals + 1);
    let mut function = Function::new([]);
    let mut body = function.instructions();
    body.i64_const(0).global_set(drops).local_get(MASK).global_set(rest);
    body.loop_(BlockType::Empty);
    body.local_get(DESCRIPTORS).local_get(MASK).i64_ctz().i32_wrap_i64();
    if size.is_power_of_two() {
        body.i32_const(size.trailing_zeros().cast_signed()).i32_shl();
    } else {
        body.i32_const(i32::try_from(size).unwrap_or(i32::MAX)).i32_mul();
    }
    body.i32_add().call(facts.entry_function);
    body.if_(BlockType::Empty);
    body.global_get(drops).i64_const(0).local_get(MASK).i64_sub().local_get(MASK).i64_and().i64_or();
    body.global_set(drops).end();
    body.local_get(MASK).i64_const(1).i64_sub().local_get(MASK).i64_and().local_tee(MASK).global_set(rest);
    body.local_get(MASK).i64_eqz().i32_eqz().br_if(0).end();
    body.global_get(drops).end();
    let export = (EntryPoint::Packet.name(), EntryPoint::Batch.name(), facts.functions);
    let functions = vec![(facts.types, function)];
    Appended { functions, has_batch_type: true, export: Some(export), ..Appended::default() }.to(wasm)
}
