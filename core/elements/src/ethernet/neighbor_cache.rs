//! The Ethernet addresses that ARP or neighbour discovery has found, and the packets that wait for one. Queriers can
//! share a table.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_graph::arguments::{ElementArguments, EthernetAddress};
use weir_graph::engine::{GraphPacket, PacketPool};
use weir_units::{Nanos, Timestamp};

/// The least time between two queries for an address.
const POLL_INTERVAL: Nanos = Nanos(Nanos::SECOND.0 / 10);
/// The least time between two queries for an address that has not answered [`POLLS_BEFORE_SLOW`] queries.
const SLOW_POLL_INTERVAL: Nanos = Nanos(Nanos::SECOND.0 * 2);
const POLLS_BEFORE_SLOW: u8 = 10;

/// The address of an entry that is not known.
const UNKNOWN: EthernetAddress = EthernetAddress([0xff; 6]);

/// The most packets and the most entries of a table, also if an argument asks for any number of them.
const CAPACITY_MAX: u32 = 1 << 20;
const ENTRIES_DEFAULT: u32 = 1 << 16;

/// An address of the network layer, as a key of a table.
pub trait NeighborAddress: Copy + Ord + std::fmt::Display + 'static {
    /// A packet for which there is no room replaces the oldest one that waits for the same address. Without it, the packet
    /// is discarded.
    const REPLACES_OLDEST: bool;

    /// Returns the last byte.
    fn last_byte(self) -> u8;
}

impl NeighborAddress for Ipv4Addr {
    const REPLACES_OLDEST: bool = false;

    #[inline]
    fn last_byte(self) -> u8 {
        self.octets()[3]
    }
}

impl NeighborAddress for Ipv6Addr {
    // RFC 4861, section 7.2.2.
    const REPLACES_OLDEST: bool = true;

    #[inline]
    fn last_byte(self) -> u8 {
        self.octets()[15]
    }
}

/// The limits of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborLimits {
    /// The most packets that wait.
    packets: usize,
    entries: usize,
    /// The most packets that wait for one address.
    entry_packets: usize,
    slim_factor: usize,
    /// The time after which an entry is not valid; 0 for none.
    timeout: Nanos,
}

impl NeighborLimits {
    /// Reads the arguments of a table.
    ///
    /// The default of TIMEOUT is in seconds, and that of ENTRY_PACKET_CAPACITY a number of packets; 0 is no limit.
    pub fn read(args: &mut ElementArguments<'_, '_>, timeout: u64, entry_packets: u32) -> Self {
        let most = |value: u32| if value == 0 { CAPACITY_MAX } else { value.min(CAPACITY_MAX) } as usize;
        let packets = most(args.keyword("CAPACITY").or(2048));
        let entries = most(args.keyword("ENTRY_CAPACITY").or(ENTRIES_DEFAULT));
        let entry_packets = most(args.keyword("ENTRY_PACKET_CAPACITY").or(entry_packets));
        let slim_factor: u32 = args.keyword("CAPACITY_SLIM_FACTOR").within(1..).or(2);
        let timeout = args.keyword("TIMEOUT").or(Nanos(Nanos::SECOND.0 * timeout));
        Self { packets, entries, entry_packets, slim_factor: slim_factor as usize, timeout }
    }
}

/// An address of which the table knows the Ethernet address, or looks for it.
struct NeighborEntry {
    ethernet: EthernetAddress,
    is_known: bool,
    /// The time of the last reply, or of the creation.
    live_at: Timestamp,
    polled_at: Option<Timestamp>,
    polls_since_reply: u8,
    /// The key in the order of ages.
    age: (Timestamp, u64),
    packets: VecDeque<GraphPacket>,
}

impl NeighborEntry {
    fn is_expired(&self, now: Timestamp, timeout: Nanos) -> bool {
        timeout.0 > 0 && self.live_at.0.saturating_add(timeout.0) < now.0
    }

    /// Returns true if a query may be sent now, and counts it.
    fn take_poll(&mut self, now: Timestamp) -> bool {
        let is_slow = self.polls_since_reply >= POLLS_BEFORE_SLOW;
        let interval = if is_slow { SLOW_POLL_INTERVAL } else { POLL_INTERVAL };
        let is_due = self.polled_at.is_none_or(|last| now.0 >= last.0.saturating_add(interval.0));
        if is_due {
            self.polled_at = Some(now);
            self.polls_since_reply = self.polls_since_reply.saturating_add(1);
        }
        is_due
    }
}

/// An answer that needs no search while it stays right.
#[derive(Clone, Copy)]
struct RecentAnswer<A> {
    ip: A,
    ethernet: EthernetAddress,
    poll_after: Nanos,
    /// The time from which on the entry is not valid, or a query is due.
    until: Timestamp,
}

/// The places of recent answers, by the last byte of the address.
const RECENT: usize = 256;

/// The address that a packet needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighborAnswer {
    /// It is known. `polls` if a query is to be sent, because the entry gets old.
    Known {
        /// The address.
        ethernet: EthernetAddress,
        /// A query is to be sent.
        polls: bool,
    },
    /// It is not known.
    Unknown,
}

/// An entry, as handlers show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborRow<A> {
    /// The address of the network layer.
    pub ip: A,
    /// The Ethernet address is valid.
    pub is_known: bool,
    /// The Ethernet address; ff-ff-ff-ff-ff-ff if it was never known.
    pub ethernet: EthernetAddress,
    /// The time since the last reply, or since the creation.
    pub age: Nanos,
}

/// A table.
pub struct NeighborCache<A> {
    limits: NeighborLimits,
    entries: BTreeMap<A, NeighborEntry>,
    /// The entries by their ages, the oldest one first.
    by_age: BTreeSet<(Timestamp, u64, A)>,
    /// The entries whose Ethernet address is not known, likewise. They go first if the table is full, so a flood of
    /// packets to addresses that do not exist does not displace neighbours that answer (RFC 6583, section 7.1).
    unresolved: BTreeSet<(Timestamp, u64, A)>,
    /// The entries for which packets wait, likewise.
    waiting: BTreeSet<(Timestamp, u64, A)>,
    /// A number for entries of the same age.
    next: u64,
    recent: Vec<Option<RecentAnswer<A>>>,
    packets: usize,
    drops: u64,
}

impl<A: NeighborAddress> NeighborCache<A> {
    /// Returns an empty table.
    pub fn new(limits: NeighborLimits) -> Self {
        Self {
            limits,
            entries: BTreeMap::new(),
            by_age: BTreeSet::new(),
            unresolved: BTreeSet::new(),
            waiting: BTreeSet::new(),
            next: 0,
            recent: vec![None; RECENT],
            packets: 0,
            drops: 0,
        }
    }

    /// Takes over the entries of an earlier table.
    pub fn take(&mut self, earlier: &mut NeighborCache<A>) {
        let limits = self.limits;
        *self = std::mem::replace(earlier, Self::new(earlier.limits));
        self.limits = limits;
        self.recent.fill(None);
    }

    /// Takes over the limits of another table. What exceeds them goes with the next addition.
    pub fn take_limits(&mut self, other: &NeighborCache<A>) {
        self.limits = other.limits;
    }

    /// Returns the number of entries.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of packets that wait.
    pub fn length(&self) -> usize {
        self.packets
    }

    /// Returns the number of packets that were discarded because of time or capacity.
    pub fn drops(&self) -> u64 {
        self.drops
    }

    /// Returns the Ethernet address for an address. `poll_after` is the age from which on queries are sent; 0 for none.
    pub fn lookup(&mut self, ip: A, now: Timestamp, poll_after: Nanos) -> NeighborAnswer {
        let timeout = self.limits.timeout;
        match self.entries.get_mut(&ip) {
            Some(entry) if entry.is_known && !entry.is_expired(now, timeout) => {
                let is_old = poll_after.0 > 0 && now.0 >= entry.live_at.0.saturating_add(poll_after.0);
                NeighborAnswer::Known { ethernet: entry.ethernet, polls: is_old && entry.take_poll(now) }
            }
            _ => NeighborAnswer::Unknown,
        }
    }

    /// Returns the Ethernet address for an address, if it is known and no query is due.
    #[inline]
    pub fn known(&mut self, ip: A, now: Timestamp, poll_after: Nanos) -> Option<EthernetAddress> {
        let place = usize::from(ip.last_byte());
        match self.recent[place] {
            Some(recent) if recent.ip == ip && recent.poll_after == poll_after && now < recent.until => {
                Some(recent.ethernet)
            }
            _ => self.search_known(ip, now, poll_after),
        }
    }

    fn search_known(&mut self, ip: A, now: Timestamp, poll_after: Nanos) -> Option<EthernetAddress> {
        let entry = self.entries.get(&ip).filter(|entry| entry.is_known)?;
        let after = |time: Nanos, more: u64| match time.0 {
            0 => u64::MAX,
            _ => entry.live_at.0.saturating_add(time.0).saturating_add(more),
        };
        let until = Timestamp(after(self.limits.timeout, 1).min(after(poll_after, 0)));
        let ethernet = entry.ethernet;
        self.recent[usize::from(ip.last_byte())] = Some(RecentAnswer { ip, ethernet, poll_after, until });
        (now < until).then_some(ethernet)
    }

    /// Has the next answer for an address come from its entry.
    fn forget_recent(&mut self, ip: A) {
        self.recent[usize::from(ip.last_byte())] = None;
    }

    /// Sets the address of an entry; a broadcast address makes it unknown. Returns the packets that wait if `takes`.
    pub fn insert(
        &mut self,
        ip: A,
        ethernet: EthernetAddress,
        now: Timestamp,
        takes: bool,
        pool: &mut PacketPool,
    ) -> VecDeque<GraphPacket> {
        self.ensure(ip, now, pool);
        self.set_age(ip, now);
        self.forget_recent(ip);
        let Some(entry) = self.entries.get_mut(&ip) else { return VecDeque::new() };
        entry.ethernet = ethernet;
        entry.is_known = ethernet != UNKNOWN;
        let (at, number) = entry.age;
        if entry.is_known {
            self.unresolved.remove(&(at, number, ip));
        } else {
            self.unresolved.insert((at, number, ip));
        }
        entry.polls_since_reply = 0;
        entry.polled_at = None;
        if !takes {
            return VecDeque::new();
        }
        let packets = std::mem::take(&mut entry.packets);
        self.packets -= packets.len();
        self.waiting.remove(&(at, number, ip));
        packets
    }

    /// Keeps a packet for an address that is not known. Returns true if a query is to be sent.
    pub fn wait(&mut self, ip: A, packet: GraphPacket, now: Timestamp, pool: &mut PacketPool) -> bool {
        self.ensure(ip, now, pool);
        // The entry is in use, so it does not go now. Its address is not valid any more.
        let timeout = self.limits.timeout;
        let oldest = Timestamp(now.0.saturating_sub(timeout.0));
        if timeout.0 > 0 && self.entries.get(&ip).is_some_and(|entry| entry.live_at < oldest) {
            self.set_age(ip, oldest);
            if let Some(entry) = self.entries.get_mut(&ip) {
                entry.is_known = false;
                let (at, number) = entry.age;
                self.unresolved.insert((at, number, ip));
            }
        }
        let most = self.limits.entry_packets;
        let Some(entry) = self.entries.get_mut(&ip) else {
            pool.discard(packet);
            return false;
        };
        if entry.packets.len() >= most {
            self.drops += 1;
            if !A::REPLACES_OLDEST {
                pool.discard(packet);
                return false;
            }
            let Some(oldest) = entry.packets.pop_front() else {
                pool.discard(packet);
                return entry.take_poll(now);
            };
            self.packets -= 1;
            pool.discard(oldest);
        }
        if self.packets >= self.limits.packets {
            self.expire(now, pool);
            self.slim(pool);
        }
        let Some(entry) = self.entries.get_mut(&ip) else {
            pool.discard(packet);
            return false;
        };
        entry.packets.push_back(packet);
        self.packets += 1;
        let (at, number) = entry.age;
        self.waiting.insert((at, number, ip));
        entry.take_poll(now)
    }

    /// Removes all entries.
    pub fn clear(&mut self, pool: &mut PacketPool) {
        while let Some((.., ip)) = self.by_age.first().copied() {
            self.remove(ip, pool);
        }
    }

    /// Removes the entries that have expired.
    pub fn expire(&mut self, now: Timestamp, pool: &mut PacketPool) {
        while let Some((.., ip)) = self.by_age.first().copied()
            && self.entries.get(&ip).is_none_or(|entry| entry.is_expired(now, self.limits.timeout))
        {
            self.remove(ip, pool);
        }
    }

    /// Returns the entries, the oldest one first.
    pub fn rows(&self, now: Timestamp) -> impl Iterator<Item = NeighborRow<A>> {
        let rows = self.by_age.iter().filter_map(|(.., ip)| Some((*ip, self.entries.get(ip)?)));
        rows.map(move |(ip, entry)| NeighborRow {
            ip,
            is_known: entry.is_known && !entry.is_expired(now, self.limits.timeout),
            ethernet: entry.ethernet,
            age: Nanos(now.0.saturating_sub(entry.live_at.0)),
        })
    }

    /// Returns true if there is an entry for an address, known or not.
    pub fn contains(&self, ip: A) -> bool {
        self.entries.contains_key(&ip)
    }

    fn ensure(&mut self, ip: A, now: Timestamp, pool: &mut PacketPool) {
        if self.entries.contains_key(&ip) {
            return;
        }
        if self.entries.len() >= self.limits.entries {
            self.expire(now, pool);
            if self.entries.len() >= self.limits.entries
                && let Some((.., oldest)) = self.unresolved.first().or(self.by_age.first()).copied()
            {
                self.remove(oldest, pool);
            }
        }
        let age = (now, self.next);
        self.next += 1;
        self.by_age.insert((age.0, age.1, ip));
        self.unresolved.insert((age.0, age.1, ip));
        self.entries.insert(
            ip,
            NeighborEntry {
                ethernet: UNKNOWN,
                is_known: false,
                live_at: now,
                polled_at: None,
                polls_since_reply: 0,
                age,
                packets: VecDeque::new(),
            },
        );
    }

    fn set_age(&mut self, ip: A, live_at: Timestamp) {
        self.forget_recent(ip);
        let Some(entry) = self.entries.get_mut(&ip) else { return };
        let (at, number) = entry.age;
        entry.live_at = live_at;
        entry.age = (live_at, self.next);
        self.next += 1;
        self.by_age.remove(&(at, number, ip));
        self.by_age.insert((entry.age.0, entry.age.1, ip));
        for set in [&mut self.waiting, &mut self.unresolved] {
            if set.remove(&(at, number, ip)) {
                set.insert((entry.age.0, entry.age.1, ip));
            }
        }
    }

    fn remove(&mut self, ip: A, pool: &mut PacketPool) {
        self.forget_recent(ip);
        let Some(entry) = self.entries.remove(&ip) else { return };
        let (at, number) = entry.age;
        self.by_age.remove(&(at, number, ip));
        self.unresolved.remove(&(at, number, ip));
        self.waiting.remove(&(at, number, ip));
        self.packets -= entry.packets.len();
        self.drops += entry.packets.len() as u64;
        entry.packets.into_iter().for_each(|packet| pool.discard(packet));
    }

    /// Discards packets of the oldest entries until there is room for one more, and for a part of the capacity.
    fn slim(&mut self, pool: &mut PacketPool) {
        let capacity = self.limits.packets;
        let most = (capacity - capacity / self.limits.slim_factor).max(1);
        while self.packets + 1 > most
            && let Some(oldest) = self.waiting.first().copied()
        {
            match self.entries.get_mut(&oldest.2).and_then(|entry| entry.packets.pop_front()) {
                Some(packet) => {
                    self.packets -= 1;
                    self.drops += 1;
                    pool.discard(packet);
                }
                None => _ = self.waiting.remove(&oldest),
            }
        }
    }
}
