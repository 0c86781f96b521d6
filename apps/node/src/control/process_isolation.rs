//! Sessions whose modules run in processes of their own: what they can have, and what they cannot.

use crate::control::spec::{RecordVisibility, SessionSpec, SpecError};
use serde::{Deserialize, Serialize};
use weir_admission::Admitted;

/// Where the modules of a session run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Process {
    /// In the node's process, each in its sandbox.
    #[default]
    Node,
    /// Each in a process of its own, which has nothing but what its module may see.
    Own,
}

impl SessionSpec {
    /// Checks that what is not for processes of their own is not asked for there.
    pub(crate) fn check_process(&self) -> Result<(), SpecError> {
        let sees_all = self.channels.iter().any(|channel| channel.sees == RecordVisibility::All);
        let what = match self.process {
            Process::Node => return Ok(()),
            Process::Own if sees_all => "channels that see all of an interface's memory",
            Process::Own if !self.read.is_empty() || !self.publish.is_empty() => "named tables",
            Process::Own if !self.offers.is_empty() || !self.uses.is_empty() => "services",
            Process::Own => return Ok(()),
        };
        Err(SpecError::Apart { session: self.name.clone(), what })
    }
}

/// What a module wants that there is not in a process of its own.
pub(crate) fn not_apart(admitted: &Admitted) -> Option<&'static str> {
    let manifest = admitted.manifest();
    [
        (!manifest.tables.is_empty(), "has named tables"),
        (!manifest.services.is_empty() || !manifest.calls.is_empty(), "has to do with services"),
        (manifest.keep > 0, "keeps packets"),
    ]
    .into_iter()
    .find_map(|(wants, what)| wants.then_some(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_for_processes_of_their_own_is_refused_in_words() {
        let why = |more: &str| {
            let text = format!("name = \"a\"\nprocess = \"own\"\n{more}");
            let spec: SessionSpec = toml::from_str(&text).unwrap();
            spec.check(&["b".to_owned()], &[]).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(why("channel = [{ interface = \"b\" }]"), "");
        for (more, says) in [
            ("channel = [{ interface = \"b\", sees = \"all\" }]", "no channels that see all of"),
            ("read = [\"t\"]", "no named tables"),
            ("publish = [\"t\"]", "no named tables"),
            ("offer = [{ service = \"s\", callers = [] }]", "no services"),
            ("use = [{ service = \"s\", of = \"b\" }]", "no services"),
        ] {
            assert!(why(more).contains(says), "{more}: {}", why(more));
        }
    }
}
