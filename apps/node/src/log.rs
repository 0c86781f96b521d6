//! What the node says: a line for each thing that happened, on standard error, where the service manager takes it up.

use std::io::Write;
use weir_session::is_plain;

/// Says it. What is not plain text is left out: modules must not write on an operator's terminal.
pub fn say(what: &str) {
    let what: String = what.chars().filter(|c| is_plain(*c)).collect();
    // A closed standard error must not end the node.
    let _ = writeln!(std::io::stderr(), "weir: {what}");
}
