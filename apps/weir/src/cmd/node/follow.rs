//! `weir follow`: prints the records of a stream as they arrive.

use super::args::FollowArgs;
use crate::{Failure, json};
use std::io::{self, Write};
use weir_node::client::{Client, ClientError};
use weir_node::control::protocol::{ControlRequest, Reply};
use weir_node::control::spec::TomlValue;
use weir_units::is_plain;

/// Prints each record on its own line, until the node closes the connection or the output is closed.
pub fn follow(out: &mut impl Write, args: &FollowArgs) -> Result<(), Failure> {
    let mut client = Client::connect_to(&args.address.resolve()?)?;
    let request = ControlRequest::Follow {
        session: args.session.clone(),
        module: args.module.clone(),
        stream: args.stream.clone(),
    };
    client.send(request, &[])?;
    client.remove_reply_timeout()?;
    loop {
        match client.receive()? {
            Reply::Record(fields) if args.json => {
                json::line(out, &fields)?;
            }
            Reply::Record(fields) => {
                let columns: Vec<String> =
                    fields.iter().map(|(name, value)| format!("{}={}", plain(name), shown(value))).collect();
                writeln!(out, "{}", columns.join("  "))?;
            }
            Reply::Missed { rows } => {
                let _ = writeln!(
                    io::stderr(),
                    "weir: {rows} records were missed here: this client reads too slowly"
                );
            }
            // The node sends notes at the start and end of the stream.
            Reply::Done { notes } => {
                for note in notes {
                    let _ = writeln!(io::stderr(), "weir: {}", plain(&note));
                }
            }
            other => return Err(ClientError::UnexpectedReply(weir_node::client::reply_kind(&other)).into()),
        }
        out.flush()?;
    }
}

/// Formats a value of a record, with control characters escaped, because the value comes from a module.
fn shown(value: &TomlValue) -> String {
    match value {
        TomlValue::Bool(value) => value.to_string(),
        TomlValue::Whole(value) => value.to_string(),
        TomlValue::Number(value) => value.to_string(),
        TomlValue::Text(text) if text.is_empty() || text.contains([' ', '"', '=']) => {
            format!("\"{}\"", plain(text).replace('"', "\\\""))
        }
        TomlValue::Text(text) => plain(text),
        TomlValue::List(values) => {
            let values: Vec<String> = values.iter().map(shown).collect();
            format!("[{}]", values.join(","))
        }
    }
}

fn plain(text: &str) -> String {
    text.chars().map(|c| if is_plain(c) { c.to_string() } else { c.escape_default().collect() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_on_one_line_and_are_quoted_where_ambiguous() {
        for (json, text) in [
            ("1", "1"),
            ("-1.5", "-1.5"),
            ("true", "true"),
            ("\"10.0.0.1\"", "10.0.0.1"),
            ("\"a b=\\\"c\\n\"", "\"a b=\\\"c\\n\""),
            ("\"\\u001b[2J\"", "\\u{1b}[2J"),
            ("\"\"", "\"\""),
            ("[1,[\"a\"]]", "[1,[a]]"),
        ] {
            assert_eq!(shown(&serde_json::from_str(json).unwrap()), text);
        }
    }
}
