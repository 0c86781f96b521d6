//! The check of a configuration against this machine. A start makes it first, and `weir config check` makes the same.
//!
//! All that depends on the configuration and the machine is tried here without lasting effects, so both refuse the same in the same words. The check has two parts:
//!
//! - [`look`] tries all but the modules' code, before a start has touched anything.
//! - [`look_closely`] compiles and starts the modules, and opens TAP devices. A process makes it after it has given up the rights that a node gives up, and a start makes it before it writes
//!   to its ledger.
//!
//! An interface that is not there may come later: a node waits for it.

mod addresses;
mod devices;
mod folders;
mod places;
mod sessions;
mod standing;

use crate::control::config::NodeConfiguration;
use crate::control::offers::obstacle;
use crate::control::policy::Policy;
use crate::sessions::tables::TableFile;
use crate::sessions::workshop::{ModuleLoader, ShippedProfiles};
use devices::Devices;
pub(crate) use devices::not_tried;
pub(crate) use places::ConfigLines;
use sessions::Closely;
pub(crate) use standing::CheckContext;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use weir_admission::{AdmissionTerms, Name};
use weir_trust::grant::Second;
use weir_units::{Nanos, Shown as _};

/// A remark on a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The line, from 1, where it is known.
    pub line: Option<usize>,
    /// The remark itself.
    pub what: String,
}

impl Remark {
    /// The remark as text, after the file and the line.
    pub fn at(&self, path: &Path) -> String {
        let line = self.line.map_or_else(String::new, |line| format!(":{line}"));
        format!("{}{line}: {}", path.shown(), self.what.shown())
    }
}

/// Remarks on the file of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Remarks {
    /// Errors that keep a node from starting.
    pub problems: Vec<Remark>,
    /// Warnings, which do not.
    pub warnings: Vec<Remark>,
    /// The processor time of analysing, compiling and starting each session's modules: a start debits it.
    pub(crate) used: BTreeMap<Name, Nanos>,
}

/// A configuration to check, with the profiles and shipped modules that it can name.
pub(crate) struct Subject<'a> {
    pub(crate) path: &'a Path,
    pub(crate) config: &'a NodeConfiguration,
    pub(crate) places: &'a ConfigLines,
    pub(crate) default: &'a AdmissionTerms,
    pub(crate) profiles: &'a BTreeMap<Name, AdmissionTerms>,
    pub(crate) shipped: ShippedProfiles,
    pub(crate) tables: &'a [TableFile],
    pub(crate) standing: &'a CheckContext,
}

/// Numbers of cores, listed for people.
pub(crate) struct Listed<'a>(pub(crate) &'a [u16]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(u16::to_string).collect();
        f.write_str(&all.join(", "))
    }
}

/// Checks all of a configuration but the code of its modules.
pub(crate) fn look(subject: &Subject<'_>) -> Remarks {
    let mut found = Remarks::default();
    let Subject { config, places, path, .. } = subject;
    found.cores(config, places);
    found.folders(subject);
    found.interfaces(subject);
    found.links(subject);
    found.addresses(subject);
    found.policy(config, path, subject.shipped);
    found.sessions(subject, Devices::of(config), None);
    for session in &config.sessions {
        for what in session.uses.iter().filter_map(|used| obstacle(session, used, &config.sessions)) {
            found.warning(places.session(&session.name), format!("session `{}`: {what}", session.name));
        }
    }
    found
}

/// Compiles and starts the modules of all sessions by a workshop, whose tables and messages are for this alone, and opens TAP devices. All are held until the end, as on a node.
/// `tell` hears of each module before it is tried.
pub(crate) fn look_closely(
    subject: &Subject<'_>,
    workshop: ModuleLoader,
    tell: &mut dyn FnMut(&str),
) -> Remarks {
    let mut found = Remarks::default();
    found.records(subject);
    if let Err(error) = workshop.shelf.configure(subject.tables.to_vec()) {
        found.problem(None, error.to_string());
    }
    found.sessions(subject, Devices::of(subject.config), Some(Closely { workshop, tell }));
    found
}

impl Remarks {
    fn problem(&mut self, line: Option<usize>, what: String) {
        self.problems.push(Remark { line, what });
    }

    fn warning(&mut self, line: Option<usize>, what: String) {
        self.warnings.push(Remark { line, what });
    }

    /// Checks that threads can be bound to the named cores.
    fn cores(&mut self, config: &NodeConfiguration, places: &ConfigLines) {
        let named = config.cpu.module_cores().into_iter().chain(config.cpu.receive);
        let missing: Vec<u16> = named.filter(|core| !can_bind(*core)).collect();
        if missing.is_empty() {
            return;
        }
        let there = cores();
        for core in missing {
            let there = Listed(&there);
            self.problem(
                places.cpu,
                format!("[cpu]: there is no core {core} for the node; there is {there}"),
            );
        }
    }

    /// Warns of questionable parts of the operator's policy. The policy has been read, and its cases have been tried, before.
    fn policy(&mut self, config: &NodeConfiguration, path: &Path, shipped: ShippedProfiles) {
        if config.policy.is_none() && config.remote.is_none() {
            return;
        }
        let (Ok(policy), Ok(node)) = (Policy::of(config, path, shipped), config.name()) else { return };
        for finding in policy.findings(Some((config, &node)), Second::of(weir_datapath::moment::wall_clock()))
        {
            self.warning(None, format!("{}: {}", finding.file.shown(), finding.what));
        }
    }
}

/// Returns true if a thread of this process can be bound to a core.
fn can_bind(core: u16) -> bool {
    let Ok(before) = rustix::thread::sched_getaffinity(None) else { return false };
    let can = crate::runner::bind(core).is_ok();
    _ = rustix::thread::sched_setaffinity(None, &before);
    can
}

/// The cores of this machine that threads of this process can be bound to.
pub fn cores() -> Vec<u16> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    listed(&online).into_iter().filter(|core| can_bind(*core)).collect()
}

/// The cores of a list such as `0-3,6`.
fn listed(list: &str) -> Vec<u16> {
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
    fn lists_of_cores_are_read() {
        assert_eq!(listed("0-3,6\n"), [0, 1, 2, 3, 6]);
        assert_eq!(listed("x,5-,-1,\n"), Vec::<u16>::new());
    }
}
