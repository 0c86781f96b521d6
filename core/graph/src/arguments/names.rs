//! Arguments that are names: of elements, ports and protocols. Names of hosts are in [`super::addresses`].

use super::number::parse_unsigned;
use super::protocols::protocol_number;
use super::{ArgumentContext, ArgumentFault, ArgumentValue, EthernetAddress, Ipv4Prefix, Ipv6Prefix};
use core::net::{Ipv4Addr, Ipv6Addr};

/// The names that other elements define, and the elements themselves. Names are full names: for an argument of the
/// element `a/b`, the name `x` is looked up as `a/x`, then as `x`.
pub trait ArgumentNames {
    /// Returns the index of an element.
    fn element(&self, _name: &str) -> Option<usize> {
        None
    }

    /// Returns an IPv4 address, such as one of an AddressInfo.
    fn ipv4(&self, _name: &str) -> Option<Ipv4Addr> {
        None
    }

    /// Returns an IPv4 prefix.
    fn ipv4_prefix(&self, _name: &str) -> Option<Ipv4Prefix> {
        None
    }

    /// Returns an IPv6 address.
    fn ipv6(&self, _name: &str) -> Option<Ipv6Addr> {
        None
    }

    /// Returns an IPv6 prefix.
    fn ipv6_prefix(&self, _name: &str) -> Option<Ipv6Prefix> {
        None
    }

    /// Returns an Ethernet address.
    fn ethernet(&self, _name: &str) -> Option<EthernetAddress> {
        None
    }

    /// Returns the offset and the size in bytes of an annotation, beyond those of Click.
    fn annotation(&self, _name: &str) -> Option<(usize, usize)> {
        None
    }

    /// Returns a port of an IP protocol, beyond those of the table.
    fn port(&self, _protocol: u8, _name: &str) -> Option<u16> {
        None
    }

    /// Returns the index of the element that defines a pattern for rewriters.
    fn pattern(&self, _name: &str) -> Option<usize> {
        None
    }
}

/// No names: a configuration without elements that define some.
#[derive(Clone, Copy, Debug)]
pub struct NoNames;

impl ArgumentNames for NoNames {}

/// Looks a name up in the scopes around an element, from the innermost one.
pub(super) fn in_scopes<T>(name: &str, element: &str, find: impl Fn(&str) -> Option<T>) -> Option<T> {
    let mut scope = element;
    while let Some((outer, _)) = scope.rsplit_once('/') {
        if let Some(found) = find(&format!("{outer}/{name}")) {
            return Some(found);
        }
        scope = outer;
    }
    find(name)
}

/// Another element, as its index in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ElementReference(pub usize);

impl ArgumentValue for ElementReference {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        in_scopes(text, context.element, |name| context.names.element(name))
            .map(Self)
            .ok_or(ArgumentFault::NoElement)
    }

    fn placeholder() -> Self {
        Self(0)
    }
}

/// A pattern for rewriters that an element defines.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PatternReference {
    /// The index of the element.
    pub element: usize,
    /// The full name.
    pub name: String,
}

impl ArgumentValue for PatternReference {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        let find =
            |name: &str| context.names.pattern(name).map(|element| Self { element, name: name.to_owned() });
        in_scopes(text, context.element, find)
            .ok_or_else(|| ArgumentFault::Other(format!("no such pattern '{text}'")))
    }

    fn placeholder() -> Self {
        Self { element: 0, name: String::new() }
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Names of ports, for TCP and UDP.
const PORTS: &[(&str, u16)] = &[
    ("auth", 113),
    ("bgp", 179),
    ("bootpc", 68),
    ("bootps", 67),
    ("chargen", 19),
    ("daytime", 13),
    ("discard", 9),
    ("dns", 53),
    ("domain", 53),
    ("echo", 7),
    ("finger", 79),
    ("ftp", 21),
    ("ftp-data", 20),
    ("http", 80),
    ("https", 443),
    ("imap", 143),
    ("imap3", 220),
    ("imaps", 993),
    ("irc", 194),
    ("ldap", 389),
    ("netbios-dgm", 138),
    ("netbios-ns", 137),
    ("netbios-ssn", 139),
    ("nntp", 119),
    ("ntp", 123),
    ("pop3", 110),
    ("pop3s", 995),
    ("pptp", 1723),
    ("rip", 520),
    ("route", 520),
    ("smtp", 25),
    ("snmp", 161),
    ("snmp-trap", 162),
    ("socks", 1080),
    ("ssh", 22),
    ("sunrpc", 111),
    ("syslog", 514),
    ("telnet", 23),
    ("tftp", 69),
    ("time", 37),
    ("traceroute", 33434),
    ("whois", 43),
    ("www", 80),
];

/// The number of an IP protocol, written as a number or by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpProtocol(pub u8);

impl ArgumentValue for IpProtocol {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        if parse_unsigned(text).is_some() {
            return u8::parse_argument(text, context).map(Self);
        }
        // Lists of protocols have names in capitals as aliases.
        let number = protocol_number(text).or_else(|| protocol_number(&text.to_ascii_lowercase()));
        number.map(Self).ok_or(ArgumentFault::Type("IP protocol"))
    }

    fn placeholder() -> Self {
        Self(0)
    }
}

/// A TCP port, written as a number or by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TcpPort(pub u16);

/// A UDP port, written as a number or by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UdpPort(pub u16);

impl ArgumentValue for TcpPort {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        port(TCP, text, context).map(Self)
    }

    fn placeholder() -> Self {
        Self(0)
    }
}

impl ArgumentValue for UdpPort {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        port(UDP, text, context).map(Self)
    }

    fn placeholder() -> Self {
        Self(0)
    }
}

fn port(protocol: u8, text: &str, context: &ArgumentContext<'_>) -> Result<u16, ArgumentFault> {
    if parse_unsigned(text).is_some() {
        return u16::parse_argument(text, context);
    }
    in_scopes(text, context.element, |name| context.names.port(protocol, name))
        .or_else(|| PORTS.iter().find(|(name, _)| *name == text).map(|(_, port)| *port))
        .ok_or(ArgumentFault::Type("port number or name"))
}
