//! Delivery of a revocation list to a node.

use super::{Client, ClientError, NodeLocation, reply_kind};
use crate::control::protocol::{ControlRequest, Reply};
use weir_trust::revocation::RevocationList;

/// Offers a list by its header, sends the whole list if the node requests it, and returns the notes in the node's
/// reply.
///
/// # Errors
/// The node refuses the list, or the connection fails.
pub fn deliver_list(list: &RevocationList, node: &NodeLocation) -> Result<Vec<String>, ClientError> {
    let mut client = Client::connect_to(node)?;
    // A list in the previous format has no header and is sent whole.
    if let Some(header) = list.header().filter(|header| header.len() < list.to_string().len()) {
        client.send(ControlRequest::Revoke, header.as_bytes())?;
        match client.receive()? {
            Reply::Uploaded { .. } => {}
            Reply::Done { notes } => return Ok(notes),
            other => return Err(ClientError::UnexpectedReply(reply_kind(&other))),
        }
    }
    client.execute(ControlRequest::Revoke, list.to_string().as_bytes())
}
