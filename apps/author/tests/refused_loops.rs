//! Fifty loops as authors write them, for which there is no bound (`loops/`): each rewriting there has one.

use crate::toolchain::{has_c, options};
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
    assert_eq!(sources.len(), 50);
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
