//! Fifty loops as authors write them, for which there is no bound (`loops/`): each rewriting there has one.

use crate::toolchain::{has_c, has_rust, options, rust_options};
use std::path::Path;
use weir_admission::{Admitted, Tier};
use weir_author::{ModuleLanguage, build, new};

/// The sources of the folder, by name.
fn sources() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/loops");
    let mut sources: Vec<(String, String)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    sources.sort();
    sources
}

/// Builds a module, and admits it by the default profile.
fn admitted(home: &Path, name: &str, source: &str) -> Admitted {
    let folder = home.join(name);
    new(&folder, ModuleLanguage::C).unwrap();
    let manifest =
        format!("name = '{name}'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\nkind = 'filter'\n");
    std::fs::write(folder.join("weir.toml"), manifest).unwrap();
    std::fs::write(folder.join(format!("{name}.c")), source).unwrap();
    let built = build(&folder, &options()).unwrap();
    Admitted::admit(std::fs::read(built.path).unwrap(), &[]).unwrap()
}

#[test]
fn fifty_refused_loops_are_proved_as_they_are_rewritten() {
    if !has_c() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let sources = sources();
    assert!(sources.len() >= 50, "{}", sources.len());
    for (name, source) in sources {
        let name = name.replace('_', "-");
        let refused = admitted(home.path(), &name, &source);
        assert!(refused.analysis().entries.iter().any(|entry| !entry.unbounded.is_empty()), "{name}");
        let (code, rewriting) = source.split_once("/* REWRITTEN\n").unwrap();
        let rewriting = rewriting.split_once("*/").unwrap().0;
        let lines: Vec<&str> = code.lines().collect();
        let place = |marker| lines.iter().position(|line| line.trim() == marker).unwrap();
        let [before, after] = [&lines[..place("// refused")], &lines[place("// end") + 1..]];
        let changed = [&before.join("\n"), rewriting, &after.join("\n")].join("\n");
        let rewritten = admitted(home.path(), &format!("{name}-new"), &changed);
        assert_eq!(rewritten.tier(), Tier::Proved, "{name}");
    }
}

#[test]
fn a_module_in_rust_that_can_panic_and_logs_values_is_proved() {
    if !has_rust() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("logs");
    new(&dir, ModuleLanguage::Rust).unwrap();
    let manifest = "name = 'logs'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n";
    std::fs::write(dir.join("weir.toml"), manifest).unwrap();
    let source = r#"#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]
#[path = "../.weir/module.rs"]
mod module;
use weir_guest::{Level, Packet, Verdict};
struct Ports {
    seen: [u64; 1024],
}
impl Ports {
    fn packet(&mut self, packet: &Packet) -> Verdict {
        self.seen[usize::from(packet.dst_port)] += 1;
        let first = packet.bytes().first().unwrap();
        if *first == 7 {
            let from = packet.src().unwrap();
            weir_guest::log!(Level::Info, "{} to {}, {:x}: {{{}}}", from, packet.dst_port, packet.flags, -5i64);
            weir_guest::log!(Level::Warning, "{}", packet.payload());
        }
        Verdict::Pass
    }
}
weir_guest::module! {
    state: Ports = Ports { seen: [0; 1024] };
    packet: Ports::packet;
}
"#;
    std::fs::write(dir.join("src/lib.rs"), source).unwrap();
    let built = build(&dir, &rust_options()).unwrap();
    let admitted = Admitted::admit(std::fs::read(built.path).unwrap(), &[]).unwrap();
    assert_eq!(admitted.tier(), Tier::Proved, "{:?}", admitted.analysis().entries);
    // A format that has no bound is refused by the compiler, with the way out.
    std::fs::write(dir.join("src/lib.rs"), source.replace("{:x}", "{:?}")).unwrap();
    let error = build(&dir, &rust_options()).unwrap_err().to_string();
    assert!(error.contains("for others write! to a Line, which has no bound"), "{error}");
}
