//! Adapters, by which a function of any type is called in machine code: the host enters machine code with integers alone.
//!
//! The adapter of a function has no parameters and no result. It reads the arguments from exported globals, and writes the
//! result to one.

use super::{append, append_export, assembled, leb, sections};
use std::collections::BTreeMap;
use wasmparser::{CompositeInnerType, ExternalKind, FuncType, Parser, Payload, TypeRef, ValType};

/// The types of the functions that have adapters, by the names of their exports.
pub type Adapters = BTreeMap<String, FuncType>;

/// The export of the adapter of an exported function.
pub fn adapter_name(function: &str) -> String {
    format!("call {function}")
}

/// The export of the global for a parameter, counted from 1, or for the result, which is 0.
pub fn value_name(index: usize, ty: ValType) -> String {
    format!("value {index} {ty}")
}

/// The parts of a module that adapters refer to.
#[derive(Default)]
struct Parts {
    types: Vec<Option<FuncType>>,
    functions: Vec<u32>,
    imported: u32,
    globals: u32,
    exported: Vec<(String, u32)>,
}

fn parts(bytes: &[u8]) -> Option<Parts> {
    let mut parts = Parts::default();
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.ok()? {
            Payload::TypeSection(section) => {
                for ty in section.into_iter().flat_map(|group| group.expect("it is valid").into_types()) {
                    parts.types.push(match ty.composite_type.inner {
                        CompositeInnerType::Func(ty) => Some(ty),
                        _ => None,
                    });
                }
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    if let TypeRef::Func(ty) = import.ok()?.ty {
                        parts.functions.push(ty);
                        parts.imported += 1;
                    }
                }
            }
            Payload::FunctionSection(section) => {
                for ty in section {
                    parts.functions.push(ty.ok()?);
                }
            }
            Payload::GlobalSection(section) => parts.globals = section.count(),
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export.ok()?;
                    if export.kind == ExternalKind::Func {
                        parts.exported.push((export.name.to_owned(), export.index));
                    }
                }
            }
            _ => {}
        }
    }
    Some(parts)
}

/// Adds adapters for all exported functions without references and with at most one result.
pub fn with_adapters(bytes: &[u8]) -> Option<(Vec<u8>, Adapters)> {
    let Parts { types, functions, imported, globals, exported } = parts(bytes)?;
    let (mut sections, custom) = sections(bytes)?;
    let mut adapters = Adapters::new();
    // The globals by index and type.
    let mut values: BTreeMap<(usize, String), u32> = BTreeMap::new();
    let mut added = 0;
    let type_count = u32::try_from(types.len()).ok()?;
    append(&mut sections, 1, type_count, &[0x60, 0, 0]);
    for (name, function) in exported {
        let ty = types.get(*functions.get(function as usize)? as usize)?.clone()?;
        let is_adapted = ty.results().len() <= 1
            && ty.params().iter().chain(ty.results()).all(|ty| !matches!(ty, ValType::Ref(_)));
        if !is_adapted {
            continue;
        }
        let mut global = |index: usize, ty: ValType| {
            let next = globals + u32::try_from(values.len()).expect("few globals");
            *values.entry((index, ty.to_string())).or_insert_with(|| {
                append(&mut sections, 6, next, &global_of(ty));
                append_export(&mut sections, &value_name(index, ty), 3, next);
                next
            })
        };
        // No locals.
        let mut body = vec![0];
        for (index, ty) in (1..).zip(ty.params()) {
            body.extend([&[0x23], leb(global(index, *ty)).as_slice()].concat());
        }
        body.extend([&[0x10], leb(function).as_slice()].concat());
        for ty in ty.results() {
            body.extend([&[0x24], leb(global(0, *ty)).as_slice()].concat());
        }
        body.push(0x0b);
        let index = u32::try_from(functions.len()).ok()? + added;
        append(&mut sections, 3, index - imported, &leb(type_count));
        let entry = [leb(u32::try_from(body.len()).ok()?), body].concat();
        append(&mut sections, 10, index - imported, &entry);
        append_export(&mut sections, &adapter_name(&name), 0, index);
        added += 1;
        adapters.insert(name, ty);
    }
    Some((assembled(&sections, &custom)?, adapters))
}

/// A mutable global of this type, which is zero.
fn global_of(ty: ValType) -> Vec<u8> {
    let (code, zero): (u8, &[u8]) = match ty {
        ValType::I32 => (0x7f, &[0x41, 0]),
        ValType::I64 => (0x7e, &[0x42, 0]),
        ValType::F32 => (0x7d, &[0x43, 0, 0, 0, 0]),
        ValType::F64 => (0x7c, &[0x44, 0, 0, 0, 0, 0, 0, 0, 0]),
        ValType::V128 => (0x7b, &[0xfd, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ValType::Ref(_) => unreachable!("functions with references have no adapters"),
    };
    [&[code, 1], zero, &[0x0b]].concat()
}
