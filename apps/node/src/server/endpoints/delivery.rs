//! Delivery of revocation lists.
//!
//! A list is valid by its signer's signature, no matter which peer delivers it. Holders of credentials and operators
//! deliver lists over their own connections. A peer that has proven a root's key takes a slot of a separate pool
//! ([`serve_root`]). Any other peer takes a slot of the small pool of anonymous peers ([`serve_anonymous`]), for a
//! short time, and can deliver only lists that a root has signed: of other lists the node reads only the header.
//!
//! A request's body is the whole list or its header alone, as an offer. The node answers an offer in one of three ways:
//! it wants the rest ([`Reply::Uploaded`]), it has the list already, or it refuses the list with a reason.

use super::connection::{CLIENT_TIMEOUT, PeerStream, RequestServer, send_refusal, send_reply};
use crate::control::audit::PendingDecision;
use crate::control::authority::Requester;
use crate::control::protocol::request_reader::{ParsedRequest, read_request};
use crate::control::protocol::{ControlRequest, Reply, RequestLine, VERSION};
use crate::server::daemon::Daemon;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_trust::credential::VerifiedCredential;
use weir_trust::key::PublicKey;
use weir_trust::revocation::{HEADER_BYTES_MAX, LIST_BYTES_MAX, ListHeader, ListUse, RevocationError};

/// The maximum number of connected peers without a credential.
pub(super) const ANONYMOUS_MAX: usize = 16;
/// The maximum number of connected peers without a credential from one source address.
pub(super) const ANONYMOUS_PER_SOURCE_MAX: usize = 2;
/// The maximum number of connected peers with a root's key.
pub(super) const ROOTS_MAX: usize = 16;
/// The maximum number of connected peers with the same root's key.
pub(super) const ROOTS_PER_KEY_MAX: usize = 4;
/// The time within which a peer without a credential has to send a list's header.
const HEADER_TIME: Duration = Duration::from_secs(3);
/// The time within which a peer without a credential has to send the whole list.
const DELIVERY_TIME: Duration = Duration::from_secs(15);
/// The maximum length in bytes of the request line of a peer without a credential.
const LINE_BYTES_MAX: u64 = 256;

/// Applies a revocation list, or answers the offer of a list. `credential` is that of the peer who delivers the list,
/// if any.
pub(super) fn receive_list(
    daemon: &Arc<Daemon>,
    credential: Option<&VerifiedCredential>,
    bytes: &[u8],
) -> Reply {
    let Ok(text) = std::str::from_utf8(bytes) else {
        daemon.count_refused_list("malformed");
        return Reply::Refused { why: "this is no revocation list: it is not UTF-8 text".to_owned() };
    };
    match ListHeader::read(text) {
        Ok((header, "")) if header.body_len() > 0 => answer_offer(daemon, credential, &header, bytes.len()),
        _ => apply_list(daemon, credential, text),
    }
}

/// Returns the credential of a holder, or `None` for the operator.
pub(super) fn credential_of(requester: &Requester) -> Option<&VerifiedCredential> {
    match requester {
        Requester::Operator(_) => None,
        Requester::Holder(credential) => Some(credential),
    }
}

fn answer_offer(
    daemon: &Daemon,
    credential: Option<&VerifiedCredential>,
    header: &ListHeader,
    len: usize,
) -> Reply {
    match daemon.check_offer(header, credential) {
        Ok(ListUse::Known) => Reply::Done { notes: vec!["this list is known already".to_owned()] },
        Ok(ListUse::Wanted) => Reply::Uploaded { bytes: u32::try_from(len).unwrap_or(u32::MAX) },
        Err(why) => Reply::Refused { why: why.to_string() },
    }
}

fn apply_list(daemon: &Arc<Daemon>, credential: Option<&VerifiedCredential>, text: &str) -> Reply {
    let revoked = daemon.revoke(text, credential);
    // Sessions are closed even after a refusal, since a part of the list may have been applied.
    daemon.close_expired();
    match revoked {
        Ok(note) => Reply::Done { notes: vec![note] },
        Err(why) => Reply::Refused { why: why.to_string() },
    }
}

/// Serves a peer that has proven a root's key. The peer can deliver lists, and read the revocations of that root.
pub(super) fn serve_root(
    stream: impl PeerStream,
    root: &PublicKey,
    server: &RequestServer,
) -> io::Result<()> {
    let daemon = &server.daemon;
    let mut stream = BufReader::new(stream);
    while !server.is_stopping() {
        stream.get_mut().set_read_deadline(Instant::now() + CLIENT_TIMEOUT);
        let (request, len) = match read_request(&mut stream)? {
            ParsedRequest::Request(message, len) => (message.request, len),
            ParsedRequest::End => return Ok(()),
            ParsedRequest::Invalid(why) => return send_refusal(stream.get_mut(), &why),
        };
        let reply = match request {
            ControlRequest::Revoke => {
                let mut list = vec![0; len];
                stream.read_exact(&mut list)?;
                receive_list(daemon, None, &list)
            }
            ControlRequest::Revocations if daemon.is_root(root) => {
                Reply::Revocations(daemon.revocations_of(Some(root)))
            }
            _ => {
                let why = "a peer with a root's key and no credential can only deliver revocation lists and read that root's revocations: name the credential's file with --credential FILE";
                daemon.record_decision(PendingDecision::of_stranger(root, "other").refused(why));
                return send_refusal(stream.get_mut(), &why);
            }
        };
        if let Reply::Refused { why } = &reply {
            daemon.record_decision(PendingDecision::of_stranger(root, "revoke").refused(why));
        }
        send_reply(stream.get_mut(), reply)?;
    }
    Ok(())
}

/// Serves a peer without a credential, which can only deliver one list.
pub(super) fn serve_anonymous(
    stream: impl PeerStream,
    key: &PublicKey,
    server: &RequestServer,
) -> io::Result<()> {
    let daemon = &server.daemon;
    let mut stream = BufReader::with_capacity(4096, stream);
    let started = Instant::now();
    stream.get_mut().set_read_deadline(started + HEADER_TIME);
    // The peer sends an offer and then the list, or the list at once.
    for is_last in [false, true] {
        let reply = match read_delivery(&mut stream, daemon, started)? {
            Delivery::Other => {
                let why = "a peer without a credential, unless it is an operator of the node, can only deliver a revocation list: name the credential's file with --credential FILE";
                daemon.record_decision(PendingDecision::of_stranger(key, "other").refused(why));
                return send_refusal(stream.get_mut(), &why);
            }
            Delivery::Answer(reply) => reply,
            Delivery::List(text) => apply_list(daemon, None, &text),
        };
        if let Reply::Refused { why } = &reply {
            daemon.record_decision(PendingDecision::of_stranger(key, "revoke").refused(why));
        }
        let is_wanted = matches!(reply, Reply::Uploaded { .. });
        send_reply(stream.get_mut(), reply)?;
        if !is_wanted || is_last {
            return Ok(());
        }
    }
    Ok(())
}

/// A request of a peer without a credential.
enum Delivery {
    /// A request that is no delivery of a list.
    Other,
    /// A delivery that was answered after its header was read.
    Answer(Reply),
    /// The whole text of a list that the node wants.
    List(String),
}

/// Reads a request of a peer without a credential. The list after the header is read only if the node wants it.
fn read_delivery(
    stream: &mut BufReader<impl PeerStream>,
    daemon: &Daemon,
    started: Instant,
) -> io::Result<Delivery> {
    let mut line = Vec::new();
    stream.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    let len = match serde_json::from_slice::<RequestLine>(&line) {
        Ok(RequestLine { weir: VERSION, request: ControlRequest::Revoke, body, .. }) => body as usize,
        _ => return Ok(Delivery::Other),
    };
    let refused = |counter: &'static str, why: String| {
        daemon.count_refused_list(counter);
        Ok(Delivery::Answer(Reply::Refused { why }))
    };
    if len > LIST_BYTES_MAX {
        return refused("malformed", format!("a revocation list has at most {LIST_BYTES_MAX} bytes"));
    }
    let mut list = vec![0; len.min(HEADER_BYTES_MAX)];
    stream.read_exact(&mut list)?;
    let Ok(begin) = std::str::from_utf8(&list) else {
        return refused("malformed", "this is no revocation list: it is not UTF-8 text".to_owned());
    };
    let (header, rest) = match ListHeader::read(begin) {
        Ok(read) => read,
        Err(why) => {
            let advice = "; only a peer with a credential, an operator's key or a root's key can deliver a list of the previous format";
            return refused(why.counter(), format!("{why}{advice}"));
        }
    };
    if let Some(own_block) = header.issuer().own_block() {
        let (signer, own_block) = (*header.issuer().signer(), *own_block);
        let why = RevocationError::UnprovenRight { signer, own_block };
        return refused(why.counter(), why.to_string());
    }
    let reply = answer_offer(daemon, None, &header, list.len());
    let is_offer = rest.is_empty() && len == list.len() && header.body_len() > 0;
    if is_offer || !matches!(reply, Reply::Uploaded { .. }) {
        return Ok(Delivery::Answer(reply));
    }
    // A root has signed the header, and the header contains the hash of the rest.
    stream.get_mut().set_read_deadline(started + DELIVERY_TIME);
    stream.take((len - list.len()) as u64).read_to_end(&mut list)?;
    match String::from_utf8(list) {
        Ok(text) => Ok(Delivery::List(text)),
        Err(_) => refused("malformed", "this is no revocation list: it is not UTF-8 text".to_owned()),
    }
}
