//! Sandboxed and native builds of a module give the same records, verdicts, patches, frames and tables for the same packets.

use std::io::Write;
use weir_admission::Manifest;
use weir_author::BuildError;
use weir_lab::comparison::{OutputDigest, Repetitions};
use weir_lab::instructions::{self, CountedRun};
use weir_lab::module::{Class, Module};
use weir_lab::native::Compiler;
use weir_lab::packets::{Packets, packets_of};
use weir_lab::paths;
use weir_lab::price::{BuildKind, Builder};

/// Two passes over the packets. In the second pass the module's tables are filled by the first.
const TWICE: Repetitions = Repetitions { rounds: 1, warm: false, passes: 1 };

/// Returns true if a C compiler is installed. Otherwise reports that the test is skipped.
fn has_compiler() -> bool {
    let has = Compiler::clang().is_some() || Compiler::gcc().is_some();
    if !has {
        eprintln!(
            "SKIPPED: neither clang-19 nor gcc is installed, so there is no native build to compare with"
        );
    }
    has
}

/// The digest of the output of all builds of a module over these packets.
fn digest(module: &Module, packets: &Packets) -> OutputDigest {
    let builder = Builder::open(packets).unwrap();
    let price = builder.measure(module, packets.batches(), TWICE).unwrap_or_else(|error| panic!("{error}"));
    assert!(price.nanos(BuildKind::Sandbox).is_some());
    price.digest
}

#[test]
fn sandboxed_and_native_builds_of_all_modules_give_the_same_output() {
    if !has_compiler() {
        return;
    }
    let packets = Packets::read(&paths::sample(), usize::MAX).unwrap();
    let silent: Vec<String> = Module::shipped()
        .unwrap()
        .into_iter()
        .filter(|module| digest(module, &packets).records.count == 0)
        .map(|module| module.name)
        .collect();
    // Every module must emit records, because equal empty outputs would prove little.
    assert_eq!(silent, Vec::<String>::new(), "{} packets", packets_of(packets.batches()));
}

#[test]
fn a_native_build_with_other_output_is_an_error() {
    let Some(compiler) = Compiler::clang().or_else(Compiler::gcc) else {
        eprintln!("SKIPPED: neither clang-19 nor gcc is installed");
        return;
    };
    let packets = Packets::read(&paths::sample(), usize::MAX).unwrap();
    let builder = Builder::open(&packets).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // The native build counts each packet twice.
    let mut module = Module::named("port-count").unwrap();
    let source = std::fs::read_to_string(&module.source).unwrap();
    module.source = folder.path().join("port-count.c");
    module.name = "port-count-changed".to_owned();
    let changed = source.replace("count->packets++;", "count->packets += 2;");
    assert_ne!(source, changed);
    std::fs::write(&module.source, changed).unwrap();

    let error = builder.measure(&module, packets.batches(), TWICE).unwrap_err().to_string();
    assert!(error.contains("differ"), "{} built it: {error}", compiler.version);
}

/// A stream of the module `arm`, with packets a millisecond apart. After every tenth data packet comes a request for a
/// recent packet, an old one, and one that was never sent.
fn multicast() -> Vec<u8> {
    let mut out = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0];
    let mut put = |millis: u32, payload: &[u8]| {
        let len = u16::try_from(payload.len()).unwrap();
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        frame.extend((28 + len).to_be_bytes());
        frame.extend([0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 239, 0, 0, 1]);
        frame.extend([1000u16, 5350, 8 + len, 0].iter().flat_map(|field| field.to_be_bytes()));
        frame.extend(payload);
        let len = u32::try_from(frame.len()).unwrap();
        for field in [1_600_000_000 + millis / 1000, millis % 1000 * 1000, len, len] {
            out.extend(field.to_le_bytes());
        }
        out.extend(frame);
    };
    let header = |kind: u8, last: u32| {
        let stream = 7u32.to_be_bytes();
        [[kind, 1, 0, 0], stream, last.to_be_bytes()].concat()
    };
    for sequence in 0..5000u32 {
        let data = vec![sequence.to_le_bytes()[0]; 20 + sequence as usize % 80];
        put(sequence, &[header(1, sequence), data].concat());
        if sequence % 10 == 9 {
            let wanted = [sequence - 5, sequence.saturating_sub(90), sequence + 100_000];
            let wanted: Vec<u8> = wanted.iter().flat_map(|number| number.to_be_bytes()).collect();
            put(sequence, &[header(2, 3), wanted].concat());
        }
    }
    out
}

#[test]
fn modules_that_send_give_the_same_output_natively() {
    if !has_compiler() {
        return;
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&multicast()).unwrap();
    let packets = Packets::read(file.path(), usize::MAX).unwrap();
    assert_eq!(packets_of(packets.batches()), 5500);
    let digests: Vec<_> = Module::active().unwrap().iter().map(|module| digest(module, &packets)).collect();
    let [arm, flood, spin] = &digests[..] else { panic!("{digests:?}") };
    // arm answers requests for its copies, and forwards the others to the sender.
    assert!(arm.frames.count > 1000 && arm.records.count > 5, "{arm:?}");
    // The ticks of each block send up to the limit.
    assert!(
        flood.frames.count > 4096 && flood.frames.count % 4096 == 0 && flood.records.count == 1,
        "{flood:?}"
    );
    assert_eq!((spin.records.count, spin.frames.count), (1, 0), "{spin:?}");
}

#[test]
fn a_module_that_keeps_packets_and_uses_tables_gives_the_same_output_natively() {
    if !has_compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = paths::root().join("lab/native/sharing");
    for name in ["sharing.c", "weir.toml"] {
        std::fs::copy(source.join(name), folder.path().join(name)).unwrap();
    }
    let built = match weir_author::build(folder.path(), &weir_author::BuildOptions::default()) {
        Ok(built) => built,
        Err(BuildError::NoClang { .. } | BuildError::NoLinker) => {
            eprintln!("SKIPPED: no compiler of C to WebAssembly is installed");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let module = Module {
        name: "sharing".to_owned(),
        source: source.join("sharing.c"),
        wasm: std::fs::read(built.path).unwrap(),
        manifest: Manifest::parse(&std::fs::read(source.join("weir.toml")).unwrap()).unwrap(),
        class: Class::Active,
        tables: vec![(0, (0..=255).collect())],
    };
    let packets = Packets::read(&paths::sample(), 5000).unwrap();
    let with_table = digest(&module, &packets);
    assert!(
        with_table.records.count > 5000 && with_table.drops.count > 100 && with_table.tables.count > 100,
        "{with_table:?}"
    );
    // The contents of the table change the output.
    let without = digest(&Module { tables: Vec::new(), ..module }, &packets);
    assert!(without.drops.count == 0 && without.records.hash != with_table.records.hash, "{without:?}");
}

#[test]
fn two_counts_of_the_instructions_of_a_module_agree() {
    if std::process::Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("SKIPPED: valgrind is not installed, so no instructions are counted");
        return;
    }
    let run = CountedRun {
        module: "dscp-mark".to_owned(),
        kind: BuildKind::Tier(weir_admission::Tier::Proved),
        packets: 512,
        passes: 2,
    };
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_bench"));
    let count = || instructions::instructions_per_packet(program, &run, &paths::sample()).unwrap();
    let (one, other) = (count(), count());
    assert!(one > 1.0, "{one} instructions a packet");
    // The count is reproducible to a tenth of a percent.
    assert!((one / other - 1.0).abs() < 0.001, "{one} and {other} instructions a packet");
}
