//! Reads and parses the requests of clients, for the node's server. The bytes are untrusted, and their length is
//! bounded.

use crate::control::protocol::{LINE_BYTES_MAX, RequestLine, VERSION, body_of};
use crate::control::renamed_keys::with_advice;
use std::io::{self, BufRead, Read};

/// The result of parsing a client's line.
#[derive(Debug)]
pub(crate) enum ParsedRequest {
    /// A request, and the length in bytes of the body that follows it.
    Request(Box<RequestLine>, usize),
    /// The client has sent its last request.
    End,
    /// The reason why the line is not a valid request. The length of its body is unknown, so no later request can be
    /// read.
    Invalid(String),
}

/// Reads a client's next line. The result is empty at the end of the input. A line that is too long is cut one byte
/// after the limit.
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
        return invalid(format!("the line is too long: a line has at most {LINE_BYTES_MAX} bytes"));
    }
    // The version is checked first, because other versions may have other requests.
    let version = serde_json::from_slice::<Version>(line).map(|v| v.weir);
    if let Ok(version) = version
        && version != VERSION
    {
        return invalid(format!("this node speaks version {VERSION} of the protocol, not {version}"));
    }
    let message: RequestLine = match serde_json::from_slice(line) {
        Ok(message) => message,
        Err(error) => {
            return invalid(format!("the line is not a request: {}", with_advice(&error.to_string())));
        }
    };
    let (what, most) = body_of(&message.request);
    match usize::try_from(message.body).ok().filter(|len| *len <= most) {
        Some(len) => ParsedRequest::Request(Box::new(message), len),
        None if most == 0 => invalid("this request has no file".to_owned()),
        None => invalid(format!("a {what}'s file has at most {most} bytes")),
    }
}

/// The protocol version of a message. All other fields are ignored.
#[derive(serde::Deserialize)]
struct Version {
    weir: u32,
}
