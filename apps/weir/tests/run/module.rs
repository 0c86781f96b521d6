//! Test modules from WebAssembly text.

use std::path::{Path, PathBuf};

/// The manifest of most test modules, where `NAME` stands for the name.
pub const MANIFEST: &str = "name = 'NAME'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\nmemory = '2 MiB'\n\
    [[parameter]]\nname = 'size'\ntype = 'u64'\ndefault = 8\nmax = 100\n\
    [[parameter]]\nname = 'text'\ntype = 'string'\ndefault = 'abc'\n\
    [[stream]]\nname = 'rows'\n[[stream.field]]\nname = 'value'\ntype = 'u64'\nunit = 'packets'\n\
    [[stream]]\nname = 'texts'\n[[stream.field]]\nname = 'text'\ntype = 'string'\n";

/// Returns a module's text: all imports, a memory of one page with the shadow stack pointer of LLVM, then `body`.
pub fn text(body: &str) -> String {
    format!(
        r#"(module
            (import "weir" "emit" (func $emit (param i32 i32 i32) (result i32)))
            (import "weir" "patch" (func $patch (param i32 i32 i32 i32) (result i32)))
            (import "weir" "send" (func $send (param i32 i32 i32) (result i32)))
            (import "weir" "find_compile" (func $find_compile (param i32 i32 i32) (result i32)))
            (import "weir" "find" (func $find (param i32 i32 i32) (result i64)))
            (import "weir" "hash" (func $hash (param i32 i32 i64) (result i64)))
            (import "weir" "log" (func $log (param i32 i32 i32) (result i32)))
            (import "weir" "param_int" (func $param_int (param i32) (result i64)))
            (import "weir" "param_bytes" (func $param_bytes (param i32 i32 i32) (result i32)))
            (memory (export "memory") 1)
            (global $__stack_pointer (mut i32) (i32.const 4096))
            {body})"#
    )
}

/// Returns a packet function that runs `act` in packet `number` (`$d` is its descriptor) and passes every packet, and a stop
/// that emits the number of completed packet calls.
pub fn at_packet(number: u32, act: &str) -> String {
    format!(
        r#"(global $seen (mut i64) (i64.const 0))
        (func (export "weir_packet") (param $d i32) (result i32)
            (if (i32.eq (i32.load offset=60 (local.get $d)) (i32.const {number})) (then {act}))
            (global.set $seen (i64.add (global.get $seen) (i64.const 1)))
            (i32.const 0))
        (func (export "weir_stop") (param i64)
            (i64.store (i32.const 64) (global.get $seen))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))"#
    )
}

/// Returns a packet function that only returns this verdict.
pub fn answering(verdict: &str) -> String {
    format!(r#"(func (export "weir_packet") (param $d i32) (result i32) {verdict})"#)
}

/// Assembles WebAssembly text, and appends the manifest, if any.
pub fn assemble(text: &str, manifest: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = wat::parse_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    if let Some(manifest) = manifest {
        let mut section = vec![13];
        section.extend_from_slice(b"weir.manifest");
        section.extend_from_slice(manifest);
        bytes.push(0);
        let mut len = section.len();
        while len >= 0x80 {
            bytes.push(u8::try_from(len & 0x7f).expect("seven bits") | 0x80);
            len >>= 7;
        }
        bytes.push(u8::try_from(len).expect("seven bits"));
        bytes.extend(section);
    }
    bytes
}

/// Writes NAME.wasm with this body and the usual manifest into a folder.
pub fn write(folder: &Path, name: &str, body: &str) -> PathBuf {
    write_as(folder, name, body, &MANIFEST.replace("NAME", name))
}

/// Writes NAME.wasm with this body and manifest into a folder.
pub fn write_as(folder: &Path, name: &str, body: &str, manifest: &str) -> PathBuf {
    let path = folder.join(format!("{name}.wasm"));
    std::fs::write(&path, assemble(&text(body), Some(manifest.as_bytes()))).expect("a module can be written");
    path
}
