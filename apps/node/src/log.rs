//! The node's log on standard error, one line for each event.
//!
//! A text line begins with `weir: `. If standard error is systemd's journal, the syslog level comes first, as in
//! sd-daemon(3). A JSON line (RFC 8259) is an object with `time` (RFC 3339, UTC), `level` (`info` or `warning`), `node` and
//! `message`, and with the `session`, `module` and `interface` that the event concerns, if any.

use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::io::Write;
use std::sync::OnceLock;
use weir_admission::{Name, is_plain};
use weir_ledger::show_time;
use weir_units::Timestamp;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Lines of text.
    #[default]
    Text,
    /// A JSON object on each line.
    Json,
}

/// The format of lines and the node's name, for the whole process. Until [`begin`], lines are text.
static FORMAT: OnceLock<(LogFormat, Name)> = OnceLock::new();

/// Sets the format of all further lines, and the name of the node in them.
pub(crate) fn begin(format: LogFormat, node: &Name) {
    _ = FORMAT.set((format, node.clone()));
}

/// The severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Level {
    /// Something has failed, or needs the operator's attention.
    Warning,
    /// A normal event.
    Info,
}

/// A line in JSON format.
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

/// The subject of log lines: a session, a module, an interface, or the node in general.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct About<'a> {
    session: Option<&'a str>,
    module: Option<&'a str>,
    interface: Option<&'a str>,
}

/// Returns the subject of lines about a session.
pub(crate) fn session(session: &Name) -> About<'_> {
    About { session: Some(session.as_str()), ..About::default() }
}

/// Returns the subject of lines about an interface.
pub(crate) fn interface(interface: &str) -> About<'_> {
    About { interface: Some(interface), ..About::default() }
}

/// Logs a normal event.
pub fn info(what: &str) {
    About::default().info(&what);
}

/// Logs a warning.
pub(crate) fn warn(what: &dyn Display) {
    About::default().warn(what);
}

impl<'a> About<'a> {
    /// Returns the subject of lines about a module of the session.
    pub(crate) fn module(self, module: &'a Name) -> Self {
        Self { module: Some(module.as_str()), ..self }
    }

    /// Logs a normal event.
    pub(crate) fn info(self, what: &dyn Display) {
        self.write(Level::Info, what);
    }

    /// Logs a warning.
    pub(crate) fn warn(self, what: &dyn Display) {
        self.write(Level::Warning, what);
    }

    fn write(self, level: Level, what: &dyn Display) {
        let Self { session, module, interface } = self;
        // Control characters are removed, so that text from modules cannot control the operator's terminal.
        let message: String = what.to_string().chars().filter(|c| is_plain(*c)).collect();
        let line = match FORMAT.get() {
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
    // Strings and numbers can always be serialised.
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

/// Returns true if standard error is systemd's journal, which reads a level from the beginning of a line.
fn is_journal() -> bool {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    *IS_JOURNAL.get_or_init(|| std::env::var_os("JOURNAL_STREAM").is_some())
}

fn now() -> Timestamp {
    weir_datapath::clock::wall_clock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_as_text_or_as_json() {
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
