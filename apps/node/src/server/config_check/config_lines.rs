//! The line numbers of a configuration's sections.

use crate::control::config::NodeConfigError;
use crate::control::spec::SpecError;
use serde::Deserialize;
use std::collections::BTreeMap;
use weir_admission::Name;

/// The line numbers of a configuration's sections, from 1.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigLines {
    pub(super) cpu: Option<usize>,
    pub(super) node: Option<usize>,
    pub(super) interfaces: BTreeMap<String, usize>,
    pub(super) links: BTreeMap<String, usize>,
    profiles: BTreeMap<String, usize>,
    sessions: BTreeMap<String, usize>,
    tables: BTreeMap<String, usize>,
}

impl ConfigLines {
    /// Finds the line numbers in a configuration's text. The result is empty for an invalid configuration.
    pub(crate) fn find(text: &str) -> Self {
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        #[derive(Deserialize)]
        struct OnInterface {
            interface: String,
        }
        #[derive(Deserialize)]
        struct Sections {
            cpu: Option<toml::Spanned<toml::Table>>,
            node: Option<toml::Spanned<toml::Table>>,
            #[serde(default)]
            interface: Vec<toml::Spanned<Named>>,
            #[serde(default)]
            link: Vec<toml::Spanned<OnInterface>>,
            #[serde(default)]
            profile: Vec<toml::Spanned<Named>>,
            #[serde(default)]
            session: Vec<toml::Spanned<Named>>,
            #[serde(default)]
            table: Vec<toml::Spanned<Named>>,
        }
        let line = |offset: usize| text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1;
        let lines = |parts: &[toml::Spanned<Named>]| {
            // If two sections have the same name, the second one's line is kept, since the error is about that section.
            parts.iter().map(|part| (part.get_ref().name.clone(), line(part.span().start))).collect()
        };
        let Ok(parts) = toml::from_str::<Sections>(text) else { return Self::default() };
        Self {
            cpu: parts.cpu.map(|part| line(part.span().start)),
            node: parts.node.map(|part| line(part.span().start)),
            interfaces: lines(&parts.interface),
            links: parts
                .link
                .iter()
                .map(|part| (part.get_ref().interface.clone(), line(part.span().start)))
                .collect(),
            profiles: lines(&parts.profile),
            sessions: lines(&parts.session),
            tables: lines(&parts.table),
        }
    }

    pub(super) fn session(&self, session: &Name) -> Option<usize> {
        self.sessions.get(session.as_str()).copied()
    }

    /// Returns the line of the section that an error is about, if the error's text does not contain a line.
    pub(crate) fn line_of_error(&self, error: &NodeConfigError) -> Option<usize> {
        match error {
            NodeConfigError::Session(
                SpecError::Duplicate { session, .. }
                | SpecError::TooMany { session, .. }
                | SpecError::IncompleteReservation { session, .. }
                | SpecError::Range { session, .. }
                | SpecError::Missing { session, .. }
                | SpecError::SeesOutgoing { session, .. },
            ) => self.session(session),
            NodeConfigError::Duplicate { what, name } => {
                let parts = match *what {
                    "interface" => &self.interfaces,
                    "link" => &self.links,
                    "profile" => &self.profiles,
                    "table" => &self.tables,
                    _ => &self.sessions,
                };
                parts.get(name).copied()
            }
            NodeConfigError::TwoPublishers { second, .. } => self.session(second),
            NodeConfigError::Range { section: "cpu", .. } => self.cpu,
            NodeConfigError::Range { section: "node", .. } => self.node,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::config::NodeConfiguration;

    #[test]
    fn an_error_of_a_session_has_the_line_of_the_session() {
        for (text, line) in [
            ("[[session]]\nname = \"a\"\n\n[[session]]\nname = \"b\"\ncpu = [{ period = \"1ms\" }]", 4),
            ("[[session]]\nname = \"a\"\n[[session]]\nname = \"a\"", 3),
            ("# \n[cpu]\nreservable = 0", 2),
            ("[node]\nledger_interval = \"1ms\"", 1),
        ] {
            let error = NodeConfiguration::parse(text).unwrap_err();
            assert_eq!(ConfigLines::find(text).line_of_error(&error), Some(line), "{text}: {error}");
        }
    }
}
