//! Addresses, ports and protocols with the qualifiers before them: `tcp dst port 80`.

use crate::condition::{ConditionId, Conditions};
use crate::error::FilterFault;
use crate::layers::{Layers, LinkHeader};
use crate::names::{self, Names, PortName, Transport};
use crate::network::AddressSide;
use crate::token::{TokenKind, shown};
use crate::word::Proto;
use core::net::IpAddr;

/// The kinds of things that an identifier can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Qualifier {
    Host,
    Net,
    Port,
    PortRange,
    Protocol,
    ProtocolChain,
    Gateway,
}

/// Qualifiers. An identifier without any has those of the primitive before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Qualifiers {
    pub(crate) protocol: Option<Proto>,
    pub(crate) direction: Option<AddressSide>,
    pub(crate) thing: Option<Qualifier>,
}

const NOT_A_HOST: FilterFault =
    FilterFault::Qualifier("an address goes with `host` or `net`, not with ports and protocols");
const GATEWAY: FilterFault = FilterFault::Unsupported {
    word: "gateway",
    why: "names are not looked up; write `ether host ADDRESS and not host ADDRESS`",
};

impl Qualifiers {
    fn direction(&self) -> AddressSide {
        self.direction.unwrap_or(AddressSide::Either)
    }

    /// The transport protocol that ports are of; all, where none is said.
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

/// Makes conditions of identifiers.
pub(crate) struct Identifiers<'a> {
    pub(crate) layers: &'a Layers,
    pub(crate) names: &'a dyn Names,
    pub(crate) code: &'a mut Conditions,
}

impl Identifiers<'_> {
    /// A number.
    pub(crate) fn number(&mut self, number: u32, of: Qualifiers) -> Result<ConditionId, FilterFault> {
        match of.thing {
            None | Some(Qualifier::Host | Qualifier::Net) => {
                if of.protocol == Some(Proto::Decnet) {
                    return self.layers.decnet(self.code, of.direction(), number);
                }
                let (mut address, mut mask) = (number, u32::MAX);
                if of.thing == Some(Qualifier::Net) {
                    while address != 0 && address & 0xff00_0000 == 0 {
                        (address, mask) = (address << 8, mask << 8);
                    }
                }
                self.host4((address, mask), of)
            }
            Some(Qualifier::Port | Qualifier::PortRange) => {
                let transport = of.transport()?;
                self.ports((number, number), transport, of)
            }
            Some(Qualifier::Protocol) => self.layers.protocol(self.code, of.protocol, number),
            Some(Qualifier::ProtocolChain) => self.layers.chain(self.code, of.protocol, number),
            Some(Qualifier::Gateway) => Err(GATEWAY),
        }
    }

    fn host4(&mut self, address: (u32, u32), of: Qualifiers) -> Result<ConditionId, FilterFault> {
        self.layers.host4(self.code, of.protocol, of.direction(), address)
    }

    fn ports(
        &mut self,
        ports: (u32, u32),
        transport: Option<Transport>,
        of: Qualifiers,
    ) -> Result<ConditionId, FilterFault> {
        let value = ports.0.max(ports.1);
        if value > 0xffff {
            return Err(FilterFault::Limit { what: "port", value, max: 0xffff });
        }
        let mut either = Vec::new();
        for version in [6, 4] {
            either.push(self.layers.port(self.code, version, transport, of.direction(), ports)?);
        }
        self.code.any(&either)
    }

    /// Two to four numbers with dots: an IPv4 address, or the beginning of one.
    pub(crate) fn dotted(&mut self, text: &str, of: Qualifiers) -> Result<ConditionId, FilterFault> {
        if !matches!(of.thing, None | Some(Qualifier::Host | Qualifier::Net | Qualifier::Gateway)) {
            return Err(NOT_A_HOST);
        }
        if of.thing == Some(Qualifier::Gateway) {
            return Err(GATEWAY);
        }
        if of.protocol == Some(Proto::Decnet) {
            let mut parts = text.split('.').map(str::parse::<u32>);
            let (Some(Ok(area)), Some(Ok(node))) = (parts.next(), parts.next()) else {
                return Err(FilterFault::Address { text: shown(text), what: "a DECnet address" });
            };
            let address = area << 10 & 0xfc00 | node & 0x3ff;
            return self.layers.decnet(self.code, of.direction(), address);
        }
        let (address, bits) = ip4(text)?;
        self.host4((address, prefix(bits)), of)
    }

    /// A network with the length of its prefix.
    pub(crate) fn network4(
        &mut self,
        text: &str,
        length: u32,
        of: Qualifiers,
    ) -> Result<ConditionId, FilterFault> {
        if length > 32 {
            return Err(FilterFault::Limit { what: "length of an IPv4 prefix", value: length, max: 32 });
        }
        self.masked4(text, prefix(length), of)
    }

    /// A network with its mask.
    pub(crate) fn netmask4(
        &mut self,
        text: &str,
        mask: &str,
        of: Qualifiers,
    ) -> Result<ConditionId, FilterFault> {
        let (mask, _) = ip4(mask)?;
        self.masked4(text, mask, of)
    }

    fn masked4(&mut self, text: &str, mask: u32, of: Qualifiers) -> Result<ConditionId, FilterFault> {
        let (address, _) = ip4(text)?;
        if address & !mask != 0 {
            return Err(FilterFault::HostBits(shown(text)));
        }
        match of.thing {
            Some(Qualifier::Net) => {
                if of.protocol == Some(Proto::Decnet) {
                    return self.layers.decnet(self.code, of.direction(), address);
                }
                self.host4((address, mask), of)
            }
            _ => Err(FilterFault::Qualifier("a mask goes with `net` only")),
        }
    }

    /// An IPv6 address, perhaps with the length of its prefix.
    pub(crate) fn ip6(
        &mut self,
        address: core::net::Ipv6Addr,
        length: Option<u32>,
        of: Qualifiers,
    ) -> Result<ConditionId, FilterFault> {
        let length = length.unwrap_or(128);
        if length > 128 {
            return Err(FilterFault::Limit { what: "length of an IPv6 prefix", value: length, max: 128 });
        }
        if address.to_bits() & !u128::MAX.checked_shl(128 - length).unwrap_or(0) != 0 {
            return Err(FilterFault::HostBits(address.to_string()));
        }
        match of.thing {
            None | Some(Qualifier::Host) if length != 128 => {
                Err(FilterFault::Qualifier("the length of a prefix goes with `net` only"))
            }
            None | Some(Qualifier::Host | Qualifier::Net) => {
                self.layers.host6(self.code, of.protocol, of.direction(), (address, length))
            }
            Some(_) => Err(NOT_A_HOST),
        }
    }

    /// An Ethernet address.
    pub(crate) fn mac(&mut self, address: [u8; 6], of: Qualifiers) -> Result<ConditionId, FilterFault> {
        if !matches!(of.thing, None | Some(Qualifier::Host)) || of.protocol != Some(Proto::Link) {
            return Err(FilterFault::Qualifier("an Ethernet address goes with `ether host` only"));
        }
        self.layers.mac(self.code, of.direction(), address)
    }

    /// A name.
    pub(crate) fn name(&mut self, name: &str, of: Qualifiers) -> Result<ConditionId, FilterFault> {
        let unknown = |kind| FilterFault::Name { name: shown(name), kind };
        match of.thing {
            None | Some(Qualifier::Host) => match of.protocol {
                Some(Proto::Link) => Err(unknown("Ethernet host")),
                Some(Proto::Decnet) => Err(unknown("DECnet host")),
                _ => self.host(name, of),
            },
            Some(Qualifier::Net) => Err(unknown("network")),
            Some(Qualifier::Port) => {
                let service = self.service(name).ok_or(unknown("port"))?;
                let transport = of_protocol(name, service.protocol, of.transport()?)?;
                self.ports((u32::from(service.port), u32::from(service.port)), transport, of)
            }
            Some(Qualifier::PortRange) => {
                let (first, last) = name.split_once('-').ok_or(unknown("range of ports"))?;
                let port = |name| self.service(name).ok_or(unknown("port"));
                let (first, last) = (port(first)?, port(last)?);
                let named = if first.protocol == last.protocol { first.protocol } else { None };
                let transport = of_protocol(name, named, of.transport()?)?;
                self.ports((u32::from(first.port), u32::from(last.port)), transport, of)
            }
            Some(Qualifier::Protocol | Qualifier::ProtocolChain) => {
                let number = match of.protocol {
                    None | Some(Proto::Ip | Proto::Ip6) => names::protocol(name),
                    Some(Proto::Link) => names::link_protocol(name),
                    Some(Proto::Iso) => names::osi_protocol(name),
                    Some(_) => None,
                };
                let number = number.ok_or(unknown("protocol"))?;
                if of.thing == Some(Qualifier::Protocol) {
                    self.layers.protocol(self.code, of.protocol, number)
                } else {
                    self.layers.chain(self.code, of.protocol, number)
                }
            }
            Some(Qualifier::Gateway) => Err(GATEWAY),
        }
    }

    /// A port by its number or name.
    fn service(&self, name: &str) -> Option<PortName> {
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            return name.parse().ok().map(|port| PortName { port, protocol: None });
        }
        names::service(name).or_else(|| self.names.service(name))
    }

    fn host(&mut self, name: &str, of: Qualifiers) -> Result<ConditionId, FilterFault> {
        let kind = if of.protocol == Some(Proto::Ip6) { "IPv6 host" } else { "host" };
        let (mut any, is_bare) =
            (Vec::new(), matches!(self.layers.link, LinkHeader::Raw | LinkHeader::Ipv4 | LinkHeader::Ipv6));
        for address in self.names.host(name) {
            let own = |family| if is_bare && of.protocol.is_none() { Some(family) } else { of.protocol };
            match address {
                IpAddr::V4(_) if of.protocol == Some(Proto::Ip6) => {}
                IpAddr::V6(_) if of.protocol == Some(Proto::Ip) => {}
                IpAddr::V4(address) => {
                    let of = Qualifiers { protocol: own(Proto::Ip), ..of };
                    any.push(self.host4((address.to_bits(), u32::MAX), of)?);
                }
                IpAddr::V6(address) => {
                    let protocol = own(Proto::Ip6);
                    any.push(self.layers.host6(self.code, protocol, of.direction(), (address, 128))?);
                }
            }
        }
        if any.is_empty() {
            return Err(FilterFault::Name { name: shown(name), kind });
        }
        self.code.any(&any)
    }

    /// The identifier of one token, with what is behind its slash or `mask`.
    pub(crate) fn token(&mut self, kind: &TokenKind, of: Qualifiers) -> Result<ConditionId, FilterFault> {
        match kind {
            TokenKind::Number(number) => self.number(*number, of),
            TokenKind::Name(name) => self.name(name, of),
            TokenKind::Dotted(text) => self.dotted(text, of),
            TokenKind::Ip6(address) => self.ip6(*address, None, of),
            TokenKind::Mac(address) => self.mac(*address, of),
            _ => Err(NOT_A_HOST),
        }
    }
}

/// The protocol of a named port, which has to be the one that the filter names.
fn of_protocol(
    name: &str,
    of_name: Option<Transport>,
    of_filter: Option<Transport>,
) -> Result<Option<Transport>, FilterFault> {
    match (of_name, of_filter) {
        (Some(named), Some(asked)) if named != asked => {
            Err(FilterFault::PortProtocol { name: shown(name), protocol: asked.name() })
        }
        (named, asked) => Ok(asked.or(named)),
    }
}

fn prefix(length: u32) -> u32 {
    u32::MAX.checked_shl(32 - length).unwrap_or(0)
}

/// One to four decimal numbers up to 255, as the first bytes of an address, and how many bits they are.
fn ip4(text: &str) -> Result<(u32, u32), FilterFault> {
    let bogus = || FilterFault::Address { text: shown(text), what: "an IPv4 address" };
    let (mut address, mut bits) = (0_u32, 0);
    for part in text.split('.') {
        let is_decimal = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let byte: u8 = if is_decimal { part.parse().map_err(|_| bogus())? } else { return Err(bogus()) };
        (address, bits) = (address << 8 | u32::from(byte), bits + 8);
    }
    Ok((address.checked_shl(32 - bits).unwrap_or(0), bits))
}
