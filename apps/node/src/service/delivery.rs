//! Revocation lists that somebody delivers, whoever that is: what counts is the signature of the root whose list it is.
//!
//! Who shows no credential can deliver a list, and nothing else. What that may cost the node is bounded: the gate of handshakes says how often, there are few places for
//! such visitors beside those of others, each says one thing within a fixed time, and of a text that is not a trusted root's newer list only three lines are looked at.

use super::conversation::{Line, Office, refuse, say};
use crate::audit::Asked;
use crate::daemon::Daemon;
use crate::protocol::{Ask, Reply, Request, VERSION};
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_trust::key::PublicKey;
use weir_trust::revocation::LIST_BYTES_MAX;

/// Visitors without a credential at a time, at most,
pub(super) const VISITORS_MAX: usize = 4;
/// and of those with one key.
pub(super) const VISITORS_OF_ONE_MAX: usize = 1;
/// How long one of them can take to say what it has to say.
const TIME: Duration = Duration::from_secs(15);
/// The longest line before a list.
const LINE_BYTES_MAX: u64 = 256;

/// Takes a list, and says what it changed.
pub(super) fn take(daemon: &Arc<Daemon>, bytes: &[u8]) -> Reply {
    let taken = match std::str::from_utf8(bytes) {
        Ok(text) => daemon.revoke(text).map_err(|error| error.to_string()),
        Err(_) => Err("this is no revocation list: it is not even a text".to_owned()),
    };
    match taken {
        Ok(note) => {
            daemon.close_expired();
            Reply::Done { notes: vec![note] }
        }
        Err(why) => Reply::Refused { why },
    }
}

/// Hears out a visitor without a credential.
pub(super) fn receive(line: impl Line, key: &PublicKey, office: &Office) -> io::Result<()> {
    let mut line = BufReader::new(line);
    line.get_mut().be_patient_until(Instant::now() + TIME);
    let mut asked = Vec::new();
    (&mut line).take(LINE_BYTES_MAX).read_until(b'\n', &mut asked)?;
    let only = "who shows no credential can deliver a revocation list here, and nothing else, but for the node's operators: name the credential's file with --credential FILE";
    let len = match serde_json::from_slice::<Ask>(&asked) {
        Ok(Ask { weir: VERSION, ask: Request::Revoke, body, .. }) => body as usize,
        _ => {
            office.daemon.decided(Asked::of_stranger(key, "other").refused(only));
            return refuse(line.get_mut(), &only);
        }
    };
    if len > LIST_BYTES_MAX {
        return refuse(line.get_mut(), &format!("a revocation list has at most {LIST_BYTES_MAX} bytes"));
    }
    let mut list = Vec::new();
    line.by_ref().take(len as u64).read_to_end(&mut list)?;
    let reply = take(&office.daemon, &list);
    if let Reply::Refused { why } = &reply {
        office.daemon.decided(Asked::of_stranger(key, "revoke").refused(why));
    }
    say(line.get_mut(), reply)
}
