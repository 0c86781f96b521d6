//! The example modules in guest/examples, and the containers that they use.

use crate::toolchain::{has_c, options};
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
        // This one emits more rows for one packet than a strict profile allows.
        let expected = (name != "last-packets").then_some(Tier::Proved);
        assert_eq!(tier(&name, &strict), expected, "{name}, strict");
    }
}

#[test]
fn every_example_is_rebuilt_byte_for_byte() {
    if !has_c() {
        return;
    }
    let recorded = std::fs::read_to_string(root().join("guest/modules/TOOLCHAIN")).unwrap();
    let home = tempfile::tempdir().unwrap();
    for name in examples() {
        let dir = home.path().join(&name);
        std::fs::create_dir(&dir).unwrap();
        for file in ["weir.toml".to_owned(), format!("{name}.c")] {
            std::fs::copy(root().join("guest/examples").join(&name).join(&file), dir.join(&file)).unwrap();
        }
        let built = build(&dir, &options()).unwrap();
        assert_eq!(built.messages, "", "{name}");
        let is_recorded = built.toolchain == recorded.trim();
        assert!(!is_recorded || std::fs::read(built.path).unwrap() == committed(&name), "{name} differs");
    }
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
