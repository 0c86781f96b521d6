//! Names for numbers: a fixed table, so that a filter has the same meaning on every machine, and an optional resolver.

use crate::{layers, network};
use core::net::IpAddr;

/// The port that a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortName {
    /// The port number.
    pub port: u16,
    /// The protocol that the name belongs to; `None` if it belongs to all protocols.
    pub protocol: Option<Transport>,
}

/// A transport protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP, protocol 6.
    Tcp,
    /// UDP, protocol 17.
    Udp,
    /// SCTP, protocol 132.
    Sctp,
}

impl Transport {
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

/// A source of host and port names besides the fixed table. The compiler itself reads no file and asks no name server.
pub trait Names {
    /// The addresses of a host; an empty list if the name is unknown.
    fn host(&self, name: &str) -> Vec<IpAddr>;

    /// The port of a service that is not in the fixed table.
    fn service(&self, name: &str) -> Option<PortName>;
}

/// The names of the fixed table, and no others.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedNames;

impl Names for FixedNames {
    fn host(&self, _: &str) -> Vec<IpAddr> {
        Vec::new()
    }

    fn service(&self, _: &str) -> Option<PortName> {
        None
    }
}

/// The port of a service name in the fixed table.
pub(crate) fn service(name: &str) -> Option<PortName> {
    let port_in = |list: &[(&str, u16)]| list.iter().find(|(known, _)| *known == name).map(|&(_, port)| port);
    if let Some(port) = port_in(ANY_TRANSPORT_PORTS) {
        return Some(PortName { port, protocol: None });
    }
    if let Some(port) = port_in(TCP_PORTS) {
        return Some(PortName { port, protocol: Some(Transport::Tcp) });
    }
    port_in(UDP_PORTS).map(|port| PortName { port, protocol: Some(Transport::Udp) })
}

/// The ports of the fixed table that a transport protocol uses, with their names. A port can have several names.
pub fn named_ports(transport: Transport) -> impl Iterator<Item = (u16, &'static str)> {
    let own = match transport {
        Transport::Tcp => TCP_PORTS,
        Transport::Udp => UDP_PORTS,
        Transport::Sctp => &[],
    };
    ANY_TRANSPORT_PORTS.iter().chain(own).map(|&(name, port)| (port, name))
}

/// The first name in the fixed table of a protocol above IP.
pub fn protocol_name(number: u8) -> Option<&'static str> {
    PROTOCOLS.iter().find(|(_, known)| *known == u32::from(number)).map(|&(name, _)| name)
}

/// Names of ports that are the same for all protocols.
const ANY_TRANSPORT_PORTS: &[(&str, u16)] = &[
    ("echo", 7),
    ("discard", 9),
    ("daytime", 13),
    ("time", 37),
    ("domain", 53),
    ("kerberos", 88),
    ("sunrpc", 111),
    ("snmp", 161),
    ("snmp-trap", 162),
    ("https", 443),
    ("ldap", 389),
    ("ldaps", 636),
    ("ipp", 631),
    ("openvpn", 1194),
    ("radius", 1812),
    ("nfs", 2049),
    ("sip", 5060),
    ("sip-tls", 5061),
    ("iperf", 5001),
];

/// Names of TCP ports.
const TCP_PORTS: &[(&str, u16)] = &[
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("finger", 79),
    ("http", 80),
    ("pop3", 110),
    ("nntp", 119),
    ("imap2", 143),
    ("bgp", 179),
    ("submissions", 465),
    ("login", 513),
    ("submission", 587),
    ("domain-s", 853),
    ("imaps", 993),
    ("pop3s", 995),
    ("mysql", 3306),
    ("postgresql", 5432),
    ("x11", 6000),
    ("http-alt", 8080),
];

/// Names of UDP ports.
const UDP_PORTS: &[(&str, u16)] = &[
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("ntp", 123),
    ("netbios-ns", 137),
    ("netbios-dgm", 138),
    ("isakmp", 500),
    ("who", 513),
    ("syslog", 514),
    ("route", 520),
    ("ipsec-nat-t", 4500),
    ("mdns", 5353),
];

/// IANA's numbers of protocols above IP.
const PROTOCOLS: &[(&str, u32)] = &[
    ("ip", 0),
    ("hopopt", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ggp", 3),
    ("ipencap", 4),
    ("st", 5),
    ("tcp", 6),
    ("egp", 8),
    ("igp", 9),
    ("pup", 12),
    ("udp", 17),
    ("hmp", 20),
    ("xns-idp", 22),
    ("rdp", 27),
    ("iso-tp4", 29),
    ("dccp", 33),
    ("xtp", 36),
    ("ddp", 37),
    ("idpr-cmtp", 38),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("idrp", 45),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("skip", 57),
    ("ipv6-icmp", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("rspf", 73),
    ("vmtp", 81),
    ("eigrp", 88),
    ("ospf", 89),
    ("ax.25", 93),
    ("ipip", 94),
    ("etherip", 97),
    ("encap", 98),
    ("pim", 103),
    ("ipcomp", 108),
    ("vrrp", 112),
    ("l2tp", 115),
    ("isis", 124),
    ("sctp", 132),
    ("fc", 133),
    ("mobility-header", 135),
    ("udplite", 136),
    ("mpls-in-ip", 137),
    ("manet", 138),
    ("hip", 139),
    ("shim6", 140),
    ("wesp", 141),
    ("rohc", 142),
];

/// Protocols above the link layer. Numbers up to 1,500 are service access points of IEEE 802.2; higher ones are
/// EtherTypes.
const LINK_PROTOCOLS: &[(&str, u32)] = &[
    ("aarp", layers::AARP),
    ("arp", layers::ARP),
    ("atalk", layers::ATALK),
    ("decnet", layers::DECNET),
    ("ip", layers::IP),
    ("ip6", layers::IP6),
    ("lat", layers::LAT),
    ("loopback", 0x9000),
    ("mopdl", layers::MOPDL),
    ("moprc", layers::MOPRC),
    ("rarp", layers::RARP),
    ("sca", layers::SCA),
    ("iso", layers::SAP_ISO),
    ("stp", layers::SAP_STP),
    ("ipx", layers::SAP_IPX),
    ("netbeui", layers::SAP_NETBEUI),
];

/// OSI network protocols.
const OSI_PROTOCOLS: &[(&str, u32)] =
    &[("clnp", network::CLNP), ("esis", network::ESIS), ("isis", network::ISIS)];

/// The number of a name in a list.
fn number(list: &[(&str, u32)], name: &str) -> Option<u32> {
    list.iter().find(|(known, _)| *known == name).map(|&(_, number)| number)
}

/// The number of a protocol above IP.
pub(crate) fn protocol(name: &str) -> Option<u32> {
    number(PROTOCOLS, name)
}

/// The number of a protocol above the link layer.
pub(crate) fn link_protocol(name: &str) -> Option<u32> {
    number(LINK_PROTOCOLS, name)
}

/// The number of an OSI network protocol.
pub(crate) fn osi_protocol(name: &str) -> Option<u32> {
    number(OSI_PROTOCOLS, name)
}
