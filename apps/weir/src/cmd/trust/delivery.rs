//! `weir credential deliver`: revocation lists to nodes, again and again until each has accepted.

use super::SigningError;
use crate::Failure;
use crate::cmd::node::place::Address;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_node::client::{Client, ClientError, Whereabouts, kind};
use weir_node::control::protocol::{ControlRequest, Reply};
use weir_trust::key::Identity;
use weir_trust::revocation::RevocationList;

/// The time for which a node is tried.
const TIME: Duration = Duration::from_secs(60);
/// The first pause between two attempts; each one after it is twice as long, up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Nodes that are spoken with at a time.
const AT_ONCE: usize = 16;

/// The party that delivers: a root, an operator or a holder, by their key and credential, or a new key without any right.
pub(super) struct Deliverer {
    pub(super) identity: Identity,
    pub(super) credential: Vec<u8>,
}

/// An attempt that failed.
struct Failed {
    why: String,
    /// Another attempt may succeed.
    may_pass: bool,
}

/// Delivers a list to all of these nodes, several at a time, and says what each made of it.
pub(super) fn deliver(
    out: &mut impl Write,
    list: &RevocationList,
    nodes: &[Address],
    by: &Deliverer,
) -> Result<(), Failure> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..nodes.len().min(AT_ONCE) {
            scope.spawn(|| {
                while let Some(node) = nodes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let told = deliver_to(list, node, by);
                    results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((node, told));
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut missing = Vec::new();
    for (node, told) in results {
        match told {
            Ok(notes) => notes.iter().try_for_each(|note| writeln!(out, "{node}: {note}"))?,
            Err(why) => missing.push(format!("{node}: {why}")),
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    missing.sort();
    Err(SigningError::Undelivered { missing, of: nodes.len() }.into())
}

/// Tries until the node has accepted the list or refuses it for good, or the time is over.
fn deliver_to(list: &RevocationList, node: &Address, by: &Deliverer) -> Result<Vec<String>, String> {
    let (begun, mut pause) = (Instant::now(), PAUSE);
    for attempt in 1_u32.. {
        let failed = match attempt_at(list, node, by) {
            Ok(notes) => return Ok(notes),
            Err(failed) => failed,
        };
        if !failed.may_pass {
            return Err(failed.why);
        }
        if begun.elapsed() + pause > TIME {
            return Err(format!("{} (the last of {attempt} attempts)", failed.why));
        }
        let seconds = pause.as_secs_f64();
        let _ = writeln!(
            std::io::stderr(),
            "weir: {node}: attempt {attempt}: {}; the next one in {seconds:.1} s",
            failed.why
        );
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
    Err("no attempt was made".to_owned())
}

fn attempt_at(list: &RevocationList, node: &Address, by: &Deliverer) -> Result<Vec<String>, Failed> {
    let there = node.whereabouts(by.identity.clone(), by.credential.clone());
    let there = there.map_err(|error| Failed { why: error.to_string(), may_pass: true })?;
    delivered(list, &there).map_err(|error| Failed { may_pass: error.may_pass(), why: error.to_string() })
}

/// Offers a list by its header, and sends the whole list where the node wants it.
pub(super) fn delivered(list: &RevocationList, there: &Whereabouts) -> Result<Vec<String>, ClientError> {
    let mut client = Client::to(there)?;
    // A list of the format before has no header.
    if let Some(header) = list.header().filter(|header| header.len() < list.to_string().len()) {
        client.send(ControlRequest::Revoke, header.as_bytes())?;
        match client.receive()? {
            Reply::Uploaded { .. } => {}
            Reply::Done { notes } => return Ok(notes),
            other => return Err(ClientError::Other(kind(&other))),
        }
    }
    client.order(ControlRequest::Revoke, list.to_string().as_bytes())
}
