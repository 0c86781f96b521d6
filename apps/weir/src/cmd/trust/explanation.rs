//! `weir credential explain`.

use super::args::CredentialCommand;
use super::{SigningError, credential_of, identity_of};
use crate::Failure;
use crate::cmd::node::NodeCommandError;
use crate::cmd::node::place::{Named, named};
use crate::cmd::policy::{now, of_config, shipped_bytes};
use std::io::{self, Write};
use weir_node::client::{Client, ClientError, SOCKET, Whereabouts, kind};
use weir_node::control::policy::{Ground, World};
use weir_node::control::protocol::{ControlRequest, Explain, Explanation, Reply};
use weir_trust::grant::Second;

/// Says what a credential allows, and what would come of a request.
pub fn explain(out: &mut impl Write, act: &CredentialCommand) -> Result<(), Failure> {
    let CredentialCommand::Explain { file, config, node, key, passphrase_file, socket, json, request } = act
    else {
        return Ok(());
    };
    let credential = credential_of(file)?;
    let (ask, body) = if request.is_empty() {
        (None, Vec::new())
    } else {
        let (ask, body) = crate::cmd::node::request(request)?;
        (Some(ask), body)
    };
    let explained = if let Some(config) = config {
        let read = of_config(config)?;
        let ground = Ground { node: &read.node, config: read.config.as_ref(), shipped: shipped_bytes };
        let ask = ask.map(|ask| (ask, body.as_slice()));
        let world = World::new(&read.policy, ground);
        let mut world = match &read.config {
            Some(config) => world.remembering(&config.node.state)?,
            None => world,
        };
        world.explain(&credential, now(), ask)
    } else {
        let (there, named) = match named(node.as_ref(), socket.as_deref()).map_err(Failure::Control)? {
            Some(Named::There(node)) => {
                let key = key.as_deref().ok_or(NodeCommandError::NoKey).map_err(Failure::Control)?;
                let identity = identity_of(key, passphrase_file.as_deref())?;
                // Its holder asks by it; one of the node's operators, about it.
                let is_his = identity.public() == *credential.claimed_holder();
                let (shown, named) = if is_his {
                    (credential.as_bytes().to_vec(), None)
                } else {
                    (Vec::new(), Some(credential.to_string()))
                };
                (node.whereabouts(identity, shown).map_err(Failure::Control)?, named)
            }
            Some(Named::Here(socket)) => (Whereabouts::Here(socket), Some(credential.to_string())),
            None => (Whereabouts::Here(SOCKET.into()), Some(credential.to_string())),
        };
        let mut client = Client::to(&there)?;
        client.send(ControlRequest::Explain(Box::new(Explain { credential: named, ask })), &body)?;
        match client.receive()? {
            Reply::Explained(explained) => *explained,
            other => return Err(ClientError::Other(kind(&other)).into()),
        }
    };
    if *json {
        crate::json::document(out, &explained)?;
    } else {
        show(out, &explained, config.is_none())?;
    }
    let refused = explained.verdict.as_ref().and_then(|verdict| verdict.refused.as_ref());
    match (&explained.worthless, refused) {
        (Some(why), _) => Err(SigningError::Worthless(plain(why)).into()),
        (None, Some(why)) => Err(SigningError::WouldRefuse(plain(why)).into()),
        (None, None) => Ok(()),
    }
}

fn show(out: &mut impl Write, explained: &Explanation, is_live: bool) -> io::Result<()> {
    let Explanation { node, at, holder, root, chain, allows, used, shared, verdict, worthless } = explained;
    let at = Second::new(*at).unwrap_or(Second::MAX);
    writeln!(out, "{}, from {}", plain(holder), plain(root))?;
    for (block, id) in chain.iter().enumerate() {
        writeln!(out, "    {:<20} {}", format!("block {block}:"), plain(id))?;
    }
    if worthless.is_some() {
        return Ok(());
    }
    writeln!(out, "At node {}, {at}, it allows:", plain(node))?;
    for (part, words) in allows {
        writeln!(out, "    {:<20} {}", format!("{}:", plain(part)), plain(words))?;
    }
    if is_live && !used.is_empty() {
        writeln!(out, "Of what is given, is used:")?;
        for shot in used {
            let (part, whose) = (plain(&shot.part), plain(&shot.whose));
            writeln!(
                out,
                "    {:<20} {} of {}, given to {whose}",
                format!("{part}:"),
                plain(&shot.used),
                plain(&shot.given)
            )?;
        }
    }
    if is_live && !shared.is_empty() {
        writeln!(out, "Rights over sessions that are shared:")?;
        for shot in shared {
            writeln!(out, "    {}: {}", plain(&shot.session), plain(&shot.share))?;
        }
    }
    if verdict.as_ref().is_some_and(|verdict| verdict.refused.is_none()) {
        writeln!(out, "The request would be allowed.")?;
    }
    Ok(())
}

/// A node's text for a terminal, without control characters: it can hold strangers' text.
pub(super) fn plain(text: &str) -> String {
    text.chars().filter(|c| weir_units::is_plain(*c)).collect()
}
