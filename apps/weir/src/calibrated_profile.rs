//! Reads the two files that decide about admission on this machine: the operator's profile, and the calibration, which
//! converts fuel to time.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weir_admission::{
    CALIBRATION_BYTES_MAX, CalibratedProfile, Calibration, PROFILE_BYTES_MAX, Profile, ProfileError, is_plain,
};
use weir_units::Escape as _;

/// Errors of a profile's file, as named by an option. All of them are usage errors.
#[derive(Debug, thiserror::Error)]
pub enum ProfileFileError {
    /// The profile's file cannot be read.
    #[error("{}: the profile cannot be read: {source}", path.escaped())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a valid profile.
    #[error("{}: {source}", path.escaped())]
    Profile {
        /// The file.
        path: PathBuf,
        /// The error in the file.
        source: ProfileError,
    },
}

/// Returns the profile in a file, or the permissive default without a file, with the calibration of this machine (see
/// [`calibration`]).
pub fn calibrated_profile(profile: Option<&Path>) -> Result<CalibratedProfile, ProfileFileError> {
    let profile = profile.map(read_profile).transpose()?.unwrap_or_default();
    Ok(CalibratedProfile::new(profile, calibration()))
}

fn read_profile(path: &Path) -> Result<Profile, ProfileFileError> {
    let text = read(path, PROFILE_BYTES_MAX)
        .map_err(|source| ProfileFileError::Read { path: path.to_owned(), source })?;
    Profile::parse(&text).map_err(|source| ProfileFileError::Profile { path: path.to_owned(), source })
}

/// Returns the path of the file that `weir calibrate` writes: `$XDG_STATE_HOME/weir/calibration.toml`, or below
/// `~/.local/state`; under sudo always in the effective user's home. `None` if the user has no home folder.
pub fn calibration_file() -> Option<PathBuf> {
    Some(weir_sandbox::user_folder("XDG_STATE_HOME", ".local/state")?.join("weir/calibration.toml"))
}

/// Returns the calibration that `weir calibrate` stored on this machine, or without one that of a typical machine. A
/// file that cannot be used gives a warning.
pub fn calibration() -> Calibration {
    let Some(path) = calibration_file() else { return Calibration::default() };
    let warn_unusable = |why: &dyn std::fmt::Display| {
        let why: String = why.to_string().chars().filter(|c| is_plain(*c)).collect();
        let _ = writeln!(io::stderr(), "weir: warning: {}: {why}", path.escaped());
        Calibration::default()
    };
    match read_calibration(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Calibration::default(),
        Err(error) => warn_unusable(&error),
        Ok(text) => Calibration::parse(&text).unwrap_or_else(|error| warn_unusable(&error)),
    }
}

/// Reads the calibration's file. Rejects a file that a user other than the effective one can write, because the
/// calibration scales every limit. So under sudo, a file of the calling user is rejected.
fn read_calibration(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    let meta = file.metadata()?;
    // The owner of /proc/self is no substitute: for a non-dumpable process, the owner is root.
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

/// Reads at most one byte more than `bytes_max` of a file: from the further byte the parser sees that the file is too
/// long.
fn read(path: &Path, bytes_max: usize) -> io::Result<String> {
    read_limited(File::open(path)?, bytes_max)
}

fn read_limited(file: File, bytes_max: usize) -> io::Result<String> {
    let mut text = String::new();
    file.take(bytes_max as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}
