//! A module in the sandbox does exactly what the same source does natively: the same records, verdicts and patches over the same packets.

use weir_lab::contest::Effort;
use weir_lab::module::Module;
use weir_lab::native::Compiler;
use weir_lab::packets::{Packets, packets_of};
use weir_lab::place;
use weir_lab::price::{How, Workshop};

#[test]
fn sandboxed_and_native_builds_of_all_modules_do_the_same() {
    if Compiler::clang().is_none() && Compiler::gcc().is_none() {
        eprintln!(
            "SKIPPED: neither clang-19 nor gcc is installed, so there is nothing native to compare with"
        );
        return;
    }
    let packets = Packets::read(&place::sample(), usize::MAX).unwrap();
    let workshop = Workshop::open(&packets).unwrap();
    // Two passes: the second one finds the tables as the first one left them.
    let effort = Effort { rounds: 1, warm: false, passes: 1 };
    let mut silent = Vec::new();
    for module in Module::shipped().unwrap() {
        let price = workshop.measure(&module, packets.batches(), effort).unwrap_or_else(|e| panic!("{e}"));
        assert!(price.nanos(How::Sandbox).is_some());
        if price.deeds.records == 0 {
            silent.push(module.name);
        }
    }
    // The sample has something for each of them: that nothing is the same as nothing would prove little.
    assert_eq!(silent, Vec::<String>::new(), "{} packets", packets_of(packets.batches()));
}

#[test]
fn a_module_that_does_something_else_natively_is_noticed() {
    let Some(compiler) = Compiler::clang().or_else(Compiler::gcc) else {
        eprintln!("SKIPPED: neither clang-19 nor gcc is installed");
        return;
    };
    let packets = Packets::read(&place::sample(), usize::MAX).unwrap();
    let workshop = Workshop::open(&packets).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // One more than there are: in the native build only.
    let mut module = Module::named("port-count").unwrap();
    let source = std::fs::read_to_string(&module.source).unwrap();
    module.source = folder.path().join("port-count.c");
    module.name = "port-count-changed".to_owned();
    let changed = source.replace("count->packets++;", "count->packets += 2;");
    assert_ne!(source, changed);
    std::fs::write(&module.source, changed).unwrap();

    let effort = Effort { rounds: 1, warm: false, passes: 1 };
    let error = workshop.measure(&module, packets.batches(), effort).unwrap_err().to_string();
    assert!(error.contains("differ"), "{} built it: {error}", compiler.version);
}
