//! The tests of a module, as they are in its folder.
//!
//! `tests/NAME` has a capture and `expected.jsonl`. `test.toml` is optional: the path of another capture, values of parameters,
//! and files of named tables.

use crate::cmd::test::TestError;
use crate::cmd::test::cut_packets::copy_matching;
use crate::module_arg::ModuleArg;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use weir_admission::{Name, ParameterSetting};

/// The folder of a module's tests.
pub(super) const TESTS: &str = "tests";
/// The file with what a test expects.
const EXPECTED: &str = "expected.jsonl";
/// The file with the settings of a test.
const SETTINGS: &str = "test.toml";
/// Most bytes of a file of a test, other than its capture.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Parts of the names of captures.
const CAPTURES: [&str; 4] = [".pcap", ".pcapng", ".cap", ".ntar"];

/// A test of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TestCase {
    /// The name of its folder.
    pub(super) name: String,
    /// The capture.
    pub(super) capture: PathBuf,
    /// Values of parameters.
    pub(super) settings: Vec<ParameterSetting>,
    /// Files of named tables, by the tables' names.
    pub(super) tables: Vec<(Name, PathBuf)>,
    /// The file with what the module should do.
    pub(super) expected: PathBuf,
    /// The file with these settings, which may not exist.
    pub(super) settings_file: PathBuf,
}

/// `test.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    capture: Option<PathBuf>,
    #[serde(default)]
    parameters: BTreeMap<String, toml::Value>,
    #[serde(default)]
    tables: BTreeMap<String, PathBuf>,
}

impl TestCase {
    /// Finds the tests of the module in `dir`, sorted by name. With `names`, only these.
    ///
    /// # Errors
    /// There are no tests, or none of a name, or a test's files are not as they should be.
    pub(super) fn find(dir: &Path, names: &[String]) -> Result<Vec<Self>, TestError> {
        let tests = dir.join(TESTS);
        let mut found = Vec::new();
        match std::fs::read_dir(&tests) {
            Ok(entries) => {
                for entry in entries {
                    let entry = entry.map_err(TestError::file(&tests))?;
                    if entry.path().is_dir() {
                        found.push(entry.file_name().to_string_lossy().into_owned());
                    }
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(TestError::file(&tests)(error)),
        }
        found.sort();
        if found.is_empty() {
            return Err(TestError::NoTests(dir.to_owned()));
        }
        if let Some(unknown) = names.iter().find(|name| !found.contains(name)) {
            return Err(TestError::Unknown { name: unknown.clone(), known: found.join(", ") });
        }
        found.retain(|name| names.is_empty() || names.contains(name));
        found.into_iter().map(|name| Self::read(&tests, name)).collect()
    }

    fn read(tests: &Path, name: String) -> Result<Self, TestError> {
        let dir = tests.join(&name);
        let path = dir.join(SETTINGS);
        let settings = match read(&path)? {
            Some(text) => toml::from_str::<Settings>(&text)
                .map_err(|error| TestError::Settings { path: path.clone(), error: Box::new(error) })?,
            None => Settings::default(),
        };
        let capture = match settings.capture {
            Some(capture) => dir.join(capture),
            None => only_capture(&dir)?,
        };
        let parameters = settings.parameters.into_iter();
        let settings_of = parameters.map(|(key, value)| match setting(&value) {
            Some(values) => Ok((key, values)),
            None => Err(TestError::Parameter { path: path.clone(), key }),
        });
        let settings_of = settings_of.collect::<Result<_, _>>()?;
        let tables = settings.tables.into_iter().map(|(name, file)| match Name::new(&name) {
            Ok(name) => Ok((name, dir.join(file))),
            Err(error) => Err(TestError::Table { path: path.clone(), name, error }),
        });
        Ok(Self {
            capture,
            settings: settings_of,
            tables: tables.collect::<Result<_, _>>()?,
            expected: dir.join(EXPECTED),
            settings_file: path,
            name,
        })
    }

    /// Adds a test of the module in `dir`: copies the capture that `read` names, or its packets that match a filter, and writes
    /// the settings behind it. Returns the test's name.
    ///
    /// # Errors
    /// There is a test of this name, a file cannot be read or written, or no packet matches.
    pub(super) fn add(dir: &Path, name: &str, read: &str, filter: &[String]) -> Result<String, TestError> {
        let name = Name::new(name).map_err(|error| TestError::Name { name: name.to_owned(), error })?;
        let ModuleArg { name: capture, settings } = ModuleArg::parse(read)?;
        let test = dir.join(TESTS).join(name.as_str());
        if test.exists() {
            return Err(TestError::Exists(test));
        }
        let capture = PathBuf::from(capture);
        let suffixes: String = capture
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .and_then(|name| {
                CAPTURES.iter().find_map(|known| name.find(known).map(|at| name[at..].to_owned()))
            })
            .unwrap_or_else(|| ".pcap".to_owned());
        let write =
            |file: PathBuf, bytes: &[u8]| std::fs::write(&file, bytes).map_err(TestError::file(&file));
        if filter.is_empty() {
            let bytes = std::fs::read(&capture).map_err(TestError::file(&capture))?;
            std::fs::create_dir_all(&test).map_err(TestError::file(&test))?;
            write(test.join(format!("capture{suffixes}")), &bytes)?;
        } else {
            // The copy is not compressed.
            let is_pcapng = [".pcapng", ".ntar"].iter().any(|begin| suffixes.starts_with(begin));
            let file = if is_pcapng { "capture.pcapng" } else { "capture.pcap" };
            std::fs::create_dir_all(&test).map_err(TestError::file(&test))?;
            let copied = copy_matching(&capture, &test.join(file), filter).and_then(|packets| {
                let none = || TestError::NoPacket { capture, filter: filter.join(" ") };
                if packets > 0 { Ok(()) } else { Err(none()) }
            });
            if let Err(error) = copied {
                // The folder is new, and has nothing else.
                let _ = std::fs::remove_dir_all(&test);
                return Err(error);
            }
        }
        if !settings.is_empty() {
            // A JSON string is a string of TOML, too.
            let quoted = |value: &String| serde_json::Value::from(value.as_str()).to_string();
            let values = settings.into_iter().map(|(key, values)| match values.as_slice() {
                [value] => format!("{key} = {}\n", quoted(value)),
                values => {
                    format!("{key} = [{}]\n", values.iter().map(quoted).collect::<Vec<_>>().join(", "))
                }
            });
            let text = format!("[parameters]\n{}", values.collect::<String>());
            write(test.join(SETTINGS), text.as_bytes())?;
        }
        Ok(name.as_str().to_owned())
    }

    /// Reads the lines that the test expects; `None` if nothing is written yet.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn expected(&self) -> Result<Option<Vec<String>>, TestError> {
        Ok(read(&self.expected)?.map(|text| text.lines().map(str::to_owned).collect()))
    }

    /// Writes the lines that the test expects from now on.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write_expected(&self, lines: &[String]) -> Result<(), TestError> {
        let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        // A new file replaces the old one: a link of a stranger is not followed.
        let write = || {
            let folder = self.expected.parent().unwrap_or(Path::new("."));
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
            let mut file = tempfile::Builder::new().prefix(".weir-").permissions(mode).tempfile_in(folder)?;
            file.write_all(text.as_bytes())?;
            file.persist(&self.expected).map(drop).map_err(|error| error.error)
        };
        write().map_err(TestError::file(&self.expected))
    }
}

/// Reads a text file of a test; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<String>, TestError> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(TestError::file(path)(error)),
    };
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(TestError::file(path)(std::io::Error::other("it is not a file of at most 64 MiB")));
    }
    std::fs::read_to_string(path).map(Some).map_err(TestError::file(path))
}

/// Returns the only capture in a test's folder.
fn only_capture(dir: &Path) -> Result<PathBuf, TestError> {
    let entries = std::fs::read_dir(dir).map_err(TestError::file(dir))?.flatten();
    let mut captures: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            name.is_some_and(|name| CAPTURES.iter().any(|known| name.contains(known)))
        })
        .collect();
    match (captures.pop(), captures.is_empty()) {
        (Some(capture), true) => Ok(capture),
        (None, _) => Err(TestError::NoCapture(dir.to_owned())),
        (Some(_), false) => Err(TestError::SeveralCaptures(dir.to_owned())),
    }
}

/// Returns a parameter's value as the parts of a text on the command line; `None` for a value that is no parameter's.
fn setting(value: &toml::Value) -> Option<Vec<String>> {
    Some(match value {
        toml::Value::String(text) => vec![text.clone()],
        toml::Value::Integer(number) => vec![number.to_string()],
        toml::Value::Float(number) => vec![number.to_string()],
        toml::Value::Boolean(is_true) => vec![is_true.to_string()],
        toml::Value::Array(values) => values.iter().map(setting).collect::<Option<Vec<_>>>()?.concat(),
        toml::Value::Datetime(_) | toml::Value::Table(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_with_settings_is_read_as_it_was_added() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path();
        std::fs::write(dir.join("big.pcapng.gz"), b"packets").unwrap();
        let named = format!("{},interval=10s,ports=53,123,text=a \"b\"", dir.join("big.pcapng.gz").display());
        TestCase::add(dir, "dns", &named, &[]).unwrap();
        let all = TestCase::find(dir, &[]).unwrap();
        let set =
            |key: &str, values: &[&str]| (key.to_owned(), values.iter().map(|v| (*v).to_owned()).collect());
        assert_eq!(all[0].capture, dir.join("tests/dns/capture.pcapng.gz"));
        assert_eq!(
            all[0].settings,
            [set("interval", &["10s"]), set("ports", &["53", "123"]), set("text", &["a \"b\""])]
        );
        assert_eq!(all[0].expected().unwrap(), None);
        all[0].write_expected(&["{}".to_owned(), "{\"a\":1}".to_owned()]).unwrap();
        assert_eq!(all[0].expected().unwrap().unwrap().len(), 2);
        assert!(matches!(TestCase::add(dir, "dns", &named, &[]), Err(TestError::Exists(_))));
    }

    #[test]
    fn wrong_folders_and_settings_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path();
        assert!(matches!(TestCase::find(dir, &[]), Err(TestError::NoTests(_))));
        let test = dir.join("tests/a");
        std::fs::create_dir_all(&test).unwrap();
        assert!(matches!(TestCase::find(dir, &[]), Err(TestError::NoCapture(_))));
        std::fs::write(test.join("1.pcap"), b"").unwrap();
        assert!(TestCase::find(dir, &[]).is_ok());
        assert!(matches!(TestCase::find(dir, &["b".to_owned()]), Err(TestError::Unknown { .. })));
        std::fs::write(test.join("2.pcap.gz"), b"").unwrap();
        assert!(matches!(TestCase::find(dir, &[]), Err(TestError::SeveralCaptures(_))));
        for wrong in ["captures = \"1.pcap\"", "capture = 1", "[parameters]\na = { b = 1 }"] {
            std::fs::write(test.join("test.toml"), wrong).unwrap();
            let error = TestCase::find(dir, &[]).unwrap_err();
            assert!(error.to_string().contains("test.toml"), "{error}");
            assert!(matches!(
                error,
                TestError::Settings { .. } | TestError::SeveralCaptures(_) | TestError::Parameter { .. }
            ));
        }
        std::fs::write(test.join("test.toml"), "capture = \"../../x.pcap\"").unwrap();
        assert!(TestCase::find(dir, &[]).is_ok());
    }
}
