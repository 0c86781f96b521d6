//! The example modules in guest/examples, and the containers that they use.

use crate::in_the_sandbox::run_built;
use crate::toolchain::{has_c, has_rust, options, rust_options};
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_admission::{Admitted, CalibratedProfile, Profile, Tier};
use weir_author::build;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names of the examples.
fn examples() -> Vec<String> {
    let folders = std::fs::read_dir(root().join("guest/examples")).unwrap();
    let folders = folders.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let mut names: Vec<String> =
        folders.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

fn committed(name: &str) -> Vec<u8> {
    std::fs::read(root().join(format!("guest/examples/{name}/{name}.wasm"))).unwrap()
}

fn tier(name: &str, profile: &CalibratedProfile) -> Option<Tier> {
    Admitted::admit_by(committed(name), &[], profile).ok().map(|admitted| admitted.tier())
}

#[test]
fn every_example_is_proved() {
    let strict = std::fs::read_to_string(root().join("docs/profiles/strict.toml")).unwrap();
    let strict = CalibratedProfile::from(Profile::parse(&strict).unwrap());
    let examples = examples();
    assert!(examples.len() >= 14, "{examples:?}");
    for name in examples {
        assert_eq!(tier(&name, &CalibratedProfile::default()), Some(Tier::Proved), "{name}");
        // These emit more rows for one packet than a strict profile allows.
        let expected = (!name.starts_with("last-packets")).then_some(Tier::Proved);
        assert_eq!(tier(&name, &strict), expected, "{name}, strict");
    }
}

#[test]
fn every_example_is_rebuilt_byte_for_byte() {
    let home = tempfile::tempdir().unwrap();
    for name in examples() {
        let is_rust = name.ends_with("-rs");
        if !(if is_rust { has_rust() } else { has_c() }) {
            continue;
        }
        let dir = home.path().join(&name);
        std::fs::create_dir_all(dir.join("src")).unwrap();
        let source = format!("{name}.c");
        let files =
            if is_rust { vec!["weir.toml", "Cargo.toml", "src/lib.rs"] } else { vec!["weir.toml", &source] };
        for file in files {
            std::fs::copy(root().join("guest/examples").join(&name).join(file), dir.join(file)).unwrap();
        }
        let built = build(&dir, &if is_rust { rust_options() } else { options() }).unwrap();
        assert_eq!(built.messages, "", "{name}");
        let recorded = if is_rust { "guest/examples/RUST_TOOLCHAIN" } else { "guest/modules/TOOLCHAIN" };
        let recorded = std::fs::read_to_string(root().join(recorded)).unwrap();
        let is_recorded = built.toolchain == recorded.trim();
        assert!(!is_recorded || std::fs::read(built.path).unwrap() == committed(&name), "{name} differs");
    }
}

/// The sample, and hostile captures: the sample with bytes of its packets changed, which also cuts messages.
#[test]
fn examples_in_rust_give_the_rows_of_those_in_c() {
    let home = tempfile::tempdir().unwrap();
    let sample = std::fs::read(root().join("lab/sample/sample.pcap")).unwrap();
    let mut captures = vec![root().join("lab/sample/sample.pcap")];
    for seed in [1, 2, 3] {
        let path = home.path().join(format!("{seed}.pcap"));
        std::fs::write(&path, damaged(&sample, seed)).unwrap();
        captures.push(path);
    }
    let mut rows = 0;
    let both: Vec<String> = examples().into_iter().filter(|name| name.ends_with("-rs")).collect();
    assert!(both.len() >= 6);
    for rust in both {
        let c = rust.strip_suffix("-rs").unwrap();
        let manifest =
            |name: &str| std::fs::read_to_string(root().join("guest/examples").join(name).join("weir.toml"));
        let renamed = manifest(&rust).unwrap().replacen(&format!("\"{rust}\""), &format!("\"{c}\""), 1);
        assert_eq!(renamed, manifest(c).unwrap());
        for capture in &captures {
            let [of_c, of_rust] = [c, &rust].map(|name| run_built(capture, committed(name), &[]));
            assert_eq!((of_c.counters.faults, of_rust.counters.faults), (0, 0), "{rust}");
            assert!(of_c.records == of_rust.records, "{rust} on {}", capture.display());
            rows += of_c.records.len();
        }
    }
    assert!(rows > 1000, "{rows}");
}

/// Changes bytes behind the headers of the file and its records, so that it stays readable.
fn damaged(capture: &[u8], seed: u64) -> Vec<u8> {
    let mut bytes = capture.to_vec();
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut at = 24;
    while at + 16 <= bytes.len() {
        let len = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        for _ in 0..4 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let place = usize::try_from(random >> 8).unwrap() % len.max(1);
            if let Some(byte) = bytes.get_mut(at + 16 + place).filter(|_| random.is_multiple_of(3)) {
                *byte = (random >> 40).to_le_bytes()[0];
            }
        }
        at += 16 + len;
    }
    bytes
}

/// The containers against models of them, in a native build with sanitizers.
#[test]
fn containers_do_what_their_models_do() {
    let home = tempfile::tempdir().unwrap();
    let Some(program) = native_program("containers.c", home.path()) else { return };
    let ran = Command::new(&program).output().unwrap();
    let printed = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && printed.is_empty(), "{printed}");
}

/// Builds a test program of this folder natively, with sanitizers; `None` without the compiler.
pub(crate) fn native_program(source: &str, home: &Path) -> Option<PathBuf> {
    let clang = Path::new("/usr/lib/llvm-19/bin/clang");
    if !clang.exists() {
        println!("SKIPPED: clang 19 is not installed");
        return None;
    }
    let program = home.join("program");
    let compiled = Command::new(clang)
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-sanitize-recover=all"])
        .arg("-I")
        .arg(root().join("guest/sdk-c"))
        .arg(root().join("apps/author/tests").join(source))
        .arg("-o")
        .arg(&program)
        .arg("-lm")
        .args(sanitizers(clang, home))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    Some(program)
}

/// The options for sanitizers, if the system has their libraries (Debian: libclang-rt-19-dev).
fn sanitizers(clang: &Path, home: &Path) -> Vec<&'static str> {
    let options = vec!["-fsanitize=address,undefined"];
    let source = home.join("empty.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let linked = Command::new(clang).args(&options).arg(&source).arg("-o").arg(home.join("empty")).output();
    if linked.is_ok_and(|output| output.status.success()) { options } else { Vec::new() }
}
