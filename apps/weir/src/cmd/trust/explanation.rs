//! `weir credential explain`: shows the rights of a credential at a node, and whether the node would allow a request.

use super::args::CredentialCommand;
use super::{SigningError, read_credential, read_identity};
use crate::Failure;
use crate::cmd::node::NodeCommandError;
use crate::cmd::node::address::{NamedNode, named_node};
use crate::cmd::policy::{now, read_with_config, shipped_bytes};
use std::io::{self, Write};
use weir_node::client::{Client, ClientError, NodeLocation, SOCKET, reply_kind};
use weir_node::control::protocol::{ControlRequest, Explain, Explanation, Reply};
use weir_node::server::case_simulation::{CaseEnvironment, SimulatedNode};
use weir_trust::grant::UnixSecond;

/// Prints the rights of a credential at a node, and whether a request would be allowed.
pub fn explain(out: &mut impl Write, command: &CredentialCommand) -> Result<(), Failure> {
    let CredentialCommand::Explain { file, config, node, key, passphrase_file, socket, json, request } =
        command
    else {
        return Ok(());
    };
    let credential = read_credential(file)?;
    let (request, body) = if request.is_empty() {
        (None, Vec::new())
    } else {
        let (request, body) = crate::cmd::node::request(request)?;
        (Some(request), body)
    };
    let explanation = if let Some(config) = config {
        let loaded = read_with_config(config)?;
        let environment =
            CaseEnvironment { node: &loaded.node, config: loaded.config.as_ref(), shipped: shipped_bytes };
        let request = request.map(|request| (request, body.as_slice()));
        let simulated_node = SimulatedNode::new(&loaded.policy, environment);
        let mut simulated_node = match &loaded.config {
            Some(config) => simulated_node.with_revocations(&config.node.state)?,
            None => simulated_node,
        };
        simulated_node.explain(&credential, now(), request)
    } else {
        let (location, subject) =
            match named_node(node.as_ref(), socket.as_deref()).map_err(Failure::NodeCommand)? {
                Some(NamedNode::Remote(node)) => {
                    let key = key.as_deref().ok_or(NodeCommandError::NoKey).map_err(Failure::NodeCommand)?;
                    let identity = read_identity(key, passphrase_file.as_deref())?;
                    // The holder authenticates with the credential; an operator sends it as the subject of the query.
                    let is_holder = identity.public() == *credential.claimed_holder();
                    let (presented, subject) = if is_holder {
                        (credential.as_bytes().to_vec(), None)
                    } else {
                        (Vec::new(), Some(credential.to_string()))
                    };
                    (node.resolve(identity, presented).map_err(Failure::NodeCommand)?, subject)
                }
                Some(NamedNode::Local(socket)) => (NodeLocation::Local(socket), Some(credential.to_string())),
                None => (NodeLocation::Local(SOCKET.into()), Some(credential.to_string())),
            };
        let mut client = Client::connect_to(&location)?;
        client.send(ControlRequest::Explain(Box::new(Explain { credential: subject, request })), &body)?;
        match client.receive()? {
            Reply::Explained(explanation) => *explanation,
            other => return Err(ClientError::UnexpectedReply(reply_kind(&other)).into()),
        }
    };
    if *json {
        crate::json::document(out, &explanation)?;
    } else {
        show(out, &explanation, config.is_none())?;
    }
    let refused = explanation.verdict.as_ref().and_then(|verdict| verdict.refused.as_ref());
    match (&explanation.invalid, refused) {
        (Some(why), _) => Err(SigningError::Invalid(plain(why)).into()),
        (None, Some(why)) => Err(SigningError::WouldRefuse(plain(why)).into()),
        (None, None) => Ok(()),
    }
}

/// Prints the rights of a credential and the verdict on the request. Prints the usage and the shared sessions if
/// `is_live` is true: the explanation is then that of a running node.
fn show(out: &mut impl Write, explanation: &Explanation, is_live: bool) -> io::Result<()> {
    let Explanation { node, at, holder, root, chain, allows, used, shared, verdict, invalid } = explanation;
    let time = UnixSecond::new(*at).unwrap_or(UnixSecond::MAX);
    writeln!(out, "{}, from {}", plain(holder), plain(root))?;
    for (block, id) in chain.iter().enumerate() {
        writeln!(out, "    {:<20} {}", format!("block {block}:"), plain(id))?;
    }
    if invalid.is_some() {
        return Ok(());
    }
    writeln!(out, "At node {}, {time}, it allows:", plain(node))?;
    for (part, words) in allows {
        writeln!(out, "    {:<20} {}", format!("{}:", plain(part)), plain(words))?;
    }
    if is_live && !used.is_empty() {
        writeln!(out, "Current usage of the grants:")?;
        for status in used {
            let (part, grant_holder) = (plain(&status.resource), plain(&status.holder));
            writeln!(
                out,
                "    {:<20} {} of {}, given to {grant_holder}",
                format!("{part}:"),
                plain(&status.used),
                plain(&status.granted)
            )?;
        }
    }
    if is_live && !shared.is_empty() {
        writeln!(out, "Rights over sessions that are shared:")?;
        for status in shared {
            writeln!(out, "    {}: {}", plain(&status.session), plain(&status.share))?;
        }
    }
    if verdict.as_ref().is_some_and(|verdict| verdict.refused.is_none()) {
        writeln!(out, "The request would be allowed.")?;
    }
    Ok(())
}

/// Removes control characters from a text of a node. The text can contain parts that other users wrote.
pub(super) fn plain(text: &str) -> String {
    text.chars().filter(|c| weir_units::is_plain(*c)).collect()
}
