//! Tests of `weir compile`, which explains the machine code that LLVM makes of a module.

use crate::run::module::{MANIFEST, answering, assemble, text};
use crate::run::{root, run};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;

/// Runs `weir compile MODULE --json` with these arguments. Returns `None` if there is no code of LLVM on this machine.
pub fn compiled(module: &str, arguments: &[&str]) -> Option<Value> {
    let document = run(["compile", module, "--json"].iter().chain(arguments)).succeeds().json();
    let reason = document["reason"].as_str().unwrap_or_default();
    if reason.contains("clang 19") || reason.contains("FSGSBASE") {
        let _ = writeln!(std::io::stderr(), "SKIPPED: no verified code of LLVM here: {reason}");
        return None;
    }
    Some(document)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("no list {key} in {value}"))
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no number {key} in {value}"))
}

fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name).with_extension("wasm");
    fs::write(&path, assemble(text, Some(MANIFEST.replace("NAME", name).as_bytes()))).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn every_access_of_the_shipped_modules_has_a_reason() {
    for module in ["rtt", "tls", "lrd", "spin", "hog"] {
        let Some(document) = compiled(module, &["--explain"]) else { return };
        assert_eq!((document["back_end"].as_str(), &document["reason"]), (Some("LLVM"), &Value::Null));
        let mut accesses = 0;
        for function in list(&document, "functions") {
            let mut next = number(function, "offset");
            for line in list(function, "code") {
                assert!(number(line, "offset") >= next, "{module}: {line}");
                next = number(line, "offset") + 1;
                assert_eq!(line["rejected"], Value::Null);
                for access in
                    ["access", "stack"].map(|key| &line[key]).into_iter().filter(|access| !access.is_null())
                {
                    let is_return = line["text"] == "ret";
                    assert!(is_return || access["place"].is_string(), "{module}: {line}");
                    assert!(is_return || line["reason"].is_string(), "{module}: {line}");
                }
                accesses += u64::from(!line["access"].is_null());
                assert!(line["access"].is_null() || line["reached"] == true, "{module}: {line}");
                assert_eq!(line["callee"].is_string(), line["text"].as_str().unwrap().starts_with("call "));
            }
            let counted: u64 =
                function["accesses"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
            let listed = list(function, "code").iter().filter(|line| !line["access"].is_null()).count();
            assert_eq!(counted, listed as u64, "{module}: {}", function["name"]);
        }
        let memory = number(&document["accesses"], "memory");
        let all: u64 = document["accesses"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        assert_eq!(all, accesses);
        // At least one access in ten instructions, and most of them to the module's memory.
        let instructions: u64 =
            list(&document, "functions").iter().map(|function| number(function, "instructions")).sum();
        assert!(
            accesses * 10 > instructions && accesses < instructions,
            "{module}: {accesses} of {instructions}"
        );
        assert!(memory * 4 > accesses, "{module}: {memory} of {accesses}");
        assert!(number(&document, "code_bytes") > instructions);
    }
}

#[test]
fn loops_have_the_bounds_of_check_and_metered_modules_have_charges() {
    let Some(document) = compiled("rtt", &[]) else { return };
    let checked = run(["check", "rtt", "--json"]).succeeds().json();
    let lines_of = |loops: &mut dyn Iterator<Item = (Value, Value)>| loops.collect::<Vec<_>>();
    let of_code = lines_of(
        &mut list(&document, "functions")
            .iter()
            .flat_map(|function| list(function, "loops"))
            .filter(|found| found["trips"].is_string())
            .map(|found| {
                (found["line"].clone(), found["trips"].as_str().unwrap().parse::<u64>().unwrap().into())
            }),
    );
    let of_module = lines_of(
        &mut list(&checked, "loops")
            .iter()
            .map(|found| (found["at"]["line"].clone(), found["trips"]["constant"].clone())),
    );
    assert!(!of_code.is_empty(), "{document}");
    for found in &of_code {
        assert!(of_module.contains(found), "{found:?} is none of {of_module:?}");
    }
    // rtt is proved, and runs without a meter.
    let charges = |document: &Value| -> u64 {
        list(document, "functions").iter().map(|function| number(function, "charges")).sum()
    };
    assert_eq!(charges(&document), 0);
    let metered = compiled("spin", &[]).unwrap();
    assert!(charges(&metered) >= 3, "{metered}");
    assert!(number(&metered["host_calls"], "limit") >= charges(&metered));
}

#[test]
fn machine_code_is_listed_below_the_lines_of_the_source() {
    if compiled("rtt", &[]).is_none() {
        return;
    }
    let ended = run(["compile", "rtt", "--explain", "weir_packet"]).succeeds();
    let printed = ended.text();
    for part in [
        "rtt 1.",
        "Back end: LLVM: ",
        "Stack:    at most ",
        "\nFUNCTION ",
        "\nweir_packet: function ",
        "tunnelled(p);\n",
        "call tunnelled ",
        "calls tunnelled\n",
        "module memory: base + [0, 4294967295] + ",
        "loop; the last jump back is at ",
        "packets of the batch that remain\n",
    ] {
        assert!(printed.contains(part), "`{part}` is not in:\n{printed}");
    }
    assert!(!printed.contains("\nhandshake: ") && !printed.contains('\u{1b}'), "{printed}");
    assert_eq!(ended.stderr, "");
    // The line of the call in the source.
    let source = fs::read_to_string(root().join("guest/modules/rtt/rtt.c")).unwrap();
    let line = 1 + source.lines().position(|line| line.trim() == "tunnelled(p);").unwrap();
    assert!(printed.contains(&format!("  rtt.c:{line}  tunnelled(p);\n")), "{printed}");
    let all = run(["compile", "rtt", "--explain"]).succeeds();
    assert!(all.text().contains("\nhandshake: ") && all.text().contains("spill; frame: "), "{}", all.text());
}

#[test]
fn an_unknown_function_gets_an_error_with_similar_names() {
    if compiled("rtt", &[]).is_none() {
        return;
    }
    let ended = run(["compile", "rtt", "--explain", "weir_paket"])
        .fails(2, &["the module has no function `weir_paket`; similar names are `weir_packet`"]);
    assert_eq!(ended.text(), "");
}

#[test]
fn a_module_that_cannot_be_lowered_runs_in_cranelifts_code_and_its_instruction_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let body = format!(
        "(table 1 funcref) (func $odd (result i32) (ref.is_null (ref.null func))) {}",
        answering("(call $odd)")
    );
    let module = file(folder.path(), "odd", &text(&body));
    let Some(document) = compiled(&module, &[]) else { return };
    assert_eq!(document["back_end"], "Cranelift");
    let part = &document["unsupported"];
    assert_eq!((part["part"].as_str(), part["function"].as_str()), (Some("RefNull"), Some("odd")));
    let offset = usize::try_from(number(part, "offset")).unwrap();
    // `ref.null func` in the module as it is on disk.
    assert_eq!(fs::read(&module).unwrap()[offset..offset + 2], [0xd0, 0x70]);
    let ended = run(["compile", &module, "--explain"]).succeeds();
    let words = ended.text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words
            .contains("Back end: Cranelift: the lowering to LLVM does not support `RefNull` in odd (byte 0x"),
        "{words}"
    );
    let object = folder.path().join("odd.o");
    run(["compile", &module, "--object", object.to_str().unwrap()])
        .fails(1, &["odd.o is not written", "`RefNull`"]);
    assert!(!object.exists());
}

#[test]
fn code_without_debug_information_is_listed_below_the_webassembly_text() {
    let folder = tempfile::tempdir().unwrap();
    let module = file(folder.path(), "plain", &text(&answering("(i32.load offset=40 (local.get $d))")));
    if compiled(&module, &[]).is_none() {
        return;
    }
    let ended = run(["compile", &module, "--explain"]).succeeds();
    assert!(ended.text().contains("  i32.load offset=40\n"), "{}", ended.text());
    assert!(ended.text().contains("module memory: base + [0, 4294967295] + 40\n"), "{}", ended.text());
}

#[test]
fn a_module_that_is_not_admitted_is_an_error_as_for_check() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.wasm");
    fs::write(&broken, "no module").unwrap();
    run(["compile", broken.to_str().unwrap()]).fails(1, &["broken.wasm"]);
    run(["compile", "nothing"]).fails(2, &["there is no module `nothing`"]);
    run(["compile", "rtt,nothing=1"]).fails(2, &["nothing"]);
    let strict = folder.path().join("strict.toml");
    fs::write(&strict, "tiers = ['proved']\n").unwrap();
    run(["compile", "spin", "--profile", strict.to_str().unwrap()]).fails(1, &["proved"]);
}

#[test]
fn the_verified_object_file_is_written_and_comes_from_the_cache_the_next_time() {
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("lrd.o");
    let arguments = ["--no-cache", "--object", object.to_str().unwrap()];
    let Some(document) = compiled("lrd", &arguments) else { return };
    assert_eq!(document["from_cache"], false);
    assert!(number(&document, "compiler_ns") > 0 && number(&document, "verifier_ns") > 0);
    let bytes = fs::read(&object).unwrap();
    assert_eq!(&bytes[..4], b"\x7fELF");
    assert!(bytes.len() as u64 > number(&document, "code_bytes"));
    let ended = run(["compile", "lrd", "--object", object.to_str().unwrap()]).succeeds();
    assert!(ended.text().contains("\nWritten:  ") && ended.text().contains("lrd.o\n"), "{}", ended.text());
    assert!(run(["compile", "lrd"]).succeeds().text().contains("Compiled: from the cache"));
    run(["compile", "lrd", "--object", "/proc/none/lrd.o"]).fails(1, &["/proc/none/lrd.o"]);
}

/// Adds all keys of objects.
fn add_keys(value: &Value, keys: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                keys.insert(key.clone());
                // The keys below it are names of host functions.
                if key != "host_calls" {
                    add_keys(value, keys);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| add_keys(value, keys)),
        _ => {}
    }
}

#[test]
fn each_field_of_the_document_is_described() {
    let Some(document) = compiled("spin", &["--explain"]) else { return };
    let mut keys = BTreeSet::new();
    add_keys(&document, &mut keys);
    let folder = tempfile::tempdir().unwrap();
    let body = format!("(table 1 funcref) {}", answering("(ref.is_null (ref.null func))"));
    add_keys(&compiled(&file(folder.path(), "odd", &text(&body)), &[]).unwrap(), &mut keys);
    let described = fs::read_to_string(root().join("docs/COMPILE.md")).unwrap();
    let missing: Vec<&String> = keys.iter().filter(|key| !described.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "docs/COMPILE.md does not describe {missing:?}");
    assert!(keys.len() > 40, "{keys:?}");
}
