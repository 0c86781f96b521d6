//! Modules from wasm-smith: valid ones with the imports and exports of weir's interface, and arbitrary code.

use super::{MANIFEST, with_manifest};
use arbitrary::Unstructured;
use std::sync::OnceLock;
use weir_abi::host::{HOST_FUNCTIONS, ValueType};

const MEMORY_BYTES: u64 = 1 << 20;

/// A module with the manifest of all generated modules; `None` if the choices do not suffice.
pub fn module(input: &[u8]) -> Option<Vec<u8>> {
    let mut choices = Unstructured::new(input);
    let config = shape(choices.arbitrary().ok()?, choices.ratio(1_u8, 2).ok()?);
    let module = wasm_smith::Module::new(config, &mut choices).ok()?;
    Some(with_manifest(module.to_bytes(), MANIFEST))
}

/// The shape of modules that admission accepts. If `is_plain`, they have nothing that only Cranelift compiles: several tables,
/// references, passive segments, functions with several results.
fn shape(choice: u8, is_plain: bool) -> wasm_smith::Config {
    static IMPORTS: OnceLock<Vec<u8>> = OnceLock::new();
    wasm_smith::Config {
        available_imports: Some(IMPORTS.get_or_init(all_imports).clone()),
        exports: Some(entry_points(choice)),
        // Only the exported memory, which is added to these.
        max_memories: 0,
        max_memory32_bytes: MEMORY_BYTES,
        max_tables: if is_plain { 1 } else { 2 },
        max_table_elements: 1000,
        max_instructions: 400,
        bulk_memory_enabled: !is_plain,
        // Reference types bring references to objects, which admission refuses.
        reference_types_enabled: choice >= 192 && !is_plain,
        simd_enabled: true,
        multi_value_enabled: !is_plain,
        saturating_float_to_int_enabled: true,
        sign_extension_ops_enabled: true,
        exceptions_enabled: false,
        gc_enabled: false,
        memory64_enabled: false,
        custom_page_sizes_enabled: false,
        relaxed_simd_enabled: false,
        shared_everything_threads_enabled: false,
        tail_call_enabled: false,
        threads_enabled: false,
        wide_arithmetic_enabled: false,
        extended_const_enabled: false,
        compact_imports_enabled: false,
        ..wasm_smith::Config::default()
    }
}

/// A module with every import of the interface.
fn all_imports() -> Vec<u8> {
    let name = |ty: ValueType| match ty {
        ValueType::I32 => "i32",
        ValueType::I64 => "i64",
        ValueType::F64 => "f64",
    };
    let imports: String = HOST_FUNCTIONS
        .iter()
        .map(|import| {
            let params: String = import.parameter_types().map(|ty| format!(" {}", name(ty))).collect();
            let result = name(import.result.value_type());
            format!("(import \"weir\" \"{}\" (func (param{params}) (result {result})))", import.name)
        })
        .collect();
    text(&format!("(module {imports})"))
}

/// A module with the entry points: one for packets or batches, and others by choice; `weir_start` rarely, because most
/// arbitrary start functions end the module.
fn entry_points(choice: u8) -> Vec<u8> {
    let has = |bits: u8| choice & bits == bits;
    let optional = |there, function| if there { function } else { "" };
    let entry = if has(1) {
        r#"(func (export "weir_batch") (param i32 i64) (result i64) unreachable)"#
    } else {
        r#"(func (export "weir_packet") (param i32) (result i32) unreachable)"#
    };
    let start = optional(has(2 | 4 | 8), r#"(func (export "weir_start") (result i32) unreachable)"#);
    let tick = optional(has(16), r#"(func (export "weir_tick") (param i64 i64) unreachable)"#);
    let stop = optional(has(32), r#"(func (export "weir_stop") (param i64) unreachable)"#);
    let lost = optional(has(64), r#"(func (export "weir_lost") (param i32) unreachable)"#);
    let low = optional(has(128), r#"(func (export "weir_low_memory") (param i64) unreachable)"#);
    let messages = optional(
        has(128),
        r#"(func (export "weir_serve") (param i64 i32 i32) unreachable)
           (func (export "weir_answer") (param i64 i32 i32) unreachable)"#,
    );
    text(&format!(
        r#"(module (memory (export "memory") 1) {entry} {start} {tick} {stop} {lost} {low} {messages})"#
    ))
}

fn text(wat: &str) -> Vec<u8> {
    wat::parse_str(wat).unwrap_or_else(|error| panic!("{error}"))
}
