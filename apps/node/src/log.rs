//! What the node says: a line for each thing that happened, on standard error, where the service manager takes it up.
//!
//! As text, each line begins with `weir: `; where standard error is the journal's (systemd), with the number of its level before that, as sd-daemon(3) has it. As JSON (RFC 8259), each line
//! is an object with `time` (RFC 3339, UTC), `level` (`info` or `warning`), `node`, `message`, and where it is about one `session`, `module` and `interface`.

use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::io::Write;
use std::sync::OnceLock;
use weir_admission::{Name, is_plain};
use weir_ledger::show_time;
use weir_units::Timestamp;

/// How lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// How a line is written, and by which node. Of a process, and for as long as it runs: what it says before is text.
static HOW: OnceLock<(LogFormat, Name)> = OnceLock::new();

/// From now on lines are written so, by the node of this name.
pub(crate) fn begin(format: LogFormat, node: &Name) {
    _ = HOW.set((format, node.clone()));
}

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Level {
    /// Something has gone wrong, or is not as it should be.
    Warning,
    /// What happens.
    Info,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Line<'a> {
    time: String,
    level: Level,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<&'a str>,
    message: String,
}

/// What a line is about, beside what it says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct About<'a> {
    session: Option<&'a str>,
    module: Option<&'a str>,
    interface: Option<&'a str>,
}

/// About a session.
pub(crate) fn session(session: &Name) -> About<'_> {
    About { session: Some(session.as_str()), ..About::default() }
}

/// About an interface.
pub(crate) fn interface(interface: &str) -> About<'_> {
    About { interface: Some(interface), ..About::default() }
}

/// Says what happens.
pub fn say(what: &str) {
    About::default().say(&what);
}

/// Says what has gone wrong.
pub(crate) fn warn(what: &dyn Display) {
    About::default().warn(what);
}

impl<'a> About<'a> {
    /// And about a module of it.
    pub(crate) fn module(self, module: &'a Name) -> Self {
        Self { module: Some(module.as_str()), ..self }
    }

    /// Says what happens.
    pub(crate) fn say(self, what: &dyn Display) {
        self.put(Level::Info, what);
    }

    /// Says what has gone wrong.
    pub(crate) fn warn(self, what: &dyn Display) {
        self.put(Level::Warning, what);
    }

    fn put(self, level: Level, what: &dyn Display) {
        let Self { session, module, interface } = self;
        // What is not plain text is left out: modules must not write on an operator's terminal.
        let message: String = what.to_string().chars().filter(|c| is_plain(*c)).collect();
        let line = match HOW.get() {
            Some((LogFormat::Json, node)) => {
                let (time, node) = (show_time(now()), Some(node.as_str()));
                json(&Line { time, level, node, session, module, interface, message })
            }
            _ => text(level, &message, is_journal()),
        };
        // A closed standard error must not end the node.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

fn json(line: &Line<'_>) -> String {
    // Texts and numbers alone: there is nothing that could not be written.
    serde_json::to_string(line).unwrap_or_default() + "\n"
}

fn text(level: Level, message: &str, is_journal: bool) -> String {
    let level = match level {
        _ if !is_journal => "",
        Level::Warning => "<4>",
        Level::Info => "<6>",
    };
    format!("{level}weir: {message}\n")
}

/// Whether standard error is the journal's, which takes a level from the beginning of a line.
fn is_journal() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(|| std::env::var_os("JOURNAL_STREAM").is_some())
}

fn now() -> Timestamp {
    weir_datapath::moment::wall_clock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_for_people_or_for_programs() {
        assert_eq!(text(Level::Warning, "eth0 is down", false), "weir: eth0 is down\n");
        assert_eq!(text(Level::Warning, "eth0 is down", true), "<4>weir: eth0 is down\n");
        assert_eq!(text(Level::Info, "it is up", true), "<6>weir: it is up\n");
        let line = Line {
            time: show_time(Timestamp(1_000_000_000)),
            level: Level::Warning,
            node: Some("ix-1"),
            session: Some("alice"),
            module: None,
            interface: None,
            message: "it says \"no\"".to_owned(),
        };
        assert_eq!(
            json(&line),
            "{\"time\":\"1970-01-01T00:00:01.000000000Z\",\"level\":\"warning\",\"node\":\"ix-1\",\"session\":\"alice\",\"message\":\"it says \\\"no\\\"\"}\n"
        );
    }
}
