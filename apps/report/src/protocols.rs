//! Packets and bytes by protocol and service port. All counts are exact.

use crate::talkers::PacketBytes;
use std::collections::BTreeMap;
use weir_abi::{Descriptor, flag};
use weir_filter::{Transport, named_ports, protocol_name};

/// The ports below this number are service ports (the system ports of RFC 6335), and those that have a name.
const SYSTEM_PORTS: u16 = 1_024;

/// Traffic by protocol, of the outermost IP headers.
#[derive(Debug)]
pub(crate) struct Protocols {
    /// Traffic of IPv4 and IPv6.
    ip: [IpTraffic; 2],
    /// Traffic without IP, by EtherType.
    others: BTreeMap<u16, PacketBytes>,
}

/// Traffic of a version of IP.
#[derive(Debug)]
struct IpTraffic {
    /// Traffic by the number of the protocol above IP.
    protocols: Vec<PacketBytes>,
    tcp: ServicePorts,
    udp: ServicePorts,
}

/// Traffic by service port.
#[derive(Debug)]
struct ServicePorts {
    /// The ports above the system ports that have a name, in order.
    named: Vec<u16>,
    /// The traffic of each system port, and of each port in `named`.
    counts: Vec<PacketBytes>,
}

/// A row of the hierarchy of protocols.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProtocolRow {
    /// The depth in the hierarchy: 0 for a network protocol, 1 for a protocol above it, 2 for a service.
    pub(crate) depth: usize,
    pub(crate) name: String,
    pub(crate) amount: PacketBytes,
}

impl Default for Protocols {
    fn default() -> Self {
        let ip = || IpTraffic {
            protocols: vec![PacketBytes::default(); 256],
            tcp: ServicePorts::new(Transport::Tcp),
            udp: ServicePorts::new(Transport::Udp),
        };
        Self { ip: [ip(), ip()], others: BTreeMap::new() }
    }
}

impl ServicePorts {
    fn new(transport: Transport) -> Self {
        let mut named: Vec<u16> =
            named_ports(transport).map(|(port, _)| port).filter(|port| *port >= SYSTEM_PORTS).collect();
        named.sort_unstable();
        named.dedup();
        let counts = vec![PacketBytes::default(); usize::from(SYSTEM_PORTS) + named.len()];
        Self { named, counts }
    }

    /// Counts a packet for its service port: the lower of its ports that are service ports, if there is one.
    #[inline]
    fn add(&mut self, descriptor: &Descriptor, amount: PacketBytes) {
        let (low, high) = {
            let Descriptor { src_port, dst_port, .. } = *descriptor;
            (src_port.min(dst_port), src_port.max(dst_port))
        };
        let place = if low < SYSTEM_PORTS {
            usize::from(low)
        } else {
            let named = |port| self.named.binary_search(&port).ok();
            let Some(index) = named(low).or_else(|| named(high)) else { return };
            usize::from(SYSTEM_PORTS) + index
        };
        if let Some(count) = self.counts.get_mut(place) {
            count.add(amount);
        }
    }

    /// The ports with traffic, with their traffic.
    fn used(&self) -> impl Iterator<Item = (u16, PacketBytes)> {
        let ports = (0..SYSTEM_PORTS).chain(self.named.iter().copied());
        ports.zip(self.counts.iter().copied()).filter(|(_, count)| count.packets > 0)
    }
}

impl Protocols {
    /// Counts a packet.
    #[inline]
    pub(crate) fn add(&mut self, descriptor: &Descriptor) {
        let amount = PacketBytes { packets: 1, bytes: u64::from(descriptor.wire_len) };
        let [v4, v6] = &mut self.ip;
        let ip = match descriptor.flags & (flag::IPV4 | flag::IPV6) {
            flag::IPV4 => v4,
            flag::IPV6 => v6,
            _ => return self.others.entry(descriptor.ether_type).or_default().add(amount),
        };
        if let Some(count) = ip.protocols.get_mut(usize::from(descriptor.ip_proto)) {
            count.add(amount);
        }
        // Ports can be captured without the rest of their header. Ports that are not captured are 0.
        if descriptor.flags & flag::L4 != 0 || descriptor.src_port | descriptor.dst_port != 0 {
            if descriptor.flags & flag::TCP != 0 {
                ip.tcp.add(descriptor, amount);
            } else if descriptor.flags & flag::UDP != 0 {
                ip.udp.add(descriptor, amount);
            }
        }
    }

    /// The hierarchy as rows, of each protocol the part with most bytes first. A protocol has at most `most` rows below it;
    /// the rest is one row.
    pub(crate) fn rows(&self, most: usize) -> Vec<ProtocolRow> {
        let mut top: Vec<(String, PacketBytes, Option<&IpTraffic>)> = Vec::new();
        for (name, ip) in ["IPv4", "IPv6"].into_iter().zip(&self.ip) {
            top.push((name.to_owned(), sum(ip.protocols.iter().copied()), Some(ip)));
        }
        let (shown, rest) = heaviest(self.others.iter().map(|(ty, count)| (*ty, *count)).collect(), most);
        top.extend(shown.into_iter().map(|(ty, count)| (ether_type_name(ty), count, None)));
        top.retain(|(_, amount, _)| amount.packets > 0);
        top.sort_by(|a, b| b.1.bytes.cmp(&a.1.bytes).then_with(|| a.0.cmp(&b.0)));
        let mut rows = Vec::new();
        for (name, amount, ip) in top {
            rows.push(ProtocolRow { depth: 0, name, amount });
            if let Some(ip) = ip {
                ip.push_rows(&mut rows, most);
            }
        }
        rows.extend(rest.map(|amount| ProtocolRow { depth: 0, name: "other EtherTypes".to_owned(), amount }));
        rows
    }
}

impl IpTraffic {
    fn push_rows(&self, rows: &mut Vec<ProtocolRow>, most: usize) {
        let used = (0u8..=255).zip(self.protocols.iter().copied()).filter(|(_, count)| count.packets > 0);
        let (shown, rest) = heaviest(used.collect(), most);
        for (protocol, amount) in shown {
            rows.push(ProtocolRow { depth: 1, name: protocol_label(protocol), amount });
            let (transport, ports) = match protocol {
                6 => (Transport::Tcp, &self.tcp),
                17 => (Transport::Udp, &self.udp),
                _ => continue,
            };
            let (services, other_services) = heaviest(ports.used().collect(), most);
            let with_service = sum(ports.used().map(|(_, count)| count));
            rows.extend(services.into_iter().map(|(port, amount)| {
                let name = named_ports(transport).find(|(known, _)| *known == port);
                let name = name.map_or_else(|| port.to_string(), |(_, name)| format!("{port} ({name})"));
                ProtocolRow { depth: 2, name, amount }
            }));
            let without_service = PacketBytes {
                packets: amount.packets.saturating_sub(with_service.packets),
                bytes: amount.bytes.saturating_sub(with_service.bytes),
            };
            for (name, amount) in [
                ("other service ports", other_services),
                ("no service port", Some(without_service).filter(|amount| amount.packets > 0)),
            ] {
                rows.extend(amount.map(|amount| ProtocolRow { depth: 2, name: name.to_owned(), amount }));
            }
        }
        rows.extend(rest.map(|amount| ProtocolRow { depth: 1, name: "other protocols".to_owned(), amount }));
    }
}

/// Returns the `most` keys with most bytes, and the sum of the others if there are any.
fn heaviest<K: Ord>(
    mut all: Vec<(K, PacketBytes)>,
    most: usize,
) -> (Vec<(K, PacketBytes)>, Option<PacketBytes>) {
    all.sort_by(|a, b| b.1.bytes.cmp(&a.1.bytes).then_with(|| a.0.cmp(&b.0)));
    let rest = (all.len() > most).then(|| sum(all.drain(most..).map(|(_, count)| count)));
    (all, rest)
}

fn sum(counts: impl Iterator<Item = PacketBytes>) -> PacketBytes {
    counts.fold(PacketBytes::default(), |mut sum, count| {
        sum.add(count);
        sum
    })
}

/// The name of a protocol above IP; its number if it has no name.
pub(crate) fn protocol_label(protocol: u8) -> String {
    match protocol {
        4 => "IPv4 in IP".to_owned(),
        41 => "IPv6 in IP".to_owned(),
        58 => "ICMPv6".to_owned(),
        _ => protocol_name(protocol).map_or_else(|| format!("protocol {protocol}"), str::to_uppercase),
    }
}

fn ether_type_name(ty: u16) -> String {
    match ty {
        0 => "no EtherType".to_owned(),
        0x0800 => "IPv4 with a damaged or cut header".to_owned(),
        0x86dd => "IPv6 with a damaged or cut header".to_owned(),
        0x0806 => "ARP".to_owned(),
        0x8035 => "RARP".to_owned(),
        0x8847 | 0x8848 => "MPLS without IP".to_owned(),
        0x8863 => "PPPoE discovery".to_owned(),
        0x8864 => "PPPoE session without IP".to_owned(),
        0x88cc => "LLDP".to_owned(),
        0x888e => "EAPOL".to_owned(),
        0x88f7 => "PTP".to_owned(),
        0x88e5 => "MACsec".to_owned(),
        _ => format!("EtherType 0x{ty:04x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(flags: u32, ip_proto: u8, ports: (u16, u16), wire_len: u32) -> Descriptor {
        Descriptor {
            flags,
            ip_proto,
            src_port: ports.0,
            dst_port: ports.1,
            wire_len,
            ..Descriptor::default()
        }
    }

    #[test]
    fn packets_are_counted_by_version_protocol_and_the_lower_service_port() {
        let (tcp, udp) = (flag::IPV4 | flag::TCP | flag::L4, flag::IPV4 | flag::UDP | flag::L4);
        let mut protocols = Protocols::default();
        for packet in [
            packet(tcp, 6, (40_000, 443), 1_500),
            packet(tcp, 6, (443, 40_000), 1_500),
            packet(tcp, 6, (3_306, 2_000), 100),
            packet(tcp, 6, (50_000, 60_000), 60),
            packet(flag::IPV4 | flag::TCP, 6, (0, 0), 54),
            packet(udp, 17, (53, 443), 90),
            packet(flag::IPV6 | flag::ICMP | flag::L4, 58, (0, 0), 86),
            Descriptor { ether_type: 0x0806, wire_len: 42, ..Descriptor::default() },
        ] {
            protocols.add(&packet);
        }
        let rows: Vec<_> = protocols
            .rows(20)
            .into_iter()
            .map(|row| (row.depth, row.name, row.amount.packets, row.amount.bytes))
            .collect();
        let row = |depth, name: &str, packets, bytes| (depth, name.to_owned(), packets, bytes);
        assert_eq!(
            rows,
            [
                row(0, "IPv4", 6, 3_304),
                row(1, "TCP", 5, 3_214),
                row(2, "443 (https)", 2, 3_000),
                row(2, "3306 (mysql)", 1, 100),
                row(2, "no service port", 2, 114),
                row(1, "UDP", 1, 90),
                row(2, "53 (domain)", 1, 90),
                row(0, "IPv6", 1, 86),
                row(1, "ICMPv6", 1, 86),
                row(0, "ARP", 1, 42),
            ]
        );
    }

    #[test]
    fn rows_are_few_and_add_up() {
        let mut protocols = Protocols::default();
        for n in 0..=u16::MAX {
            protocols.add(&packet(flag::IPV4 | flag::UDP | flag::L4, 17, (n, u16::MAX), 100));
            protocols.add(&packet(flag::IPV6, u8::try_from(n % 256).unwrap(), (0, 0), 100));
            protocols.add(&Descriptor { ether_type: n, wire_len: 100, ..Descriptor::default() });
        }
        let rows = protocols.rows(8);
        assert!(rows.len() < 60, "{}", rows.len());
        let top: u64 = rows.iter().filter(|row| row.depth == 0).map(|row| row.amount.packets).sum();
        assert_eq!(top, 3 * 65_536);
        let services: u64 = rows.iter().filter(|row| row.depth == 2).map(|row| row.amount.packets).sum();
        // The TCP packets over IPv6 have no ports. UDP is not among the rows there.
        assert_eq!(services, 65_536 + 256);
    }
}
