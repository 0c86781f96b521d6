//! What a client asks, from its bytes: allegations, of which nothing is believed but how long they are, and that within bounds.

use crate::control::protocol::{Ask, LINE_BYTES_MAX, VERSION, body_of};
use std::io::{self, BufRead, Read};

/// What a client has said.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A request, and the length of the body that follows.
    Ask(Box<Ask>, usize),
    /// Nothing: it has gone.
    End,
    /// No request, and why. What follows cannot be told from it.
    Wrong(String),
}

/// The next line of a client, not yet interpreted; empty at the end of its input. It has at most a byte more than a line may have.
///
/// # Errors
/// The line cannot be read, or takes too long.
pub(crate) fn listen(source: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    source.take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)?;
    Ok(line)
}

/// The next line of a client, as a request.
///
/// # Errors
/// The line cannot be read, or takes too long.
pub(crate) fn hear(source: &mut impl BufRead) -> io::Result<Heard> {
    Ok(understand(&listen(source)?))
}

/// A line of a client, as a request.
pub(crate) fn understand(line: &[u8]) -> Heard {
    let wrong = Heard::Wrong;
    if line.is_empty() {
        return Heard::End;
    }
    if line.len() > LINE_BYTES_MAX {
        return wrong(format!("a line has at most {LINE_BYTES_MAX} bytes"));
    }
    // The version first: another one may have other requests.
    let version = serde_json::from_slice::<Version>(line).map(|v| v.weir);
    if let Ok(version) = version
        && version != VERSION
    {
        return wrong(format!("this node speaks version {VERSION} of the protocol, not {version}"));
    }
    let ask: Ask = match serde_json::from_slice(line) {
        Ok(ask) => ask,
        Err(error) => return wrong(format!("this is no request: {error}")),
    };
    let (what, most) = body_of(&ask.ask);
    match usize::try_from(ask.body).ok().filter(|len| *len <= most) {
        Some(len) => Heard::Ask(Box::new(ask), len),
        None if most == 0 => wrong("no file belongs to this request".to_owned()),
        None => wrong(format!("a {what}'s file has at most {most} bytes")),
    }
}

#[derive(serde::Deserialize)]
struct Version {
    weir: u32,
}
