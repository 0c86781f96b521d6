//! Modules that are made to be hard to analyse: valid, and as large as admission takes them.

use wasm_encoder::{
    BlockType, CodeSection, ExportKind, ExportSection, Function, FunctionSection, InstructionSink, MemArg,
    MemArgTarget, MemorySection, MemoryType, Module, TypeSection, ValType,
};

/// Bytes of the large ones.
const MEGABYTE: usize = 1 << 20;

/// Each with what it is, in a few words.
pub fn all() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("1 MB of functions with loops", loops(MEGABYTE)),
        ("50,000 functions, each calling the next", chain(50_000)),
        ("40 functions, each calling the next twice with other arguments", doubling(40)),
        ("one function with 4,000 locals, all changed in a loop", locals(4_000)),
        ("5,000 blocks in each other", nested(5_000, false)),
        ("1,000 loops in each other", nested(1_000, true)),
        ("60 loops in each other, each with a counter", counters(60)),
        ("20,000 loops in a row", row(20_000)),
        ("50,000 decisions in a row, each with its own value", decisions(50_000)),
        ("br_table with 100,000 targets in a loop", table(100_000)),
        ("1 MB of stores to constant addresses", stores(MEGABYTE)),
    ]
}

/// A module of these functions, of type (i32) -> i32; the last is the packet function.
fn module(functions: &[Function]) -> Vec<u8> {
    let count = u32::try_from(functions.len()).unwrap_or(u32::MAX);
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32], [ValType::I32]);
    let mut declared = FunctionSection::new();
    let mut code = CodeSection::new();
    for function in functions {
        declared.function(0);
        code.function(function);
    }
    let mut memories = MemorySection::new();
    memories.memory(MemoryType {
        minimum: 4,
        maximum: None,
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    let mut exports = ExportSection::new();
    exports.export("memory", ExportKind::Memory, 0);
    exports.export("weir_packet", ExportKind::Func, count.saturating_sub(1));
    let mut module = Module::new();
    module.section(&types).section(&declared).section(&memories).section(&exports).section(&code);
    module.finish()
}

/// A function with so many more locals of type i32.
fn function(locals: u32, body: impl FnOnce(&mut InstructionSink<'_>)) -> Function {
    let mut function = Function::new([(locals, ValType::I32)]);
    let mut code = function.instructions();
    body(&mut code);
    code.end();
    function
}

const WORD: MemArg = MemArg { offset: 0, align: 2, target: MemArgTarget::Memory(0), ordering: None };

/// `for (local = 0; local < end; local += 1) body`, as LLVM has it: the test is at the end.
fn count(
    code: &mut InstructionSink<'_>,
    local: u32,
    end: i32,
    body: &mut dyn FnMut(&mut InstructionSink<'_>),
) {
    code.i32_const(0).local_set(local).loop_(BlockType::Empty);
    body(code);
    code.local_get(local).i32_const(1).i32_add().local_tee(local).i32_const(end).i32_ne().br_if(0).end();
}

fn loops(bytes: usize) -> Vec<u8> {
    let mut functions = Vec::new();
    let mut size = 0;
    while size < bytes {
        let next = functions.len();
        let made = function(4, |code| {
            for round in 0..8 {
                count(code, 1, 10 + round, &mut |code| {
                    code.local_get(0).local_get(1).i32_add().i32_const(0xFF00).i32_and().i32_load(WORD);
                    code.local_get(2).i32_add().local_tee(2).i32_const(7).i32_xor().local_set(3);
                    code.local_get(3)
                        .if_(BlockType::Empty)
                        .local_get(2)
                        .i32_const(1)
                        .i32_shr_u()
                        .local_set(2)
                        .end();
                });
            }
            code.local_get(2);
            if next > 0 && next % 50 != 0 {
                code.call(u32::try_from(next - 1).unwrap_or(0));
            }
        });
        size += made.byte_len() + 3;
        functions.push(made);
    }
    module(&functions)
}

fn chain(functions: u32) -> Vec<u8> {
    let each = (0..functions).map(|index| {
        function(0, |code| {
            code.local_get(0);
            if index > 0 {
                code.i32_const(1).i32_add().call(index - 1);
            }
        })
    });
    module(&each.collect::<Vec<_>>())
}

fn doubling(functions: u32) -> Vec<u8> {
    let each = (0..functions).map(|index| {
        function(0, |code| {
            code.local_get(0);
            if index > 0 {
                code.i32_const(1).i32_add().call(index - 1);
                code.local_get(0).i32_const(2).i32_mul().call(index - 1).i32_add();
            }
        })
    });
    module(&each.collect::<Vec<_>>())
}

fn locals(locals: u32) -> Vec<u8> {
    let packet = function(locals, |code| {
        count(code, 1, 100, &mut |code| {
            for local in 2..locals {
                code.local_get(local - 1).local_get(local).i32_add().local_set(local);
            }
        });
        code.local_get(locals - 1);
    });
    module(&[packet])
}

fn nested(depth: usize, loops: bool) -> Vec<u8> {
    let packet = function(1, |code| {
        for _ in 0..depth {
            if loops {
                code.loop_(BlockType::Empty)
            } else {
                code.block(BlockType::Empty)
            };
        }
        code.local_get(0).br_if(u32::try_from(depth / 2).unwrap_or(0));
        for _ in 0..depth {
            code.local_get(0).local_set(1).end();
        }
        code.local_get(1);
    });
    module(&[packet])
}

fn counters(depth: u32) -> Vec<u8> {
    fn inner(code: &mut InstructionSink<'_>, local: u32, depth: u32) {
        if local > depth {
            code.local_get(0).i32_const(1).i32_add().local_set(0);
        } else {
            count(code, local, 3, &mut |code| inner(code, local + 1, depth));
        }
    }
    let packet = function(depth, |code| {
        inner(code, 1, depth);
        code.local_get(0);
    });
    module(&[packet])
}

fn row(loops: i32) -> Vec<u8> {
    let packet = function(1, |code| {
        for end in 1..=loops {
            count(code, 1, end, &mut |code| {
                code.local_get(0).local_get(1).i32_add().local_set(0);
            });
        }
        code.local_get(0);
    });
    module(&[packet])
}

fn decisions(decisions: i32) -> Vec<u8> {
    let packet = function(1, |code| {
        for value in 0..decisions {
            code.local_get(0).i32_const(value).i32_and().if_(BlockType::Empty);
            code.local_get(1).i32_const(value).i32_add().local_set(1);
            code.end();
        }
        code.local_get(1);
    });
    module(&[packet])
}

fn table(targets: usize) -> Vec<u8> {
    let packet = function(1, |code| {
        count(code, 1, 50, &mut |code| {
            code.block(BlockType::Empty).block(BlockType::Empty).local_get(1);
            let all: Vec<u32> = (0..targets).map(|target| u32::try_from(target % 3).unwrap_or(0)).collect();
            code.br_table(all, 0).end().local_get(0).i32_const(1).i32_add().local_set(0).end();
        });
        code.local_get(0);
    });
    module(&[packet])
}

fn stores(bytes: usize) -> Vec<u8> {
    let mut packet = Function::new([]);
    let mut address = 0;
    while packet.byte_len() < bytes {
        packet.instructions().i32_const(address).local_get(0).i32_store(WORD);
        address = (address + 4) % 200_000;
    }
    packet.instructions().local_get(0).end();
    module(&[packet])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_them_are_valid_modules() {
        for (name, bytes) in all() {
            if let Err(error) = wasmparser::validate(&bytes) {
                panic!("{name}: {error}");
            }
        }
    }
}
