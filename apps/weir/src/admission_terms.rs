//! By what modules are admitted: the operator's profile, and how long fuel takes on this node.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weir_admission::{
    AdmissionTerms, CALIBRATION_BYTES_MAX, Calibration, PROFILE_BYTES_MAX, Profile, ProfileError, is_plain,
};
use weir_units::Shown as _;

/// Why there are no terms to admit modules by. To blame is the operator.
#[derive(Debug, thiserror::Error)]
pub enum TermsError {
    /// The profile's file cannot be read.
    #[error("{}: the profile cannot be read: {source}", path.shown())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It holds no profile.
    #[error("{}: {source}", path.shown())]
    Profile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ProfileError,
    },
}

/// The terms of this node: this profile, or the generous one that holds without; and the node's calibration, where it has one.
pub fn terms(profile: Option<&Path>) -> Result<AdmissionTerms, TermsError> {
    let profile = profile.map(read_profile).transpose()?.unwrap_or_default();
    Ok(AdmissionTerms { profile, calibration: calibration() })
}

fn read_profile(path: &Path) -> Result<Profile, TermsError> {
    let text =
        read(path, PROFILE_BYTES_MAX).map_err(|source| TermsError::Read { path: path.to_owned(), source })?;
    Profile::parse(&text).map_err(|source| TermsError::Profile { path: path.to_owned(), source })
}

/// Where `weir calibrate` keeps what it measured: `$XDG_STATE_HOME/weir/calibration.toml`, or below `~/.local/state`; under sudo always at the
/// effective user's. `None` where the user has no home folder.
pub fn calibration_file() -> Option<PathBuf> {
    Some(weir_sandbox::user_folder("XDG_STATE_HOME", ".local/state")?.join("weir/calibration.toml"))
}

/// This node's calibration; where it has none, or one that cannot be used, that of a usual node, and a warning says why.
pub fn calibration() -> Calibration {
    let Some(path) = calibration_file() else { return Calibration::default() };
    let unusable = |why: &dyn std::fmt::Display| {
        let why: String = why.to_string().chars().filter(|c| is_plain(*c)).collect();
        let _ = writeln!(io::stderr(), "weir: warning: {}: {why}", path.shown());
        Calibration::default()
    };
    match read_own(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Calibration::default(),
        Err(error) => unusable(&error),
        Ok(text) => Calibration::parse(&text).unwrap_or_else(|error| unusable(&error)),
    }
}

/// Reads a file that nobody else can have written: whoever sets the calibration sets every limit. Under sudo the caller's is not used.
fn read_own(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    let meta = file.metadata()?;
    // Not /proc/self: of a process that is hidden from others, root owns that.
    let effective = weir_os::private::effective_user();
    if meta.uid() != effective || meta.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!(
            "belongs to user {} with mode {:o}, and is not used: it must belong to user {effective}, and nobody else may write it",
            meta.uid(),
            meta.mode() & 0o777
        )));
    }
    take(file, CALIBRATION_BYTES_MAX)
}

/// Reads a file of at most so many bytes; of a longer one enough to see that it is.
fn read(path: &Path, most: usize) -> io::Result<String> {
    take(File::open(path)?, most)
}

fn take(file: File, most: usize) -> io::Result<String> {
    let mut text = String::new();
    file.take(most as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}
