//! `weir test`: tests of modules, in the sandbox and in native builds with sanitizers.

use crate::run::{Ended, root, run};
use std::fs;
use std::path::{Path, PathBuf};

const SAMPLE: &str = "lab/sample/sample.pcap";

/// Returns true if the native builds of `weir test` can be made; else says what is missing.
pub fn has_sanitizers() -> bool {
    let has_clang = Path::new("/usr/lib/llvm-19/bin/clang").exists();
    let runtime = Path::new("/usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.asan-x86_64.a");
    if !has_clang || !runtime.exists() {
        println!("SKIPPED: clang 19 with its sanitizers is not installed (clang-19 libclang-rt-19-dev)");
        return false;
    }
    true
}

/// Writes a module that emits numbers, and returns its folder.
pub fn module(home: &Path, name: &str, source: &str) -> PathBuf {
    let dir = home.join(name);
    fs::create_dir_all(&dir).unwrap();
    let manifest = format!(
        "name = '{name}'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\nkind = 'filter'\n\
         [[stream]]\nname = 'numbers'\nfield = [{{ name = 'n', type = 'u64' }}]\n"
    );
    fs::write(dir.join("weir.toml"), manifest).unwrap();
    let source = format!("#include \"weir.h\"\n#include \"module.h\"\n{source}");
    fs::write(dir.join(format!("{name}.c")), source).unwrap();
    dir
}

/// The first packets of the sample, in a capture of their own.
fn short_capture(home: &Path) -> PathBuf {
    let capture = home.join("short.pcap");
    if !capture.exists() {
        let (to, sample) = (capture.to_str().unwrap(), root().join(SAMPLE));
        run(["run", "-r", sample.to_str().unwrap(), "-c", "100", "-m", "rtt", "-w", to]).succeeds();
    }
    capture
}

/// Adds a test of the short capture to a module, and returns the result.
pub fn add_test(home: &Path, dir: &Path) -> Ended {
    let capture = short_capture(home);
    run(["test", dir.to_str().unwrap(), "--add", "short", "-r", capture.to_str().unwrap()])
}

/// The beginning of a module that emits numbers.
pub const EMIT: &str = "static void put(uint64_t n) { const struct numbers_row row = { .n = n }; emit_numbers(&row); }\n\
     WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)\n";

#[test]
fn a_new_module_passes_its_test_and_a_changed_one_fails_it_with_the_difference() {
    if !has_sanitizers() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("first");
    let path = dir.to_str().unwrap();
    run(["new", path]).succeeds();
    let printed = run(["test", path]).succeeds().text().to_owned();
    assert!(printed.contains("first 0.1.0: in the sandbox, and natively with sanitizers"), "{printed}");
    assert!(printed.contains("sample       40 packets        3 lines  ok"), "{printed}");
    assert!(printed.contains("coverage  first.c: 27 of 27 lines (100 %)"), "{printed}");

    let source = fs::read_to_string(dir.join("first.c")).unwrap();
    fs::write(dir.join("first.c"), source.replace(".packets++", ".packets += 2")).unwrap();
    let failed = run(["test", path]);
    let printed = failed.fails(1, &["1 of 1 tests failed", "weir test --update"]).text().to_owned();
    assert!(printed.contains("FAILED") && printed.contains("^ packets: 6 → 12"), "{printed}");
    let json = run(["test", path, "--json"]);
    let json: serde_json::Value = serde_json::from_str(json.fails(1, &["1 of 1"]).text()).unwrap();
    assert_eq!((&json["failed"], &json["tests"][0]["name"]), (&1.into(), &"sample".into()));

    run(["test", path, "--update"]).succeeds();
    run(["test", path, "sample"]).succeeds();
    run(["test", path, "other"]).fails(2, &["no test `other`", "sample"]);
    fs::remove_dir_all(dir.join("tests")).unwrap();
    run(["test", path]).fails(2, &["there are no tests", "--add NAME -r CAPTURE"]);
    let report = home.path().join("html");
    add_test(home.path(), &dir).succeeds();
    run(["test", path, "--coverage", report.to_str().unwrap()]).succeeds();
    assert!(fs::read_to_string(report.join("index.html")).unwrap().contains("first.c"));
}

#[test]
fn all_examples_pass_their_tests_in_the_sandbox_and_natively() {
    if !has_sanitizers() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    // The tests name the sample by its place in the repository.
    std::os::unix::fs::symlink(root().join("lab"), home.path().join("lab")).unwrap();
    let mut examples = 0;
    for entry in fs::read_dir(root().join("guest/examples")).unwrap() {
        let from = entry.unwrap().path();
        let name = from.file_name().unwrap().to_str().unwrap().to_owned();
        if !from.join(format!("{name}.c")).exists() {
            continue;
        }
        examples += 1;
        let to = home.path().join("guest/examples").join(&name);
        fs::create_dir_all(&to).unwrap();
        for file in ["weir.toml".to_owned(), format!("{name}.c")] {
            fs::copy(from.join(&file), to.join(&file)).unwrap();
        }
        std::os::unix::fs::symlink(from.join("tests"), to.join("tests")).unwrap();
        let printed = run(["test", to.to_str().unwrap()]).succeeds().text().to_owned();
        assert!(printed.lines().any(|line| line.ends_with(" ok")), "{name}: {printed}");
        let expected = fs::read_dir(from.join("tests")).unwrap().map(|test| {
            fs::read_to_string(test.unwrap().path().join("expected.jsonl")).unwrap().lines().count()
        });
        assert_ne!(expected.sum::<usize>(), 0, "{name} expects nothing");
    }
    assert!(examples >= 14);
}

#[test]
fn undefined_behaviour_is_found_with_its_line() {
    if !has_sanitizers() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    // Name, body and a part of the report.
    let cases: [(&str, &str, &str); 5] = [
        (
            "behind-the-packet",
            "{\n    put(weir_at(p->data)[p->cap_len]);\n    return 0;\n}",
            "bytes behind the captured ones",
        ),
        (
            "earlier-packet",
            "{\n    static const uint8_t *last; const uint8_t *now = weir_at(p->data); last = last ? last : now; put(last[0]);\n    \
             return 0;\n}",
            "a packet of an earlier call, which it has not kept",
        ),
        (
            "array",
            "{\n    static uint64_t sizes[64]; put(sizes[p->wire_len]++);\n    return 0;\n}",
            "out of bounds",
        ),
        (
            "overflow",
            "{\n    static int32_t sum = 2147483600; sum += (int32_t)p->wire_len; put((uint64_t)(uint32_t)sum);\n    return 0;\n}",
            "signed integer overflow",
        ),
        ("division", "{\n    put(100 / (p->wire_len - p->wire_len));\n    return 0;\n}", "division by zero"),
    ];
    for (name, body, report) in cases {
        let dir = module(home.path(), name, &format!("{EMIT}{body}"));
        let finished = add_test(home.path(), &dir);
        let printed = finished.fails(1, &["1 of 1 tests failed"]).text().to_owned();
        assert!(printed.contains(report), "{name}: {printed}");
        // Sources are printed with lines from 1: two of `#include`, two of `EMIT`, and the brace.
        assert!(printed.contains(&format!("{name}.c:6")), "{name}: {printed}");
        let packet = if name == "earlier-packet" { "packet 2: a fault" } else { "packet 1: a fault" };
        assert!(printed.contains(packet) || name == "array" || name == "overflow", "{name}: {printed}");
        run(["test", dir.to_str().unwrap(), "--no-native"]).succeeds();
    }
}

#[test]
fn a_missing_check_of_bounds_is_found_with_packets_that_are_cut_short() {
    if !has_sanitizers() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    // Each packet of this length in the capture has a payload, and is whole.
    let body = |check: &str| {
        format!(
            "{EMIT}{{\n    if (!(p->flags & WEIR_L4) || p->wire_len < 200{check})\n        return 0;\n    put(weir_payload(p)[4]);\n    return 0;\n}}"
        )
    };
    let dir = module(home.path(), "unchecked", &body(""));
    let failed = add_test(home.path(), &dir);
    let printed = failed.fails(1, &["1 of 1 tests failed"]).text().to_owned();
    let report = printed.split_once("Natively:\n").unwrap().1;
    let place = report.lines().next().unwrap();
    assert!(
        place.contains("packet ") && place.contains(", cut to ") && place.ends_with(" bytes: a fault"),
        "{printed}"
    );
    assert!(report.contains("unchecked.c:8") && report.contains("behind the captured ones"), "{printed}");
    // The capture itself has no such packet.
    let expected = fs::read_to_string(dir.join("tests/short/expected.jsonl")).unwrap();
    assert!(expected.lines().count() > 5, "{expected}");
    let dir = module(home.path(), "checked", &body(" || p->payload_len < 5"));
    let printed = add_test(home.path(), &dir).succeeds().text().to_owned();
    // Cut packets do not count for the coverage: in the capture the check is never true alone.
    assert!(printed.contains("written") && printed.contains("coverage  checked.c: "), "{printed}");
}

#[test]
fn a_test_of_a_large_capture_keeps_the_packets_that_match_a_filter() {
    if !Path::new("/usr/lib/llvm-19/bin/clang").exists() {
        println!("SKIPPED: clang 19 is not installed");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let dir = module(home.path(), "numbers", &format!("{EMIT}{{\n    put(p->wire_len);\n    return 0;\n}}"));
    let (path, sample) = (dir.to_str().unwrap(), root().join(SAMPLE));
    let sample = sample.to_str().unwrap();
    let add = |name: &str, filter: &[&str]| {
        let options = ["test", path, "--no-native", "--add", name, "-r", sample];
        run(options.into_iter().chain(filter.iter().copied()))
    };
    add("all", &[]).succeeds();
    add("web", &["tcp", "port", "80"]).succeeds();
    let lines = |name: &str| {
        fs::read_to_string(dir.join("tests").join(name).join("expected.jsonl")).unwrap().lines().count()
    };
    assert!(lines("web") > 0 && lines("web") < lines("all"), "{} of {}", lines("web"), lines("all"));
    // Each packet of the copy matches.
    let copy = dir.join("tests/web/capture.pcap");
    let copy = copy.to_str().unwrap();
    let counted = |capture: &str, filter: &[&str]| {
        let options =
            ["run", "-r", capture, "-m", path_of(&dir).as_str(), "--format", "json"].map(str::to_owned);
        run(options.into_iter().chain(filter.iter().map(|word| (*word).to_owned())))
            .succeeds()
            .text()
            .lines()
            .count()
    };
    assert_eq!(counted(sample, &["tcp", "port", "80"]), counted(copy, &[]));
    assert_eq!(counted(copy, &["tcp", "port", "80"]), counted(copy, &[]));
    // A wrong filter, and one that selects nothing, leave no folder.
    add("wrong", &["tcp", "prt", "80"]).fails(2, &["prt"]);
    add("none", &["tcp", "port", "1"]).fails(2, &["no packet matches `tcp port 1`"]);
    assert!(!dir.join("tests/wrong").exists() && !dir.join("tests/none").exists());
}

/// The .wasm file in a module's folder.
fn path_of(dir: &Path) -> String {
    let name = dir.file_name().unwrap().to_str().unwrap();
    dir.join(format!("{name}.wasm")).to_str().unwrap().to_owned()
}

#[test]
fn a_test_without_a_required_parameter_fails_and_the_others_run() {
    if !Path::new("/usr/lib/llvm-19/bin/clang").exists() {
        println!("SKIPPED: clang 19 is not installed");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let dir = module(home.path(), "first", &format!("{EMIT}{{\n    put(p->wire_len);\n    return 0;\n}}"));
    let manifest = fs::read_to_string(dir.join("weir.toml")).unwrap();
    let parameter = "[[parameter]]\nname = 'known'\ntype = 'prefix-list'\nsummary = 'hosts'\n";
    fs::write(dir.join("weir.toml"), manifest + parameter).unwrap();
    let (path, capture) = (dir.to_str().unwrap(), short_capture(home.path()));
    let capture = capture.to_str().unwrap();
    run(["test", path, "--no-native", "--add", "z", "-r", &format!("{capture},known=10.0.0.0/8")]).succeeds();
    // A test that lacks it comes first.
    let failed = run(["test", path, "--no-native", "--add", "a", "-r", capture]);
    failed.fails(1, &["1 of 1 tests failed"]);
    let failed = run(["test", path, "--no-native"]);
    let printed = failed.fails(1, &["1 of 2 tests failed"]).text().to_owned();
    let advice = "test a: parameter `known` (prefix-list) must be given: hosts; write it into ";
    assert!(
        printed.contains(advice) && printed.contains("first/tests/a/test.toml, below [parameters]"),
        "{printed}"
    );
    assert!(
        printed.lines().any(|line| line.trim_start().starts_with("z ") && line.ends_with(" ok")),
        "{printed}"
    );
    let document = run(["test", path, "--no-native", "--json"]).fails(1, &["1 of 2"]).json();
    assert!(document["tests"][0]["error"].as_str().unwrap().starts_with("test a: parameter"), "{document}");
    fs::write(dir.join("tests/a/test.toml"), "[parameters]\nknown = ['192.0.2.0/24']\n").unwrap();
    run(["test", path, "--no-native", "--update"]).succeeds();
    run(["test", path, "--no-native"]).succeeds();
}

#[test]
fn a_capture_without_anything_for_the_module_is_named_when_its_test_is_written() {
    if !Path::new("/usr/lib/llvm-19/bin/clang").exists() {
        println!("SKIPPED: clang 19 is not installed");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let dir = module(home.path(), "silent", &format!("{EMIT}{{\n    (void)put, (void)p;\n    return 0;\n}}"));
    let (path, capture) = (dir.to_str().unwrap(), short_capture(home.path()));
    let added = run(["test", path, "--no-native", "--add", "a", "-r", capture.to_str().unwrap()]).succeeds();
    let advice = "This capture has nothing for the module: add one that has";
    assert!(added.text().contains(advice), "{}", added.text());
    assert!(run(["test", path, "--no-native", "--update"]).succeeds().text().contains(advice));
    // A test that expects nothing is a test.
    assert!(!run(["test", path, "--no-native"]).succeeds().text().contains(advice));
}

#[test]
fn a_module_that_does_something_else_natively_fails_with_both_rows() {
    if !has_sanitizers() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let other_row = module(
        home.path(),
        "width",
        &format!("{EMIT}{{\n    put(sizeof(long) + p->wire_len);\n    return 0;\n}}"),
    );
    let printed = add_test(home.path(), &other_row).fails(1, &[]).text().to_owned();
    assert!(printed.contains("packet 1: another row:") && printed.contains("in the sandbox"), "{printed}");
    let other_call = module(
        home.path(),
        "calls",
        &format!("{EMIT}{{\n    if (sizeof(long) == 4)\n        put(p->wire_len);\n    return 0;\n}}"),
    );
    let printed = add_test(home.path(), &other_call).fails(1, &[]).text().to_owned();
    assert!(
        printed.contains("natively the module returns, where in the sandbox it calls `emit`"),
        "{printed}"
    );
    let other_verdict = module(
        home.path(),
        "drops",
        &format!("{EMIT}{{\n    (void)put, (void)p;\n    return sizeof(long) == 4;\n}}"),
    );
    let printed = add_test(home.path(), &other_verdict).fails(1, &[]).text().to_owned();
    assert!(printed.contains("of a batch are dropped, in the sandbox 0xffffffffffffffff"), "{printed}");
    let endless = module(
        home.path(),
        "endless",
        &format!(
            "{EMIT}{{\n    for (volatile uint32_t i = 0; sizeof(long) == 8 || i < 5; i++)\n        ;\n    put(p->wire_len);\n    return 0;\n}}"
        ),
    );
    let (capture, path) = (short_capture(home.path()), endless.to_str().unwrap());
    let finished = run(["test", path, "--add", "short", "-r", capture.to_str().unwrap(), "--limit", "1s"]);
    let printed = finished.fails(1, &[]).text().to_owned();
    assert!(printed.contains("packet 1: not done after 1 s"), "{printed}");
}

#[test]
fn effects_of_a_filter_are_lines_and_lost_packets_have_none() {
    let home = tempfile::tempdir().unwrap();
    if !Path::new("/usr/lib/llvm-19/bin/clang").exists() {
        println!("SKIPPED: clang 19 is not installed");
        return;
    }
    let source = format!(
        "{EMIT}{{\n    if (p->number == 3)\n        WEIR_LOG(WEIR_WARNING, \"third\");\n    put(p->number);\n    \
         if (p->number == 4)\n        __builtin_trap();\n    if (weir_is_ip(p) && p->ip_version_marker)\n        return WEIR_DROP;\n    return WEIR_PASS;\n}}"
    );
    let source = source.replace("weir_is_ip(p) && p->ip_version_marker", "p->number == 5");
    let dir = module(home.path(), "effects", &source);
    let capture = short_capture(home.path());
    run(["test", dir.to_str().unwrap(), "--no-native", "--add", "short", "-r", capture.to_str().unwrap()])
        .succeeds();
    let text = fs::read_to_string(dir.join("tests/short/expected.jsonl")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // Packet 5 of the capture has the number 4.
    let row = |n: u32| format!("{{\"module\":\"effects\",\"stream\":\"numbers\",\"n\":{n}}}");
    assert_eq!(lines[..4], [row(0), row(1), row(2), "{\"log\":\"warning\",\"text\":\"third\"}".to_owned()]);
    assert_eq!(lines[4], row(3));
    assert!(
        lines[5].contains("\"fault\":\"`unreachable`") && lines[5].contains("\"packet\":5"),
        "{}",
        lines[5]
    );
    assert!(lines[5].contains("effects.c:"), "{}", lines[5]);
    assert_eq!(lines[6..9], [row(5), "{\"drop\":6}".to_owned(), row(6)]);
    assert_eq!(lines.len(), 100 - 1 + 3);
}

#[test]
fn events_of_streams_and_reads_far_behind_a_packet_are_as_in_the_sandbox() {
    if !has_sanitizers() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let events = "\nWEIR_EXPORT(weir_stream) int32_t weir_stream(const struct weir_stream *event)\n\
         {\n    put(1000 * packets + event->kind);\n    return WEIR_STREAM_CONTINUE;\n}\n";
    let source = format!(
        "static uint64_t packets;\n{EMIT}{{\n    packets++;\n    put(p->number);\n    return 0;\n}}{events}"
    );
    let dir = module(home.path(), "both", &source);
    let manifest =
        fs::read_to_string(dir.join("weir.toml")).unwrap() + "[tcp]\nstreams = 256\nbuffer = '256 KiB'\n";
    fs::write(dir.join("weir.toml"), manifest).unwrap();
    add_test(home.path(), &dir).succeeds();
    let text = fs::read_to_string(dir.join("tests/short/expected.jsonl")).unwrap();
    assert!(text.lines().count() > 120, "{text}");

    let far = format!("{EMIT}{{\n    put(weir_at(p->data)[p->cap_len + 300]);\n    return 0;\n}}");
    let printed = add_test(home.path(), &module(home.path(), "far", &far))
        .fails(1, &["tests failed"])
        .text()
        .to_owned();
    assert!(printed.contains("a fault") && printed.contains("far.c:6"), "{printed}");
    let key = format!(
        "{EMIT}{{\n    uint8_t tag[32];\n    weir_hmac_sha256(weir_at(p->data), p->cap_len + 64, tag, 1, tag);\n    put(tag[0]);\n    return 0;\n}}"
    );
    let printed = add_test(home.path(), &module(home.path(), "key", &key))
        .fails(1, &["tests failed"])
        .text()
        .to_owned();
    assert!(printed.contains("packet 1: a fault") && printed.contains("key.c:7"), "{printed}");
}

#[test]
fn each_lost_packet_loses_its_rows_and_a_link_is_not_written_through() {
    if !Path::new("/usr/lib/llvm-19/bin/clang").exists() {
        println!("SKIPPED: clang 19 is not installed");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let capture = short_capture(home.path());
    let add = |dir: &Path| {
        let arguments =
            ["test", dir.to_str().unwrap(), "--no-native", "--add", "short", "-r", capture.to_str().unwrap()];
        run(arguments).succeeds();
        let text = fs::read_to_string(dir.join("tests/short/expected.jsonl")).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    // A third of the packets is lost, many more than faults are described.
    let body =
        "{\n    put(p->number);\n    if (p->number % 3 == 2)\n        __builtin_trap();\n    return 0;\n}";
    let dir = module(home.path(), "third", &format!("{EMIT}{body}"));
    let lines = add(&dir);
    let rows = lines.iter().filter(|line| line.contains("\"stream\":\"numbers\"")).count();
    let faults: Vec<&String> = lines.iter().filter(|line| line.contains("\"fault\":")).collect();
    assert_eq!((rows, faults.len()), (67, 33), "{lines:?}");
    for (i, fault) in faults.iter().enumerate() {
        assert!(fault.contains(&format!("\"packet\":{}}}", 3 * i + 3)), "{fault}");
    }
    let batch = "static void put(uint64_t n) { const struct numbers_row row = { .n = n }; emit_numbers(&row); }\n\
         WEIR_EXPORT(weir_batch) uint64_t weir_batch(const struct weir_packet *first, uint64_t mask)\n{\n    \
         const struct weir_packet *p;\n    WEIR_EACH(p, first, mask) {\n        put(p->number);\n        \
         if (p->number == 70)\n            __builtin_trap();\n    }\n    return 0;\n}\n";
    let lines = add(&module(home.path(), "batch", batch));
    assert_eq!(lines.iter().filter(|line| line.contains("\"stream\"")).count(), 64, "{lines:?}");

    let (expected, other) = (dir.join("tests/short/expected.jsonl"), home.path().join("precious"));
    fs::write(&other, "mine").unwrap();
    fs::remove_file(&expected).unwrap();
    std::os::unix::fs::symlink(&other, &expected).unwrap();
    run(["test", dir.to_str().unwrap(), "--no-native", "--update"]).succeeds();
    assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
    assert!(expected.symlink_metadata().unwrap().is_file());
}

#[test]
fn a_packed_module_is_tested_in_the_sandbox_alone() {
    let home = tempfile::tempdir().unwrap();
    // The tests name the sample by its place in the repository.
    std::os::unix::fs::symlink(root().join("lab"), home.path().join("lab")).unwrap();
    let (from, dir) = (root().join("guest/languages/zig"), home.path().join("guest/languages/zig"));
    fs::create_dir_all(&dir).unwrap();
    for file in ["weir.toml", "dns-sizes.wasm", "dns-sizes.zig"] {
        fs::copy(from.join(file), dir.join(file)).unwrap();
    }
    std::os::unix::fs::symlink(from.join("tests"), dir.join("tests")).unwrap();
    let module = dir.join("dns-sizes.wasm");
    for named in [&dir, &module] {
        let printed = run(["test", named.to_str().unwrap()]).succeeds().text().to_owned();
        let head = "in the sandbox alone: a native run needs a source in C or Rust";
        assert!(printed.contains(head) && printed.lines().any(|line| line.ends_with(" ok")), "{printed}");
    }
    let path = dir.to_str().unwrap();
    let manifest = fs::read_to_string(dir.join("weir.toml")).unwrap();
    fs::write(dir.join("weir.toml"), format!("# changed\n{manifest}")).unwrap();
    run(["test", path]).fails(1, &["weir.toml has changed since the module was packed", "weir pack"]);
    fs::remove_file(&module).unwrap();
    run(["test", path]).fails(1, &["no source in C or Rust", "weir pack FILE.wasm"]);
    fs::write(&module, "text").unwrap();
    run(["test", module.to_str().unwrap()]).fails(1, &["dns-sizes.wasm"]);
}

#[test]
fn a_module_in_rust_runs_natively_with_checks_of_overflow() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("first");
    let path = dir.to_str().unwrap();
    run(["new", path, "--lang", "rust"]).succeeds();
    let tested = run(["test", path]);
    if tested.stderr.contains("no Rust compiler for WebAssembly") {
        println!("SKIPPED: there is no Rust compiler for WebAssembly");
        return;
    }
    let printed = tested.succeeds().text().to_owned();
    if printed.contains("in the sandbox alone") {
        println!("SKIPPED: {printed}");
        return;
    }
    let head = "in the sandbox, and natively with checks of overflow, without sanitizers, which Rust has in nightly compilers only";
    assert!(printed.contains(head), "{printed}");
    assert!(printed.contains("sample       40 packets        3 lines  ok"), "{printed}");
    // Programs of another LLVM than the compiler's cannot read its coverage.
    let is_covered = printed.contains("coverage  src/lib.rs: ") && printed.contains(" lines (");
    assert!(is_covered || printed.contains("no coverage: llvm-profdata and llvm-cov of LLVM"), "{printed}");

    // In the sandbox a number wraps around silently.
    let source = fs::read_to_string(dir.join("src/lib.rs")).unwrap();
    let changed = source.replace("count.packets += 1;", "count.packets += 1;\n            let low = packet.wire_len as u8 | 128;\n            count.bytes += u64::from(low + low);");
    assert_ne!(changed, source);
    fs::write(dir.join("src/lib.rs"), &changed).unwrap();
    run(["test", path, "--no-native", "--update"]).succeeds();
    run(["test", path, "--no-native"]).succeeds();
    let failed = run(["test", path]);
    let printed = failed.fails(1, &["1 of 1 tests failed"]).text().to_owned();
    let line = 1 + changed.lines().position(|line| line.contains("low + low")).unwrap();
    assert!(printed.contains("Natively:") && printed.contains(&format!("src/lib.rs:{line}:")), "{printed}");
    assert!(printed.contains("attempt to add with overflow"), "{printed}");

    // Strings, packets and headers are at the same addresses.
    let changed = source
        .replace("count.packets += 1;", "count.packets += 1;\n            weir_guest::log!(weir_guest::Level::Info, \"{} {} {}\", packet.src().unwrap(), packet.number, packet.payload());");
    fs::write(dir.join("src/lib.rs"), changed).unwrap();
    run(["test", path, "--no-native", "--update"]).succeeds();
    let expected = fs::read_to_string(dir.join("tests/sample/expected.jsonl")).unwrap();
    assert!(expected.matches("\"log\":\"info\"").count() > 10, "{expected}");
    run(["test", path]).succeeds();
}
