//! The check of a configuration, by a start and without one.
//!
//! A check without a start goes through the same steps, in the same order, up to the first entry in the ledger: see [`crate::server::verify`].

use super::{DaemonError, LEDGER, Loaded, Setup, beside, confining, load, workshop};
use crate::control::config::NodeConfiguration;
use crate::server::log::warn;
use crate::server::trust;
use crate::server::verify::{self, CheckContext, Remark, Remarks, Subject};
use crate::sessions::workshop::ModuleLoader;
use std::collections::BTreeMap;
use std::path::Path;
use weir_admission::Name;
use weir_units::Nanos;

/// Checks whether a node starts with a configuration on this machine. Returns warnings, too. `tell` hears of each module before it is compiled.
///
/// Nothing that lasts is made or changed: no file or folder, no device, no entry in a ledger. The calling process gives up its rights as a node does, for good, and can
/// write no file afterwards.
pub fn check(
    setup: &Setup,
    tell: &mut dyn FnMut(&str),
) -> (Vec<Remark>, Result<NodeConfiguration, DaemonError>) {
    let loaded = match load(&setup.config, &setup.calibration, setup.shipped) {
        Ok(loaded) => loaded,
        Err(error) => return (Vec::new(), Err(error)),
    };
    let standing = CheckContext::of_check(&loaded.config);
    let (mut warnings, verified) = verdict(&setup.config, verify::look(&subject(setup, &loaded, &standing)));
    warnings.extend(verify::not_tried(&subject(setup, &loaded, &standing)));
    let rehearsed = verified.and_then(|()| rehearse(setup, &loaded, &standing, tell));
    let checked = rehearsed.and_then(|found| {
        let (more, verified) = verdict(&setup.config, found);
        warnings.extend(more);
        verified
    });
    // Last, as in a start: it can be long.
    let checked = checked.and_then(|()| match standing.is_beside() || standing.is_of_another() {
        true => Ok(()),
        false => Ok(weir_ledger_files::check(&loaded.config.node.state.join(LEDGER))?),
    });
    (warnings, checked.map(|()| loaded.config))
}

/// Goes through the steps of a start between the two parts of the check, and makes the second part.
fn rehearse(
    setup: &Setup,
    loaded: &Loaded,
    standing: &CheckContext,
    tell: &mut dyn FnMut(&str),
) -> Result<Remarks, DaemonError> {
    let config = &loaded.config;
    // A start warns where it cannot be raised.
    _ = weir_netio::raise_descriptor_limit();
    let key = config.remote.as_ref().map(|remote| beside(&setup.config, &remote.key));
    // That this user may not read it is a warning already.
    let key = key.filter(|key| !standing.is_of_another() || weir_os::private::open_secret(key).is_ok());
    crate::server::isolation::start_for_check(&config.isolation, key.clone())?;
    let _keeper = key.map(|key| trust::keeper(&key)).transpose()?;
    confining::confine_check(config, standing.is_of_another())?;
    let workshop = workshop(setup, loaded, None)?;
    Ok(verify::look_closely(&subject(setup, loaded, standing), workshop.on_trial(), tell))
}

/// The first part of the check, in a start.
pub(super) fn verify(setup: &Setup, loaded: &Loaded) -> Result<(), DaemonError> {
    told(setup, verify::look(&subject(setup, loaded, &CheckContext::default())))
}

/// The second part of the check, in a start. Returns the processor time that it took for each session's modules. Processes that it started are not counted as the node's.
pub(super) fn try_modules(
    setup: &Setup,
    loaded: &Loaded,
    workshop: &ModuleLoader,
) -> Result<BTreeMap<Name, Nanos>, DaemonError> {
    let standing = CheckContext::default();
    let mut found = crate::server::isolation::uncounted(|| {
        verify::look_closely(&subject(setup, loaded, &standing), workshop.on_trial(), &mut |_| {})
    });
    let used = std::mem::take(&mut found.used);
    told(setup, found)?;
    Ok(used)
}

fn subject<'a>(setup: &'a Setup, loaded: &'a Loaded, standing: &'a CheckContext) -> Subject<'a> {
    let Loaded { config, places, default, profiles, tables, .. } = loaded;
    let (path, shipped) = (setup.config.as_path(), setup.shipped);
    Subject { path, config, places, default, profiles, shipped, tables, standing }
}

fn told(setup: &Setup, found: Remarks) -> Result<(), DaemonError> {
    let (warnings, verified) = verdict(&setup.config, found);
    warnings.iter().for_each(|warning| warn(&warning.at(&setup.config)));
    verified
}

fn verdict(path: &Path, found: Remarks) -> (Vec<Remark>, Result<(), DaemonError>) {
    let verified = match found.problems {
        none if none.is_empty() => Ok(()),
        problems => Err(DaemonError::Wrong { path: path.to_owned(), problems }),
    };
    (found.warnings, verified)
}
