//! Patterns: the addresses and ports that a rewriter gives flows.

use super::flow_id::FlowId;
use super::mapping_table::{MappingTable, ReplyRange, range_keys};
use core::net::Ipv4Addr;
use std::fmt;
use weir_graph::arguments::{ArgumentContext, ArgumentValue, Ipv4Prefix};
use weir_graph::engine::{Reason, next_random};

/// A pattern. A field of 0 leaves that of the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewriterPattern {
    source: u32,
    source_port: u16,
    destination: u32,
    destination_port: u16,
    /// The number of further values of the source port, or of the source address in a pattern without ports.
    top: u32,
    has_ports: bool,
    choice: RangeChoice,
    /// The offset of the next value, for a choice in sequence.
    next: u32,
}

/// The way in which a value of a range is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeChoice {
    /// The packet's own value if it is free, else a random one.
    Own,
    Random,
    Sequence,
}

/// A range of values: the first one, and the number of further ones.
type ValueRange = (u32, u32, RangeChoice);

/// Splits the mark of a choice from a range.
fn split_choice(text: &str) -> (&str, RangeChoice) {
    if let Some(text) = text.strip_suffix('#') {
        (text, RangeChoice::Sequence)
    } else if let Some(text) = text.strip_suffix('?') {
        (text, RangeChoice::Random)
    } else {
        (text, RangeChoice::Own)
    }
}

/// Reads a range of addresses: two addresses, or a prefix.
fn address_range(text: &str, context: &ArgumentContext<'_>) -> Option<ValueRange> {
    let (text, choice) = split_choice(text);
    let address = |text: &str| Ipv4Addr::parse_argument(text, context).ok().map(Ipv4Addr::to_bits);
    if let Some((first, last)) = text.split_once('-') {
        let (first, last) = (address(first)?, address(last)?);
        return (first > 0 && first <= last).then(|| (first, last - first, choice));
    }
    let prefix = Ipv4Prefix::parse_argument(text, context).ok()?;
    let (address, mask) = (prefix.address.to_bits(), prefix.mask.to_bits());
    let is_contiguous = mask.count_ones() == mask.leading_ones();
    if address == 0 || mask == 0 || !is_contiguous {
        return None;
    }
    let network = address & mask;
    Some(match !mask {
        0 => (address, 0, choice),
        1 => (network, 1, choice),
        // Without the addresses of the network itself and of all its hosts.
        hosts => (network | 1, hosts - 2, choice),
    })
}

fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0 && text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Reads a range of ports, whose first one can be 0.
fn port_range(text: &str) -> Option<ValueRange> {
    let (text, choice) = split_choice(text);
    let (first, last) = text.split_once('-')?;
    let number = |text: &str| if text == "0" { Some(0) } else { port(text) };
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then(|| (first.into(), u32::from(last - first), choice))
}

impl RewriterPattern {
    /// Reads a pattern: `SADDR SPORT DADDR DPORT`, `SADDR DADDR`, or `SADDR DADDR SPORT`.
    ///
    /// # Errors
    ///
    /// Fails with a reason for another text.
    pub fn read(words: &[&str], context: &ArgumentContext<'_>) -> Result<Self, Reason> {
        let (source, source_port, destination, destination_port) = match *words {
            [source, destination] => (source, None, destination, None),
            [source, destination, port] => (source, Some(port), destination, None),
            [source, source_port, destination, destination_port] => {
                (source, Some(source_port), destination, Some(destination_port))
            }
            _ => return Err("syntax error".to_owned()),
        };
        let address = |text: &str| match text {
            "-" => Some(0),
            _ => Ipv4Addr::parse_argument(text, context).ok().map(Ipv4Addr::to_bits),
        };
        let mut range: ValueRange = (0, 0, RangeChoice::Own);
        let source = match address(source) {
            Some(source) => source,
            None => {
                range = address_range(source, context).ok_or("bad source address")?;
                range.0
            }
        };
        if range.1 > 0 && source_port.is_some() {
            return Err("bad source address: a range of addresses needs a pattern without ports".to_owned());
        }
        let source_port = match source_port {
            None | Some("-") => 0,
            Some(text) => match port(text) {
                Some(port) => port,
                None => {
                    range = port_range(text).ok_or("bad source port")?;
                    u16::try_from(range.0).unwrap_or(0)
                }
            },
        };
        let destination = address(destination).ok_or("bad destination address")?;
        let destination_port = match destination_port {
            None | Some("-") => 0,
            Some(text) => port(text).ok_or("bad destination port")?,
        };
        let (_, top, choice) = range;
        let has_ports = words.len() > 2;
        Ok(Self { source, source_port, destination, destination_port, top, has_ports, choice, next: 0 })
    }

    /// Returns the addresses and ports that a flow gets, such that its replies are not those of another flow. `reply_map`
    /// is the map in which replies are looked up. Returns `None` if no value of the range is free.
    pub fn choose(
        &mut self,
        flow: FlowId,
        reply_map: u32,
        table: &mut MappingTable,
        random: &mut u64,
    ) -> Option<FlowId> {
        let or = |value: u32, own: u32| if value == 0 { own } else { value };
        let port_or = |value: u16, own: u16| if value == 0 { own } else { value };
        let mut chosen = FlowId {
            source: or(self.source, flow.source),
            destination: or(self.destination, flow.destination),
            source_port: port_or(self.source_port, flow.source_port),
            destination_port: port_or(self.destination_port, flow.destination_port),
        };
        if self.top == 0 {
            return Some(chosen);
        }
        let base = if self.has_ports { u32::from(self.source_port) } else { self.source };
        let mut set = |offset: u32| {
            let value = base.wrapping_add(offset);
            match self.has_ports {
                true => chosen.source_port = u16::try_from(value).unwrap_or(0),
                false => chosen.source = value,
            }
            chosen
        };
        let own = u32::from(flow.source_port).checked_sub(base).filter(|own| *own <= self.top);
        if let Some(own) = own.filter(|_| self.has_ports && self.choice == RangeChoice::Own) {
            let chosen = set(own);
            if table.find(reply_map, chosen.reversed()).is_none() {
                self.next = own.saturating_add(1);
                return Some(chosen);
            }
        }
        let [by_port, by_address] = range_keys(set(0).reversed());
        let (reply, _) = if self.has_ports { by_port } else { by_address };
        let range = ReplyRange { map: reply_map, reply, base, top: self.top };
        if table.is_exhausted(&range) {
            return None;
        }
        let count = u64::from(self.top) + 1;
        let is_sequence = self.choice == RangeChoice::Sequence;
        let (start, step) = match is_sequence {
            true => (if self.next > self.top { 0 } else { u64::from(self.next) }, 1),
            false => (next_random(random) % count, coprime_step(count, random)),
        };
        let mut offset = start;
        for _ in 0..count {
            let value = u32::try_from(offset).unwrap_or(0);
            let chosen = set(value);
            if table.find(reply_map, chosen.reversed()).is_none() {
                self.next = value.saturating_add(1);
                return Some(chosen);
            }
            offset = (offset + step) % count;
        }
        table.note_exhausted(range);
        None
    }
}

/// Returns a random step that visits all of so many values. With it, ports that a peer has chosen next to each other do
/// not make a search long.
fn coprime_step(count: u64, random: &mut u64) -> u64 {
    let divisor = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let steps = (0..32).map(|_| next_random(random) % count);
    steps.into_iter().find(|step| divisor(*step, count) == 1).unwrap_or(1)
}

/// Writes the pattern as Click does.
impl fmt::Display for RewriterPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = |address: u32| match address {
            0 => "-".to_owned(),
            _ => Ipv4Addr::from_bits(address).to_string(),
        };
        let port = |port: u16| if port == 0 { "-".to_owned() } else { port.to_string() };
        write!(f, "{}", address(self.source))?;
        if !self.has_ports && self.top > 0 {
            write!(f, "-{}", Ipv4Addr::from_bits(self.source.wrapping_add(self.top)))?;
        }
        if self.has_ports && self.top > 0 {
            write!(f, " {}-{}", self.source_port, u32::from(self.source_port) + self.top)?;
        } else if self.has_ports {
            write!(f, " {}", port(self.source_port))?;
        }
        write!(f, " {}", address(self.destination))?;
        if self.has_ports {
            write!(f, " {}", port(self.destination_port))?;
        }
        Ok(())
    }
}
