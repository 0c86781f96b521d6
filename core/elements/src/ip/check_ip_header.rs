//! `CheckIPHeader`: passes packets with a right IPv4 header.

use super::bad_packets::{BadPackets, bad_packets};
use crate::ipv4::{HEADER_BYTES, half, header_length};
use core::net::Ipv4Addr;
use weir_graph::arguments::{ArgumentContext, ArgumentFault, ArgumentValue, ElementArguments, Ipv4Prefix};
use weir_graph::engine::{
    BuiltElement, DST_IP, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket,
    OrderDependence, RoutingElement, Services,
};
use weir_wire::checksum::{internet_checksum, is_right_header};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "CheckIPHeader",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E3,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
passes packets with a right IPv4 header

CheckIPHeader([BADSRC, OFFSET, keywords INTERFACES, BADSRC, GOODDST, OFFSET, CHECKSUM, VERBOSE, DETAILS])

CheckIPHeader checks version, header length, total length, checksum and source address. For a packet that passes, it \
sets the network header and the annotation DST_IP, and removes bytes behind the total length, such as padding. Others \
go to output 1, or are discarded without one. The message about the first of them comes at the end of the run.

An argument without a keyword is the OFFSET if it is a number. Else it is a list as of BADSRC, with 0.0.0.0 and \
255.255.255.255 in addition, and OFFSET can follow.

Arguments:
  OFFSET      the offset of the header. Default 0.
  BADSRC      addresses that are wrong as a source
  GOODDST     destinations for which every source is right
  INTERFACES  addresses of the router with their prefixes. The broadcast addresses of the prefixes, 0.0.0.0 and \
255.255.255.255 are wrong as a source, unless the packet is for one of the addresses.
  CHECKSUM    false: does not check the checksum. Default true.
  VERBOSE     true: writes a message about each wrong packet. Default false.
  DETAILS     has no effect: the counts by reason are always there

Handlers:
  drops         r  the number of wrong packets
  drop_details  r  their number for each reason",
    build: |cx| {
        let mut args = cx.arguments();
        let first: Option<FirstArgument> = args.positional("BADSRC").optional();
        let late: Option<u32> = match first {
            Some(FirstArgument::BadSources(_)) => args.positional("OFFSET").optional(),
            _ => None,
        };
        let mut addresses = AddressCheck::read(&mut args);
        let mut offset: u32 = args.keyword("OFFSET").or(0);
        let has_checksum = args.keyword("CHECKSUM").or(true);
        let is_verbose = args.flag("VERBOSE");
        let _: Option<bool> = args.keyword("DETAILS").optional();
        args.end()?;
        match first {
            Some(FirstArgument::Offset(first)) => offset = first,
            Some(FirstArgument::BadSources(more)) => addresses.add_bad_sources(&more),
            None => {}
        }
        let check = HeaderCheck {
            offset: late.unwrap_or(offset) as usize,
            has_checksum,
            addresses: addresses.sorted(),
        };
        let bad = BadPackets::new(cx.name(), "IP", REASONS, is_verbose);
        Ok(BuiltElement::routing(CheckIpHeader { check, bad }))
    },
};

/// The first argument without a keyword.
enum FirstArgument {
    Offset(u32),
    BadSources(Vec<Ipv4Addr>),
}

impl ArgumentValue for FirstArgument {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        match u32::parse_argument(text, context) {
            Ok(offset) => Ok(Self::Offset(offset)),
            Err(_) => Vec::parse_argument(text, context).map(Self::BadSources),
        }
    }

    fn placeholder() -> Self {
        Self::Offset(0)
    }
}

/// The addresses that no right packet comes from.
#[derive(Clone, Debug, Default)]
pub struct AddressCheck {
    bad_sources: Vec<u32>,
    good_destinations: Vec<u32>,
    /// A Bloom filter of the wrong sources, which saves nearly all packets the search.
    filter: u64,
}

/// Returns the bit of an address in a filter.
#[inline]
fn filter_bit(address: u32) -> u64 {
    1 << (address.wrapping_mul(0x9e37_79b1) >> 26)
}

impl AddressCheck {
    /// Reads the arguments INTERFACES, BADSRC and GOODDST.
    pub fn read(args: &mut ElementArguments<'_, '_>) -> Self {
        let interfaces: Option<Vec<Ipv4Prefix>> = args.keyword("INTERFACES").optional();
        let bad_sources: Vec<Ipv4Addr> = args.keyword("BADSRC").or(Vec::new());
        let good_destinations: Vec<Ipv4Addr> = args.keyword("GOODDST").or(Vec::new());
        let mut check = Self {
            bad_sources: bad_sources.into_iter().map(Ipv4Addr::to_bits).collect(),
            good_destinations: good_destinations.into_iter().map(Ipv4Addr::to_bits).collect(),
            filter: 0,
        };
        if let Some(interfaces) = interfaces {
            let broadcast = |it: &Ipv4Prefix| it.address | !it.mask;
            check.add_bad_sources(&interfaces.iter().map(broadcast).collect::<Vec<_>>());
            check.good_destinations.extend(interfaces.iter().map(|it| it.address.to_bits()));
        }
        check
    }

    /// Adds wrong sources, and 0.0.0.0 and 255.255.255.255.
    pub fn add_bad_sources(&mut self, more: &[Ipv4Addr]) {
        self.bad_sources.extend(more.iter().map(|address| address.to_bits()));
        self.bad_sources.extend([0, u32::MAX]);
    }

    /// Returns the lists in the order for searches.
    pub fn sorted(mut self) -> Self {
        self.bad_sources.sort_unstable();
        self.good_destinations.sort_unstable();
        self.filter = self.bad_sources.iter().fold(0, |filter, source| filter | filter_bit(*source));
        self
    }

    #[inline]
    fn is_bad(&self, source: u32, destination: u32) -> bool {
        self.filter & filter_bit(source) != 0 && self.is_listed(source, destination)
    }

    #[inline(never)]
    fn is_listed(&self, source: u32, destination: u32) -> bool {
        self.bad_sources.binary_search(&source).is_ok()
            && self.good_destinations.binary_search(&destination).is_err()
    }
}

/// The check of a header.
pub struct HeaderCheck {
    /// The offset of the header in a packet.
    pub offset: usize,
    /// The checksum is checked.
    pub has_checksum: bool,
    /// The check of addresses.
    pub addresses: AddressCheck,
}

/// The reasons for which a header is wrong, by their indices.
pub const REASONS: &[&str] = &[
    "tiny packet",
    "bad IP version",
    "bad IP header length",
    "bad IP length",
    "bad IP checksum",
    "bad source address",
];

impl HeaderCheck {
    /// Checks a packet. A right one gets its network header and its destination, and ends with its total length.
    ///
    /// # Errors
    ///
    /// Fails with the index of a reason.
    #[inline(always)]
    pub fn check(&self, packet: &mut GraphPacket) -> Result<(), usize> {
        let bytes = packet.bytes().get(self.offset..).unwrap_or_default();
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Err(0) };
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let header_bytes = if header[0] == 0x45 {
            if length > bytes.len() || length < HEADER_BYTES {
                return Err(3);
            }
            if self.has_checksum && !is_right_header(header) {
                return Err(4);
            }
            HEADER_BYTES
        } else {
            self.check_other(bytes)?
        };
        let source = u32::from_be_bytes([header[12], header[13], header[14], header[15]]);
        let destination = [header[16], header[17], header[18], header[19]];
        if self.addresses.is_bad(source, u32::from_be_bytes(destination)) {
            return Err(5);
        }
        let excess = bytes.len() - length;
        packet.set_network_header(self.offset, header_bytes);
        packet.truncate_by(excess);
        packet.annotation_mut(DST_IP).copy_from_slice(&destination);
        Ok(())
    }

    /// Checks a header that has options, or is wrong. Returns its length.
    #[inline(never)]
    fn check_other(&self, bytes: &[u8]) -> Result<usize, usize> {
        if bytes[0] >> 4 != 4 {
            return Err(1);
        }
        let header_bytes = header_length(bytes[0]);
        if header_bytes < HEADER_BYTES {
            return Err(2);
        }
        let length = usize::from(half(bytes, 2));
        if length > bytes.len() || length < header_bytes {
            return Err(3);
        }
        if self.has_checksum && internet_checksum(&bytes[..header_bytes]) != 0 {
            return Err(4);
        }
        Ok(header_bytes)
    }
}

struct CheckIpHeader {
    check: HeaderCheck,
    bad: BadPackets,
}

impl Element for CheckIpHeader {
    bad_packets!();
}

impl RoutingElement for CheckIpHeader {
    #[inline(always)]
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        match self.check.check(packet) {
            Ok(()) => Destination::FIRST,
            Err(reason) => self.bad.refuse(reason, services),
        }
    }
}
