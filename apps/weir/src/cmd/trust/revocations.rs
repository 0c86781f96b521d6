//! `weir credential revocations`: shows the revocations that a node holds.

use super::explanation::plain;
use crate::Failure;
use crate::cmd::node::args::NodeAddressArgs;
use std::io::{self, Write};
use weir_node::client::{Client, ClientError, reply_kind};
use weir_node::control::protocol::{ControlRequest, Reply, RevocationsStatus};

/// Shows the revocations that a node holds: for the root of the caller's key or credential, or for all roots if the
/// caller is an operator.
pub(super) fn revocations(
    out: &mut impl Write,
    address: &NodeAddressArgs,
    json: bool,
) -> Result<(), Failure> {
    let node = address.resolve().map_err(Failure::NodeCommand)?;
    let mut client = Client::connect_to(&node)?;
    client.send(ControlRequest::Revocations, &[])?;
    let revocations = match client.receive()? {
        Reply::Revocations(revocations) => revocations,
        other => return Err(ClientError::UnexpectedReply(reply_kind(&other)).into()),
    };
    if json {
        crate::json::document(out, &revocations)?;
        return Ok(());
    }
    if revocations.is_empty() {
        writeln!(out, "the node holds no revocations")?;
    }
    revocations.iter().try_for_each(|root| show(out, root))?;
    Ok(())
}

/// Prints the revocations of one root: those that the root signed, then those that holders signed.
fn show(out: &mut impl Write, revocations: &RevocationsStatus) -> io::Result<()> {
    let RevocationsStatus { root, sequence, all_before, entries, delegated } = revocations;
    let count = entries.len() + delegated.iter().map(|list| list.entries.len()).sum::<usize>();
    writeln!(out, "{}: {count} revoked; the last list is number {sequence}", plain(root))?;
    print_entries(out, "  ", all_before.as_deref(), entries)?;
    for holder in delegated {
        writeln!(out, "  by {}, among the delegations of {}:", plain(&holder.holder), plain(&holder.under))?;
        print_entries(out, "    ", holder.all_before.as_deref(), &holder.entries)?;
    }
    Ok(())
}

fn print_entries(
    out: &mut impl Write,
    indent: &str,
    all_before: Option<&str>,
    entries: &[String],
) -> io::Result<()> {
    if let Some(time) = all_before {
        writeln!(out, "{indent}everything before {}", plain(time))?;
    }
    entries.iter().try_for_each(|entry| writeln!(out, "{indent}{}", plain(entry)))
}
