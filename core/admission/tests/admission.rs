//! Tests of admission: admitted modules, refused modules, and the wording of refusals.

use weir_admission::{Admitted, EntryKind, ModuleRefusal, ParameterValue};
use weir_bounds::EntryPoint;

const MANIFEST: &str = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\nmemory = '1 MiB'\n\
    [[parameter]]\nname = 'size'\ntype = 'u64'\ndefault = 8\nmax = 10\n";

/// A module from its text, with a manifest.
fn module(body: &str, manifest: &str) -> Vec<u8> {
    let mut bytes = wat::parse_str(format!("(module {body})")).unwrap();
    let name = b"weir.manifest";
    let mut section = vec![u8::try_from(name.len()).unwrap()];
    section.extend_from_slice(name);
    section.extend_from_slice(manifest.as_bytes());
    bytes.push(0);
    let mut len = section.len();
    while len >= 0x80 {
        bytes.push(u8::try_from(len & 0x7f).unwrap() | 0x80);
        len >>= 7;
    }
    bytes.push(u8::try_from(len).unwrap());
    bytes.extend(section);
    bytes
}

const MEMORY: &str = r#"(memory (export "memory") 1)"#;
const PACKET: &str = r#"(func (export "weir_packet") (param i32) (result i32) i32.const 0)"#;

fn refused(body: &str) -> String {
    Admitted::admit(module(body, MANIFEST), &[]).unwrap_err().to_string()
}

#[test]
fn a_sound_module_is_admitted_with_its_values() {
    let body = format!(
        "{MEMORY} {PACKET} (global $sp (mut i32) (i32.const 9)) (func (export \"weir_tick\") (param i64 i64))"
    );
    let bytes = module(&body, &format!("tick = '1s'\n{MANIFEST}"));
    let admitted = Admitted::admit(bytes.clone(), &[("size".into(), vec!["9".into()])]).unwrap();
    assert_eq!(admitted.values(), [ParameterValue::U64(9)]);
    assert_eq!(admitted.bytes(), bytes);
    let facts = admitted.info();
    assert_eq!((facts.entry(), facts.entry_function, facts.stack_pointer), (EntryKind::Packet, 0, Some(0)));
    let has = |entry| facts.entries.has(entry);
    assert_eq!(
        (facts.functions, facts.globals, has(EntryPoint::Tick), has(EntryPoint::Stop)),
        (2, 1, true, false)
    );
    assert_eq!(admitted.tick_period().map(|t| t.0), Some(1_000_000_000));
    assert_eq!(Admitted::admit(bytes, &[]).unwrap().values(), [ParameterValue::U64(8)]);
}

#[test]
fn each_refusal_says_what_is_wrong_and_what_to_do() {
    for (body, message) in [
        (
            format!("(import \"env\" \"puts\" (func (param i32))) {MEMORY} {PACKET}"),
            "imports `env.puts`, which weir does not offer; there is `weir.emit`",
        ),
        (
            format!("(import \"weir\" \"memory\" (memory 1)) {PACKET}"),
            "imports `weir.memory`, which weir does not offer",
        ),
        (
            format!("(import \"weir\" \"find\" (func (param i32))) {MEMORY} {PACKET}"),
            "imports `weir.find` as (i32) -> (), but it is (i32, i32, i32) -> i64",
        ),
        (
            format!("{MEMORY} (func (export \"weir_packet\"))"),
            "export `weir_packet` is () -> (), but must be (i32) -> i32",
        ),
        (
            format!("{MEMORY} (global (export \"weir_packet\") i32 (i32.const 0))"),
            "export `weir_packet` is no function",
        ),
        (
            format!("{MEMORY} {PACKET} (func (export \"weir_stop\") (param i32))"),
            "export `weir_stop` is (i32) -> (), but must be (i64) -> ()",
        ),
        (
            format!("{MEMORY} {PACKET} (func (export \"weir_patcket\"))"),
            "export `weir_patcket` has a name that belongs to weir",
        ),
        (MEMORY.to_owned(), "none of them; it must export exactly one"),
        (
            format!(
                "{MEMORY} {PACKET} (func (export \"weir_batch\") (param i32 i64) (result i64) i64.const 0)"
            ),
            "several of them",
        ),
        (PACKET.to_owned(), "one memory of its own, exported as `memory`"),
        (format!("(memory 1) {PACKET}"), "one memory of its own, exported as `memory`"),
        (
            format!("(memory (export \"memory\") 17) {PACKET}"),
            "begins with 1.1 MiB of memory, but its manifest allows 1 MiB",
        ),
        (format!("(memory (export \"memory\") 65536) {PACKET}"), "begins with 4 GiB of memory"),
        (format!("{MEMORY} {PACKET} (table 70000 funcref)"), "tables have 70000 elements"),
        (format!("(memory (export \"memory\") i64 1) {PACKET}"), "not valid WebAssembly at byte"),
        (format!("(memory (export \"memory\") 1 2 shared) {PACKET}"), "not valid WebAssembly at byte"),
        (format!("{MEMORY} {PACKET} (memory 1)"), "not valid WebAssembly at byte"),
    ] {
        let error = refused(&body);
        assert!(error.contains(message), "{body}\n  says:       {error}\n  should say: {message}");
    }
}

/// A module for an earlier version of the interface, byte by byte.
#[test]
fn a_module_for_an_earlier_interface_is_refused_with_the_version_that_it_needs() {
    let wasm = include_bytes!("fixtures/interface-1.wasm");
    let said = Admitted::admit(wasm.to_vec(), &[]).unwrap_err().to_string();
    let versions = format!(
        "built for version 1 of weir's module interface; this weir has version {}: rebuild the module",
        weir_abi::ABI_VERSION
    );
    assert!(said.contains(&versions), "{said}");
}

#[test]
fn an_entry_point_is_a_function_of_the_modules_own() {
    // All pairs of a host function and an entry point with the same type.
    let log = "(import \"weir\" \"log\" (func $log (param i32 i32 i32) (result i32)))";
    let int = "(import \"weir\" \"param_int\" (func $int (param i32) (result i64)))";
    let mut tried = 0;
    for (entry, params, result) in [
        ("weir_packet", &["i32"][..], Some("i32")),
        ("weir_batch", &["i32", "i64"], Some("i64")),
        ("_initialize", &[], None),
        ("weir_start", &[], Some("i32")),
        ("weir_tick", &["i64", "i64"], None),
        ("weir_stop", &["i64"], None),
        ("weir_lost", &["i32"], None),
        ("weir_low_memory", &["i64"], None),
        ("weir_serve", &["i64", "i32", "i32"], None),
        ("weir_answer", &["i64", "i32", "i32"], None),
    ] {
        for import in &weir_abi::host::HOST_FUNCTIONS {
            let name = |ty| match ty {
                weir_abi::host::ValueType::I32 => "i32",
                weir_abi::host::ValueType::I64 => "i64",
                weir_abi::host::ValueType::F64 => "f64",
            };
            let given: Vec<&str> = import.parameter_types().map(name).collect();
            if given != params || Some(name(import.result.value_type())) != result {
                continue;
            }
            tried += 1;
            let types: String = given.iter().map(|ty| format!("(param {ty})")).collect();
            let result = result.map_or_else(String::new, |ty| format!("(result {ty})"));
            let line = format!("(import \"weir\" \"{}\" (func $host {types} {result}))", import.name);
            let packet = if entry == "weir_packet" || entry == "weir_batch" { "" } else { PACKET };
            let message =
                refused(&format!("{log} {int} {line} {MEMORY} {packet} (export \"{entry}\" (func $host))"));
            let wanted = format!("the export `{entry}` is the imported function `weir.{}`", import.name);
            assert!(message.starts_with(&wanted), "{message}");
        }
    }
    assert!(tried > 0, "no host function has the type of an entry point");
    // The start function of WebAssembly returns nothing. Every host function returns something, so none can be a start
    // function.
}

#[test]
fn the_manual_lists_every_limit_on_the_shape_of_a_module() {
    let manual = include_str!("../../../docs/reference/MODULE.md");
    for shape in weir_admission::ComplexityLimit::ALL {
        let digits = shape.maximum().to_string();
        let groups: Vec<&str> =
            digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
        let line = format!("| {} | {} |", shape.name(), groups.join(","));
        assert!(manual.contains(&line), "docs/reference/MODULE.md does not have the line {line}");
    }
}

#[test]
fn a_modules_text_cannot_forge_a_line_on_a_terminal() {
    let refusal =
        |manifest: &str| Admitted::admit(module(&format!("{MEMORY} {PACKET}"), manifest), &[]).unwrap_err();
    let head = |key: &str, value: &str| MANIFEST.replace(key, value);
    for manifest in [
        head("name = 'm'", "name = \"\\u001b[2Jm\""),
        head("license = 'MIT'", "license = 'MIT, at most 64 KiB of memory'"),
        head("summary = 's'", "summary = \"a\\u202eb\""),
        head("summary = 's'", "summary = \"a\\u2028weir: all fine\""),
        head("type = 'u64'", "type = \"\\u001b[2K\\rweir: fine\""),
        head("abi = 2", "abi = 2\n\"x\\nweir: all fine\" = 1"),
        head("abi = 2", "abi = 2 \u{1b}[2J"),
    ] {
        let message = refusal(&manifest).to_string();
        assert!(message.chars().all(weir_admission::is_plain), "{message:?}");
    }
    let twice =
        "(export \"a\\1b[2J\\0aweir: all fine\" (func 0)) (export \"a\\1b[2J\\0aweir: all fine\" (func 0))";
    assert!(refused(&format!("{MEMORY} {PACKET} {twice}")).chars().all(weir_admission::is_plain));
}

#[test]
fn a_module_needs_exactly_one_manifest() {
    let bare = wat::parse_str(format!("(module {MEMORY} {PACKET})")).unwrap();
    assert!(matches!(Admitted::admit(bare.clone(), &[]), Err(ModuleRefusal::NoManifest)));
    let mut twice = module(&format!("{MEMORY} {PACKET}"), MANIFEST);
    let section = twice[bare.len()..].to_vec();
    twice.extend(section);
    assert!(matches!(Admitted::admit(twice, &[]), Err(ModuleRefusal::TwoManifests(_))));
}

#[test]
fn bytes_that_are_no_module_are_refused() {
    assert_eq!(
        Admitted::admit(b"hello".to_vec(), &[]).unwrap_err().to_string(),
        "this is not a WebAssembly module: it begins with 68 65 6c 6c, not with 00 61 73 6d"
    );
    assert!(matches!(Admitted::admit(Vec::new(), &[]), Err(ModuleRefusal::NotWasm(_))));
    assert!(matches!(
        Admitted::admit(b"\0asm\x0d\0\x01\0".to_vec(), &[]),
        Err(ModuleRefusal::Invalid { .. })
    ));
    assert!(matches!(Admitted::admit(vec![0; 9 << 20], &[]), Err(ModuleRefusal::TooLarge(_))));
}

#[test]
fn references_to_what_a_host_would_collect_are_refused_before_the_compiler_does_it() {
    for body in ["(table 1 externref)", "(func (param externref))", "(global externref (ref.null extern))"] {
        let error = Admitted::admit(module(&format!("{MEMORY} {PACKET} {body}"), MANIFEST), &[]).unwrap_err();
        assert!(matches!(error, ModuleRefusal::Invalid { .. }), "{body}: {error}");
    }
    let functions = format!("{MEMORY} {PACKET} (table 1 funcref) (func $f (param funcref))");
    Admitted::admit(module(&functions, MANIFEST), &[]).unwrap();
}

#[test]
fn settings_are_checked_against_the_manifest() {
    let admit = |name: &str, value: &str| {
        let settings = [(name.to_owned(), vec![value.to_owned()])];
        Admitted::admit(module(&format!("{MEMORY} {PACKET}"), MANIFEST), &settings).unwrap_err().to_string()
    };
    assert_eq!(admit("sise", "1"), "there is no parameter `sise`; there is `size`");
    assert_eq!(admit("size", "11"), "parameter `size`: 11 is outside - to 10");
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_admission_panic(mut tail in proptest::collection::vec(proptest::num::u8::ANY, 0..200), at in 0usize..400, flip in 1u8..) {
        let mut raw = b"\0asm\x01\0\0\0".to_vec();
        raw.append(&mut tail);
        let _ = Admitted::admit(raw, &[]);
        let mut near = module(&format!("{MEMORY} {PACKET}"), MANIFEST);
        let at = at % near.len();
        near[at] ^= flip;
        let _ = Admitted::admit(near, &[]);
    }
}
