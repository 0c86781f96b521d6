//! `weir credential revocations`.

use super::explained::plain;
use crate::Failure;
use crate::cmd::node::args::NodeAddressArgs;
use std::io::{self, Write};
use weir_node::client::{Client, ClientError, kind};
use weir_node::control::protocol::{ControlRequest, Reply, RevocationsStatus};

/// Shows all that a node holds as revoked, for the caller's root.
pub(super) fn revocations(out: &mut impl Write, place: &NodeAddressArgs, json: bool) -> Result<(), Failure> {
    let there = place.whereabouts().map_err(Failure::Control)?;
    let mut client = Client::to(&there)?;
    client.send(ControlRequest::Revocations, &[])?;
    let held = match client.receive()? {
        Reply::Revocations(held) => held,
        other => return Err(ClientError::Other(kind(&other)).into()),
    };
    if json {
        crate::json::document(out, &held)?;
        return Ok(());
    }
    if held.is_empty() {
        writeln!(out, "nothing is revoked there")?;
    }
    held.iter().try_for_each(|root| show(out, root))?;
    Ok(())
}

fn show(out: &mut impl Write, held: &RevocationsStatus) -> io::Result<()> {
    let RevocationsStatus { root, sequence, all_before, entries, delegated } = held;
    let count = entries.len() + delegated.iter().map(|it| it.entries.len()).sum::<usize>();
    writeln!(out, "{}: {count} revoked; the last list is number {sequence}", plain(root))?;
    listed(out, "  ", all_before.as_deref(), entries)?;
    for holder in delegated {
        writeln!(
            out,
            "  by {}, of what was passed on from {}:",
            plain(&holder.holder),
            plain(&holder.under)
        )?;
        listed(out, "    ", holder.all_before.as_deref(), &holder.entries)?;
    }
    Ok(())
}

fn listed(
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
