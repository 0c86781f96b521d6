//! Compiler for packet filters in the language of pcap-filter(7).
//!
//! [`compile`] translates a filter's text to a [`FilterProgram`] for the classic BPF machine, for packets of one link
//! type. It reads no file and asks no name server. Its work and memory are bounded, so untrusted texts can be compiled.
//!
//! ```
//! use weir_demux::Packet;
//! use weir_filter::{FixedNames, compile};
//! use weir_wire::LinkType;
//! let program = compile("len >= 60 and not port 22", LinkType::Ethernet, 65_535, &FixedNames)?;
//! let frame = [0; 60];
//! assert_eq!(program.accepts(&Packet { head: &frame, cap_len: 60, wire_len: 60 }), Ok(true));
//! # Ok::<(), weir_filter::FilterError>(())
//! ```
//!
//! # Steps
//!
//! 1. The text is split into tokens, and parsed to conditions on values of the packet.
//! 2. The conditions are lowered to a graph of decisions.
//! 3. Decisions that follow from earlier decisions are removed, and consecutive tests of one value are merged.
//! 4. The graph is translated to instructions.
//!
//! # Differences from libpcap
//!
//! A filter selects the same packets as in libpcap 1.10, and is refused where libpcap refuses it, except for these
//! differences:
//!
//! - Host names are not looked up, and port names come from a fixed table, unless a [`Names`] provides more.
//! - `protochain` follows up to eight headers; libpcap has no limit. After an authentication header, weir continues at the
//!   end of that header, and libpcap at a wrong offset.
//! - In NULL and LOOP captures, all numbers that Linux, NetBSD, FreeBSD and macOS use for IPv6 count as IPv6. NULL captures
//!   may have either byte order.
//! - `inbound`, `outbound` and `ifindex` are refused if the link type has no field for them. libpcap compiles them for live
//!   captures, where the kernel knows the values.
//! - `byte N & M` and `byte N | M` test the byte; libpcap forgets to load the byte.
//! - A division by 0 and a shift by more than 31 bits are refused if the right operand is constant.
//! - Port numbers over 65,535 are refused in ranges too (`portrange 1-70000`).
//! - libpcap's optimiser removes some tests whose result does not matter. If such a test reads bytes that were not captured,
//!   the program rejects the packet in weir, as libpcap's program does without the optimiser.
//! - A filter is refused if the compiler can prove that it selects no packet. libpcap does the same, but for other filters
//!   than weir, because its proofs differ.
//! - libpcap wrongly refuses some divisions and shifts by computed constants (`x << (40 - 39)`), and runs out of
//!   registers earlier.
//! - libpcap ignores letters after the ports of a range (`portrange 80-90abc`); weir refuses them.
//! - Filters for 802.11, ATM, SS7 and pf captures are refused, because weir does not read such captures.

#![forbid(unsafe_code)]

mod arithmetic;
mod condition;
mod emit;
mod error;
mod graph;
mod layers;
mod layout;
mod names;
mod network;
mod optimise;
mod parse;
mod primitive;
mod qualified;
mod ranges;
mod token;
mod value;
mod word;

pub use error::{FilterError, FilterFault};
pub use names::{FixedNames, Names, PortName, Transport, named_ports, protocol_name};

use graph::{Graph, NodeId};
use layers::Layers;
use parse::Parser;
use weir_demux::FilterProgram;
use weir_wire::LinkType;

/// The longest text of a filter, in bytes.
pub const TEXT_BYTES_MAX: usize = 4096;
/// The most nested levels of parentheses, brackets and `not`.
pub const DEPTH_MAX: usize = 100;

/// Compiles a filter for packets of a link type. `snap` is the value that the program returns for an accepted packet:
/// the number of bytes to capture. 0 counts as 1.
///
/// # Errors
///
/// [`FilterError`] names the fault and its place in the text.
pub fn compile(
    text: &str,
    link_type: LinkType,
    snap: u32,
    names: &dyn Names,
) -> Result<FilterProgram, FilterError> {
    let whole = |fault| FilterError { at: 0, len: text.len(), fault };
    if text.len() > TEXT_BYTES_MAX {
        return Err(whole(FilterFault::TextTooLong(text.len())));
    }
    let mut parser = Parser::new(text, Layers::new(link_type), names)?;
    let condition = parser.parse()?;
    let code = parser.code;
    let mut graph = Graph::new(&code, condition).map_err(whole)?;
    optimise::optimise(&mut graph, &code.values).map_err(whole)?;
    if !graph.topological_order().contains(&NodeId::ACCEPT) {
        return Err(whole(FilterFault::SelectsNothing));
    }
    let instructions =
        emit::emit(&graph, &code.values, (code.never_reserved_words(), snap.max(1))).map_err(whole)?;
    FilterProgram::new(&instructions).map_err(|_| whole(FilterFault::TooManyInstructions(instructions.len())))
}
