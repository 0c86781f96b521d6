//! The choice of the process for a session's modules, and checks that modules in sandbox processes use only features
//! that are available there.

use crate::control::spec::{MappedPackets, ModuleSpec, SessionSpec, SpecError};
use serde::{Deserialize, Serialize};
use weir_admission::Admitted;

/// The process that the modules of a session run in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Process {
    /// The node's process, with a WebAssembly sandbox for each module.
    #[default]
    Node,
    /// A sandbox process for each module, which contains only memory that the module may read.
    Own,
}

impl SessionSpec {
    /// Checks that a session whose modules run in sandbox processes has only parts that are available in them.
    pub(crate) fn check_process(&self) -> Result<(), SpecError> {
        let sees_all = self.channels.iter().any(|channel| channel.visibility == MappedPackets::All);
        let what = match self.process {
            Process::Node => return self.modules.iter().try_for_each(|module| self.check_unmetered(module)),
            Process::Own if sees_all => "channels that see all of an interface's memory",
            Process::Own if !self.read.is_empty() || !self.publish.is_empty() => "named tables",
            Process::Own if !self.offers.is_empty() || !self.uses.is_empty() => "services",
            Process::Own => return Ok(()),
        };
        Err(SpecError::OwnProcess { session: self.name.clone(), what })
    }

    /// Checks that a module without a meter runs in a process of its own.
    pub(crate) fn check_unmetered(&self, module: &ModuleSpec) -> Result<(), SpecError> {
        if module.unmetered && self.process != Process::Own {
            let (session, module) = (self.name.clone(), module.module.clone());
            return Err(SpecError::Unmetered { session, module });
        }
        Ok(())
    }
}

/// Returns the first feature of a module that is not available in a sandbox process, as a verb with its object.
pub(crate) fn unsupported_in_own_process(admitted: &Admitted) -> Option<&'static str> {
    let manifest = admitted.manifest();
    [
        (!manifest.tables.is_empty(), "has named tables"),
        (!manifest.services.is_empty() || !manifest.calls.is_empty(), "offers or calls services"),
        (manifest.keep > 0, "keeps packets"),
    ]
    .into_iter()
    .find_map(|(is_used, what)| is_used.then_some(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_unavailable_in_own_processes_are_refused_by_name() {
        let why = |more: &str| {
            let text = format!("name = \"a\"\nprocess = \"own\"\n{more}");
            let spec: SessionSpec = toml::from_str(&text).unwrap();
            spec.check(&["b".to_owned()], &[]).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(why("channel = [{ interface = \"b\" }]"), "");
        let unmetered = "channel = [{ interface = \"b\" }]\nmodule = [{ module = \"m\", unmetered = true }]";
        assert_eq!(why(unmetered), "");
        for (more, says) in [
            ("channel = [{ interface = \"b\", visibility = \"all\" }]", "no channels that see all of"),
            ("read = [\"t\"]", "no named tables"),
            ("publish = [\"t\"]", "no named tables"),
            ("offer = [{ service = \"s\", callers = [] }]", "no services"),
            ("use = [{ service = \"s\", session = \"b\" }]", "no services"),
        ] {
            assert!(why(more).contains(says), "{more}: {}", why(more));
        }
    }
}
