//! Identifiers, which are addresses, ports and protocols, with the qualifiers before them: `tcp dst port 80`.

use crate::condition::{ConditionId, Conditions};
use crate::error::FilterFault;
use crate::layers::{Layers, LinkHeader};
use crate::names::{self, Names, PortName, Transport};
use crate::network::AddressSide;
use crate::token::{TokenKind, escaped_excerpt};
use crate::word::Proto;
use core::net::IpAddr;

/// The type qualifier of an identifier: `host`, `net`, `port`, `proto` or the like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TypeQualifier {
    Host,
    Net,
    Port,
    PortRange,
    Protocol,
    ProtocolChain,
    Gateway,
}

/// The qualifiers of an identifier. An identifier without qualifiers has those of the primitive before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Qualifiers {
    pub(crate) protocol: Option<Proto>,
    pub(crate) direction: Option<AddressSide>,
    pub(crate) kind: Option<TypeQualifier>,
}

const NOT_A_HOST: FilterFault =
    FilterFault::Qualifier("an address goes with `host` or `net`, not with ports and protocols");
const GATEWAY: FilterFault = FilterFault::Unsupported {
    word: "gateway",
    why: "names are not looked up; write `ether host ADDRESS and not host ADDRESS`",
};

impl Qualifiers {
    /// The addresses or ports that are tested; [`AddressSide::Either`] if the filter does not restrict them.
    fn direction(&self) -> AddressSide {
        self.direction.unwrap_or(AddressSide::Either)
    }

    /// The transport protocol of a port; `None` for all protocols.
    fn transport(&self) -> Result<Option<Transport>, FilterFault> {
        match self.protocol {
            None => Ok(None),
            Some(Proto::Tcp) => Ok(Some(Transport::Tcp)),
            Some(Proto::Udp) => Ok(Some(Transport::Udp)),
            Some(Proto::Sctp) => Ok(Some(Transport::Sctp)),
            Some(_) => Err(FilterFault::Qualifier("only `tcp`, `udp` and `sctp` go with ports")),
        }
    }
}

/// Compiles identifiers to conditions.
pub(crate) struct IdentifierCompiler<'a> {
    pub(crate) layers: &'a Layers,
    pub(crate) names: &'a dyn Names,
    pub(crate) code: &'a mut Conditions,
}

impl IdentifierCompiler<'_> {
    /// The condition for a number, which is a host, port or protocol according to its qualifiers.
    pub(crate) fn number(&mut self, number: u32, qualifiers: Qualifiers) -> Result<ConditionId, FilterFault> {
        match qualifiers.kind {
            None | Some(TypeQualifier::Host | TypeQualifier::Net) => {
                if qualifiers.protocol == Some(Proto::Decnet) {
                    return self.layers.decnet(self.code, qualifiers.direction(), number);
                }
                let (mut address, mut mask) = (number, u32::MAX);
                if qualifiers.kind == Some(TypeQualifier::Net) {
                    while address != 0 && address & 0xff00_0000 == 0 {
                        (address, mask) = (address << 8, mask << 8);
                    }
                }
                self.host4((address, mask), qualifiers)
            }
            Some(TypeQualifier::Port | TypeQualifier::PortRange) => {
                let transport = qualifiers.transport()?;
                self.ports((number, number), transport, qualifiers)
            }
            Some(TypeQualifier::Protocol) => self.layers.protocol(self.code, qualifiers.protocol, number),
            Some(TypeQualifier::ProtocolChain) => {
                self.layers.protocol_chain(self.code, qualifiers.protocol, number)
            }
            Some(TypeQualifier::Gateway) => Err(GATEWAY),
        }
    }

    /// The condition for an IPv4 address and mask.
    fn host4(&mut self, address: (u32, u32), qualifiers: Qualifiers) -> Result<ConditionId, FilterFault> {
        self.layers.host4(self.code, qualifiers.protocol, qualifiers.direction(), address)
    }

    /// The condition for a range of ports, over IPv4 and IPv6.
    fn ports(
        &mut self,
        ports: (u32, u32),
        transport: Option<Transport>,
        qualifiers: Qualifiers,
    ) -> Result<ConditionId, FilterFault> {
        let value = ports.0.max(ports.1);
        if value > 0xffff {
            return Err(FilterFault::Limit { what: "port", value, max: 0xffff });
        }
        let mut either = Vec::new();
        for version in [6, 4] {
            either.push(self.layers.port(self.code, version, transport, qualifiers.direction(), ports)?);
        }
        self.code.any(&either)
    }

    /// The condition for two to four numbers with dots: an IPv4 address or the first bytes of one, or a DECnet address.
    pub(crate) fn dotted(&mut self, text: &str, qualifiers: Qualifiers) -> Result<ConditionId, FilterFault> {
        if !matches!(
            qualifiers.kind,
            None | Some(TypeQualifier::Host | TypeQualifier::Net | TypeQualifier::Gateway)
        ) {
            return Err(NOT_A_HOST);
        }
        if qualifiers.kind == Some(TypeQualifier::Gateway) {
            return Err(GATEWAY);
        }
        if qualifiers.protocol == Some(Proto::Decnet) {
            let mut parts = text.split('.').map(str::parse::<u32>);
            let (Some(Ok(area)), Some(Ok(node))) = (parts.next(), parts.next()) else {
                return Err(FilterFault::Address { text: escaped_excerpt(text), what: "a DECnet address" });
            };
            let address = area << 10 & 0xfc00 | node & 0x3ff;
            return self.layers.decnet(self.code, qualifiers.direction(), address);
        }
        let (address, bits) = ip4(text)?;
        self.host4((address, prefix_mask(bits)), qualifiers)
    }

    /// The condition for a network with a prefix length.
    pub(crate) fn network4(
        &mut self,
        text: &str,
        length: u32,
        qualifiers: Qualifiers,
    ) -> Result<ConditionId, FilterFault> {
        if length > 32 {
            return Err(FilterFault::Limit { what: "length of an IPv4 prefix", value: length, max: 32 });
        }
        self.network_with_mask(text, prefix_mask(length), qualifiers)
    }

    /// The condition for a network with a mask.
    pub(crate) fn netmask4(
        &mut self,
        text: &str,
        mask: &str,
        qualifiers: Qualifiers,
    ) -> Result<ConditionId, FilterFault> {
        let (mask, _) = ip4(mask)?;
        self.network_with_mask(text, mask, qualifiers)
    }

    fn network_with_mask(
        &mut self,
        text: &str,
        mask: u32,
        qualifiers: Qualifiers,
    ) -> Result<ConditionId, FilterFault> {
        let (address, _) = ip4(text)?;
        if address & !mask != 0 {
            return Err(FilterFault::HostBits(escaped_excerpt(text)));
        }
        match qualifiers.kind {
            Some(TypeQualifier::Net) => {
                if qualifiers.protocol == Some(Proto::Decnet) {
                    return self.layers.decnet(self.code, qualifiers.direction(), address);
                }
                self.host4((address, mask), qualifiers)
            }
            _ => Err(FilterFault::Qualifier("a mask goes with `net` only")),
        }
    }

    /// The condition for an IPv6 address, optionally with a prefix length.
    pub(crate) fn ip6(
        &mut self,
        address: core::net::Ipv6Addr,
        length: Option<u32>,
        qualifiers: Qualifiers,
    ) -> Result<ConditionId, FilterFault> {
        let length = length.unwrap_or(128);
        if length > 128 {
            return Err(FilterFault::Limit { what: "length of an IPv6 prefix", value: length, max: 128 });
        }
        if address.to_bits() & !u128::MAX.checked_shl(128 - length).unwrap_or(0) != 0 {
            return Err(FilterFault::HostBits(address.to_string()));
        }
        match qualifiers.kind {
            None | Some(TypeQualifier::Host) if length != 128 => {
                Err(FilterFault::Qualifier("the length of a prefix goes with `net` only"))
            }
            None | Some(TypeQualifier::Host | TypeQualifier::Net) => {
                self.layers.host6(self.code, qualifiers.protocol, qualifiers.direction(), (address, length))
            }
            Some(_) => Err(NOT_A_HOST),
        }
    }

    /// The condition for an Ethernet address.
    pub(crate) fn mac(
        &mut self,
        address: [u8; 6],
        qualifiers: Qualifiers,
    ) -> Result<ConditionId, FilterFault> {
        if !matches!(qualifiers.kind, None | Some(TypeQualifier::Host))
            || qualifiers.protocol != Some(Proto::Link)
        {
            return Err(FilterFault::Qualifier("an Ethernet address goes with `ether host` only"));
        }
        self.layers.mac(self.code, qualifiers.direction(), address)
    }

    /// The condition for a name.
    pub(crate) fn name(&mut self, name: &str, qualifiers: Qualifiers) -> Result<ConditionId, FilterFault> {
        let unknown = |kind| FilterFault::Name { name: escaped_excerpt(name), kind };
        match qualifiers.kind {
            None | Some(TypeQualifier::Host) => match qualifiers.protocol {
                Some(Proto::Link) => Err(unknown("Ethernet host")),
                Some(Proto::Decnet) => Err(unknown("DECnet host")),
                _ => self.host(name, qualifiers),
            },
            Some(TypeQualifier::Net) => Err(unknown("network")),
            Some(TypeQualifier::Port) => {
                let service = self.service(name).ok_or(unknown("port"))?;
                let transport = port_transport(name, service.protocol, qualifiers.transport()?)?;
                self.ports((u32::from(service.port), u32::from(service.port)), transport, qualifiers)
            }
            Some(TypeQualifier::PortRange) => {
                let (first, last) = name.split_once('-').ok_or(unknown("range of ports"))?;
                let port = |name| self.service(name).ok_or(unknown("port"));
                let (first, last) = (port(first)?, port(last)?);
                let named = if first.protocol == last.protocol { first.protocol } else { None };
                let transport = port_transport(name, named, qualifiers.transport()?)?;
                self.ports((u32::from(first.port), u32::from(last.port)), transport, qualifiers)
            }
            Some(TypeQualifier::Protocol | TypeQualifier::ProtocolChain) => {
                let number = match qualifiers.protocol {
                    None | Some(Proto::Ip | Proto::Ip6) => names::protocol(name),
                    Some(Proto::Link) => names::link_protocol(name),
                    Some(Proto::Iso) => names::osi_protocol(name),
                    Some(_) => None,
                };
                let number = number.ok_or(unknown("protocol"))?;
                if qualifiers.kind == Some(TypeQualifier::Protocol) {
                    self.layers.protocol(self.code, qualifiers.protocol, number)
                } else {
                    self.layers.protocol_chain(self.code, qualifiers.protocol, number)
                }
            }
            Some(TypeQualifier::Gateway) => Err(GATEWAY),
        }
    }

    /// Looks up a port by its number or name.
    fn service(&self, name: &str) -> Option<PortName> {
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            return name.parse().ok().map(|port| PortName { port, protocol: None });
        }
        names::service(name).or_else(|| self.names.service(name))
    }

    /// The condition for the addresses of a host name.
    fn host(&mut self, name: &str, qualifiers: Qualifiers) -> Result<ConditionId, FilterFault> {
        let kind = if qualifiers.protocol == Some(Proto::Ip6) { "IPv6 host" } else { "host" };
        let (mut any, is_raw_ip) =
            (Vec::new(), matches!(self.layers.link, LinkHeader::Raw | LinkHeader::Ipv4 | LinkHeader::Ipv6));
        for address in self.names.host(name) {
            let protocol_of = |family| {
                if is_raw_ip && qualifiers.protocol.is_none() { Some(family) } else { qualifiers.protocol }
            };
            match address {
                IpAddr::V4(_) if qualifiers.protocol == Some(Proto::Ip6) => {}
                IpAddr::V6(_) if qualifiers.protocol == Some(Proto::Ip) => {}
                IpAddr::V4(address) => {
                    let qualifiers = Qualifiers { protocol: protocol_of(Proto::Ip), ..qualifiers };
                    any.push(self.host4((address.to_bits(), u32::MAX), qualifiers)?);
                }
                IpAddr::V6(address) => {
                    let protocol = protocol_of(Proto::Ip6);
                    any.push(self.layers.host6(
                        self.code,
                        protocol,
                        qualifiers.direction(),
                        (address, 128),
                    )?);
                }
            }
        }
        if any.is_empty() {
            return Err(FilterFault::Name { name: escaped_excerpt(name), kind });
        }
        self.code.any(&any)
    }

    /// The condition for an identifier of one token, without prefix length or mask.
    pub(crate) fn token(
        &mut self,
        kind: &TokenKind,
        qualifiers: Qualifiers,
    ) -> Result<ConditionId, FilterFault> {
        match kind {
            TokenKind::Number(number) => self.number(*number, qualifiers),
            TokenKind::Name(name) => self.name(name, qualifiers),
            TokenKind::Dotted(text) => self.dotted(text, qualifiers),
            TokenKind::Ip6(address) => self.ip6(*address, None, qualifiers),
            TokenKind::Mac(address) => self.mac(*address, qualifiers),
            _ => Err(NOT_A_HOST),
        }
    }
}

/// The transport protocol of a named port. The protocol that the name belongs to and the one in the filter must not
/// differ.
fn port_transport(
    name: &str,
    of_name: Option<Transport>,
    of_filter: Option<Transport>,
) -> Result<Option<Transport>, FilterFault> {
    match (of_name, of_filter) {
        (Some(of_name), Some(of_filter)) if of_name != of_filter => {
            Err(FilterFault::PortProtocol { name: escaped_excerpt(name), protocol: of_filter.name() })
        }
        (of_name, of_filter) => Ok(of_filter.or(of_name)),
    }
}

/// The IPv4 mask of a prefix length.
fn prefix_mask(length: u32) -> u32 {
    u32::MAX.checked_shl(32 - length).unwrap_or(0)
}

/// Parses one to four decimal numbers up to 255 as the first bytes of an IPv4 address. Returns the address, with zeros
/// for the other bytes, and the number of bits that the text gives.
fn ip4(text: &str) -> Result<(u32, u32), FilterFault> {
    let invalid = || FilterFault::Address { text: escaped_excerpt(text), what: "an IPv4 address" };
    let (mut address, mut bits) = (0_u32, 0);
    for part in text.split('.') {
        let is_decimal = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let byte: u8 = if is_decimal { part.parse().map_err(|_| invalid())? } else { return Err(invalid()) };
        (address, bits) = (address << 8 | u32::from(byte), bits + 8);
    }
    Ok((address.checked_shl(32 - bits).unwrap_or(0), bits))
}
