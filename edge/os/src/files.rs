//! Restricts a process's access to files by Landlock (Linux 5.13 and later; newer kernels can restrict more).

use crate::{ConfineError, FileConfinement};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use std::path::{Path, PathBuf};

/// The newest Landlock version whose restrictions are requested. An older kernel enforces only those that it knows.
const NEWEST: ABI = ABI::V6;
/// Devices that a node may write to.
const DEVICES: [&str; 2] = ["/dev/null", "/dev/net/tun"];

fn ruleset() -> Ruleset {
    Ruleset::default().set_compatibility(CompatLevel::BestEffort)
}

fn enforce(rules: RulesetCreated) -> Result<FileConfinement, ConfineError> {
    Ok(match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => FileConfinement::Full,
        RulesetStatus::PartiallyEnforced => FileConfinement::Partial,
        RulesetStatus::NotEnforced => FileConfinement::None,
    })
}

/// Denies the calling thread everything that Landlock restricts: files, TCP, abstract sockets and signals to other
/// processes.
pub(crate) fn close_all() -> Result<FileConfinement, ConfineError> {
    restrict_to_reading(&[])
}

/// Allows the calling thread to read all files, to write only to `written` and [`DEVICES`], and to execute no file.
pub(crate) fn restrict_writing(written: &[&Path]) -> Result<FileConfinement, ConfineError> {
    let write = AccessFs::from_write(NEWEST) & !AccessFs::IoctlDev;
    let mut rules = ruleset().handle_access(write | AccessFs::Execute)?.create()?;
    for path in written {
        let folder =
            PathFd::new(path).map_err(|source| ConfineError::Folder { path: PathBuf::from(path), source })?;
        rules = rules.add_rule(PathBeneath::new(folder, write))?;
    }
    for device in DEVICES {
        rules = allow(rules, Path::new(device), AccessFs::WriteFile.into())?;
    }
    enforce(rules)
}

/// Allows the calling thread to read and execute files beneath these paths, and nothing else that Landlock restricts.
pub(crate) fn restrict_to_reading(paths: &[&Path]) -> Result<FileConfinement, ConfineError> {
    let all = ruleset()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?;
    let mut rules = all.create()?;
    for path in paths {
        rules = allow(rules, path, AccessFs::ReadFile | AccessFs::Execute)?;
    }
    enforce(rules)
}

/// Checks that the file permissions let this process create files in a folder. Landlock is not considered.
///
/// # Errors
/// The system's error if the permissions do not allow this.
pub fn may_write(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(folder.as_os_str().as_bytes())?;
    let wanted = libc::W_OK | libc::X_OK;
    // SAFETY: the pointer is to a live text that ends with a zero.
    match unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), wanted, libc::AT_EACCESS) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Adds a rule that allows access to a path, if the path exists.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, ConfineError> {
    match PathFd::new(path) {
        Ok(opened) => Ok(rules.add_rule(PathBeneath::new(opened, access))?),
        Err(_) => Ok(rules),
    }
}
