//! The check of a configuration, as part of a start or alone (`weir config check`).
//!
//! `weir config check` takes the same steps as a start, in the same order, up to the first ledger entry. See
//! [`crate::server::config_check`].

use super::{
    DaemonError, LEDGER, LoadedConfig, Setup, compilers, confine, load_config, new_module_loader,
    resolve_path, revoke,
};
use crate::control::config::NodeConfiguration;
use crate::log::warn;
use crate::server::config_check::{self, CheckContext, Remark, Remarks, Subject};
use crate::server::trust;
use crate::sessions::module_loader::ModuleLoader;
use std::collections::BTreeMap;
use std::path::Path;
use weir_admission::Name;
use weir_units::Nanos;

/// Checks whether a node would start with a configuration on this machine. Returns warnings and the result. `progress` is
/// called with the name of each module before it is compiled.
///
/// No file, folder, device or ledger entry is created or changed. The calling process is confined like a node, until it
/// ends, and can write no file from then on.
pub fn check(
    setup: &Setup,
    progress: &mut dyn FnMut(&str),
) -> (Vec<Remark>, Result<NodeConfiguration, DaemonError>) {
    let loaded = match load_config(&setup.config, &setup.calibration, setup.shipped) {
        Ok(loaded) => loaded,
        Err(error) => return (Vec::new(), Err(error)),
    };
    let context = CheckContext::for_check_alone(&loaded.config);
    let (mut warnings, verified) =
        split_remarks(&setup.config, config_check::check_machine(&subject(setup, &loaded, &context)));
    warnings.extend(config_check::unchecked_properties(&subject(setup, &loaded, &context)));
    let second_part = verified.and_then(|()| check_after_confinement(setup, &loaded, &context, progress));
    let checked = second_part.and_then(|remarks| {
        let (more, verified) = split_remarks(&setup.config, remarks);
        warnings.extend(more);
        verified
    });
    // The ledger is verified last, as it can be long.
    let checked = checked.and_then(|()| match context.is_node_running() || context.is_other_user() {
        true => Ok(()),
        false => Ok(weir_ledger_files::check(&loaded.config.node.state.join(LEDGER))?),
    });
    (warnings, checked.map(|()| loaded.config))
}

/// Takes the steps that a start takes between the two parts of the check, and then makes the second part.
fn check_after_confinement(
    setup: &Setup,
    loaded: &LoadedConfig,
    context: &CheckContext,
    progress: &mut dyn FnMut(&str),
) -> Result<Remarks, DaemonError> {
    let config = &loaded.config;
    // An error is ignored, since only a start warns about it.
    _ = weir_netio::raise_file_descriptor_limit();
    let key = config.remote.as_ref().map(|remote| resolve_path(&setup.config, &remote.key));
    // If this user may not read the key, the first part has warned about it.
    let key = key.filter(|key| !context.is_other_user() || weir_os::private::open_secret(key).is_ok());
    crate::server::child_isolation::start_for_check(&config.isolation, key.clone())?;
    let _key_agent = key.map(|key| trust::start_key_agent(&key)).transpose()?;
    confine::confine_check(config, context.is_other_user())?;
    let mut loader = new_module_loader(setup, loaded, None)?;
    // Another part of the check reports revocations that cannot be read.
    if let Ok(trust) = revoke::with_stored_revocations(loaded.trust.clone(), &config.node.state) {
        loader = loader.with_compilers(compilers::compiler_trust(&loaded.compilers, trust.as_deref()));
    }
    Ok(config_check::check_modules(&subject(setup, loaded, context), loader.for_checks(), progress))
}

/// Makes the first part of the check during a start, and logs warnings.
pub(super) fn verify(setup: &Setup, loaded: &LoadedConfig) -> Result<(), DaemonError> {
    log_and_fail(setup, config_check::check_machine(&subject(setup, loaded, &CheckContext::default())))
}

/// Makes the second part of the check during a start. Returns the processor time for each session's modules. The
/// processes that the check starts are not counted in the node's metrics.
pub(super) fn check_modules(
    setup: &Setup,
    loaded: &LoadedConfig,
    loader: &ModuleLoader,
) -> Result<BTreeMap<Name, Nanos>, DaemonError> {
    let context = CheckContext::default();
    let mut remarks = crate::server::child_isolation::without_counting(|| {
        config_check::check_modules(&subject(setup, loaded, &context), loader.for_checks(), &mut |_| {})
    });
    let used = std::mem::take(&mut remarks.used);
    log_and_fail(setup, remarks)?;
    Ok(used)
}

fn subject<'a>(setup: &'a Setup, loaded: &'a LoadedConfig, context: &'a CheckContext) -> Subject<'a> {
    let LoadedConfig { config, lines, default, profiles, tables, .. } = loaded;
    let (path, shipped) = (setup.config.as_path(), setup.shipped);
    Subject { path, config, lines, default, profiles, shipped, tables, context }
}

/// Logs the warnings of a check. Returns its problems as an error.
fn log_and_fail(setup: &Setup, remarks: Remarks) -> Result<(), DaemonError> {
    let (warnings, verified) = split_remarks(&setup.config, remarks);
    warnings.iter().for_each(|warning| warn(&warning.at(&setup.config)));
    verified
}

/// Returns the warnings of a check, and its problems as an error.
fn split_remarks(path: &Path, remarks: Remarks) -> (Vec<Remark>, Result<(), DaemonError>) {
    let verified = match remarks.problems {
        none if none.is_empty() => Ok(()),
        problems => Err(DaemonError::Problems { path: path.to_owned(), problems }),
    };
    (remarks.warnings, verified)
}
