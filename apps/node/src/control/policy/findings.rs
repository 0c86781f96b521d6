//! Findings about a policy for its operator: parts that have no effect, or contradict each other.

use super::{Policy, Root};
use crate::control::config::NodeConfiguration;
use std::path::PathBuf;
use weir_admission::Name;
use weir_compilation::compiler_keys::VouchedFor;
use weir_trust::grant::{NodeName, UnixSecond};

/// A part of a policy that the operator probably did not intend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFinding {
    /// File of the finding.
    pub file: PathBuf,
    /// Description, and advice.
    pub what: String,
    /// True for a contradiction, which is an error; false for a warning.
    pub is_contradiction: bool,
}

impl Policy {
    /// Returns the finding that a node needs more signatures than keys could make.
    fn too_few_compilers(&self, config: &NodeConfiguration) -> Option<PolicyFinding> {
        let (file, _) = self.compilers.first()?;
        let needed = usize::from(config.compilation.signatures);
        let keys = |what: &VouchedFor| {
            self.compilers.iter().filter(|(_, key)| key.trusted_for.contains(what)).count()
        };
        let what = VouchedFor::ALL.into_iter().find(|what| keys(what) < needed)?;
        let what = format!(
            "no bundle can be used: `signatures` in [compilation] asks for {needed} keys trusted for `{what}`, and there are {}. Add keys, or lower it",
            keys(&what)
        );
        Some(PolicyFinding { file: file.clone(), what, is_contradiction: false })
    }

    /// Returns the findings at the time `now`. `node` is the node's configuration and its name in credentials; without
    /// it, findings that depend on a node are left out.
    pub fn findings(
        &self,
        node: Option<(&NodeConfiguration, &NodeName)>,
        now: UnixSecond,
    ) -> Vec<PolicyFinding> {
        let mut found = Vec::new();
        for name in self.profiles.keys().filter(|name| !self.is_usable(name, node.map(|(config, _)| config)))
        {
            let what = format!(
                "no session may use profile `{name}`: every root's limit names other profiles, and no session of the configuration names it. Name the profile under `profiles` of a root's [limit], or remove its file"
            );
            let file = self.profile_files.get(name).cloned().unwrap_or_default();
            found.push(PolicyFinding { file, what, is_contradiction: true });
        }
        for (file, compiler) in &self.compilers {
            if let Some(expires) = compiler.expires.filter(|expires| now >= *expires) {
                let what = format!(
                    "compiler {} has expired: `expires` was {expires}. Give it another date, or remove it",
                    compiler.key
                );
                found.push(PolicyFinding { file: file.clone(), what, is_contradiction: false });
            }
        }
        if let Some((config, _)) = node {
            found.extend(self.too_few_compilers(config));
        }
        for root in &self.roots {
            let mut find = |is_contradiction, what: String| {
                let what = format!("{}: {what}", root.in_words());
                found.push(PolicyFinding { file: root.file.clone(), what, is_contradiction });
            };
            for why in reasons_for_no_right(root, now) {
                find(
                    true,
                    format!(
                        "its credentials allow nothing here: {why}. Raise the root's limit, or remove the root"
                    ),
                );
            }
            for filter in &root.limit.filters {
                if let Err(error) = weir_netio::CaptureFilter::new(filter.as_str()) {
                    find(true, format!("its filter `{filter}` is invalid, and selects nothing: {error}"));
                }
            }
            let Some((config, name)) = node else { continue };
            if let Some(nodes) = root.limit.nodes.as_ref().filter(|nodes| !nodes.contains(name)) {
                find(false, format!("its credentials are valid only at {nodes}, and this node is {name}"));
            }
            let exists = |wanted: &str| config.interfaces.iter().any(|interface| interface.name == wanted);
            let interfaces = root.limit.interfaces.iter().flatten();
            let missing: Vec<&str> =
                interfaces.map(|interface| interface.as_str()).filter(|name| !exists(name)).collect();
            if !missing.is_empty() {
                find(false, format!("the node has no interface {}", missing.join(", ")));
            }
        }
        if let Some((config, _)) =
            node.filter(|(config, _)| config.remote.is_none() && !self.roots.is_empty())
        {
            let file = config.policy.as_ref().map(|policy| policy.dir.clone()).unwrap_or_default();
            let what = "its roots have no effect, because the node has no remote access. Write [remote] into the node's configuration";
            found.push(PolicyFinding { file, what: what.to_owned(), is_contradiction: false });
        }
        found
    }

    /// Returns true if a session of the configuration, or a session under a root, can use the profile.
    fn is_usable(&self, profile: &Name, config: Option<&NodeConfiguration>) -> bool {
        let permits_it =
            |root: &Root| root.limit.profiles.as_ref().is_none_or(|names| names.contains(profile));
        let sessions = config.map(|config| &config.sessions).into_iter().flatten();
        let is_named = sessions.into_iter().any(|session| session.profile.as_ref() == Some(profile));
        // Without roots there are only sessions of the operator, and each of them may name any profile.
        self.roots.is_empty() || self.roots.iter().any(permits_it) || is_named
    }
}

/// Returns the reasons why no credential of a root can allow anything.
fn reasons_for_no_right(root: &Root, now: UnixSecond) -> Vec<String> {
    let limit = &root.limit;
    let mut why = Vec::new();
    let is_empty = |is_empty: Option<bool>| is_empty == Some(true);
    if is_empty(limit.profiles.as_ref().map(|names| names.is_empty())) {
        why.push("`profiles` names none".to_owned());
    }
    if limit.modules.iter().any(|set| set.hashes.is_empty() && set.signers.is_empty()) {
        why.push("`modules` and `signers` name none".to_owned());
    }
    if is_empty(limit.nodes.as_ref().map(|nodes| nodes.iter().len() == 0)) {
        why.push("`nodes` is empty".to_owned());
    }
    let ceilings = &limit.ceilings;
    if ceilings.sessions == Some(0) {
        why.push("`sessions` is 0".to_owned());
    }
    if ceilings.memory.is_some_and(|memory| memory.0 == 0) {
        why.push("`memory` is 0".to_owned());
    }
    if ceilings.cpu.is_some_and(|share| share.0 == 0) {
        why.push("`cpu` is 0%".to_owned());
    }
    if let Some(until) = limit.expires.filter(|until| now >= *until) {
        why.push(format!("`until` was {until}"));
    }
    why
}
