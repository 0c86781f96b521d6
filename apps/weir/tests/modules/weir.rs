//! Runs the binary, and reads its output.

use super::capture::Capture;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A successful run.
pub struct Run {
    /// The summary of `--json`.
    pub summary: Value,
    folder: tempfile::TempDir,
}

/// One record.
#[derive(Clone, Debug, PartialEq)]
pub struct Row(HashMap<String, Field>);

fn weir(capture: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    // The tests have a cache of compiled modules of their own.
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.args(["run", "--json", "-r"]).arg(capture);
    command
}

/// Runs modules on a capture in memory.
pub fn run(capture: &Capture, args: &[&str]) -> Run {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), capture.to_pcap()).unwrap();
    run_file(file.path(), args)
}

/// Runs modules on a file.
pub fn run_file(path: &Path, args: &[&str]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let output = weir(path).arg("--out").arg(folder.path()).args(args).output().unwrap();
    Run::new(folder, &output)
}

/// Runs modules on a file while `act` changes it. Returns the run and its standard error.
pub fn run_file_while(path: &Path, args: &[&str], act: impl FnOnce()) -> (Run, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = weir(path);
    command.arg("--out").arg(folder.path()).args(args);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    act();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (Run::new(folder, &output), said)
}

/// Runs modules on a capture from standard input.
pub fn run_stream(pcap: &[u8], args: &[&str]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let mut command = weir(Path::new("-"));
    command.arg("--out").arg(folder.path()).args(args);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(pcap).unwrap();
    Run::new(folder, &child.wait_with_output().unwrap())
}

/// Returns the error for parameters that are refused before the run.
pub fn refusal(capture: &Capture, args: &[&str]) -> String {
    let output = output(capture, args);
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

/// Returns the error of a module whose start fails with its parameters. The run itself goes on, with status 3.
pub fn start_failure(capture: &Capture, args: &[&str]) -> String {
    let output = output(capture, args);
    assert_eq!(output.status.code(), Some(3));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["modules"][0]["ended"], true, "{summary}");
    String::from_utf8(output.stderr).unwrap()
}

fn output(capture: &Capture, args: &[&str]) -> Output {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), capture.to_pcap()).unwrap();
    weir(file.path()).args(args).output().unwrap()
}

impl Run {
    fn new(folder: tempfile::TempDir, output: &Output) -> Self {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        for module in summary["modules"].as_array().unwrap() {
            assert_eq!((&module["faults"], &module["dropped_records"]), (&0.into(), &0.into()), "{module}");
        }
        Self { summary, folder }
    }

    /// The records of a stream.
    pub fn rows(&self, module: &str, stream: &str) -> Vec<Row> {
        let path = self.folder.path().join(module).join(stream).with_extension("parquet");
        let reader = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
        let rows = reader.get_row_iter(None).unwrap().map(|row| {
            Row(row.unwrap().get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect())
        });
        rows.collect()
    }

    /// The frames that a module sent to an output.
    pub fn sent(&self, module: &str, output: &str) -> Capture {
        Capture::read(&self.folder.path().join(module).join(output).with_extension("pcap"))
    }

    /// All record files, with paths relative to the folder.
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        for module in std::fs::read_dir(self.folder.path()).unwrap() {
            for stream in std::fs::read_dir(module.unwrap().path()).unwrap() {
                let path = stream.unwrap().path();
                let bytes = std::fs::read(&path).unwrap();
                files.push((path.strip_prefix(self.folder.path()).unwrap().to_owned(), bytes));
            }
        }
        files.sort();
        files
    }
}

impl Row {
    /// The row without these fields.
    pub fn without(&self, names: &[&str]) -> Self {
        let fields = self.0.iter().filter(|(name, _)| !names.contains(&name.as_str()));
        Self(fields.map(|(name, field)| (name.clone(), field.clone())).collect())
    }

    /// A field that is a whole number, a time or a duration.
    pub fn number(&self, name: &str) -> i128 {
        match &self.0[name] {
            Field::UByte(v) => (*v).into(),
            Field::UShort(v) => (*v).into(),
            Field::UInt(v) => (*v).into(),
            Field::ULong(v) => (*v).into(),
            Field::Int(v) => (*v).into(),
            Field::Long(v) => (*v).into(),
            other => panic!("{name} is {other:?}"),
        }
    }

    /// The number of an optional field; `None` for null.
    pub fn optional_number(&self, name: &str) -> Option<i128> {
        (!self.is_null(name)).then(|| self.number(name))
    }

    pub fn is_null(&self, name: &str) -> bool {
        matches!(&self.0[name], Field::Null)
    }

    pub fn float(&self, name: &str) -> f64 {
        match &self.0[name] {
            Field::Double(v) => *v,
            other => panic!("{name} is {other:?}"),
        }
    }

    pub fn flag(&self, name: &str) -> bool {
        match &self.0[name] {
            Field::Bool(v) => *v,
            other => panic!("{name} is {other:?}"),
        }
    }

    pub fn text(&self, name: &str) -> &str {
        match &self.0[name] {
            Field::Str(v) => v,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// An address and a port, as "10.0.0.1:80"; the port is 0 if it is null.
    pub fn end(&self, name: &str) -> String {
        let address = self.text(name).parse().unwrap();
        let port = u16::try_from(self.optional_number(&format!("{name}_port")).unwrap_or(0)).unwrap();
        std::net::SocketAddr::new(address, port).to_string()
    }
}
