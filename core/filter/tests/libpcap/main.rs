//! A filter selects the same packets as in libpcap, for every link type, and is refused where libpcap refuses it.

#![forbid(unsafe_code)]

mod expressions;
mod packets;
mod programs;
mod speed;

use pcap::{BpfProgram, Capture, Linktype};
use weir_demux::{FilterProgram, Packet};
use weir_filter::{FilterError, FilterFault, FixedNames, compile};
use weir_wire::LinkType;

/// The bytes that both accept of a packet.
const SNAP: u32 = 65_535;

fn ours(text: &str, link_type: LinkType) -> Result<FilterProgram, FilterError> {
    compile(text, link_type, SNAP, &FixedNames)
}

fn theirs(text: &str, link_type: LinkType, is_optimised: bool) -> Result<BpfProgram, pcap::Error> {
    // libpcap's own numbers (DLT_...) equal those of link types, except for raw IP.
    let number = if link_type == LinkType::Raw { 12 } else { i32::from(link_type.number()) };
    Capture::dead(Linktype(number)).and_then(|dead| dead.compile(text, is_optimised))
}

fn accepts(program: &FilterProgram, packet: &[u8]) -> bool {
    let len = u32::try_from(packet.len()).unwrap();
    program.accepts(&Packet { head: packet, cap_len: len, wire_len: len }).unwrap()
}

/// The outcome of a comparison.
#[derive(Debug, Default)]
struct Outcome {
    /// Both accept the text.
    compiled: usize,
    /// Both refuse the text.
    refused: usize,
    /// Only one of them proves that the filter selects nothing.
    empty: usize,
    selected: usize,
    rejected: usize,
    /// libpcap's optimised program differs from its unoptimised one, which agrees with weir's.
    optimised_away: usize,
}

/// Compares both compilers on one text. An error describes the difference.
fn compare(
    text: &str,
    link_type: LinkType,
    packets: &[Vec<u8>],
    outcome: &mut Outcome,
) -> Result<(), String> {
    let (ours, theirs_optimised) = (ours(text, link_type), theirs(text, link_type, true));
    let (ours, optimised) = match (ours, theirs_optimised) {
        (Ok(ours), Ok(theirs)) => (ours, theirs),
        (Err(_), Err(_)) => {
            outcome.refused += 1;
            return Ok(());
        }
        // Optimisation finds the filters that select nothing, and the two optimisers differ.
        (Ok(ours), Err(error)) if error.to_string().contains("rejects all packets") => {
            outcome.empty += 1;
            return match packets.iter().find(|packet| accepts(&ours, packet)) {
                None => Ok(()),
                Some(packet) => {
                    Err(format!("{link_type:?}: `{text}`: {error}, but weir accepts {packet:02x?}"))
                }
            };
        }
        (Err(FilterError { fault: FilterFault::SelectsNothing, .. }), Ok(theirs)) => {
            outcome.empty += 1;
            return match packets.iter().find(|packet| theirs.filter(packet)) {
                None => Ok(()),
                Some(packet) => Err(format!("{link_type:?}: `{text}`: libpcap accepts {packet:02x?}")),
            };
        }
        (Ok(_), Err(error)) => {
            return Err(format!("{link_type:?}: `{text}`: only libpcap refuses it: {error}"));
        }
        (Err(error), Ok(_)) => return Err(format!("{link_type:?}: `{text}`: only weir refuses it: {error}")),
    };
    outcome.compiled += 1;
    let mut plain = None;
    for packet in packets {
        let (here, there) = (accepts(&ours, packet), optimised.filter(packet));
        if here != there {
            let plain = plain.get_or_insert_with(|| theirs(text, link_type, false).unwrap());
            if plain.filter(packet) != here {
                let listing: Vec<String> =
                    ours.instructions().iter().enumerate().map(|(i, ins)| format!("{i}: {ins:x?}")).collect();
                return Err(format!(
                    "{link_type:?}: `{text}`: weir says {here}, libpcap {there}: {packet:02x?}\n{}",
                    listing.join("\n")
                ));
            }
            outcome.optimised_away += 1;
        }
        *(if here { &mut outcome.selected } else { &mut outcome.rejected }) += 1;
    }
    Ok(())
}
