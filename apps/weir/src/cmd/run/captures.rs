//! The captures that `-r` names: files, folders and patterns.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use weir_units::Escape as _;

/// Extensions of captures. Rotated captures have digits behind them (`trace.pcap3`), compressed ones another extension.
const EXTENSIONS: [&str; 4] = [".pcap", ".pcapng", ".cap", ".ntar"];

/// The extension of a file that is not complete.
const UNFINISHED: &str = ".part";

/// Errors of the names of captures.
#[derive(Debug, thiserror::Error)]
pub enum CaptureArgError {
    /// Standard input among several captures.
    #[error("-r -: standard input can only be read alone, not with other captures")]
    StdinAmongOthers,
    /// A capture in the place of the filter: a shell has replaced a pattern by several names.
    #[error("{} is a capture, and stands where the filter belongs: to read several captures, write -r before each, or quote the pattern, as in -r '*.pcap'", .0.escaped())]
    InFilter(PathBuf),
    /// A folder without captures.
    #[error("{}: the folder has no captures: no name in it has one of the extensions {}", .0.escaped(), EXTENSIONS.join(", "))]
    EmptyFolder(PathBuf),
    /// A folder that cannot be listed.
    #[error("{}: cannot be listed: {source}", path.escaped())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A pattern that matches no file.
    #[error("{}: no file has this name, and none matches it as a pattern", .0.escaped())]
    NoMatch(PathBuf),
    /// A pattern that is not valid.
    #[error("{}: no file has this name, and as a pattern it is not valid: {reason}", path.escaped())]
    Pattern {
        /// The pattern.
        path: PathBuf,
        /// The reason.
        reason: &'static str,
    },
}

impl CaptureArgError {
    /// Returns true if the command line is wrong; false if files are missing.
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::StdinAmongOthers | Self::InFilter(_) | Self::Pattern { .. } => true,
            Self::EmptyFolder(_) | Self::Folder { .. } | Self::NoMatch(_) => false,
        }
    }
}

/// Returns the captures that these arguments of `-r` name, each once, in the order of the arguments. Captures of one folder or pattern are
/// in the order of their names.
pub fn expand(arguments: &[PathBuf]) -> Result<Vec<PathBuf>, CaptureArgError> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for argument in arguments {
        if argument.as_os_str() == "-" && arguments.len() > 1 {
            return Err(CaptureArgError::StdinAmongOthers);
        }
        let found = if argument.is_dir() { captures_in(argument)? } else { matches_of(argument)? };
        for path in found {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    Ok(paths)
}

/// Returns the captures in a folder, without those in folders below.
fn captures_in(folder: &Path) -> Result<Vec<PathBuf>, CaptureArgError> {
    let failed = |source| CaptureArgError::Folder { path: folder.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_file() && is_capture_name(&path) {
            found.push(path);
        }
    }
    found.sort();
    if found.is_empty() { Err(CaptureArgError::EmptyFolder(folder.to_owned())) } else { Ok(found) }
}

/// Returns the file of this name, or else the files that the name matches as a pattern, without those that a run is writing. A name without wildcards is returned as it is, so that
/// opening the file gives the error.
fn matches_of(argument: &Path) -> Result<Vec<PathBuf>, CaptureArgError> {
    let pattern = argument.to_str().filter(|text| text.contains(['*', '?', '[']));
    let Some(pattern) = pattern.filter(|_| fs::symlink_metadata(argument).is_err()) else {
        return Ok(vec![argument.to_owned()]);
    };
    let invalid =
        |error: glob::PatternError| CaptureArgError::Pattern { path: argument.to_owned(), reason: error.msg };
    // `x*` stands for the complete files of a rotated capture, although the present file may not have a header yet.
    let takes_unfinished = pattern.ends_with(UNFINISHED);
    let is_unfinished = |path: &Path| path.as_os_str().as_encoded_bytes().ends_with(UNFINISHED.as_bytes());
    let is_meant = |path: &PathBuf| path.is_file() && (takes_unfinished || !is_unfinished(path));
    let found: Vec<PathBuf> = glob::glob(pattern).map_err(invalid)?.flatten().filter(is_meant).collect();
    if found.is_empty() { Err(CaptureArgError::NoMatch(argument.to_owned())) } else { Ok(found) }
}

/// Returns true for a name with an extension of captures, also with digits or the extension of a compression behind it.
pub fn is_capture_name(path: &Path) -> bool {
    let Some(name) = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()) else {
        return false;
    };
    let name = [".gz", ".zst"].iter().fold(name.as_str(), |name, end| name.strip_suffix(end).unwrap_or(name));
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
    EXTENSIONS.iter().any(|extension| name.ends_with(extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_are_recognised_by_their_names() {
        for name in ["a.pcap", "a.PCAPNG", "a.cap.gz", "a.pcap12", "a.pcap3.zst", "a.ntar"] {
            assert!(is_capture_name(Path::new(name)), "{name}");
        }
        for name in ["pcap", "a.pcap.txt", "a.gz", "notes", "a.pcap.part"] {
            assert!(!is_capture_name(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn folders_and_patterns_stand_for_their_captures() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["b.pcap", "a.pcap.gz", "notes.txt", "[x].pcap"] {
            fs::write(at(name), "").unwrap();
        }
        fs::create_dir(at("empty")).unwrap();
        let names = |arguments: &[PathBuf]| -> Vec<String> {
            let paths = expand(arguments).unwrap();
            paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&[folder.path().to_owned()]), ["[x].pcap", "a.pcap.gz", "b.pcap"]);
        fs::write(at("c.pcap.part"), "").unwrap();
        assert_eq!(names(&[at("?.pcap*")]), ["a.pcap.gz", "b.pcap"]);
        assert_eq!(names(&[at("?.pcap*.part")]), ["c.pcap.part"]);
        assert_eq!(names(&[at("b.pcap"), at("*.pcap")]), ["b.pcap", "[x].pcap"]);
        // A file whose name looks like a pattern, a missing file, and standard input.
        assert_eq!(names(&[at("[x].pcap")]), ["[x].pcap"]);
        assert_eq!(names(&[at("none.pcap")]), ["none.pcap"]);
        assert_eq!(names(&[PathBuf::from("-")]), ["-"]);
        let error = |argument: PathBuf| expand(&[argument]).unwrap_err().to_string();
        assert!(error(at("empty")).contains("no captures") && error(at("x*.pcap")).contains("none matches"));
        assert!(error(at("x***.pcap")).contains("not valid"));
        assert!(matches!(
            expand(&[at("b.pcap"), PathBuf::from("-")]),
            Err(CaptureArgError::StdinAmongOthers)
        ));
    }
}
