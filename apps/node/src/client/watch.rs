//! A node's state, once in each interval, over connections that are made again when they fail.

use crate::client::{Client, ClientError, NodeLocation, reply_kind};
use crate::control::protocol::{ControlRequest, Reply, Snapshot};
use std::ops::ControlFlow;
use std::time::Duration;
use weir_units::Nanos;

/// The delay before the client connects to a node again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The delays before the client asks a node again that has refused it, such as for an expired credential. Each refusal is
/// an entry of the node's ledger.
const REFUSED_DELAYS: u32 = 30;

/// Passes each snapshot to `handle`, and each error of the connection, until `handle` ends it. After an error the client
/// connects again. `handle` gets an error once in each second until then.
pub fn watch(
    node: &NodeLocation,
    every: Nanos,
    mut handle: impl FnMut(Result<Box<Snapshot>, &ClientError>) -> ControlFlow<()>,
) {
    loop {
        let Err(error) = watch_connection(node, every, &mut handle) else { return };
        let is_refused = matches!(error, ClientError::Refused(_)) && !error.is_transient();
        for _ in 0..if is_refused { REFUSED_DELAYS } else { 1 } {
            if handle(Err(&error)).is_break() {
                return;
            }
            std::thread::sleep(RETRY_DELAY);
        }
    }
}

/// Receives snapshots over one connection until `handle` ends it.
fn watch_connection(
    node: &NodeLocation,
    every: Nanos,
    handle: &mut impl FnMut(Result<Box<Snapshot>, &ClientError>) -> ControlFlow<()>,
) -> Result<(), ClientError> {
    let mut client = Client::connect_to(node)?;
    client.send(ControlRequest::Watch { every }, &[])?;
    loop {
        match client.receive()? {
            Reply::Snapshot(snapshot) => {
                if handle(Ok(snapshot)).is_break() {
                    return Ok(());
                }
            }
            other => return Err(ClientError::UnexpectedReply(reply_kind(&other))),
        }
    }
}
