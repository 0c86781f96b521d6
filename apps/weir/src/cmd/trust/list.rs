//! `weir credential list`: shows the credentials under which a node's sessions run.

use super::explanation::plain;
use crate::Failure;
use crate::cmd::node::args::NodeAddressArgs;
use std::io::{self, Write};
use weir_node::client::{Client, ClientError, reply_kind};
use weir_node::control::protocol::{
    CeilingStatus, ControlRequest, CredentialTree, DelegationStatus, Reply, RootStatus,
};
use weir_trust::credential::BLOCKS_MAX;

/// Lists the credentials that the caller may see.
pub(super) fn list(out: &mut impl Write, address: &NodeAddressArgs, json: bool) -> Result<(), Failure> {
    let node = address.resolve().map_err(Failure::NodeCommand)?;
    let mut client = Client::connect_to(&node)?;
    client.send(ControlRequest::Credentials, &[])?;
    let tree = match client.receive()? {
        Reply::Credentials(tree) => tree,
        other => return Err(ClientError::UnexpectedReply(reply_kind(&other)).into()),
    };
    if json {
        crate::json::document(out, &tree)?;
        return Ok(());
    }
    show(out, &tree)?;
    Ok(())
}

/// Prints the tree: a line for each delegation, and below it, indented, its ceilings and the delegations of its holder.
fn show(out: &mut impl Write, tree: &CredentialTree) -> io::Result<()> {
    let CredentialTree { node: _, roots, left_out } = tree;
    if roots.is_empty() {
        writeln!(out, "the node trusts no roots")?;
    }
    for RootStatus { root, policy_ceilings, grants } in roots {
        let note = if grants.is_empty() { ": none of its credentials is in use" } else { "" };
        writeln!(out, "{}{note}", plain(root))?;
        print_ceilings(out, 1, policy_ceilings, ", by this node's policy")?;
        grants.iter().try_for_each(|grant| print_delegation(out, 1, grant))?;
    }
    if *left_out > 0 {
        writeln!(out, "the credentials of {left_out} further sessions are not listed")?;
    }
    Ok(())
}

/// Prints a delegation and those below it. A node that nests them deeper than a chain can be gets no further lines.
fn print_delegation(out: &mut impl Write, depth: usize, delegation: &DelegationStatus) -> io::Result<()> {
    let DelegationStatus {
        id,
        holder,
        expires_s: _,
        revoked,
        allows: _,
        options: _,
        used,
        sessions,
        delegates,
    } = delegation;
    // The identifier contains the time at which the credential expires.
    write!(out, "{:1$}{2} {3}", "", 4 * depth, plain(holder), plain(id))?;
    if *revoked {
        write!(out, ", revoked")?;
    }
    if !sessions.is_empty() {
        let names: Vec<String> = sessions.iter().map(|name| plain(name)).collect();
        write!(out, ", {} {}", if names.len() == 1 { "session" } else { "sessions" }, names.join(", "))?;
    }
    writeln!(out)?;
    print_ceilings(out, depth + 1, used, "")?;
    if depth >= BLOCKS_MAX {
        return Ok(());
    }
    delegates.iter().try_for_each(|delegate| print_delegation(out, depth + 1, delegate))
}

fn print_ceilings(
    out: &mut impl Write,
    depth: usize,
    ceilings: &[CeilingStatus],
    by: &str,
) -> io::Result<()> {
    ceilings.iter().try_for_each(|status| {
        let (resource, used) = (plain(&status.resource), plain(&status.used_text));
        writeln!(out, "{:1$}{resource}: {used} of {2}{by}", "", 4 * depth, plain(&status.granted_text))
    })
}
