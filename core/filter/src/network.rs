//! Hosts, ports and protocols: IPv4, IPv6, ARP, DECnet, OSI.

use crate::condition::{ConditionId, Conditions};
use crate::error::FilterFault;
use crate::layers::{
    AARP, ARP, ATALK, DECNET, IP, IP6, LAT, Layers, LinkHeader, MOPDL, MOPRC, RARP, SAP_IPX, SAP_ISO,
    SAP_NETBEUI, SAP_STP, SCA, compute,
};
use crate::names::Transport;
use crate::ranges::Ranges;
use crate::value::ValueId;
use crate::word::Proto;
use core::net::Ipv6Addr;
use weir_demux::{Alu, LoadWidth};

/// Headers that `protochain` follows, at most. libpcap follows them without end.
const CHAIN_MAX: u32 = 8;
/// Extension headers of IPv6 that name the next header: hop-by-hop options, routing, fragment, destination options.
const EXTENSIONS: [u32; 4] = [0, 43, 44, 60];
const AUTHENTICATION: u32 = 51;
const FRAGMENT: u32 = 44;
/// OSI network protocols.
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
    /// Applies a condition to the source, the destination, either or both.
    fn directed(
        &self,
        code: &mut Conditions,
        direction: AddressSide,
        one: &mut dyn FnMut(&mut Conditions, bool) -> Result<ConditionId, FilterFault>,
    ) -> Result<ConditionId, FilterFault> {
        match direction {
            AddressSide::Src => one(code, true),
            AddressSide::Dst => one(code, false),
            AddressSide::Either | AddressSide::Both => {
                let (src, dst) = (one(code, true)?, one(code, false)?);
                if direction == AddressSide::Both { code.and(src, dst) } else { code.or(src, dst) }
            }
        }
    }

    /// An IPv4 address and mask in an IPv4, ARP or RARP packet, as the protocol says; in any of them where none is said.
    pub(crate) fn host4(
        &self,
        code: &mut Conditions,
        protocol: Option<Proto>,
        direction: AddressSide,
        (address, mask): (u32, u32),
    ) -> Result<ConditionId, FilterFault> {
        let within = |code: &mut Conditions, number, src, dst| {
            let carried = self.carries(code, number)?;
            let hosts = self.directed(code, direction, &mut |code, is_src| {
                let place = self.network().plus(if is_src { src } else { dst });
                code.load_masked(place, LoadWidth::Word, mask, address)
            })?;
            code.and(carried, hosts)
        };
        match protocol {
            None => {
                let ip = within(code, IP, 12, 16)?;
                if self.labels > 0 {
                    return Ok(ip);
                }
                let (arp, rarp) = (within(code, ARP, 14, 24)?, within(code, RARP, 14, 24)?);
                code.any(&[ip, arp, rarp])
            }
            Some(Proto::Ip) => within(code, IP, 12, 16),
            Some(Proto::Arp) => within(code, ARP, 14, 24),
            Some(Proto::Rarp) => within(code, RARP, 14, 24),
            Some(Proto::Ip6) => Err(FilterFault::Qualifier("`ip6` does not go with an IPv4 address")),
            Some(_) => {
                Err(FilterFault::Qualifier("only `ip`, `arp` and `rarp` go with an IPv4 address or network"))
            }
        }
    }

    /// An IPv6 address and the length of its prefix.
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

    /// A DECnet address, whose place depends on the kind of header, and on a byte of padding before it.
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

    /// Ports from the first to the last one, of one transport protocol or of all, above IPv`version`. Later fragments have none.
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
            None => Ranges::of(&[6, 17, 132]),
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

    /// An IPv4 packet that is not a later fragment.
    pub(crate) fn is_first_fragment(&self, code: &mut Conditions) -> Result<ConditionId, FilterFault> {
        code.load_masked(self.network().plus(6), LoadWidth::Half, 0x1fff, 0)
    }

    /// `proto`: a header names this protocol as the next one.
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
                let is_it = code.load_equals(network.plus(9), LoadWidth::Byte, number)?;
                code.and(is_ip, is_it)
            }
            Some(Proto::Ip6) => {
                let is_ip6 = self.carries(code, IP6)?;
                let next = code.load(network.plus(6), LoadWidth::Byte)?;
                let is_it = code.equals(next, number)?;
                let is_fragment = code.equals(next, FRAGMENT)?;
                let in_fragment = code.load_equals(network.plus(40), LoadWidth::Byte, number)?;
                let in_fragment = code.and(is_fragment, in_fragment)?;
                let either = code.or(is_it, in_fragment)?;
                code.and(is_ip6, either)
            }
            Some(Proto::Iso) => {
                let is_iso = self.carries(code, SAP_ISO)?;
                let place = self.payload.plus(self.behind_llc);
                let is_it = code.load_equals(place, LoadWidth::Byte, number)?;
                code.and(is_iso, is_it)
            }
            Some(Proto::Isis) => {
                let is_isis = self.protocol(code, Some(Proto::Iso), ISIS)?;
                let place = self.payload.plus(self.behind_llc + 4);
                let is_it = code.load_equals(place, LoadWidth::Byte, number)?;
                code.and(is_isis, is_it)
            }
            Some(_) => {
                Err(FilterFault::Qualifier("only `ether`, `ip`, `ip6`, `iso` and `isis` go with `proto`"))
            }
        }
    }

    /// One of several IS-IS messages.
    fn isis(&self, code: &mut Conditions, kinds: &[u32]) -> Result<ConditionId, FilterFault> {
        let mut any = code.always(false)?;
        for &kind in kinds {
            let one = self.protocol(code, Some(Proto::Isis), kind)?;
            any = code.or(any, one)?;
        }
        Ok(any)
    }

    /// A protocol by its name.
    pub(crate) fn named(&self, code: &mut Conditions, protocol: Proto) -> Result<ConditionId, FilterFault> {
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
            // ISO/IEC 10589: the kinds of messages.
            Proto::L1 => self.isis(code, &[26, 24, 18, 15, 17]),
            Proto::L2 => self.isis(code, &[27, 25, 20, 16, 17]),
            Proto::Iih => self.isis(code, &[17, 15, 16]),
            Proto::Lsp => self.isis(code, &[18, 20]),
            Proto::Snp => self.isis(code, &[27, 26, 24, 25]),
            Proto::Csnp => self.isis(code, &[24, 25]),
            Proto::Psnp => self.isis(code, &[26, 27]),
            Proto::Link => {
                Err(FilterFault::Qualifier("`ether` alone says nothing: add `host`, `proto` or `[...]`"))
            }
            Proto::Radio => Err(FilterFault::Qualifier("`radio` alone says nothing")),
        }
    }

    /// `protochain`: the protocol is that of a header in the chain of extension headers.
    pub(crate) fn chain(
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
                let (four, six) =
                    (self.chain(code, Some(Proto::Ip), number)?, self.chain(code, Some(Proto::Ip6), number)?);
                code.or(four, six)
            }
            Some(Proto::Ip) => {
                let is_ip = self.carries(code, IP)?;
                let protocol = code.load(network.plus(9), LoadWidth::Byte)?;
                let offset = code.values.header_length(network.constant)?;
                let chain = self.links(code, &[], (protocol, offset), number)?;
                code.and(is_ip, chain)
            }
            Some(Proto::Ip6) => {
                let is_ip6 = self.carries(code, IP6)?;
                let protocol = code.load(network.plus(6), LoadWidth::Byte)?;
                let offset = code.values.constant(40)?;
                let chain = self.links(code, &EXTENSIONS, (protocol, offset), number)?;
                code.and(is_ip6, chain)
            }
            Some(_) => Err(FilterFault::Qualifier("only `ip` and `ip6` go with `protochain`")),
        }
    }

    /// The headers of a chain, from the first one, at `offset` behind the network header's begin.
    fn links(
        &self,
        code: &mut Conditions,
        extensions: &[u32],
        first: (ValueId, ValueId),
        number: u32,
    ) -> Result<ConditionId, FilterFault> {
        let base = self.network().constant;
        let (protocol_word, offset_word) = (code.word()?, code.word()?);
        let mut headers = vec![first];
        for _ in 0..CHAIN_MAX {
            headers.push((code.values.stored(protocol_word)?, code.values.stored(offset_word)?));
        }
        // From the last one, which leads no further, to the first one.
        let mut rest = code.always(false)?;
        for (i, &(protocol, offset)) in headers.iter().enumerate().rev() {
            let is_it = code.equals(protocol, number)?;
            let yes = code.always(true)?;
            let mut no = code.always(false)?;
            if i + 1 < headers.len() {
                // The authentication header counts in words, less two (RFC 4302); the others in eight bytes, less one (RFC 8200).
                for (kinds, unit, more) in
                    [(Ranges::one(AUTHENTICATION), 4, 2), (Ranges::of(extensions), 8, 1)]
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
                    no = code.if_else(is_kind, further, no)?;
                }
            }
            rest = code.if_else(is_it, yes, no)?;
        }
        code.release_words(2);
        Ok(rest)
    }
}

impl Layers {
    /// An Ethernet address.
    pub(crate) fn mac(
        &self,
        code: &mut Conditions,
        direction: AddressSide,
        address: [u8; 6],
    ) -> Result<ConditionId, FilterFault> {
        if self.link != LinkHeader::Ethernet {
            return Err(self.no("an Ethernet address"));
        }
        let has_header = self.has_header(code)?;
        let hosts = self.directed(code, direction, &mut |code, is_src| {
            code.load_bytes(self.header.plus(if is_src { 6 } else { 0 }), &address)
        })?;
        code.and(has_header, hosts)
    }
}
