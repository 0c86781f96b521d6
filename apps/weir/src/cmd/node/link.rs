//! `weir link`: lists and shows links, and changes their rates.

use super::args::{LinkArgs, LinkCommand};
use super::show::{output_heading, output_row, print_columns};
use super::{NodeCommandError, execute, fetch_snapshot};
use crate::Failure;
use std::io::{self, Write};
use weir_node::client::NodeLocation;
use weir_node::control::protocol::{ControlRequest, LinkRateChange, LinkStatus, OutputStatus, Snapshot};
use weir_units::{BitsPerSecond, Bytes, escaped};

/// Carries out a link command.
pub fn link(out: &mut impl Write, args: &LinkArgs) -> Result<(), Failure> {
    let node = &args.address.resolve()?;
    match &args.action {
        LinkCommand::List => Ok(list(out, &*fetch_snapshot(node)?)?),
        LinkCommand::Show { link, json } => show_link(out, node, link, *json),
        LinkCommand::Change { link, rate, reservable } => {
            let change = LinkRateChange { link: link.clone(), rate: *rate, reservable: *reservable };
            execute(out, node, ControlRequest::Rate(change), &[])
        }
    }
}

/// Prints a line for each link.
fn list(out: &mut impl Write, snapshot: &Snapshot) -> io::Result<()> {
    let heading = ["LINK", "STATE", "RATE", "RESERVED", "RESERVABLE", "OUTPUTS", "PACKETS", "BYTES", "LOST"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(snapshot.links.iter().map(|link| {
        vec![
            escaped(&link.name),
            escaped(&link.state),
            BitsPerSecond(link.rate_bits).to_string(),
            BitsPerSecond(link.reserved_bits).to_string(),
            BitsPerSecond(link.reservable_bits).to_string(),
            outputs(snapshot, link).count().to_string(),
            link.packets.to_string(),
            Bytes(link.bytes).to_string(),
            link.lost.to_string(),
        ]
    }));
    // Link and state are aligned left, the numbers right.
    print_columns(out, &rows, &[0, 1])
}

/// Returns the output channels of a link, with their sessions.
fn outputs<'a>(
    snapshot: &'a Snapshot,
    link: &'a LinkStatus,
) -> impl Iterator<Item = (&'a str, &'a OutputStatus)> {
    let outputs_of = |session: &'a weir_node::control::protocol::SessionStatus| {
        session.outputs.iter().map(move |output| (session.name.as_str(), output))
    };
    snapshot.sessions.iter().flat_map(outputs_of).filter(|(_, output)| output.link == link.name)
}

/// Fetches the node's state, and prints one link: as text, or as a JSON document.
fn show_link(out: &mut impl Write, node: &NodeLocation, name: &str, json: bool) -> Result<(), Failure> {
    let snapshot = fetch_snapshot(node)?;
    let Some(link) = snapshot.links.iter().find(|link| link.name == name) else {
        let existing: Vec<&str> = snapshot.links.iter().map(|link| link.name.as_str()).collect();
        let (name, existing) = (escaped(name), escaped(&existing.join(", ")));
        return Err(Failure::NodeCommand(NodeCommandError::NoLink { name, existing }));
    };
    if json {
        crate::json::document(out, link)?;
    } else {
        print_details(out, &snapshot, link)?;
    }
    Ok(())
}

/// Prints all details of one link.
fn print_details(out: &mut impl Write, snapshot: &Snapshot, link: &LinkStatus) -> io::Result<()> {
    let bits = |bits| BitsPerSecond(bits).to_string();
    writeln!(
        out,
        "{}: {}, {}, of which {} are reserved and {} can be; {} packets sent, {} lost",
        escaped(&link.name),
        escaped(&link.state),
        bits(link.rate_bits),
        bits(link.reserved_bits),
        bits(link.reservable_bits),
        link.packets,
        link.lost
    )?;
    let mut rows = vec![output_heading(["SESSION", "OUTPUT"])];
    rows.extend(outputs(snapshot, link).map(|(session, output)| output_row([session, &output.name], output)));
    if rows.len() > 1 {
        writeln!(out)?;
        // Session, output and the list of drops are aligned left, the numbers right.
        print_columns(out, &rows, &[0, 1, 8])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_node::control::protocol::SessionStatus;

    fn snapshot() -> Snapshot {
        let output = |name: &str, link: &str, reserved_bits| OutputStatus {
            name: name.to_owned(),
            link: link.to_owned(),
            reserved_bits,
            weight: 100,
            packets: 9000,
            bytes: 9_000_000,
            queue: 512,
            drops: [("too-long".to_owned(), 3)].into(),
            ..OutputStatus::default()
        };
        let session = |name: &str, outputs| SessionStatus {
            name: name.to_owned(),
            outputs,
            ..SessionStatus::default()
        };
        let link = |name: &str| LinkStatus {
            name: name.to_owned(),
            state: "up".to_owned(),
            rate_bits: 100_000_000,
            reserved_bits: 40_000_000,
            reservable_bits: 90_000_000,
            packets: 18_000,
            bytes: 18_000_000,
            lost: 2,
        };
        Snapshot {
            links: vec![link("eth1"), link("eth\u{1b}[2J")],
            sessions: vec![
                session("alice", vec![output("up", "eth1", 40_000_000)]),
                session("bob", vec![output("aside", "eth2", 0), output("main", "eth1", 0)]),
            ],
            ..Snapshot::default()
        }
    }

    #[test]
    fn links_are_listed_with_control_characters_escaped() {
        let mut out = Vec::new();
        list(&mut out, &snapshot()).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.chars().all(|c| c == '\n' || weir_units::is_plain(c)), "{text:?}");
        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words[..4], ["eth1", "up", "100", "Mbit/s"]);
        assert_eq!(words[8..10], ["2", "18000"], "{text}");
    }

    #[test]
    fn a_link_is_shown_with_its_output_channels() {
        let (mut out, snapshot) = (Vec::new(), snapshot());
        print_details(&mut out, &snapshot, &snapshot.links[0]).unwrap();
        let text = String::from_utf8(out).unwrap();
        let first = "eth1: up, 100 Mbit/s, of which 40 Mbit/s are reserved and 90 Mbit/s can be; 18000 packets sent, 2 lost";
        assert_eq!(text.lines().next().unwrap(), first);
        assert!(text.contains("alice") && text.contains("main") && !text.contains("aside"), "{text}");
        assert!(text.contains("3 too-long"), "{text}");
    }
}
