//! The terms of admitting modules on this machine: the operator's profile, and the calibration of fuel to time.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weir_admission::{
    CALIBRATION_BYTES_MAX, CalibratedProfile, Calibration, PROFILE_BYTES_MAX, Profile, ProfileError, is_plain,
};
use weir_units::Shown as _;

/// Errors of the profile; all of them are usage errors.
#[derive(Debug, thiserror::Error)]
pub enum ProfileFileError {
    /// The profile's file cannot be read.
    #[error("{}: the profile cannot be read: {source}", path.shown())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a valid profile.
    #[error("{}: {source}", path.shown())]
    Profile {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: ProfileError,
    },
}

/// Returns the admission terms: the profile, or the permissive default; and this machine's calibration, if it has one.
pub fn admission_terms(profile: Option<&Path>) -> Result<CalibratedProfile, ProfileFileError> {
    let profile = profile.map(read_profile).transpose()?.unwrap_or_default();
    Ok(CalibratedProfile { profile, calibration: calibration() })
}

fn read_profile(path: &Path) -> Result<Profile, ProfileFileError> {
    let text = read(path, PROFILE_BYTES_MAX)
        .map_err(|source| ProfileFileError::Read { path: path.to_owned(), source })?;
    Profile::parse(&text).map_err(|source| ProfileFileError::Profile { path: path.to_owned(), source })
}

/// The file of `weir calibrate`: `$XDG_STATE_HOME/weir/calibration.toml`, or below `~/.local/state`; under sudo always in the
/// effective user's home. `None` if the user has no home folder.
pub fn calibration_file() -> Option<PathBuf> {
    Some(weir_sandbox::user_folder("XDG_STATE_HOME", ".local/state")?.join("weir/calibration.toml"))
}

/// Returns this machine's calibration, or that of a typical machine if it has none. An unusable file gives a warning.
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

/// Reads the calibration's file. Rejects a file that a user other than the effective one can write, as the calibration scales every limit.
/// Under sudo, a file of the calling user is therefore rejected.
fn read_own(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    let meta = file.metadata()?;
    // The owner of /proc/self is no substitute: it is root for a non-dumpable process.
    let effective = weir_os::private::effective_user();
    if meta.uid() != effective || meta.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!(
            "belongs to user {} with mode {:o}, and is not used: it must belong to user {effective}, and no other user may have write permission",
            meta.uid(),
            meta.mode() & 0o777
        )));
    }
    read_limited(file, CALIBRATION_BYTES_MAX)
}

/// Reads a file up to one byte more than `most`, so that the parser can reject a longer one.
fn read(path: &Path, most: usize) -> io::Result<String> {
    read_limited(File::open(path)?, most)
}

fn read_limited(file: File, most: usize) -> io::Result<String> {
    let mut text = String::new();
    file.take(most as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}
