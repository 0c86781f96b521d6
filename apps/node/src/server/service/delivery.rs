//! Deliveries of revocation lists.
//!
//! A list counts by its signer's signature; its deliverer does not matter. A holder of a credential and an operator deliver over their own connection, as any other request. A peer that has
//! proven to have a root's key has a place in a pool of its own ([`serve_root`]). Any other peer has a place in the small pool of peers without a credential ([`receive`]), for a short
//! time, and for lists that a root has signed. Of another signer's list the node reads the header alone.
//!
//! A request's body is the whole list, or its header alone. A header is an offer: the node answers that it wants the rest ([`Reply::Uploaded`]), that the list is known, or why it is refused.

use super::conversation::{PATIENCE, PeerStream, RequestServer, refuse, say};
use super::{Heard, hear};
use crate::control::audit::PendingDecision;
use crate::control::authority::Asker;
use crate::control::protocol::{Ask, ControlRequest, Reply, VERSION};
use crate::server::daemon::Daemon;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_trust::credential::VerifiedCredential;
use weir_trust::key::PublicKey;
use weir_trust::revocation::{HEADER_BYTES_MAX, LIST_BYTES_MAX, ListHeader, Offered, RevocationError};

/// The most peers without a credential at a time.
pub(super) const VISITORS_MAX: usize = 16;
/// The most of them from one source.
pub(super) const VISITORS_OF_ONE_MAX: usize = 2;
/// The most connections of peers with a root's key at a time.
pub(super) const ROOTS_MAX: usize = 16;
/// The most of them with one key.
pub(super) const ROOTS_OF_ONE_MAX: usize = 4;
/// The time within which a peer without a credential has sent the header of a list.
const HEADER_TIME: Duration = Duration::from_secs(3);
/// The time for the whole delivery of such a peer.
const TIME: Duration = Duration::from_secs(15);
/// The longest line before a list.
const LINE_BYTES_MAX: u64 = 256;

/// Takes a list, or the header of one, and says what it changed.
pub(super) fn take(daemon: &Arc<Daemon>, shown: Option<&VerifiedCredential>, bytes: &[u8]) -> Reply {
    let Ok(text) = std::str::from_utf8(bytes) else {
        daemon.list_refused("malformed");
        return Reply::Refused { why: "this is no revocation list: it is not even a text".to_owned() };
    };
    match ListHeader::read(text) {
        Ok((header, "")) if header.body_len() > 0 => offered(daemon, shown, &header, bytes.len()),
        _ => revoke(daemon, shown, text),
    }
}

/// The credential of an asker; none for the operator.
pub(super) fn shown_by(asker: &Asker) -> Option<&VerifiedCredential> {
    match asker {
        Asker::Operator(_) => None,
        Asker::Holder(credential) => Some(credential),
    }
}

fn offered(daemon: &Daemon, shown: Option<&VerifiedCredential>, header: &ListHeader, len: usize) -> Reply {
    match daemon.offered(header, shown) {
        Ok(Offered::Known) => Reply::Done { notes: vec!["this list is known already".to_owned()] },
        Ok(Offered::Wanted) => Reply::Uploaded { bytes: u32::try_from(len).unwrap_or(u32::MAX) },
        Err(why) => Reply::Refused { why: why.to_string() },
    }
}

fn revoke(daemon: &Arc<Daemon>, shown: Option<&VerifiedCredential>, text: &str) -> Reply {
    let revoked = daemon.revoke(text, shown);
    // Also where there was no room for all of it.
    daemon.close_expired();
    match revoked {
        Ok(note) => Reply::Done { notes: vec![note] },
        Err(why) => Reply::Refused { why: why.to_string() },
    }
}

/// Serves a peer that has proven to have a root's key: it delivers lists, and sees what the node holds for that root.
pub(super) fn serve_root(line: impl PeerStream, root: &PublicKey, office: &RequestServer) -> io::Result<()> {
    let daemon = &office.daemon;
    let mut line = BufReader::new(line);
    while !office.is_over() {
        line.get_mut().be_patient_until(Instant::now() + PATIENCE);
        let (ask, len) = match hear(&mut line)? {
            Heard::Ask(ask, len) => (ask.ask, len),
            Heard::End => return Ok(()),
            Heard::Wrong(why) => return refuse(line.get_mut(), &why),
        };
        let reply = match ask {
            ControlRequest::Revoke => {
                let mut list = vec![0; len];
                line.read_exact(&mut list)?;
                take(daemon, None, &list)
            }
            ControlRequest::Revocations if daemon.is_root(root) => {
                Reply::Revocations(daemon.revocations_of(Some(root)))
            }
            _ => {
                let only = "a peer with a root's key and no credential delivers revocation lists and sees what is revoked, and nothing else: name the credential's file with --credential FILE";
                daemon.decided(PendingDecision::of_stranger(root, "other").refused(only));
                return refuse(line.get_mut(), &only);
            }
        };
        if let Reply::Refused { why } = &reply {
            daemon.decided(PendingDecision::of_stranger(root, "revoke").refused(why));
        }
        say(line.get_mut(), reply)?;
    }
    Ok(())
}

/// Serves a peer without a credential: it delivers one list, and nothing else.
pub(super) fn receive(line: impl PeerStream, key: &PublicKey, office: &RequestServer) -> io::Result<()> {
    let daemon = &office.daemon;
    let mut line = BufReader::with_capacity(4096, line);
    let begun = Instant::now();
    line.get_mut().be_patient_until(begun + HEADER_TIME);
    // An offer, and the list; or the list at once.
    for is_last in [false, true] {
        let reply = match list_of(&mut line, daemon, begun)? {
            Delivered::Other => {
                let only = "a peer without a credential delivers a revocation list here, and nothing else, but for the node's operators: name the credential's file with --credential FILE";
                daemon.decided(PendingDecision::of_stranger(key, "other").refused(only));
                return refuse(line.get_mut(), &only);
            }
            Delivered::Answer(reply) => reply,
            Delivered::List(text) => revoke(daemon, None, &text),
        };
        if let Reply::Refused { why } = &reply {
            daemon.decided(PendingDecision::of_stranger(key, "revoke").refused(why));
        }
        let is_wanted = matches!(reply, Reply::Uploaded { .. });
        say(line.get_mut(), reply)?;
        if !is_wanted || is_last {
            return Ok(());
        }
    }
    Ok(())
}

/// A request of a peer without a credential.
enum Delivered {
    /// Something else than a list.
    Other,
    /// A list that is answered by its header.
    Answer(Reply),
    /// A whole list that the node wants.
    List(String),
}

/// Reads a request of a peer without a credential: of a list no more than the header, unless the node wants the rest.
fn list_of(line: &mut BufReader<impl PeerStream>, daemon: &Daemon, begun: Instant) -> io::Result<Delivered> {
    let mut asked = Vec::new();
    line.take(LINE_BYTES_MAX).read_until(b'\n', &mut asked)?;
    let len = match serde_json::from_slice::<Ask>(&asked) {
        Ok(Ask { weir: VERSION, ask: ControlRequest::Revoke, body, .. }) => body as usize,
        _ => return Ok(Delivered::Other),
    };
    let refused = |counter: &'static str, why: String| {
        daemon.list_refused(counter);
        Ok(Delivered::Answer(Reply::Refused { why }))
    };
    if len > LIST_BYTES_MAX {
        return refused("malformed", format!("a revocation list has at most {LIST_BYTES_MAX} bytes"));
    }
    let mut list = vec![0; len.min(HEADER_BYTES_MAX)];
    line.read_exact(&mut list)?;
    let Ok(begin) = std::str::from_utf8(&list) else {
        return refused("malformed", "this is no revocation list: it is not even a text".to_owned());
    };
    let (header, rest) = match ListHeader::read(begin) {
        Ok(read) => read,
        Err(why) => {
            let old = "; one of the format before is delivered by a peer with a credential, an operator's key or the root's";
            return refused(why.counter(), format!("{why}{old}"));
        }
    };
    if let Some(under) = header.issuer().under() {
        let (signer, under) = (*header.issuer().signer(), *under);
        let why = RevocationError::NotShown { signer, under };
        return refused(why.counter(), why.to_string());
    }
    let reply = offered(daemon, None, &header, list.len());
    let is_offer = rest.is_empty() && len == list.len() && header.body_len() > 0;
    if is_offer || !matches!(reply, Reply::Uploaded { .. }) {
        return Ok(Delivered::Answer(reply));
    }
    // A root has signed for the rest.
    line.get_mut().be_patient_until(begun + TIME);
    line.take((len - list.len()) as u64).read_to_end(&mut list)?;
    match String::from_utf8(list) {
        Ok(text) => Ok(Delivered::List(text)),
        Err(_) => refused("malformed", "this is no revocation list: it is not even a text".to_owned()),
    }
}
