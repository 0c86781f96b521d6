//! Delivers revocation lists to nodes, with retries, for `weir credential deliver` and `weir credential revoke`.

use super::SigningError;
use crate::Failure;
use crate::cmd::node::address::NodeAddress;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_node::client::deliver_list;
use weir_trust::key::Identity;
use weir_trust::revocation::RevocationList;

/// The maximum time in which the delivery to a node is tried again.
const RETRY_TIME: Duration = Duration::from_secs(60);
/// The first pause between two attempts; each further pause is twice as long, up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(200);
/// The maximum pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Maximum number of concurrent deliveries.
const PARALLEL_MAX: usize = 16;

/// The identity and credential with which lists are delivered. The identity is that of a root, an operator or a holder,
/// or a new key without rights.
pub(super) struct Deliverer {
    pub(super) identity: Identity,
    pub(super) credential: Vec<u8>,
}

/// The error of one attempt to deliver a list.
struct FailedAttempt {
    why: String,
    /// True if a later attempt may succeed.
    is_transient: bool,
}

/// Delivers a list to several nodes concurrently, and prints the notes in their replies.
pub(super) fn deliver(
    out: &mut impl Write,
    list: &RevocationList,
    nodes: &[NodeAddress],
    deliverer: &Deliverer,
) -> Result<(), Failure> {
    let (next_index, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..nodes.len().min(PARALLEL_MAX) {
            scope.spawn(|| {
                while let Some(node) = nodes.get(next_index.fetch_add(1, Ordering::Relaxed)) {
                    let result = deliver_to(list, node, deliverer);
                    results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((node, result));
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut failures = Vec::new();
    for (node, result) in results {
        match result {
            Ok(notes) => notes.iter().try_for_each(|note| writeln!(out, "{node}: {note}"))?,
            Err(why) => failures.push(format!("{node}: {why}")),
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    failures.sort();
    Err(SigningError::Undelivered { failures, total: nodes.len() }.into())
}

/// Delivers a list to a node, and returns the notes in the node's reply. Tries again after an error that may pass, for
/// at most [`RETRY_TIME`].
fn deliver_to(
    list: &RevocationList,
    node: &NodeAddress,
    deliverer: &Deliverer,
) -> Result<Vec<String>, String> {
    let (begun, mut pause) = (Instant::now(), PAUSE);
    for attempt in 1_u32.. {
        let failed = match attempt_delivery(list, node, deliverer) {
            Ok(notes) => return Ok(notes),
            Err(failed) => failed,
        };
        if !failed.is_transient {
            return Err(failed.why);
        }
        if begun.elapsed() + pause > RETRY_TIME {
            return Err(format!("{} (the last of {attempt} attempts)", failed.why));
        }
        let seconds = pause.as_secs_f64();
        let _ = writeln!(
            std::io::stderr(),
            "weir: {node}: attempt {attempt}: {}; the next attempt in {seconds:.1} s",
            failed.why
        );
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
    Err("no attempt was made".to_owned())
}

/// Resolves the address of a node, and delivers a list to the node once.
fn attempt_delivery(
    list: &RevocationList,
    node: &NodeAddress,
    deliverer: &Deliverer,
) -> Result<Vec<String>, FailedAttempt> {
    let location = node.resolve(deliverer.identity.clone(), deliverer.credential.clone());
    let location = location.map_err(|error| FailedAttempt { why: error.to_string(), is_transient: true })?;
    deliver_list(list, &location)
        .map_err(|error| FailedAttempt { is_transient: error.is_transient(), why: error.to_string() })
}
