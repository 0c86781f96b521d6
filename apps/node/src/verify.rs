//! The check of a configuration against this machine. A start makes it first, and `weir config check` makes the same.
//!
//! All that depends on the configuration and the machine alone is checked here, so both refuse the same in the same words. A node that is refused has touched nothing yet, not even its
//! ledger. An interface that is not there may come later: a node waits for it.

mod places;
mod sessions;

use crate::config::Config;
use crate::link::Trial;
use crate::offers::obstacle;
use crate::policy::Policy;
use crate::workshop::Shipped;
pub(crate) use places::Places;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use weir_netio::{LiveError, link_type_of};
use weir_session::Terms;
use weir_trust::grant::Second;
use weir_units::Shown as _;
use weir_wire::LinkType;

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
}

/// A configuration to check, with the profiles and shipped modules that it can name.
pub(crate) struct Subject<'a> {
    pub(crate) path: &'a Path,
    pub(crate) config: &'a Config,
    pub(crate) places: &'a Places,
    pub(crate) default: &'a Terms,
    pub(crate) profiles: &'a BTreeMap<weir_session::Name, Terms>,
    pub(crate) shipped: Shipped,
}

/// Numbers of cores, listed for people.
pub(crate) struct Listed<'a>(pub(crate) &'a [u16]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(u16::to_string).collect();
        f.write_str(&all.join(", "))
    }
}

/// Checks a configuration as a start does.
pub(crate) fn look(subject: &Subject<'_>) -> Remarks {
    let mut found = Remarks::default();
    let Subject { config, places, path, .. } = subject;
    found.cores(config, places);
    let interfaces = found.interfaces(config, places);
    let links = found.links(config, places);
    if let Err(error) = weir_confine::socket::check(&config.node.socket) {
        let what = format!("[node]: `socket` is {}: {error}", config.node.socket.shown());
        found.problem(places.node, what);
    }
    if let Some(remote) = &config.remote {
        // The key itself is read only by the process that keeps it.
        let key = crate::daemon::beside(path, &remote.key);
        if let Err(error) = weir_confine::private::open_secret(&key) {
            found.problem(None, format!("[remote]: {}: {error}", key.shown()));
        }
    }
    found.policy(config, path, subject.shipped);
    found.sessions(subject, interfaces, links);
    for session in &config.sessions {
        for what in session.uses.iter().filter_map(|used| obstacle(session, used, &config.sessions)) {
            found.warning(places.session(&session.name), format!("session `{}`: {what}", session.name));
        }
    }
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
    fn cores(&mut self, config: &Config, places: &Places) {
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

    /// Returns the link types of all interfaces. One that is not there counts as Ethernet, as in a start.
    fn interfaces(&mut self, config: &Config, places: &Places) -> BTreeMap<String, LinkType> {
        let mut kinds = BTreeMap::new();
        for interface in &config.interfaces {
            let line = places.interfaces.get(&interface.name).copied();
            let kind = link_type_of(&interface.name).unwrap_or_else(|error| {
                if let LiveError::NoSuchInterface { .. } = error {
                    let name = interface.name.escape_debug();
                    let what =
                        format!("there is no interface `{name}` on this machine now: the node waits for it");
                    self.warning(line, what);
                } else {
                    self.problem(line, error.to_string());
                }
                LinkType::Ethernet
            });
            kinds.insert(interface.name.clone(), kind);
        }
        kinds
    }

    /// Returns the links, and the link types of their interfaces.
    fn links(&mut self, config: &Config, places: &Places) -> (Trial, BTreeMap<String, LinkType>) {
        let (mut trial, mut kinds) = (Trial::default(), BTreeMap::new());
        for link in &config.links {
            let line = places.links.get(&link.interface).copied();
            let kind = match link_type_of(&link.interface) {
                Ok(kind) => kind,
                Err(error) => {
                    self.problem(line, error.to_string());
                    LinkType::Ethernet
                }
            };
            if let Err(error) = trial.add(link, kind) {
                self.problem(line, error.to_string());
            }
            kinds.insert(link.interface.clone(), kind);
        }
        (trial, kinds)
    }

    /// Warns of questionable parts of the operator's policy. The policy has been read, and its cases have been tried, before.
    fn policy(&mut self, config: &Config, path: &Path, shipped: Shipped) {
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
