//! `weir pack`: modules of files that other compilers made.

use std::fs;
use std::path::{Path, PathBuf};
use weir_admission::Admitted;
use weir_author::{BuildError, BuiltModule, pack_file};

const MANIFEST: &str = "name = 'packed'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n";
const MODULE: &str = r#"(module (memory (export "memory") 1)
    (@custom "weir.manifest" "name = 'old'")
    (@custom "target_features" "x")
    (@producers (language "Zig" "") (processed-by "zig" "0.13.0"))
    (func (export "weir_packet") (param i32) (result i32) (i32.const 0)))"#;

/// Packs a module with a manifest in a folder.
fn pack(dir: &Path, module: &str, manifest: &str) -> Result<BuiltModule, BuildError> {
    fs::write(dir.join("linked.wasm"), wat::parse_str(module).unwrap()).unwrap();
    fs::write(dir.join("weir.toml"), manifest).unwrap();
    pack_file(&dir.join("linked.wasm"), &dir.join("weir.toml"), None)
}

#[test]
fn a_file_of_any_compiler_becomes_a_module_with_one_manifest() {
    let home = tempfile::tempdir().unwrap();
    let packed = pack(home.path(), MODULE, MANIFEST).unwrap();
    assert_eq!((packed.path.as_path(), packed.messages.as_str()), (&*home.path().join("packed.wasm"), ""));
    assert_eq!(packed.toolchain, "zig 0.13.0");
    let bytes = fs::read(&packed.path).unwrap();
    let admitted = Admitted::admit(bytes.clone(), &[]).unwrap();
    assert_eq!(admitted.manifest().name.as_str(), "packed");
    let count = |needle: &str| bytes.windows(needle.len()).filter(|part| *part == needle.as_bytes()).count();
    assert_eq!([count("weir.manifest"), count("target_features"), count("'old'")], [1, 0, 0]);
    // Packed again, the file stays the same.
    let again = home.path().join("again.wasm");
    pack_file(&packed.path, &home.path().join("weir.toml"), Some(&again)).unwrap();
    assert_eq!(fs::read(again).unwrap(), bytes);
}

#[test]
fn files_that_are_no_modules_are_refused_and_nothing_is_written() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    let cases = [
        ("(module)", MANIFEST, "linked.wasm"),
        (r#"(module (import "env" "abort" (func)) (memory (export "memory") 1))"#, MANIFEST, "abort"),
        (MODULE, "name = 'x y'", "weir.toml"),
        (MODULE, "name", "weir.toml"),
    ];
    for (module, manifest, part) in cases {
        let error = pack(dir, module, manifest).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    fs::write(dir.join("linked.wasm"), b"\0asm\x01\0\0\0\x07\xff").unwrap();
    fs::write(dir.join("weir.toml"), MANIFEST).unwrap();
    let error = pack_file(&dir.join("linked.wasm"), &dir.join("weir.toml"), None).unwrap_err();
    assert!(matches!(error, BuildError::NotPacked { .. }), "{error}");
    let missing = pack_file(&dir.join("none.wasm"), &dir.join("weir.toml"), None).unwrap_err();
    assert!(matches!(missing, BuildError::File { .. }), "{missing}");
    let files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    let warned = pack(dir, MODULE, &format!("{MANIFEST}tick = '1s'\n")).unwrap();
    assert!(warned.messages.contains("exports no weir_tick"), "{}", warned.messages);
}
