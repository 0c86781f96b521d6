//! The shipped modules match their sources: byte for byte with the compiler of the build, and in their behaviour with others.

use super::capture::{repository, sample};
use super::weir::run_file;
use std::io::Write;
use std::path::Path;
use weir_author::{BuildError, BuildOptions, build};

/// The shipped modules, with parameters that exercise them on the sample.
const MODULES: [(&str, &str); 23] = [
    ("trajectory", ",one-in=7,seed=5,table-size=256"),
    ("rtt", ",table-size=256"),
    ("worm", r",signatures=HTTP/1.,GET ,\r\n\r\n"),
    ("lrd", ",report=1s"),
    ("syn-flood", ",floor=1"),
    ("port-count", ""),
    ("payload-match", ",needle=HTTP,last=1400"),
    ("dscp-mark", ",source=203.0.113.0/24"),
    ("arm", ",port=53,interval=100ms"),
    ("spin", ",per-packet=10"),
    ("flood", ",per-packet=3,per-tick=2,interval=100ms"),
    ("flows", ""),
    ("dns", ""),
    ("tls", ""),
    ("http", ""),
    ("quic", ""),
    ("talkers", ""),
    ("scan", ""),
    ("latency", ""),
    ("loss", ",all=true"),
    ("beacon", ""),
    ("entropy", ""),
    ("packets", ",bytes-max=64"),
];

/// All output of a module on the sample.
fn behaviour(module: &str) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let written = tempfile::Builder::new().suffix(".pcap").tempfile().unwrap();
    let run = run_file(&sample(), &["-m", module, "-w", written.path().to_str().unwrap()]);
    let mut files = run.files();
    files.push(("packets".into(), std::fs::read(written.path()).unwrap()));
    files
}

fn copy_sources(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() && path.extension() != Some("wasm".as_ref()) {
            std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

#[test]
fn shipped_modules_match_their_sources() {
    let modules = repository().join("guest/modules");
    let recorded = std::fs::read_to_string(modules.join("TOOLCHAIN")).unwrap();
    let folders =
        std::fs::read_dir(&modules).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir());
    // Plus hog, which has another compiler.
    assert_eq!(folders.count(), MODULES.len() + 1);
    for (name, parameters) in MODULES {
        let home = tempfile::tempdir().unwrap();
        copy_sources(&modules.join(name), home.path());
        // In another folder and under another name, which must not matter.
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("rebuilt.wasm");
        let built =
            match build(home.path(), &BuildOptions { output: Some(path.clone()), ..BuildOptions::default() })
            {
                Ok(built) => built,
                Err(error @ (BuildError::NoClang { .. } | BuildError::NoLinker)) => {
                    let _ =
                        writeln!(std::io::stderr(), "SKIPPED: the shipped modules are not rebuilt: {error}");
                    return;
                }
                Err(error) => panic!("{name}: {error}"),
            };
        assert_eq!(built.messages, "", "{name} builds without a warning");
        let shipped = std::fs::read(modules.join(name).join(name).with_added_extension("wasm")).unwrap();
        if built.toolchain == recorded.trim() {
            assert!(
                std::fs::read(&path).unwrap() == shipped,
                "{name}.wasm is not what its source makes with {}; build it again with `make modules`",
                built.toolchain
            );
            let _ = writeln!(std::io::stderr(), "{name}: rebuilt with {}: the same bytes", built.toolchain);
        } else {
            let rebuilt = format!("{}{parameters}", path.display());
            assert!(
                behaviour(&rebuilt) == behaviour(&format!("{name}{parameters}")),
                "{name} does something else when built with {}",
                built.toolchain
            );
            let _ = writeln!(
                std::io::stderr(),
                "{name}: rebuilt with {} instead of {}: the same records over the sample",
                built.toolchain,
                recorded.trim()
            );
        }
    }
}

/// The comparison by behaviour, used with other compilers, must detect differences.
#[test]
fn the_behaviour_comparison_detects_differences() {
    for (name, parameters) in MODULES {
        let files = behaviour(&format!("{name}{parameters}"));
        // The sample has no requests for arm.
        let says = |(path, bytes): &(std::path::PathBuf, Vec<u8>)| {
            bytes.len() > 100 || path.ends_with("arm/repairs.pcap")
        };
        assert!(files.len() >= 2 && files.iter().all(says), "{name}");
    }
    let others = ["203.0.113.0/24", "198.51.100.0/24"];
    let [one, other] = others.map(|prefix| behaviour(&format!("dscp-mark,source={prefix}")));
    assert!(one != other, "another prefix gives other packets");
}

#[test]
fn hog_matches_its_source() {
    let folder = repository().join("guest/modules/hog");
    if !folder.join("node_modules/assemblyscript").is_dir() {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: hog is not rebuilt: its compiler is not there (`npm ci` in guest/modules/hog)"
        );
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("rebuilt.wasm");
    let built = std::process::Command::new("node").arg("build.mjs").arg(&path).current_dir(&folder).output();
    let built = built.expect("node is installed with the compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let [rebuilt, shipped] = [path, folder.join("hog.wasm")].map(|path| std::fs::read(path).unwrap());
    assert!(rebuilt == shipped, "hog.wasm is not what its source makes; build it again with `make modules`");
}
