//! Tests of hosts, ports and protocols: IPv4, IPv6, ARP, DECnet, OSI.

use crate::condition::{ConditionId, Conditions};
use crate::error::FilterFault;
use crate::layers::{
    AARP, ARP, ATALK, DECNET, IP, IP6, LAT, Layers, LinkHeader, MOPDL, MOPRC, RARP, SAP_IPX, SAP_ISO,
    SAP_NETBEUI, SAP_STP, SCA, compute,
};
use crate::names::Transport;
use crate::ranges::Ranges;
use crate::value::FilterValueId;
use crate::word::Proto;
use core::net::Ipv6Addr;
use weir_demux::{Alu, LoadWidth};

/// The most headers that `protochain` follows; libpcap has no limit.
const CHAIN_MAX: u32 = 8;
/// IPv6 extension headers with a next-header field: hop-by-hop options, routing, fragment, destination options.
const EXTENSIONS: [u32; 4] = [0, 43, 44, 60];
const AUTHENTICATION: u32 = 51;
const FRAGMENT: u32 = 44;
/// The numbers of OSI network protocols.
pub(crate) const ESIS: u32 = 0x82;
pub(crate) const ISIS: u32 = 0x83;
pub(crate) const CLNP: u32 = 0x81;

/// The choice between a packet's two addresses or ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressSide {
    Src,
    Dst,
    Either,
    Both,
}

impl Layers {
    /// The condition that `test` holds for the source, the destination, either or both. `test` gets true for the
    /// source.
    fn directed(
        &self,
        code: &mut Conditions,
        direction: AddressSide,
        test: &mut dyn FnMut(&mut Conditions, bool) -> Result<ConditionId, FilterFault>,
    ) -> Result<ConditionId, FilterFault> {
        match direction {
            AddressSide::Src => test(code, true),
            AddressSide::Dst => test(code, false),
            AddressSide::Either | AddressSide::Both => {
                let (src, dst) = (test(code, true)?, test(code, false)?);
                if direction == AddressSide::Both { code.and(src, dst) } else { code.or(src, dst) }
            }
        }
    }

    /// Tests for an IPv4 address under a mask, in packets of one protocol: IPv4, ARP or RARP. Without a protocol,
    /// packets of all three are tested.
    pub(crate) fn host4(
        &self,
        code: &mut Conditions,
        protocol: Option<Proto>,
        direction: AddressSide,
        (address, mask): (u32, u32),
    ) -> Result<ConditionId, FilterFault> {
        let address_in = |code: &mut Conditions, number, src, dst| {
            let carried = self.carries(code, number)?;
            let hosts = self.directed(code, direction, &mut |code, is_src| {
                let place = self.network().plus(if is_src { src } else { dst });
                code.load_masked(place, LoadWidth::Word, mask, address)
            })?;
            code.and(carried, hosts)
        };
        match protocol {
            None => {
                let ip = address_in(code, IP, 12, 16)?;
                if self.labels > 0 {
                    return Ok(ip);
                }
                let (arp, rarp) = (address_in(code, ARP, 14, 24)?, address_in(code, RARP, 14, 24)?);
                code.any(&[ip, arp, rarp])
            }
            Some(Proto::Ip) => address_in(code, IP, 12, 16),
            Some(Proto::Arp) => address_in(code, ARP, 14, 24),
            Some(Proto::Rarp) => address_in(code, RARP, 14, 24),
            Some(Proto::Ip6) => Err(FilterFault::Qualifier("`ip6` does not go with an IPv4 address")),
            Some(_) => {
                Err(FilterFault::Qualifier("only `ip`, `arp` and `rarp` go with an IPv4 address or network"))
            }
        }
    }

    /// Tests for an IPv6 address, of which the first `prefix` bits are compared.
    pub(crate) fn host6(
        &self,
        code: &mut Conditions,
        protocol: Option<Proto>,
        direction: AddressSide,
        (address, prefix): (Ipv6Addr, u32),
    ) -> Result<ConditionId, FilterFault> {
        if !matches!(protocol, None | Some(Proto::Ip6)) {
            return Err(FilterFault::Qualifier("only `ip6` goes with an IPv6 address or network"));
        }
        let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
        let word = |bits: u128, i: u32| u32::try_from(bits >> (96 - 32 * i) & 0xffff_ffff).unwrap_or(0);
        let carried = self.carries(code, IP6)?;
        let hosts = self.directed(code, direction, &mut |code, is_src| {
            let place = self.network().plus(if is_src { 8 } else { 24 });
            let mut all = code.always(true)?;
            for i in 0..4 {
                let bits = (word(mask, i), word(address.to_bits(), i));
                let one = code.load_masked(place.plus(4 * i), LoadWidth::Word, bits.0, bits.1)?;
                all = code.and(all, one)?;
            }
            Ok(all)
        })?;
        code.and(carried, hosts)
    }

    /// Tests for a DECnet address. The offset of the address depends on the kind of header (short or long), and on
    /// whether a byte of padding precedes the header.
    pub(crate) fn decnet(
        &self,
        code: &mut Conditions,
        direction: AddressSide,
        address: u32,
    ) -> Result<ConditionId, FilterFault> {
        let network = self.network();
        let is_decnet = self.carries(code, DECNET)?;
        let address = (address & 0xff) << 8 | address >> 8 & 0xff;
        let hosts = self.directed(code, direction, &mut |code, is_src| {
            let (short, long) = if is_src { (3, 15) } else { (1, 7) };
            let mut either = Vec::new();
            for (is_long, is_padded) in [(false, false), (false, true), (true, false), (true, true)] {
                let flags = if is_long { 0x06 } else { 0x02 };
                let kind = if is_padded {
                    code.load_masked(network.plus(2), LoadWidth::Half, 0xff07, 0x8100 | flags)?
                } else {
                    code.load_masked(network.plus(2), LoadWidth::Byte, 7, flags)?
                };
                let offset = 2 + u32::from(is_padded) + if is_long { long } else { short };
                let is_host = code.load_equals(network.plus(offset), LoadWidth::Half, address)?;
                either.push(code.and(kind, is_host)?);
            }
            code.any(&either)
        })?;
        code.and(is_decnet, hosts)
    }

    /// Tests for a range of ports in packets of IPv4 or IPv6, according to `version`. Without a transport protocol,
    /// those of all protocols with ports are tested. Later fragments have no ports.
    pub(crate) fn port(
        &self,
        code: &mut Conditions,
        version: u8,
        transport: Option<Transport>,
        direction: AddressSide,
        (first, last): (u32, u32),
    ) -> Result<ConditionId, FilterFault> {
        let network = self.network();
        let (carried, protocol, above) = if version == 4 {
            (self.carries(code, IP)?, 9, self.above_ip4(code)?)
        } else {
            (self.carries(code, IP6)?, 6, network.plus(40))
        };
        let numbers = match transport {
            Some(transport) => Ranges::one(transport.number()),
            None => Ranges::from_numbers(&[6, 17, 132]),
        };
        let protocol = code.load(network.plus(protocol), LoadWidth::Byte)?;
        let mut all = vec![carried, code.test(protocol, numbers)?];
        if version == 4 {
            all.push(self.is_first_fragment(code)?);
        }
        all.push(self.directed(code, direction, &mut |code, is_src| {
            let port = code.load(above.plus(if is_src { 0 } else { 2 }), LoadWidth::Half)?;
            code.test(port, Ranges::between(first.min(last), first.max(last)))
        })?);
        code.all(&all)
    }

    /// Tests that an IPv4 packet is not a later fragment.
    pub(crate) fn is_first_fragment(&self, code: &mut Conditions) -> Result<ConditionId, FilterFault> {
        code.load_masked(self.network().plus(6), LoadWidth::Half, 0x1fff, 0)
    }

    /// The primitive `proto`: tests that the header of the protocol `below` says that this protocol follows. Without
    /// `below`, the headers of IPv4 and IPv6 are tested.
    pub(crate) fn protocol(
        &self,
        code: &mut Conditions,
        below: Option<Proto>,
        number: u32,
    ) -> Result<ConditionId, FilterFault> {
        let network = self.network();
        match below {
            None => {
                let (four, six) = (
                    self.protocol(code, Some(Proto::Ip), number)?,
                    self.protocol(code, Some(Proto::Ip6), number)?,
                );
                code.or(four, six)
            }
            Some(Proto::Link) => self.carries(code, number),
            Some(Proto::Ip) => {
                let is_ip = self.carries(code, IP)?;
                let is_protocol = code.load_equals(network.plus(9), LoadWidth::Byte, number)?;
                code.and(is_ip, is_protocol)
            }
            Some(Proto::Ip6) => {
                let is_ip6 = self.carries(code, IP6)?;
                let next = code.load(network.plus(6), LoadWidth::Byte)?;
                let is_protocol = code.equals(next, number)?;
                let is_fragment = code.equals(next, FRAGMENT)?;
                let in_fragment = code.load_equals(network.plus(40), LoadWidth::Byte, number)?;
                let in_fragment = code.and(is_fragment, in_fragment)?;
                let either = code.or(is_protocol, in_fragment)?;
                code.and(is_ip6, either)
            }
            Some(Proto::Iso) => {
                let is_iso = self.carries(code, SAP_ISO)?;
                let place = self.payload.plus(self.network_after_llc);
                let is_protocol = code.load_equals(place, LoadWidth::Byte, number)?;
                code.and(is_iso, is_protocol)
            }
            Some(Proto::Isis) => {
                let is_isis = self.protocol(code, Some(Proto::Iso), ISIS)?;
                let place = self.payload.plus(self.network_after_llc + 4);
                let is_protocol = code.load_equals(place, LoadWidth::Byte, number)?;
                code.and(is_isis, is_protocol)
            }
            Some(_) => {
                Err(FilterFault::Qualifier("only `ether`, `ip`, `ip6`, `iso` and `isis` go with `proto`"))
            }
        }
    }

    /// Tests for one of several kinds of IS-IS messages.
    fn isis(&self, code: &mut Conditions, kinds: &[u32]) -> Result<ConditionId, FilterFault> {
        let mut any = code.always(false)?;
        for &kind in kinds {
            let one = self.protocol(code, Some(Proto::Isis), kind)?;
            any = code.or(any, one)?;
        }
        Ok(any)
    }

    /// Tests for a protocol by its name.
    pub(crate) fn named_protocol(
        &self,
        code: &mut Conditions,
        protocol: Proto,
    ) -> Result<ConditionId, FilterFault> {
        let ip4 = Some(Proto::Ip);
        match protocol {
            Proto::Sctp => self.protocol(code, None, 132),
            Proto::Tcp => self.protocol(code, None, 6),
            Proto::Udp => self.protocol(code, None, 17),
            Proto::Pim => self.protocol(code, None, 103),
            Proto::Ah => self.protocol(code, None, AUTHENTICATION),
            Proto::Esp => self.protocol(code, None, 50),
            Proto::Icmp => self.protocol(code, ip4, 1),
            Proto::Igmp => self.protocol(code, ip4, 2),
            Proto::Igrp => self.protocol(code, ip4, 9),
            Proto::Vrrp | Proto::Carp => self.protocol(code, ip4, 112),
            Proto::Icmp6 => self.protocol(code, Some(Proto::Ip6), 58),
            Proto::Ip => self.carries(code, IP),
            Proto::Ip6 => self.carries(code, IP6),
            Proto::Arp => self.carries(code, ARP),
            Proto::Rarp => self.carries(code, RARP),
            Proto::Atalk => self.carries(code, ATALK),
            Proto::Aarp => self.carries(code, AARP),
            Proto::Decnet => self.carries(code, DECNET),
            Proto::Sca => self.carries(code, SCA),
            Proto::Lat => self.carries(code, LAT),
            Proto::Mopdl => self.carries(code, MOPDL),
            Proto::Moprc => self.carries(code, MOPRC),
            Proto::Iso => self.carries(code, SAP_ISO),
            Proto::Stp => self.carries(code, SAP_STP),
            Proto::Ipx => self.carries(code, SAP_IPX),
            Proto::Netbeui => self.carries(code, SAP_NETBEUI),
            Proto::Esis => self.protocol(code, Some(Proto::Iso), ESIS),
            Proto::Isis => self.protocol(code, Some(Proto::Iso), ISIS),
            Proto::Clnp => self.protocol(code, Some(Proto::Iso), CLNP),
            // The numbers are kinds of messages in ISO/IEC 10589.
            Proto::L1 => self.isis(code, &[26, 24, 18, 15, 17]),
            Proto::L2 => self.isis(code, &[27, 25, 20, 16, 17]),
            Proto::Iih => self.isis(code, &[17, 15, 16]),
            Proto::Lsp => self.isis(code, &[18, 20]),
            Proto::Snp => self.isis(code, &[27, 26, 24, 25]),
            Proto::Csnp => self.isis(code, &[24, 25]),
            Proto::Psnp => self.isis(code, &[26, 27]),
            Proto::Link => {
                Err(FilterFault::Qualifier("`ether` alone is not a test: add `host`, `proto` or `[...]`"))
            }
            Proto::Radio => Err(FilterFault::Qualifier("`radio` alone is not a test")),
        }
    }

    /// The primitive `protochain`: tests that the IP header, or a header in the chain of extension headers after it,
    /// says that this protocol follows.
    pub(crate) fn protocol_chain(
        &self,
        code: &mut Conditions,
        below: Option<Proto>,
        number: u32,
    ) -> Result<ConditionId, FilterFault> {
        if self.payload.base.is_some() {
            return Err(FilterFault::Link { what: "`protochain`", link: "Geneve" });
        }
        let network = self.network();
        match below {
            None => {
                let (four, six) = (
                    self.protocol_chain(code, Some(Proto::Ip), number)?,
                    self.protocol_chain(code, Some(Proto::Ip6), number)?,
                );
                code.or(four, six)
            }
            Some(Proto::Ip) => {
                let is_ip = self.carries(code, IP)?;
                let protocol = code.load(network.plus(9), LoadWidth::Byte)?;
                let offset = code.values.header_length(network.constant)?;
                let chain = self.chain_headers(code, &[], (protocol, offset), number)?;
                code.and(is_ip, chain)
            }
            Some(Proto::Ip6) => {
                let is_ip6 = self.carries(code, IP6)?;
                let protocol = code.load(network.plus(6), LoadWidth::Byte)?;
                let offset = code.values.constant(40)?;
                let chain = self.chain_headers(code, &EXTENSIONS, (protocol, offset), number)?;
                code.and(is_ip6, chain)
            }
            Some(_) => Err(FilterFault::Qualifier("only `ip` and `ip6` go with `protochain`")),
        }
    }

    /// Tests the headers of a chain. `first` is the protocol of the first header after the IP header, and the offset of
    /// that header from the network header.
    fn chain_headers(
        &self,
        code: &mut Conditions,
        extensions: &[u32],
        first: (FilterValueId, FilterValueId),
        number: u32,
    ) -> Result<ConditionId, FilterFault> {
        let base = self.network().constant;
        let (protocol_word, offset_word) = (code.reserve_word()?, code.reserve_word()?);
        let mut headers = vec![first];
        for _ in 0..CHAIN_MAX {
            headers.push((code.values.stored(protocol_word)?, code.values.stored(offset_word)?));
        }
        // The condition is built backwards, from the last header that is followed to the first one.
        let mut rest = code.always(false)?;
        for (i, &(protocol, offset)) in headers.iter().enumerate().rev() {
            let is_protocol = code.equals(protocol, number)?;
            let found = code.always(true)?;
            let mut otherwise = code.always(false)?;
            if i + 1 < headers.len() {
                // The authentication header counts its length in words, minus two (RFC 4302); the others in units of
                // eight bytes, minus one (RFC 8200).
                for (kinds, unit, more) in
                    [(Ranges::one(AUTHENTICATION), 4, 2), (Ranges::from_numbers(extensions), 8, 1)]
                {
                    let is_kind = code.test(protocol, kinds)?;
                    let next = code.values.load(Some(offset), base, LoadWidth::Byte)?;
                    let length = code.values.load(Some(offset), base.wrapping_add(1), LoadWidth::Byte)?;
                    let length = compute(code, Alu::Add, length, more)?;
                    let length = compute(code, Alu::Mul, length, unit)?;
                    let end = code.values.compute(Alu::Add, length, offset)?;
                    let store_protocol = code.store(protocol_word, next)?;
                    let store_offset = code.store(offset_word, end)?;
                    let further = code.all(&[store_protocol, store_offset, rest])?;
                    otherwise = code.if_else(is_kind, further, otherwise)?;
                }
            }
            rest = code.if_else(is_protocol, found, otherwise)?;
        }
        code.release_words(2);
        Ok(rest)
    }
}

impl Layers {
    /// Tests for an Ethernet address.
    pub(crate) fn mac(
        &self,
        code: &mut Conditions,
        direction: AddressSide,
        address: [u8; 6],
    ) -> Result<ConditionId, FilterFault> {
        if self.link != LinkHeader::Ethernet {
            return Err(self.unsupported("an Ethernet address"));
        }
        let has_header = self.has_header(code)?;
        let hosts = self.directed(code, direction, &mut |code, is_src| {
            code.load_bytes(self.header.plus(if is_src { 6 } else { 0 }), &address)
        })?;
        code.and(has_header, hosts)
    }
}
