//! Compiler for packet filters in the language of pcap-filter(7).
//!
//! [`compile`] makes a [`FilterProgram`] of the classic BPF machine of a text, for packets of one link type. It reads no file, asks no name server, and its work
//! and memory are bounded: texts of strangers are compiled like any others.
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
//! 1. The text becomes tokens, and these become conditions on values of the packet.
//! 2. The conditions become a graph of decisions.
//! 3. Decisions that facts already decide are left out, and tests of one value are put together.
//! 4. The graph becomes instructions.
//!
//! # Differences from libpcap
//!
//! A filter selects what libpcap 1.10 selects with the same text, and is refused where libpcap refuses it, but for these differences.
//!
//! - Host names are not looked up, and names of ports are those of a fixed table, unless a [`Names`] says more.
//! - `protochain` follows eight headers, where libpcap goes on without end. Behind an authentication header it goes on where that ends; libpcap goes on
//!   at a wrong place.
//! - For NULL and LOOP captures, IPv6 is any of the numbers that Linux, NetBSD, FreeBSD and macOS have for it, and NULL captures may be of either byte order.
//! - `inbound`, `outbound` and `ifindex` are refused where the link type has no such field. libpcap compiles them for live captures by the kernel.
//! - `byte N & M` and `byte N | M` test the byte; libpcap forgets to load it.
//! - A division by 0 and a shift by more than 31 bits are refused wherever the number is constant.
//! - Port numbers over 65,535 are refused in names too (`portrange 1-70000`).
//! - libpcap's optimiser removes some tests whose result does not count. Where such a test reads bytes that were not captured, libpcap's unoptimised
//!   program rejects the packet, and so does weir's.
//! - A filter that selects no packet is refused where the compiler can show that. libpcap does the same, but shows it of other filters.
//! - libpcap wrongly refuses some divisions and shifts by constants that are computed (`x << (40 - 39)`), and runs out of registers earlier.
//! - libpcap ignores letters behind the ports of a range (`portrange 80-90abc`). They are an error here.
//! - Filters for 802.11, ATM, SS7 and pf captures are refused: weir does not read those.

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
pub use names::{FixedNames, Names, PortName, Transport};

use graph::{Graph, NodeId};
use layers::Layers;
use parse::Parser;
use weir_demux::FilterProgram;
use weir_wire::LinkType;

/// The longest text of a filter, in bytes.
pub const TEXT_BYTES_MAX: usize = 4096;
/// Levels of parentheses, brackets and `not`, at most.
pub const DEPTH_MAX: usize = 100;

/// Compiles a filter for packets of a link type. The program accepts packets with `snap` bytes, which is at least 1.
///
/// # Errors
///
/// [`FilterError`] says what is wrong, and where in the text.
pub fn compile(
    text: &str,
    link_type: LinkType,
    snap: u32,
    names: &dyn Names,
) -> Result<FilterProgram, FilterError> {
    let whole = |fault| FilterError { at: 0, len: text.len(), fault };
    if text.len() > TEXT_BYTES_MAX {
        return Err(whole(FilterFault::Long(text.len())));
    }
    let mut parser = Parser::new(text, Layers::new(link_type), names)?;
    let condition = parser.parse()?;
    let code = parser.code;
    let mut graph = Graph::new(&code, condition).map_err(whole)?;
    optimise::optimise(&mut graph, &code.values).map_err(whole)?;
    if !graph.order().contains(&NodeId::ACCEPT) {
        return Err(whole(FilterFault::Nothing));
    }
    let instructions = emit::emit(&graph, &code.values, (code.words_left(), snap.max(1))).map_err(whole)?;
    FilterProgram::new(&instructions).map_err(|_| whole(FilterFault::Instructions(instructions.len())))
}
