//! Tests of `weir run --table`, and of the tables that `weir check` and `weir modules` show for a module.

use crate::run::module::{MANIFEST, write_as};
use crate::run::packets::{pcap, traffic};
use crate::run::{run, weir};
use std::fs;
use std::process::Stdio;
use tempfile::TempDir;

/// A temporary folder with a capture, a module that reads the table `t`, and one that publishes it.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("capture.pcap"), pcap(&traffic(10))).unwrap();
        // At the stop it logs the bytes that it read.
        let body = format!(
            r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 0))
            (func (export "weir_stop") (param i64) (drop (call $log (i32.const 2)
                (i32.const {}) (i32.load (i32.const {})))))"#,
            0xC000_0040_u32.cast_signed(),
            0xC000_0008_u32.cast_signed()
        );
        let table = |access: &str| {
            format!("[[table]]\nname = 't'\naccess = '{access}'\nbytes = '1 KiB'\nsummary = 'some text'\n")
        };
        let manifest = |name: &str| MANIFEST.replace("NAME", name);
        write_as(folder.path(), "reader", &body, &(manifest("reader") + &table("read")));
        let body = r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 0))"#;
        write_as(folder.path(), "publisher", body, &(manifest("publisher") + &table("publish")));
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    /// Runs `weir run` with a module. Returns its exit status and standard error.
    fn run(&self, module: &str, arguments: &[&str]) -> (Option<i32>, String) {
        let (capture, module) = (self.path("capture.pcap"), self.path(module));
        let command = ["run", "-q", "-r", capture.as_str(), "-m", module.as_str()];
        let ended = run(command.iter().chain(arguments));
        (ended.status.code(), ended.stderr)
    }
}

#[test]
fn a_module_reads_the_file_given_as_its_table() {
    let bench = Bench::new();
    let table = format!("t={}", bench.file("text", b"from the file"));
    let (code, printed) = bench.run("reader.wasm", &["--table", &table]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("from the file") && !printed.contains("warning"), "{printed}");
    // Without a file the table is empty.
    let (code, printed) = bench.run("reader.wasm", &[]);
    assert_eq!(code, Some(0), "{printed}");
    let warning = "reader.wasm: it reads table `t`, which is empty; --table NAME=FILE fills it";
    assert!(printed.contains(&warning.replace("NAME", "t")), "{printed}");
    let (code, printed) = bench.run("publisher.wasm", &[]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.contains("it publishes table `t`, which has no readers: a run has no sessions"),
        "{printed}"
    );
}

#[test]
fn an_invalid_table_is_refused_with_a_message() {
    let bench = Bench::new();
    let long = format!("t={}", bench.file("long", &[0; 1025]));
    let text = bench.file("text", b"x");
    let other = format!("other={text}");
    let twice = format!("t={text}");
    for (module, tables, says) in [
        ("reader.wasm", &["t"][..], "`--table t`: NAME=FILE is wanted"),
        ("reader.wasm", &["T=x"], "`--table T=x`: `T` is not a name"),
        ("reader.wasm", &[&twice, &twice], "`--table t=...` is there twice"),
        ("reader.wasm", &[&other], "no module of this run reads such a table; they read t"),
        ("publisher.wasm", &[&twice], "no module of this run reads such a table; they read none"),
        ("reader.wasm", &[&long], "it has 1025 bytes, and module reader declares 1024 at most"),
        ("reader.wasm", &["t=/dev/zero"], "/dev/zero: is not a regular file, from which a table is read"),
        ("reader.wasm", &["t=/nowhere/at/all"], "/nowhere/at/all: No such file"),
    ] {
        let options: Vec<&str> = tables.iter().flat_map(|table| ["--table", table]).collect();
        let (code, printed) = bench.run(module, &options);
        assert_eq!(code, Some(2), "{printed}");
        assert!(printed.contains(says), "{printed}\n  should say: {says}");
    }
}

#[test]
fn check_and_modules_show_the_tables_of_a_module() {
    let bench = Bench::new();
    for (module, says) in
        [("reader.wasm", "t (reads at most 1 KiB)"), ("publisher.wasm", "t (publishes at most 1 KiB)")]
    {
        for command in ["check", "modules"] {
            let output = weir().arg(command).arg(bench.path(module)).stdin(Stdio::null()).output().unwrap();
            let printed = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success() && printed.contains(says), "{command}: {printed}");
        }
    }
    let ended = run(["check", "--json", &bench.path("reader.wasm")]);
    let document: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(document["tables"], serde_json::json!([{"name": "t", "access": "read", "bytes": 1024}]));
}
