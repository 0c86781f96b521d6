//! Traffic of hosts and of conversations, in bounded memory.

use crate::top::TopKeys;
use std::net::Ipv6Addr;
use weir_abi::Descriptor;

/// Pairs of addresses whose traffic is added up before it goes to the sketches; a power of two.
const PAIRS: usize = 2_048;

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PacketBytes {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl PacketBytes {
    pub(crate) fn add(&mut self, other: Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Traffic of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct HostTraffic {
    pub(crate) sent: PacketBytes,
    pub(crate) received: PacketBytes,
}

/// Traffic between two addresses, of which A is the smaller one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ConversationTraffic {
    /// From A to B.
    pub(crate) forth: PacketBytes,
    /// From B to A.
    pub(crate) back: PacketBytes,
    /// The earliest time in ns; 0 without packets.
    pub(crate) first: u64,
    /// The latest time in ns.
    pub(crate) last: u64,
}

/// Traffic by host and by conversation, of the outermost IP headers.
///
/// A direct-mapped table adds up the packets of recent pairs. A pair that another one displaces goes to the sketches, which
/// costs more. The result depends on the packets and their order only.
#[derive(Clone, Debug)]
pub(crate) struct Talkers {
    recent: Vec<Pair>,
    pub(crate) hosts: TopKeys<Ipv6Addr, HostTraffic>,
    pub(crate) conversations: TopKeys<(Ipv6Addr, Ipv6Addr), ConversationTraffic>,
}

/// Traffic of two addresses that is not in the sketches yet.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    a: u128,
    b: u128,
    traffic: ConversationTraffic,
}

impl Default for Talkers {
    fn default() -> Self {
        Self {
            recent: vec![Pair::default(); PAIRS],
            hosts: TopKeys::default(),
            conversations: TopKeys::default(),
        }
    }
}

impl Talkers {
    /// Adds a packet from `source` to `destination`; an IPv4 address is mapped into IPv6.
    #[inline]
    pub(crate) fn add(&mut self, descriptor: &Descriptor, source: u128, destination: u128) {
        let (a, b) = if source <= destination { (source, destination) } else { (destination, source) };
        let Some(pair) = self.recent.get_mut(place(a, b)) else { return };
        if pair.a != a || pair.b != b {
            let displaced = std::mem::replace(pair, Pair { a, b, traffic: ConversationTraffic::default() });
            settle(&displaced, &mut self.hosts, &mut self.conversations);
            return self.add(descriptor, source, destination);
        }
        let traffic = &mut pair.traffic;
        let (is_first, ts) = (traffic.forth.packets | traffic.back.packets == 0, descriptor.ts_ns);
        traffic.first = if is_first { ts } else { traffic.first.min(ts) };
        traffic.last = traffic.last.max(ts);
        let way = if source == a { &mut traffic.forth } else { &mut traffic.back };
        way.packets += 1;
        way.bytes = way.bytes.saturating_add(u64::from(descriptor.wire_len));
    }

    /// Returns these totals with all packets in the sketches.
    pub(crate) fn settled(&self) -> Self {
        let mut all = self.clone();
        for pair in &self.recent {
            settle(pair, &mut all.hosts, &mut all.conversations);
        }
        all.recent.fill(Pair::default());
        all
    }
}

/// The place of a pair in the table. Pairs that a sender chooses to collide only displace each other.
#[inline]
fn place(a: u128, b: u128) -> usize {
    // Digits of pi and of the golden ratio.
    const MULTIPLIERS: [u64; 2] = [0x243f_6a88_85a3_08d3, 0x9e37_79b9_7f4a_7c15];
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    let folded = |address: u128| (address as u64) ^ ((address >> 64) as u64).rotate_left(29);
    let mixed = folded(a).wrapping_mul(MULTIPLIERS[0]).rotate_left(32).wrapping_add(folded(b));
    usize::try_from(mixed.wrapping_mul(MULTIPLIERS[1]) >> (u64::BITS - PAIRS.ilog2())).unwrap_or(0)
}

/// Adds the traffic of a pair to the sketches.
fn settle(
    pair: &Pair,
    hosts: &mut TopKeys<Ipv6Addr, HostTraffic>,
    conversations: &mut TopKeys<(Ipv6Addr, Ipv6Addr), ConversationTraffic>,
) {
    let Pair { a, b, traffic: ConversationTraffic { forth, back, first, last } } = *pair;
    if forth.packets | back.packets == 0 {
        return;
    }
    let (a, b) = (Ipv6Addr::from_bits(a), Ipv6Addr::from_bits(b));
    let bytes = forth.bytes.saturating_add(back.bytes);
    for (address, sent, received) in [(a, forth, back), (b, back, forth)] {
        let host = hosts.add(address, bytes);
        host.sent.add(sent);
        host.received.add(received);
    }
    let all = conversations.add((a, b), bytes);
    let is_first = all.forth.packets | all.back.packets == 0;
    all.first = if is_first { first } else { all.first.min(first) };
    all.last = all.last.max(last);
    all.forth.add(forth);
    all.back.add(back);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Adds `packets` packets among `hosts` addresses, and returns exact sums by another way: bytes by ordered pair.
    fn traffic(talkers: &mut Talkers, packets: u64, hosts: u64) -> BTreeMap<(u128, u128), PacketBytes> {
        let mut exact = BTreeMap::<_, PacketBytes>::new();
        let mut random = 1u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> 33
        };
        for n in 0..packets {
            let heavy = next() % 2 == 0;
            let mut address = || u128::from(next() % if heavy { 7 } else { hosts });
            let (from, to) = (address(), address());
            let wire_len = u32::try_from(60 + next() % 1_400).unwrap();
            talkers.add(&Descriptor { ts_ns: n, wire_len, ..Descriptor::default() }, from, to);
            exact.entry((from, to)).or_default().add(PacketBytes { packets: 1, bytes: u64::from(wire_len) });
        }
        exact
    }

    #[test]
    fn few_hosts_are_counted_exactly() {
        let mut talkers = Talkers::default();
        let exact = traffic(&mut talkers, 200_000, 90);
        let settled = talkers.settled();
        assert_eq!((settled.hosts.missed_max(), settled.conversations.missed_max()), (0, 0));
        let sum = |of: &dyn Fn(&(u128, u128)) -> bool| {
            let mut sum = PacketBytes::default();
            exact.iter().filter(|(pair, _)| of(pair)).for_each(|(_, amount)| sum.add(*amount));
            sum
        };
        let hosts = settled.hosts.heaviest(usize::MAX);
        assert_eq!(hosts.len(), 90);
        for (address, _, host) in hosts {
            let address = address.to_bits();
            assert_eq!(host.sent, sum(&|pair| pair.0 == address));
            assert_eq!(host.received, sum(&|pair| pair.1 == address));
        }
        for ((a, b), bytes, conversation) in settled.conversations.heaviest(usize::MAX) {
            let (a, b) = (a.to_bits(), b.to_bits());
            assert_eq!(conversation.forth, sum(&|pair| *pair == (a, b)));
            assert_eq!(
                conversation.back,
                if a == b { PacketBytes::default() } else { sum(&|pair| *pair == (b, a)) }
            );
            assert_eq!(bytes, conversation.forth.bytes + conversation.back.bytes);
            assert!(a <= b && conversation.first < conversation.last);
        }
    }

    #[test]
    fn many_hosts_keep_the_heavy_ones_within_the_stated_error() {
        let mut talkers = Talkers::default();
        let exact = traffic(&mut talkers, 400_000, 1 << 40);
        let settled = talkers.settled();
        let total: u64 = exact.values().map(|amount| amount.bytes).sum();
        let missed = settled.hosts.missed_max();
        assert!(missed > 0 && missed <= 2 * total / 4_096, "{missed} of {total}");
        let heaviest = settled.hosts.heaviest(7);
        let mut found: Vec<u128> = heaviest.iter().map(|host| host.0.to_bits()).collect();
        found.sort_unstable();
        assert_eq!(found, [0, 1, 2, 3, 4, 5, 6]);
        for (address, bytes, _) in heaviest {
            let of_host = |pair: &(u128, u128)| {
                u64::from(pair.0 == address.to_bits()) + u64::from(pair.1 == address.to_bits())
            };
            let true_bytes: u64 = exact.iter().map(|(pair, amount)| of_host(pair) * amount.bytes).sum();
            assert!(bytes <= true_bytes && true_bytes - bytes <= missed, "{bytes} {true_bytes} {missed}");
        }
    }
}
