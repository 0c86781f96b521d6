//! Soundness of bounds on real code: the shipped modules and the corpus, compiled at every optimisation level, never exceed their bounds
//! on packets of every kind.

#[path = "../../../edge/sandbox/tests/oracle/mod.rs"]
mod oracle;

use crate::toolchain::{has_c, options};
use oracle::exact::{Tally, run};
use oracle::space::Shown;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_author::{BuildOptions, OptLevel, build};
use weir_sandbox::{CheckMode, Engine};

/// Packet sequences for each module.
const SEEDS: u64 = 2;

/// Modules that are refused at some level, because their code has too many joins.
const TOO_COMPLEX: [&str; 4] = ["tls", "http", "dns", "quic"];

/// More fuel than any module here uses.
const PLENTY: u64 = 1 << 50;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// Builds a module from these files at every level, and runs it.
fn at_every_level(name: &str, files: &[PathBuf], engine: &Engine, shown: &Shown, tally: &mut Tally) {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join(name);
    std::fs::create_dir(&dir).unwrap();
    for file in files {
        std::fs::copy(file, dir.join(file.file_name().unwrap())).unwrap();
    }
    for level in OptLevel::ALL {
        let built = match build(&dir, &BuildOptions { level: Some(level), ..options() }) {
            Ok(built) => built,
            // A large module can be too complex for the analyser at a level that it is not shipped with.
            Err(error) if TOO_COMPLEX.contains(&name) && format!("{error:?}").contains("Complexity") => {
                continue;
            }
            Err(error) => panic!("{name} -O{}: {error}", level.name()),
        };
        let module = std::fs::read(built.path).unwrap();
        for seed in 0..SEEDS {
            run((engine, PLENTY), shown, (module.clone(), false), seed, tally)
                .unwrap_or_else(|error| panic!("{name} -O{}, packets {seed}: {error}", level.name()));
        }
    }
}

#[test]
fn real_modules_keep_their_bounds_at_every_optimisation_level() {
    if !has_c() {
        return;
    }
    let control = CheckMode::Exact(PLENTY);
    let engine =
        Engine::new(weir_sandbox::EngineOptions { check_mode: control, ..Default::default() }, None).unwrap();
    let is_source = |path: &PathBuf| {
        path.extension().is_some_and(|ending| ending == "c" || ending == "h" || ending == "toml")
    };
    let mut sources_of: Vec<(String, Vec<PathBuf>)> = Vec::new();
    for folder in files(&root().join("guest/modules")).iter().filter(|path| path.is_dir()) {
        let sources: Vec<PathBuf> = files(folder).into_iter().filter(is_source).collect();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        // hog is written in AssemblyScript, and has one level.
        if !sources.iter().any(|path| path.extension().is_some_and(|ending| ending == "c")) {
            assert_eq!(name, "hog");
            continue;
        }
        sources_of.push((name, sources));
    }
    let manifest = std::fs::read_to_string(root().join("lab/corpus/weir.toml")).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    for source in files(&root().join("lab/corpus/c")) {
        let name = source.file_stem().unwrap().to_string_lossy().replace('_', "-");
        let folder = scratch.path().join(&name);
        std::fs::create_dir(&folder).unwrap();
        let named = folder.join("weir.toml");
        std::fs::write(&named, manifest.replace("{{name}}", &name)).unwrap();
        sources_of.push((name, vec![source, named]));
    }
    // Each core takes the next sources.
    let next = AtomicUsize::new(0);
    let run_some = || {
        let (shown, mut tally) = (Shown::new(), Tally::default());
        while let Some((name, sources)) = sources_of.get(next.fetch_add(1, Ordering::Relaxed)) {
            at_every_level(name, sources, &engine, &shown, &mut tally);
        }
        tally
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let tallies: Vec<Tally> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run_some)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let sum = |field: fn(&Tally) -> usize| tallies.iter().map(field).sum::<usize>() as u64;
    let modules = sources_of.len() as u64;
    println!("{modules} sources at {} levels: {tallies:?}", OptLevel::ALL.len());
    assert!(modules >= 20 && sum(|tally| tally.modules) >= modules * 5 * SEEDS * 9 / 10, "{tallies:?}");
    assert!(sum(|tally| tally.bounded) > sum(|tally| tally.calls) / 2, "{tallies:?}");
    assert!(sum(|tally| tally.tight) > 0, "{tallies:?}");
}
