//! Which files: Landlock (Linux 5.13 and later, each version with more of it).

use crate::{ConfineError, Files};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use std::path::{Path, PathBuf};

/// The newest version that is asked for. Of older kernels only what they have.
const NEWEST: ABI = ABI::V6;
/// Devices that are written to.
const DEVICES: [&str; 2] = ["/dev/null", "/dev/net/tun"];

fn asked() -> Ruleset {
    Ruleset::default().set_compatibility(CompatLevel::BestEffort)
}

fn enforce(rules: RulesetCreated) -> Result<Files, ConfineError> {
    Ok(match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Files::Held,
        RulesetStatus::PartiallyEnforced => Files::HeldInPart,
        RulesetStatus::NotEnforced => Files::Open,
    })
}

/// Everything is closed: files, TCP, sockets and signals of others.
pub(crate) fn none() -> Result<Files, ConfineError> {
    let all = asked()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?;
    enforce(all.create()?)
}

/// Whatever can be read can be read still; written is only a node's own, and executed nothing.
pub(crate) fn own(written: &[&Path]) -> Result<Files, ConfineError> {
    let write = AccessFs::from_write(NEWEST) & !AccessFs::IoctlDev;
    let mut rules = asked().handle_access(write | AccessFs::Execute)?.create()?;
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

/// Checks that the system's own rights let this process make files in a folder.
///
/// # Errors
/// The system's error, if they do not.
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

/// What is not there needs no rule.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, ConfineError> {
    match PathFd::new(path) {
        Ok(there) => Ok(rules.add_rule(PathBeneath::new(there, access))?),
        Err(_) => Ok(rules),
    }
}
