//! The headers before IP: their offsets, their protocol fields, and the encapsulations that shift the headers after
//! them.

use crate::condition::{ConditionId, Conditions, PacketOffset};
use crate::error::FilterFault;
use crate::names::Transport;
use crate::network::AddressSide;
use crate::ranges::Ranges;
use crate::value::FilterValueId;
use weir_demux::{Alu, LoadWidth};
use weir_wire::LinkType;

// EtherTypes.
pub(crate) const IP: u32 = 0x0800;
pub(crate) const ARP: u32 = 0x0806;
pub(crate) const RARP: u32 = 0x8035;
pub(crate) const IP6: u32 = 0x86dd;
pub(crate) const DECNET: u32 = 0x6003;
pub(crate) const ATALK: u32 = 0x809b;
pub(crate) const AARP: u32 = 0x80f3;
pub(crate) const LAT: u32 = 0x6004;
pub(crate) const MOPDL: u32 = 0x6001;
pub(crate) const MOPRC: u32 = 0x6002;
pub(crate) const SCA: u32 = 0x6007;
const IPX: u32 = 0x8137;
const MPLS: u32 = 0x8847;
const PPPOE_SESSION: u32 = 0x8864;
const TRANSPARENT_ETHERNET: u32 = 0x6558;

/// The UDP port of Geneve (RFC 8926).
const GENEVE_PORT: u32 = 6081;

/// Service access points of IEEE 802.2. All are below the smallest EtherType, so one number can stand for a service
/// access point or for an EtherType.
pub(crate) const SAP_ISO: u32 = 0xfe;
pub(crate) const SAP_STP: u32 = 0x42;
pub(crate) const SAP_IPX: u32 = 0xe0;
pub(crate) const SAP_NETBEUI: u32 = 0xf0;
const SAP_IP: u32 = 0x06;
/// The largest value of the EtherType field that is a length.
pub(crate) const LENGTH_MAX: u32 = 1500;
/// The protocol numbers in cooked captures for IEEE 802.3 frames without and with an 802.2 header.
const COOKED_802_3: u32 = 1;
const COOKED_802_2: u32 = 4;

/// A kind of link header; [`LinkHeader::Ppp`] is that of PPP inside PPPoE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkHeader {
    Ethernet,
    Null,
    Loop,
    Raw,
    Ipv4,
    Ipv6,
    Cooked,
    Cooked2,
    Ppp,
}

impl LinkHeader {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ethernet => "Ethernet",
            Self::Null => "NULL",
            Self::Loop => "LOOP",
            Self::Raw => "raw IP",
            Self::Ipv4 => "raw IPv4",
            Self::Ipv6 => "raw IPv6",
            Self::Cooked => "SLL",
            Self::Cooked2 => "SLL2",
            Self::Ppp => "PPP",
        }
    }
}

/// The offsets of a packet's headers. The words `vlan`, `mpls`, `pppoes` and `geneve` change them for all of the
/// filter's text after the word.
#[derive(Clone, Debug)]
pub(crate) struct Layers {
    pub(crate) link: LinkHeader,
    /// The offset of the link header.
    pub(crate) header: PacketOffset,
    /// The offset of the link header's protocol field, if the header has one.
    pub(crate) protocol: Option<PacketOffset>,
    /// The offset of the link header's payload.
    pub(crate) payload: PacketOffset,
    /// The number of bytes from the payload to the network header.
    pub(crate) network_after_payload: u32,
    /// The number of bytes from the payload to the network header in a packet with an 802.2 header.
    pub(crate) network_after_llc: u32,
    /// The number of MPLS labels so far.
    pub(crate) labels: u32,
    /// Inside Geneve, the offsets of the inner header and of its payload. They are equal if the packet has no inner
    /// Ethernet header.
    pub(crate) inner: Option<(FilterValueId, FilterValueId)>,
}

impl Layers {
    pub(crate) fn new(link_type: LinkType) -> Self {
        let (link, protocol, payload, network_after_llc) = match link_type {
            LinkType::Ethernet => (LinkHeader::Ethernet, Some(12), 14, 3),
            LinkType::Null => (LinkHeader::Null, Some(0), 4, 0),
            LinkType::Loop => (LinkHeader::Loop, Some(0), 4, 0),
            LinkType::LinuxSll => (LinkHeader::Cooked, Some(14), 16, 0),
            LinkType::LinuxSll2 => (LinkHeader::Cooked2, Some(0), 20, 0),
            LinkType::Raw => (LinkHeader::Raw, None, 0, 0),
            LinkType::Ipv4 => (LinkHeader::Ipv4, None, 0, 0),
            LinkType::Ipv6 => (LinkHeader::Ipv6, None, 0, 0),
        };
        Self {
            link,
            header: PacketOffset::at(0),
            protocol: protocol.map(PacketOffset::at),
            payload: PacketOffset::at(payload),
            network_after_payload: 0,
            network_after_llc,
            labels: 0,
            inner: None,
        }
    }

    /// The offset of the network header, whether or not the packet has one.
    pub(crate) fn network(&self) -> PacketOffset {
        self.payload.plus(self.network_after_payload)
    }

    /// The fault of a test that does not apply to packets of the link type.
    pub(crate) fn unsupported(&self, what: &'static str) -> FilterFault {
        FilterFault::Link { what, link: self.link.name() }
    }

    /// Tests that the packet carries this protocol above the link header. A number up to [`LENGTH_MAX`] is an 802.2
    /// service access point; a higher one is an EtherType.
    pub(crate) fn carries(&self, code: &mut Conditions, protocol: u32) -> Result<ConditionId, FilterFault> {
        if self.labels > 0 {
            return self.carried_by_mpls(code, protocol);
        }
        let field = self.protocol.unwrap_or_default();
        match self.link {
            LinkHeader::Ethernet => self.carried_by_ethernet(code, field, protocol),
            LinkHeader::Cooked => self.carried_by_cooked(code, field, protocol),
            LinkHeader::Cooked2 => code.load_equals(field, LoadWidth::Half, protocol),
            LinkHeader::Ppp => code.load_equals(field, LoadWidth::Half, ppp_protocol(protocol)),
            LinkHeader::Raw => match protocol {
                IP => code.load_masked(self.header, LoadWidth::Byte, 0xf0, 0x40),
                IP6 => code.load_masked(self.header, LoadWidth::Byte, 0xf0, 0x60),
                _ => code.always(false),
            },
            LinkHeader::Ipv4 => code.always(protocol == IP),
            LinkHeader::Ipv6 => code.always(protocol == IP6),
            LinkHeader::Null | LinkHeader::Loop => {
                // AF_INET is 2 on every system. AF_INET6 is 10 on Linux, 24 on NetBSD, 28 on FreeBSD and 30 on macOS.
                let families: &[u32] = match protocol {
                    IP => &[2],
                    IP6 => &[10, 24, 28, 30],
                    _ => return code.always(false),
                };
                let mut words = families.to_vec();
                if self.link == LinkHeader::Null {
                    // The field has the byte order of the capturing machine.
                    words.extend(families.iter().map(|family| family.swap_bytes()));
                }
                let family = code.load(self.header, LoadWidth::Word)?;
                code.test(family, Ranges::from_numbers(&words))
            }
        }
    }

    fn carried_by_mpls(&self, code: &mut Conditions, protocol: u32) -> Result<ConditionId, FilterFault> {
        let version = match protocol {
            IP => 0x40,
            IP6 => 0x60,
            _ => return Err(FilterFault::Link { what: "a protocol other than IPv4 and IPv6", link: "MPLS" }),
        };
        let network = self.network();
        // The lowest bit of a label's third byte marks the last label.
        let is_last_label = code.load_masked(network.plus(2_u32.wrapping_neg()), LoadWidth::Byte, 1, 1)?;
        let is_version = code.load_masked(network, LoadWidth::Byte, 0xf0, version)?;
        code.and(is_last_label, is_version)
    }

    fn carried_by_ethernet(
        &self,
        code: &mut Conditions,
        field: PacketOffset,
        protocol: u32,
    ) -> Result<ConditionId, FilterFault> {
        let number = code.load(field, LoadWidth::Half)?;
        let has_llc = code.test(number, Ranges::between(0, LENGTH_MAX))?;
        if protocol != SAP_IPX {
            return self.carried_by_type_or_llc(code, protocol, (number, has_llc), field.plus(2));
        }
        let is_protocol = code.equals(number, IPX)?;
        let snap = self.snap(code, 0, IPX)?;
        let sap = code.load_equals(self.payload, LoadWidth::Byte, SAP_IPX)?;
        let is_raw_ipx = code.load_equals(self.payload, LoadWidth::Half, 0xffff)?;
        let any = code.any(&[snap, sap, is_raw_ipx])?;
        let in_802_3 = code.and(has_llc, any)?;
        code.or(is_protocol, in_802_3)
    }

    fn carried_by_cooked(
        &self,
        code: &mut Conditions,
        field: PacketOffset,
        protocol: u32,
    ) -> Result<ConditionId, FilterFault> {
        let number = code.load(field, LoadWidth::Half)?;
        let has_llc = code.equals(number, COOKED_802_2)?;
        if protocol != SAP_IPX {
            let sap = self.header.plus(self.payload.constant);
            return self.carried_by_type_or_llc(code, protocol, (number, has_llc), sap);
        }
        let is_protocol = code.test(number, Ranges::from_numbers(&[IPX, COOKED_802_3]))?;
        let snap = self.snap(code, 0, IPX)?;
        let sap = code.load_equals(self.payload, LoadWidth::Byte, SAP_IPX)?;
        let either = code.or(sap, snap)?;
        let in_802_2 = code.and(has_llc, either)?;
        code.or(is_protocol, in_802_2)
    }

    /// Tests that the packet carries a protocol other than IPX. `number` is the EtherType, `has_llc` the condition that
    /// the packet has an 802.2 header, and `sap` the offset of the service access point.
    fn carried_by_type_or_llc(
        &self,
        code: &mut Conditions,
        protocol: u32,
        (number, has_llc): (FilterValueId, ConditionId),
        sap: PacketOffset,
    ) -> Result<ConditionId, FilterFault> {
        match protocol {
            SAP_ISO | SAP_IP | SAP_NETBEUI => {
                let both = code.load_equals(self.payload, LoadWidth::Half, protocol << 8 | protocol)?;
                code.and(has_llc, both)
            }
            ATALK | AARP => {
                let is_protocol = code.equals(number, protocol)?;
                let snap = self.snap(code, if protocol == ATALK { 0x0008_0007 } else { 0 }, protocol)?;
                let in_llc = code.and(has_llc, snap)?;
                code.or(is_protocol, in_llc)
            }
            0..=LENGTH_MAX => {
                let is_protocol = code.load_equals(sap, LoadWidth::Byte, protocol)?;
                code.and(has_llc, is_protocol)
            }
            _ => code.equals(number, protocol),
        }
    }

    /// Tests for an 802.2 SNAP header with this organisation and protocol.
    fn snap(
        &self,
        code: &mut Conditions,
        organisation: u32,
        protocol: u32,
    ) -> Result<ConditionId, FilterFault> {
        let [_, a, b, c] = organisation.to_be_bytes();
        let [_, _, d, e] = protocol.to_be_bytes();
        code.load_bytes(self.payload, &[0xaa, 0xaa, 0x03, a, b, c, d, e])
    }

    /// Tests for an IEEE 802.1Q tag, optionally with this VLAN identifier, and moves the following headers by four
    /// bytes. Three EtherTypes count as tags.
    pub(crate) fn vlan(
        &mut self,
        code: &mut Conditions,
        id: Option<u32>,
    ) -> Result<ConditionId, FilterFault> {
        if self.labels > 0 {
            return Err(FilterFault::Link { what: "`vlan`", link: "MPLS" });
        }
        if self.link != LinkHeader::Ethernet {
            return Err(self.unsupported("`vlan`"));
        }
        let field = code.load(self.protocol.unwrap_or_default(), LoadWidth::Half)?;
        let mut is_tagged = code.test(field, Ranges::from_numbers(&[0x8100, 0x88a8, 0x9100]))?;
        if let Some(id) = check_limit("VLAN", id, 0xfff)? {
            let is_id = code.load_masked(self.network(), LoadWidth::Half, 0xfff, id)?;
            is_tagged = code.and(is_tagged, is_id)?;
        }
        self.payload = self.payload.plus(4);
        self.protocol = self.protocol.map(|field| field.plus(4));
        Ok(is_tagged)
    }

    /// Tests for an MPLS label, optionally with this value, and moves the following headers by four bytes.
    pub(crate) fn mpls(
        &mut self,
        code: &mut Conditions,
        label: Option<u32>,
    ) -> Result<ConditionId, FilterFault> {
        let network = self.network();
        let mut has_label = if self.labels > 0 {
            // The previous label was not the last one.
            code.load_masked(network.plus(2_u32.wrapping_neg()), LoadWidth::Byte, 1, 0)?
        } else {
            match self.link {
                LinkHeader::Ethernet => self.carries(code, MPLS)?,
                LinkHeader::Ppp => self.carries(code, 0x0281)?,
                _ => return Err(self.unsupported("`mpls`")),
            }
        };
        if let Some(label) = check_limit("MPLS label", label, 0xf_ffff)? {
            let is_label = code.load_masked(network, LoadWidth::Word, 0xffff_f000, label << 12)?;
            has_label = code.and(has_label, is_label)?;
        }
        self.network_after_payload += 4;
        self.network_after_llc += 4;
        self.labels += 1;
        Ok(has_label)
    }

    /// Tests for a PPPoE session, optionally with this number. The following headers are those of PPP.
    pub(crate) fn pppoe(
        &mut self,
        code: &mut Conditions,
        session: Option<u32>,
    ) -> Result<ConditionId, FilterFault> {
        let mut is_session = self.carries(code, PPPOE_SESSION)?;
        if let Some(session) = check_limit("PPPoE session", session, 0xffff)? {
            let has_number = code.load_masked(self.network(), LoadWidth::Word, 0xffff, session)?;
            is_session = code.and(is_session, has_number)?;
        }
        let ppp = self.network().plus(6);
        *self = Self {
            link: LinkHeader::Ppp,
            header: ppp,
            protocol: Some(ppp),
            payload: ppp.plus(2),
            network_after_payload: 0,
            network_after_llc: 0,
            labels: self.labels,
            inner: None,
        };
        Ok(is_session)
    }

    /// Tests for a Geneve tunnel over IPv4 or IPv6, optionally with this network identifier. The following headers are
    /// those of the inner Ethernet frame, or of the protocol that the EtherType in the Geneve header names.
    pub(crate) fn geneve(
        &mut self,
        code: &mut Conditions,
        network: Option<u32>,
    ) -> Result<ConditionId, FilterFault> {
        let network = check_limit("Geneve network", network, 0xff_ffff)?;
        let words = [code.reserve_word()?, code.reserve_word()?, code.reserve_word()?, code.reserve_word()?];
        let [start_word, header_word, protocol_word, payload_word] = words;
        let mut over_ip = Vec::new();
        for (udp, protocol) in [(self.above_ip4(code)?, IP), (self.network().plus(40), IP6)] {
            let version = if protocol == IP { 4 } else { 6 };
            let is_geneve =
                self.port(code, version, Some(Transport::Udp), AddressSide::Dst, (GENEVE_PORT, GENEVE_PORT))?;
            let version = code.load_masked(udp.plus(8), LoadWidth::Byte, 0xc0, 0)?;
            let mut all = vec![is_geneve, version];
            if let Some(network) = network {
                all.push(code.load_masked(udp.plus(12), LoadWidth::Word, 0xffff_ff00, network << 8)?);
            }
            let start = offset_value(code, udp.plus(8))?;
            all.push(code.store(start_word, start)?);
            over_ip.push(code.all(&all)?);
        }
        let is_geneve = code.any(&over_ip)?;
        let start = code.values.stored(start_word)?;
        let options = code.values.load(Some(start), 0, LoadWidth::Byte)?;
        let options = compute(code, Alu::And, options, 0x3f)?;
        let options = compute(code, Alu::Mul, options, 4)?;
        let options = compute(code, Alu::Add, options, 8)?;
        let header = code.values.compute(Alu::Add, options, start)?;
        let store_header = code.store(header_word, header)?;
        let header = code.values.stored(header_word)?;
        let field = code.values.load(Some(start), 2, LoadWidth::Half)?;
        let is_ethernet = code.equals(field, TRANSPARENT_ETHERNET)?;
        let store = |protocol: FilterValueId, payload: FilterValueId, code: &mut Conditions| {
            let protocol = code.store(protocol_word, protocol)?;
            let payload = code.store(payload_word, payload)?;
            code.and(protocol, payload)
        };
        let (inner_protocol, inner_payload) =
            (compute(code, Alu::Add, header, 12)?, compute(code, Alu::Add, header, 14)?);
        let ethernet = store(inner_protocol, inner_payload, code)?;
        let outer_protocol = compute(code, Alu::Add, start, 2)?;
        let other = store(outer_protocol, header, code)?;
        let store_inner = code.if_else(is_ethernet, ethernet, other)?;
        let payload = code.values.stored(payload_word)?;
        let protocol = code.values.stored(protocol_word)?;
        let at_base = |base| PacketOffset { constant: 0, base: Some(base) };
        *self = Self {
            link: LinkHeader::Ethernet,
            header: at_base(header),
            protocol: Some(at_base(protocol)),
            payload: at_base(payload),
            network_after_payload: 0,
            network_after_llc: self.network_after_llc,
            labels: self.labels,
            inner: Some((header, payload)),
        };
        code.all(&[is_geneve, store_header, store_inner])
    }

    /// Tests that the packet has an Ethernet header. Inside Geneve, the header can be missing.
    pub(crate) fn has_header(&self, code: &mut Conditions) -> Result<ConditionId, FilterFault> {
        let Some((header, payload)) = self.inner else { return code.always(true) };
        let (value, equal) = code.values.relate(crate::value::Relation::Equal, header, payload)?;
        code.test(value, equal.not())
    }

    /// The offset of the first byte after the IPv4 header.
    pub(crate) fn above_ip4(&self, code: &mut Conditions) -> Result<PacketOffset, FilterFault> {
        let network = self.network();
        let length = match network.base {
            None => code.values.header_length(network.constant)?,
            Some(base) => {
                let first = code.load(network, LoadWidth::Byte)?;
                let words = compute(code, Alu::And, first, 0xf)?;
                let bytes = compute(code, Alu::Lsh, words, 2)?;
                code.values.compute(Alu::Add, bytes, base)?
            }
        };
        Ok(PacketOffset { constant: network.constant, base: Some(length) })
    }
}

/// An offset in the packet as a value.
fn offset_value(code: &mut Conditions, offset: PacketOffset) -> Result<FilterValueId, FilterFault> {
    match offset.base {
        Some(base) => compute(code, Alu::Add, base, offset.constant),
        None => code.values.constant(offset.constant),
    }
}

/// `value operator number`.
pub(crate) fn compute(
    code: &mut Conditions,
    operator: Alu,
    value: FilterValueId,
    number: u32,
) -> Result<FilterValueId, FilterFault> {
    let number = code.values.constant(number)?;
    code.values.compute(operator, value, number)
}

/// Checks an optional number against its limit.
fn check_limit(what: &'static str, value: Option<u32>, max: u32) -> Result<Option<u32>, FilterFault> {
    match value {
        Some(value) if value > max => Err(FilterFault::Limit { what, value, max }),
        _ => Ok(value),
    }
}

/// The PPP protocol number for an EtherType (IANA, PPP DLL protocol numbers).
const fn ppp_protocol(protocol: u32) -> u32 {
    match protocol {
        IP => 0x21,
        IP6 => 0x57,
        DECNET => 0x27,
        ATALK => 0x29,
        0x0600 => 0x25,
        SAP_ISO => 0x23,
        SAP_STP => 0x31,
        SAP_IPX => 0x2b,
        other => other,
    }
}
