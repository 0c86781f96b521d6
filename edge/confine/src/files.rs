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
/// Where the loader of programs is: who is executed, executes it.
const LOADERS: [&str; 2] = ["/lib", "/lib64"];

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

/// Whatever can be read can be read still; written and executed is only a node's own.
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
    let itself = std::env::current_exe().unwrap_or_default();
    for program in LOADERS.map(Path::new).into_iter().chain([itself.as_path()]) {
        rules = allow(rules, program, AccessFs::Execute.into())?;
    }
    enforce(rules)
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
