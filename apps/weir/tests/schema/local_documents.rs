//! The JSON documents of commands that need no node.

use crate::check::{ENDLESS, built};
use crate::compile::compiled;
use crate::live_run::BackgroundRun;
use crate::module_tests;
use crate::output::sender;
use crate::run::module::{MANIFEST, answering, at_packet, text, write, write_as};
use crate::run::net::{cables, send};
use crate::run::outside::python;
use crate::run::packets::{pcap, traffic};
use crate::run::schema_coverage::SchemaCoverage;
use crate::run::{root, run, sample, weir};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use weir_admission::Calibration;

fn finish(coverage: &SchemaCoverage, exceptions: &[String]) {
    coverage.validate(python(&["jsonschema"]).as_deref());
    let exceptions: Vec<&str> = exceptions.iter().map(String::as_str).collect();
    coverage.assert_complete(&exceptions);
}

/// A module that calls a function without a name in a loop. The function has a loop without a bound, which it leaves at once.
fn unbounded(folder: &Path) -> String {
    // The function is the first one after the imports.
    let index = text("").matches("(import ").count();
    let body = format!(
        "(func (param i32) (loop (br_if 0 (i32.load (local.get 0)))))
        (func (export \"weir_packet\") (param i32) (result i32) (local i32)
            (loop
                (call {index} (i32.const 64))
                (br_if 0 (i32.lt_u (local.tee 1 (i32.add (local.get 1) (i32.const 1))) (i32.const 5))))
            (i32.const 0))"
    );
    write(folder, "unbounded", &body).to_str().unwrap().to_owned()
}

/// Writes a calibration of a machine, and returns the folder of the state.
fn calibrated(folder: &Path) -> PathBuf {
    let calibration = Calibration::measured(10, 20, 30, "a processor").unwrap();
    fs::create_dir(folder.join("weir")).unwrap();
    let file = folder.join("weir/calibration.toml");
    fs::write(&file, calibration.to_toml()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    folder.to_owned()
}

/// A module with an instruction that LLVM's code cannot have.
const ODD: &str = "(table 1 funcref) (func (export \"weir_packet\") (param i32) (result i32) (ref.is_null (ref.null func)))";

#[test]
fn the_costs_of_modules_fit_their_schema() {
    let mut coverage = SchemaCoverage::of("check");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let strict = root().join("docs/profiles/strict.toml");
    let none = at("none.toml");
    fs::write(&none, "tiers = ['proved']\npacket = '2ns'\nper-byte = '0ns'\n").unwrap();
    fs::write(at("broken.wasm"), b"\0asm\x01\0\0\0\x01\xff").unwrap();
    let table = "[[table]]\nname = 't'\naccess = 'publish'\nbytes = '1 KiB'\nsummary = 's'\n";
    let open = MANIFEST.replace("NAME", "open").replace("default = 8\n", "");
    let returns = answering("(i32.const 0)");
    let open = write_as(folder.path(), "open", &returns, &(open + table)).to_str().unwrap().to_owned();
    let endless = write(folder.path(), "endless", &answering("(loop (br 0)) (i32.const 0)"));
    let endless = endless.to_str().unwrap();
    let grows = answering("(drop (memory.grow (i32.const 3))) (i32.const 0)");
    let grows = write(folder.path(), "grows", &grows);
    fs::write(at("fixed.toml"), "tiers = ['proved']\npages = 0\n").unwrap();
    fs::write(at("small.toml"), "tiers = ['proved']\nmemory = '64 KiB'\n").unwrap();
    let odd = write(folder.path(), "odd", ODD);
    // Admitted, refused by a profile for a bound and for a missing one, and not analysed.
    for (arguments, status) in [
        (&["rtt"][..], 0),
        (&["rtt", "--any-value"], 0),
        (&["rtt", "--profile", strict.to_str().unwrap()], 0),
        (&["lrd", "--profile", &none], 1),
        (&[&open], 0),
        (&[grows.to_str().unwrap(), "--profile", &at("fixed.toml")], 1),
        (&[endless, "--profile", &none], 1),
        (&["rtt", "--profile", &at("small.toml")], 1),
        (&[&unbounded(folder.path())], 0),
        (&[odd.to_str().unwrap()], 0),
        (&[&at("broken.wasm")], 1),
    ] {
        let ended = run(["check", "--json"].iter().chain(arguments));
        assert_eq!(ended.status.code(), Some(status), "{arguments:?}: {}", ended.stderr);
        coverage.add(ended.json());
    }
    let measured =
        weir().args(["check", "rtt", "--json"]).env("XDG_STATE_HOME", calibrated(folder.path())).output();
    coverage.add(serde_json::from_slice(&measured.unwrap().stdout).unwrap());
    // weir states a class for each entry point that it has analysed.
    let class = "/oneOf/0/properties/entry_points/items/properties/class".to_owned();
    match built(folder.path(), Some(ENDLESS)) {
        Some(path) => {
            coverage.add(run(["check", "--json", &path]).succeeds().json());
            // A loop of jumps has no form that ignores the rest.
            let jump = "    {\nagain:\n    table[sum++ & 63]++;\n    goto again;\n    }\n";
            let jumps = ENDLESS.replace("        for (;;)\n            table[sum++ & 63]++;\n", jump);
            let other = tempfile::tempdir().unwrap();
            let path = built(other.path(), Some(&jumps)).unwrap();
            coverage.add(run(["check", "--json", &path]).succeeds().json());
            finish(&coverage, &[class]);
        }
        // Without a compiler there are no sources.
        None => finish(&coverage, &[class, "/$defs/unbounded/properties/statement".to_owned()]),
    }
    assert_eq!(run(["check", "nothing", "--json"]).fails(2, &["there is no module `nothing`"]).text(), "");
}

#[test]
fn the_machine_code_of_modules_fits_its_schema() {
    let mut coverage = SchemaCoverage::of("compile");
    let folder = tempfile::tempdir().unwrap();
    let odd = write(folder.path(), "odd", ODD);
    let Some(document) = compiled(odd.to_str().unwrap(), &[]) else { return };
    coverage.add(document);
    let plain = write(folder.path(), "plain", &answering("(i32.load offset=40 (local.get $d))"));
    for (module, arguments) in [
        ("rtt", &[][..]),
        (plain.to_str().unwrap(), &["--explain"]),
        ("port-count", &["--explain", "weir_tick", "--no-cache"]),
    ] {
        coverage.add(compiled(module, arguments).unwrap());
    }
    let recursive = "(func $f (param i32) (if (local.get 0) (then (call $f (i32.load (local.get 0))))))";
    let calls = format!("{recursive} {}", answering("(call $f (i32.const 64)) (i32.const 0)"));
    coverage.add(compiled(write(folder.path(), "recursive", &calls).to_str().unwrap(), &[]).unwrap());
    // The verifier rejects no code of this compiler: the unit tests of the command have a rejection. The part that is not supported
    // is an instruction in a module without sources.
    let exceptions = [
        "/properties/rejections/items",
        "/properties/functions/items/properties/code/items/properties/rejected",
        "/properties/functions/items/properties/frame_bytes",
        "/$defs/access/properties/place",
        "/properties/unsupported/anyOf/0/properties/function",
        "/properties/unsupported/anyOf/0/properties/offset",
        "/properties/unsupported/anyOf/0/properties/file",
        "/properties/unsupported/anyOf/0/properties/line",
    ];
    finish(&coverage, &exceptions.map(str::to_owned));
    assert_eq!(run(["compile", "nothing", "--json"]).fails(2, &["there is no module `nothing`"]).text(), "");
}

#[test]
fn the_results_of_tests_fit_their_schema() {
    if !module_tests::has_sanitizers() {
        return;
    }
    let mut coverage = SchemaCoverage::of("test");
    let home = tempfile::tempdir().unwrap();
    let body = "{\n    if (p->wire_len > 1000000)\n        put(1);\n    put(sizeof(long) + p->wire_len);\n    return 0;\n}";
    let dir = module_tests::module(home.path(), "width", &format!("{}{body}", module_tests::EMIT));
    module_tests::add_test(home.path(), &dir).fails(1, &[]);
    let path = dir.to_str().unwrap();
    // A difference of the native build, none in the sandbox alone, and a difference from the expected lines.
    let test = |more: &[&str]| run([&["test", path, "--json"], more].concat());
    coverage.add(test(&[]).fails(1, &["1 of 1"]).json());
    coverage.add(test(&["--no-native"]).succeeds().json());
    let expected = dir.join("tests/short/expected.jsonl");
    let lines = fs::read_to_string(&expected).unwrap();
    fs::write(&expected, lines.split_once('\n').unwrap().1).unwrap();
    coverage.add(test(&["--no-native"]).fails(1, &["1 of 1"]).json());
    coverage.add(test(&["--no-native", "--update"]).succeeds().json());
    // A test that does not run.
    fs::write(dir.join("tests/short/test.toml"), "[parameters]\nother = 1\n").unwrap();
    coverage.add(test(&["--no-native"]).fails(1, &["1 of 1"]).json());
    let documents = coverage.documents();
    let failed: Vec<_> = documents.iter().map(|document| document["failed"].as_u64()).collect();
    assert_eq!(failed, [Some(1), Some(0), Some(1), Some(0), Some(1)]);
    assert_eq!(documents[3]["tests"][0]["updated"], true);
    // The coverage needs a further program of LLVM.
    let covered = |name| format!("/properties/coverage/anyOf/0/items/properties/{name}");
    match documents[0]["coverage"] {
        Value::Null => finish(&coverage, &["name", "lines", "covered", "missed"].map(covered)),
        _ => finish(&coverage, &[]),
    }
    assert_eq!(run(["test", path, "none", "--json"]).fails(2, &["no test `none`"]).text(), "");
}

/// The summary of a run on a new interface, whose packets are sent to another one; `None` without the right to make one.
fn live_summary() -> Option<Value> {
    if !cables(&[("a", "b"), ("c", "d")]) {
        return None;
    }
    let packets = traffic(100);
    let folder = tempfile::tempdir().unwrap();
    let sender = sender(folder.path(), "none");
    let module = ["-m", sender.to_str().unwrap()];
    let run =
        BackgroundRun::start(&[&["-i", "b", "--send", "c", "-c", "100", "--json"], &module[..]].concat());
    send("a", packets.iter().map(|packet| packet.bytes.as_slice()));
    Some(run.end().0.succeeds().json())
}

#[test]
fn summaries_of_runs_fit_their_schema() {
    let mut coverage = SchemaCoverage::of("summary");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("capture.pcap"), pcap(&traffic(1_000))).unwrap();
    let faulty = write(folder.path(), "faulty", &at_packet(10, "(unreachable)")).to_str().unwrap().to_owned();
    let summary = |path: &str| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
    let capture = at("capture.pcap");
    let rest =
        ["--report", &at("report.html"), "--summary", &at("summary.json"), "-w", &at("all.pcapng"), "udp"];
    let arguments = ["run", "-r", &capture, "-m", &faulty, "-m", "arm", "-m", "http", "--out", &at("out")];
    run(arguments.iter().chain(&rest)).succeeds();
    let document = summary(&at("summary.json"));
    assert_eq!(document["modules"][0]["first_faults"][0]["packet"], 11);
    coverage.add(document);
    // A run that fails, one whose capture is not complete, one without packets, and one that sends its flows.
    run(["run", "-r", &capture, "-m", &faulty, "--strict", "--summary", &at("failed.json")])
        .fails(3, &["unreachable"]);
    let failed = summary(&at("failed.json"));
    assert!(failed["failure"].as_str().unwrap().contains("unreachable"), "{failed}");
    coverage.add(failed);
    let stops = r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 0))
        (func (export "weir_stop") (param i64) (unreachable))"#;
    let stops = write(folder.path(), "stops", stops);
    let collector = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = format!("udp://{}", collector.local_addr().unwrap());
    for (arguments, status) in [
        (&["-m", "rtt", "-w", "/dev/full"][..], 1),
        (&["-m", "rtt", "icmp"], 0),
        (&["-m", &unbounded(folder.path()), "-m", stops.to_str().unwrap(), "-m", "arm"], 0),
        (&["-m", "flows", "--collector", &address], 0),
    ] {
        let ended = run(["run", "-r", &capture, "--json"].iter().chain(arguments));
        assert_eq!(ended.status.code(), Some(status), "{arguments:?}: {}", ended.stderr);
        coverage.add(ended.json());
    }
    for modules in [&[][..], &["-m", "latency"]] {
        let sample = sample();
        let arguments = ["run", "--json", "-r", sample.to_str().unwrap()];
        coverage.add(run(arguments.iter().chain(modules)).succeeds().json());
    }
    let live = live_summary();
    let exceptions = match &live {
        Some(_) => Vec::new(),
        None => {
            let ofs = ["interface", "sent", "modules/items/properties/outputs/items/properties/interface"];
            ofs.map(|name| format!("/properties/{name}")).to_vec()
        }
    };
    live.into_iter().for_each(|document| coverage.add(document));
    finish(&coverage, &exceptions);
}
