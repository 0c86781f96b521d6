//! The check of a configuration against this machine, by a node's start and by `weir config check`.
//!
//! A start and `weir config check` call the same functions, so they refuse the same configurations with the same messages.
//! The check has no lasting effects, and has two parts:
//!
//! - [`check_machine`] checks all but the modules' code. A start calls it before it creates or changes anything.
//! - [`check_modules`] compiles and starts the modules, and opens TAP devices. The process is confined before this part. A
//!   node's start writes to its ledger only after this part.
//!
//! A missing interface is no error, as a node waits for it.

mod addresses;
mod config_lines;
mod context;
mod devices;
mod folders;
mod sessions;

use crate::control::ShippedModules;
use crate::control::config::NodeConfiguration;
use crate::control::policy::Policy;
use crate::control::services::reason_service_unavailable;
use crate::sessions::module_loader::ModuleLoader;
use crate::sessions::tables::TableFile;
pub(crate) use config_lines::ConfigLines;
pub(crate) use context::CheckContext;
use devices::Devices;
pub(crate) use devices::unchecked_properties;
use sessions::ModuleCheck;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use weir_admission::{CalibratedProfile, Name};
use weir_trust::grant::UnixSecond;
use weir_units::{Escape as _, Nanos};

/// A remark on a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The line, from 1, if it is known.
    pub line: Option<usize>,
    /// The text of the remark.
    pub what: String,
}

impl Remark {
    /// Returns the remark as text, after the file and the line.
    pub fn at(&self, path: &Path) -> String {
        let line = self.line.map_or_else(String::new, |line| format!(":{line}"));
        format!("{}{line}: {}", path.escaped(), self.what.escaped())
    }
}

/// The result of a check: remarks on a configuration's file.
#[derive(Clone, Debug, Default)]
pub struct Remarks {
    /// Errors that keep a node from starting.
    pub problems: Vec<Remark>,
    /// Warnings. A node starts in spite of them.
    pub warnings: Vec<Remark>,
    /// The processor time for analysis, compilation and start of each session's modules. A node's start charges it to the
    /// session.
    pub(crate) used: BTreeMap<Name, Nanos>,
}

/// A configuration to check, with the profiles and shipped modules that it can name.
pub(crate) struct Subject<'a> {
    /// The configuration's file.
    pub(crate) path: &'a Path,
    pub(crate) config: &'a NodeConfiguration,
    pub(crate) lines: &'a ConfigLines,
    /// The profile for modules whose configuration names none.
    pub(crate) default: &'a CalibratedProfile,
    pub(crate) profiles: &'a BTreeMap<Name, CalibratedProfile>,
    pub(crate) shipped: ShippedModules,
    pub(crate) tables: &'a [TableFile],
    pub(crate) context: &'a CheckContext,
}

/// Displays numbers of cores as a list.
struct CoreList<'a>(&'a [u16]);

impl fmt::Display for CoreList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(u16::to_string).collect();
        f.write_str(&all.join(", "))
    }
}

/// Checks a configuration, except for the code of its modules.
pub(crate) fn check_machine(subject: &Subject<'_>) -> Remarks {
    let mut remarks = Remarks::default();
    let Subject { config, lines, path, .. } = subject;
    remarks.check_cores(config, lines);
    remarks.check_folders(subject);
    remarks.check_interfaces(subject);
    remarks.check_links(subject);
    remarks.check_addresses(subject);
    remarks.check_policy(config, path, subject.shipped);
    remarks.check_sessions(subject, Devices::find(config), None);
    // A session can call a service only after its provider offers it. The provider can do so while the node runs, so this
    // is a warning.
    for session in &config.sessions {
        for what in
            session.uses.iter().filter_map(|used| reason_service_unavailable(session, used, &config.sessions))
        {
            remarks.add_warning(lines.session(&session.name), format!("session `{}`: {what}", session.name));
        }
    }
    remarks
}

/// Compiles and starts the modules of all sessions, and opens TAP devices. Called after [`check_machine`] has found no
/// problem. Modules and devices are kept until the end of the check, because a node has them all at the same time. `loader`
/// must belong to this check alone, so that the check leaves nothing in a node's caches and tables. `progress` is called
/// before each module.
pub(crate) fn check_modules(
    subject: &Subject<'_>,
    loader: ModuleLoader,
    progress: &mut dyn FnMut(&str),
) -> Remarks {
    let mut remarks = Remarks::default();
    remarks.check_record_folders(subject);
    if let Err(error) = loader.registry.configure(subject.tables.to_vec()) {
        remarks.add_problem(None, error.to_string());
    }
    remarks.check_sessions(subject, Devices::find(subject.config), Some(ModuleCheck { loader, progress }));
    remarks
}

impl Remarks {
    fn add_problem(&mut self, line: Option<usize>, what: String) {
        self.problems.push(Remark { line, what });
    }

    fn add_warning(&mut self, line: Option<usize>, what: String) {
        self.warnings.push(Remark { line, what });
    }

    /// Checks that threads can be bound to the named cores.
    fn check_cores(&mut self, config: &NodeConfiguration, lines: &ConfigLines) {
        let named = config.cpu.module_cores().into_iter().chain(config.receive_cores());
        let missing: Vec<u16> = named.filter(|core| !can_bind(*core)).collect();
        if missing.is_empty() {
            return;
        }
        let available = cores();
        for core in missing {
            let available = CoreList(&available);
            self.add_problem(
                lines.cpu,
                format!("[cpu]: there is no core {core} for the node; available: {available}"),
            );
        }
    }

    /// Warns of questionable parts of the operator's policy. The policy's errors were found and its test cases tried when
    /// it was read, so only its findings remain.
    fn check_policy(&mut self, config: &NodeConfiguration, path: &Path, shipped: ShippedModules) {
        if config.policy.is_none() && config.remote.is_none() {
            return;
        }
        let (Ok(policy), Ok(node_name)) =
            (Policy::from_config(config, path, shipped), config.credential_name())
        else {
            return;
        };
        let now = UnixSecond::containing(weir_datapath::clock::wall_clock());
        for finding in policy.findings(Some((config, &node_name)), now) {
            self.add_warning(None, format!("{}: {}", finding.file.escaped(), finding.what));
        }
    }
}

/// Returns true if a thread of this process can be bound to a core.
fn can_bind(core: u16) -> bool {
    let Ok(before) = rustix::thread::sched_getaffinity(None) else { return false };
    let can_bind = crate::core_thread::runner::bind(core).is_ok();
    _ = rustix::thread::sched_setaffinity(None, &before);
    can_bind
}

/// Returns the cores of this machine that threads of this process can be bound to.
pub fn cores() -> Vec<u16> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    parse_core_list(&online).into_iter().filter(|core| can_bind(*core)).collect()
}

/// Parses a list of cores such as `0-3,6`. Invalid parts are ignored.
fn parse_core_list(list: &str) -> Vec<u16> {
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some(first.trim().parse::<u16>().ok()?..=last.trim().parse::<u16>().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_parsed() {
        assert_eq!(parse_core_list("0-3,6\n"), [0, 1, 2, 3, 6]);
        assert_eq!(parse_core_list("x,5-,-1,\n"), Vec::<u16>::new());
    }
}
