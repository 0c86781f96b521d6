//! Reads and parses requests. The bytes are untrusted, and their length is bounded.

use crate::control::protocol::{Ask, LINE_BYTES_MAX, VERSION, body_of};
use crate::control::renamed_keys::with_advice;
use std::io::{self, BufRead, Read};

/// The result of parsing a client's line.
#[derive(Debug)]
pub(crate) enum ParsedRequest {
    /// A request, and the length in bytes of the body that follows it.
    Request(Box<Ask>, usize),
    /// The end of the client's input.
    End,
    /// The reason why the line is no valid request. The length of its body is unknown, so nothing can be read after it.
    Invalid(String),
}

/// Reads a client's next line. It is empty at the end of the input, and at most one byte longer than the limit.
///
/// # Errors
/// The stream cannot be read, or the line takes too long.
pub(crate) fn read_line(source: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    source.take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)?;
    Ok(line)
}

/// Reads and parses a client's next request.
///
/// # Errors
/// The stream cannot be read, or the line takes too long.
pub(crate) fn read_request(source: &mut impl BufRead) -> io::Result<ParsedRequest> {
    Ok(parse_request(&read_line(source)?))
}

/// Parses a line of a client.
pub(crate) fn parse_request(line: &[u8]) -> ParsedRequest {
    let invalid = ParsedRequest::Invalid;
    if line.is_empty() {
        return ParsedRequest::End;
    }
    if line.len() > LINE_BYTES_MAX {
        return invalid(format!("a line has at most {LINE_BYTES_MAX} bytes"));
    }
    // The version is checked first, because other versions may have other requests.
    let version = serde_json::from_slice::<Version>(line).map(|v| v.weir);
    if let Ok(version) = version
        && version != VERSION
    {
        return invalid(format!("this node speaks version {VERSION} of the protocol, not {version}"));
    }
    let ask: Ask = match serde_json::from_slice(line) {
        Ok(ask) => ask,
        Err(error) => return invalid(format!("this is no request: {}", with_advice(&error.to_string()))),
    };
    let (what, most) = body_of(&ask.ask);
    match usize::try_from(ask.body).ok().filter(|len| *len <= most) {
        Some(len) => ParsedRequest::Request(Box::new(ask), len),
        None if most == 0 => invalid("this request has no file".to_owned()),
        None => invalid(format!("a {what}'s file has at most {most} bytes")),
    }
}

/// The protocol version of a message, whatever else the message contains.
#[derive(serde::Deserialize)]
struct Version {
    weir: u32,
}
