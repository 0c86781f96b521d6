//! Limits on the work for peers that connect, until they show a valid credential.
//!
//! A handshake is *half open* from the connection of the peer until its end. It costs memory during this time, and
//! processor time when its first message is answered. [`HandshakeGate`] limits both. Peers that send much, or never
//! finish, do not keep out a peer with a valid credential:
//!
//! - **Half-open handshakes** are limited in number. When there are too many, the gate evicts one of the network with
//!   the most half-open handshakes, and in this network one of the source with the most. Between equal sources, the
//!   source with the larger debt loses a handshake; between equal handshakes, the oldest is evicted. A *source* is an
//!   IPv4 address or an IPv6 /64, which one host or one customer has. A *network* is an IPv4 /24 or an IPv6 /48.
//! - **Time.** The first message has to arrive and be answered within [`GateLimits::deadline`] of the connection. The
//!   handshake has to end within [`GateLimits::deadline`] of the answer.
//! - **Work.** Answering a first message takes four multiplications on the curve and a signature. First messages wait,
//!   and [`HandshakeGate::next`] selects the one to answer, at a fixed rate. Rates are kept by the generic cell rate
//!   algorithm (ITU-T I.371; ATM Forum, Traffic Management 4.0).
//! - **Order.** An answer that does not lead to a valid credential leaves its source in debt for a minute. The source
//!   with the smallest debt is answered first, so a new source does not wait behind sources that connect again and
//!   again.
//! - **Proven sources.** A source from which a peer has shown a valid credential is proven for
//!   [`GateLimits::proven_for`]. Proven sources share a rate that other sources cannot use up. A few half-open
//!   handshakes of each proven source are protected: they are evicted after all others.
//!
//! Two attacks remain. Attackers with more networks than [`GateLimits::half_open`] can have another peer's handshake
//! evicted before it is over. Attackers that always connect from new sources can use up the rate for unproven sources.
//! The connection of another peer is then closed, and the peer has to connect again.
//!
//! The gate has no clock and no sockets: time is an argument, and the caller closes the connections of evicted
//! handshakes.

mod proven;
mod rate;
mod source;

pub use rate::{RateLimit, RateLimiter};
pub use source::PeerSource;

use core::net::IpAddr;
use proven::ProvenSources;
use std::cmp::Reverse;
use weir_units::Nanos;

/// The debt of a source for an answer: a minute. A valid credential cancels the debts of its source.
const DEBT: RateLimit = RateLimit { every: Nanos(60 * Nanos::SECOND.0), burst: 1 };
/// The largest debt of a source: after this time without an answer, every source is out of debt.
const DEBT_MAX: Nanos = Nanos(600 * Nanos::SECOND.0);
/// The number of half-open handshakes of a proven source that are protected from eviction.
const PROTECTED_MAX: usize = 8;
/// The shortest time until the gate looks at waiting messages again.
const RETRY: Nanos = Nanos(5 * Nanos::MILLISECOND.0);

/// Limits on the work for peers before they have shown a valid credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateLimits {
    /// The most handshakes that are half open at a time.
    pub half_open: usize,
    /// The time from the connection to the answer, and from the answer to the end of the handshake.
    pub deadline: Nanos,
    /// The rate of answers to one source.
    pub source: RateLimit,
    /// The most first messages of one source that wait while the source exceeds its rate. Because they wait, a peer that
    /// shares its address with a few attackers is answered, after the attackers.
    pub waiting: usize,
    /// The rate of answers to all unproven sources together.
    pub unproven: RateLimit,
    /// The rate of answers to all proven sources together.
    pub proven: RateLimit,
    /// The most sources whose rates and debts are remembered. To make room for a further source, the gate forgets the
    /// source that would be out of debt first.
    pub sources: usize,
    /// The most proven sources that are remembered. To make room for a further one, the gate forgets the oldest proven
    /// source of the network with the most proven sources.
    pub proven_sources: usize,
    /// The time for which a source stays proven after its last valid credential.
    pub proven_for: Nanos,
}

impl Default for GateLimits {
    /// Returns the limits of a node: 256 half-open handshakes, each of at most 5 s before and 5 s after the answer. Per
    /// second 50 answers go to one source, 50 to all unproven sources after a burst of 250, and 250 to all proven
    /// sources. (`bench handshake` measures the time of an answer.) 1024 proven sources are remembered for a day.
    fn default() -> Self {
        Self {
            half_open: 256,
            deadline: Nanos(5 * Nanos::SECOND.0),
            source: RateLimit { every: Nanos(20 * Nanos::MILLISECOND.0), burst: 100 },
            waiting: 32,
            unproven: RateLimit { every: Nanos(20 * Nanos::MILLISECOND.0), burst: 250 },
            proven: RateLimit { every: Nanos(4 * Nanos::MILLISECOND.0), burst: 500 },
            sources: 4096,
            proven_sources: 1024,
            proven_for: Nanos(24 * 3600 * Nanos::SECOND.0),
        }
    }
}

/// The ticket that [`HandshakeGate::admit`] gives to a half-open handshake. Tickets are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HalfOpenTicket(u64);

impl HalfOpenTicket {
    /// Returns the ticket as a number.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// Permission to begin a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakePermit {
    /// The ticket of the new handshake.
    pub ticket: HalfOpenTicket,
    /// The handshake that was evicted for the new one. The caller closes its connection.
    pub evicted: Option<HalfOpenTicket>,
}

/// Permission to answer a first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyPermit {
    /// The ticket of the handshake.
    pub ticket: HalfOpenTicket,
    /// The time at which the handshake has to be over.
    pub until: Nanos,
}

/// The reason why a handshake ends without an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeRefusal {
    /// The handshake was evicted for others, or is over already.
    #[error("the handshake was evicted for other handshakes, or is over already")]
    Evicted,
    /// The handshake took too long.
    #[error("the handshake took too long")]
    Late,
    /// A second first message of the same handshake.
    #[error("the first message came twice")]
    Again,
    /// The source sends too many first messages.
    #[error("the peer's source sends too many first messages")]
    Source,
}

/// Counters of a gate since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounters {
    /// Handshakes that began.
    pub admitted: u64,
    /// Handshakes that were evicted for others.
    pub evicted: u64,
    /// Handshakes that took too long.
    pub late: u64,
    /// First messages that were answered.
    pub answered: u64,
    /// First messages that were refused because their source sends too many.
    pub refused_source: u64,
    /// First messages that were never answered: their handshake was evicted or late, or the peer left.
    pub unanswered: u64,
    /// Valid credentials that peers have shown.
    pub proven: u64,
    /// Sources that were forgotten while they had a debt or had not regained their whole burst.
    pub forgotten: u64,
}

/// The stage of a half-open handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The first message has not arrived completely.
    Silent,
    /// The first message waits for its answer.
    Waiting,
    /// The first message was answered.
    Answered,
}

/// A half-open handshake.
#[derive(Clone, Copy, Debug)]
struct HalfOpen {
    ticket: HalfOpenTicket,
    source: PeerSource,
    /// The time at which the handshake, or its first message, is late.
    until: Nanos,
    stage: Stage,
    is_proven: bool,
    /// The time at which the source is out of debt, as known when the handshake began; zero without a debt.
    debt: Nanos,
    /// The number of half-open handshakes of the same source.
    same_source: usize,
    /// The number of half-open handshakes of the same network.
    same_network: usize,
}

impl HalfOpen {
    /// Returns the key by which handshakes are evicted, the greatest first.
    fn eviction_key(&self) -> (bool, usize, usize, Nanos) {
        let is_protected = self.is_proven && self.same_source <= PROTECTED_MAX;
        (!is_protected, self.same_network, self.same_source, self.debt)
    }
}

/// Decides which handshakes are evicted for new ones, and which first message is answered next.
#[derive(Debug)]
pub struct HandshakeGate {
    limits: GateLimits,
    /// The half-open handshakes, oldest first: tickets ascend.
    open: Vec<HalfOpen>,
    next_ticket: u64,
    /// The number of handshakes in [`Stage::Waiting`].
    waiting: usize,
    /// The rate of answers to each source.
    sources: RateLimiter<PeerSource>,
    /// The debts of sources, kept as rates: a source that is ahead of its schedule is in debt.
    debts: RateLimiter<PeerSource>,
    proven: ProvenSources,
    for_unproven: RateLimiter<()>,
    for_proven: RateLimiter<()>,
    counters: GateCounters,
}

impl HandshakeGate {
    /// Makes a gate without handshakes. A limit of zero half-open handshakes, or of zero remembered sources, counts as
    /// 1.
    pub fn new(limits: GateLimits) -> Self {
        let limits = GateLimits { half_open: limits.half_open.max(1), ..limits };
        Self {
            limits,
            open: Vec::with_capacity(limits.half_open + 1),
            next_ticket: 0,
            waiting: 0,
            sources: RateLimiter::new(limits.source, limits.sources),
            debts: RateLimiter::new(DEBT, limits.sources),
            proven: ProvenSources::new(limits.proven_sources, limits.proven_for),
            for_unproven: RateLimiter::new(limits.unproven, 1),
            for_proven: RateLimiter::new(limits.proven, 1),
            counters: GateCounters::default(),
        }
    }

    /// Admits a new connection. If there are too many half-open handshakes, the permit names the handshake that is
    /// evicted for it.
    pub fn admit(&mut self, from: IpAddr, now: Nanos) -> HandshakePermit {
        let source = PeerSource::from_address(from);
        let ticket = HalfOpenTicket(self.next_ticket);
        self.next_ticket += 1;
        let until = Nanos(now.0.saturating_add(self.limits.deadline.0));
        let (is_proven, debt) = (self.proven.contains(&source, now), self.debt_of(&source, now));
        let (mut same_source, mut same_network) = (1, 1);
        for other in &mut self.open {
            if other.source == source {
                other.same_source += 1;
                same_source = other.same_source;
            }
            if other.source.network() == source.network() {
                other.same_network += 1;
                same_network = other.same_network;
            }
        }
        let stage = Stage::Silent;
        let open = HalfOpen { ticket, source, until, stage, is_proven, debt, same_source, same_network };
        self.open.push(open);
        self.counters.admitted += 1;
        HandshakePermit { ticket, evicted: self.evict_if_full() }
    }

    /// Marks the first message of a handshake as complete. The message waits until [`HandshakeGate::next`] selects its
    /// handshake.
    ///
    /// # Errors
    /// Fails if the handshake is over, or ends with this call. The caller closes the connection without an answer.
    pub fn first_message_arrived(
        &mut self,
        ticket: HalfOpenTicket,
        now: Nanos,
    ) -> Result<(), HandshakeRefusal> {
        let index = self.index_of(ticket).ok_or(HandshakeRefusal::Evicted)?;
        let Some(open) = self.open.get(index).copied() else { return Err(HandshakeRefusal::Evicted) };
        let refusal = if open.until <= now {
            self.counters.late += 1;
            HandshakeRefusal::Late
        } else if open.stage != Stage::Silent {
            HandshakeRefusal::Again
        } else if !self.sources.may_proceed(&open.source, now)
            && self.waiting_of(&open.source) >= self.limits.waiting
        {
            self.counters.refused_source += 1;
            HandshakeRefusal::Source
        } else {
            if let Some(open) = self.open.get_mut(index) {
                open.stage = Stage::Waiting;
                self.waiting += 1;
            }
            return Ok(());
        };
        self.remove(index);
        Err(refusal)
    }

    /// Selects the handshake whose first message is to be answered now: that of the source with the smallest debt, and
    /// between equal debts the oldest. Proven sources come first if their rate allows an answer. `None` if no answer is
    /// due.
    pub fn next(&mut self, now: Nanos) -> Option<ReplyPermit> {
        let index = self.choose(now)?;
        let open = self.open.get_mut(index)?;
        open.stage = Stage::Answered;
        open.until = Nanos(now.0.saturating_add(self.limits.deadline.0));
        let (permit, source) = (ReplyPermit { ticket: open.ticket, until: open.until }, open.source);
        self.waiting -= 1;
        self.counters.answered += 1;
        self.counters.forgotten += u64::from(self.sources.charge(source, now));
        if self.debts.due(&source).0 < now.0.saturating_add(DEBT_MAX.0) {
            self.counters.forgotten += u64::from(self.debts.charge(source, now));
        }
        Some(permit)
    }

    /// Returns the index of the handshake to answer now, and charges the rate of proven or of unproven sources.
    fn choose(&mut self, now: Nanos) -> Option<usize> {
        if self.waiting == 0 {
            return None;
        }
        for (rate, only_proven) in [(&mut self.for_proven, true), (&mut self.for_unproven, false)] {
            if !rate.may_proceed(&(), now) {
                continue;
            }
            let waiting = self.open.iter().enumerate().filter(|(_, open)| {
                open.stage == Stage::Waiting
                    && (open.is_proven || !only_proven)
                    && open.until > now
                    && self.sources.may_proceed(&open.source, now)
            });
            let debt = |open: &HalfOpen| Some(self.debts.due(&open.source)).filter(|due| *due > now);
            let first = waiting.min_by_key(|(_, open)| (debt(open), open.ticket));
            if let Some((index, _)) = first {
                rate.charge((), now);
                return Some(index);
            }
        }
        None
    }

    /// Marks the source of an address as proven, after a peer with this address has shown a valid credential. Cancels
    /// the debt of the source.
    pub fn prove(&mut self, from: IpAddr, now: Nanos) {
        let source = PeerSource::from_address(from);
        self.debts.forget(&source);
        self.proven.insert(source, now);
        self.counters.proven += 1;
        for open in self.open.iter_mut().filter(|open| open.source == source) {
            (open.is_proven, open.debt) = (true, Nanos(0));
        }
    }

    /// Removes a handshake that has succeeded or failed. Returns false if the handshake was evicted or late, and so
    /// may not become an association.
    pub fn leave(&mut self, ticket: HalfOpenTicket, now: Nanos) -> bool {
        let Some(index) = self.index_of(ticket) else { return false };
        let is_late = self.remove(index).is_none_or(|open| open.until <= now);
        self.counters.late += u64::from(is_late);
        !is_late
    }

    /// Removes and returns the handshakes that took too long. The caller closes their connections.
    pub fn expire(&mut self, now: Nanos) -> Vec<HalfOpenTicket> {
        let late: Vec<HalfOpenTicket> =
            self.open.iter().filter(|open| open.until <= now).map(|open| open.ticket).collect();
        for ticket in &late {
            if let Some(index) = self.index_of(*ticket) {
                self.remove(index);
            }
        }
        self.counters.late += late.len() as u64;
        late
    }

    /// Returns the time at which the next answer is due or the next handshake is late, if no message arrives before.
    /// `None` without handshakes.
    pub fn next_event(&self, now: Nanos) -> Option<Nanos> {
        let deadline = self.open.iter().map(|open| open.until).min();
        let next_answer =
            |rate: &RateLimiter<()>| Nanos(now.0.saturating_add(rate.wait(&(), now).max(RETRY).0));
        let waits_and_is_proven = |open: &HalfOpen| open.stage == Stage::Waiting && open.is_proven;
        let proven = (self.waiting > 0 && self.open.iter().any(waits_and_is_proven))
            .then(|| next_answer(&self.for_proven));
        let unproven = (self.waiting > 0).then(|| next_answer(&self.for_unproven));
        [deadline, proven, unproven].into_iter().flatten().min()
    }

    /// Returns the number of half-open handshakes.
    pub fn half_open(&self) -> usize {
        self.open.len()
    }

    /// Returns the gate's counters.
    pub fn counters(&self) -> GateCounters {
        self.counters
    }

    /// Returns the index of a handshake in `open`; `None` if it is over.
    fn index_of(&self, ticket: HalfOpenTicket) -> Option<usize> {
        self.open.binary_search_by_key(&ticket, |open| open.ticket).ok()
    }

    fn waiting_of(&self, source: &PeerSource) -> usize {
        self.open.iter().filter(|open| open.source == *source && open.stage == Stage::Waiting).count()
    }

    /// Returns the time at which a source is out of debt; zero without a debt.
    fn debt_of(&self, source: &PeerSource, now: Nanos) -> Nanos {
        Some(self.debts.due(source)).filter(|due| *due > now).unwrap_or_default()
    }

    /// Removes a handshake, and updates the counts of its source and network.
    fn remove(&mut self, index: usize) -> Option<HalfOpen> {
        if index >= self.open.len() {
            return None;
        }
        let removed = self.open.remove(index);
        if removed.stage == Stage::Waiting {
            self.waiting -= 1;
            self.counters.unanswered += 1;
        }
        for other in &mut self.open {
            other.same_source -= usize::from(other.source == removed.source);
            other.same_network -= usize::from(other.source.network() == removed.source.network());
        }
        Some(removed)
    }

    /// Evicts a handshake other than the newest, if there are more than the limit.
    fn evict_if_full(&mut self) -> Option<HalfOpenTicket> {
        if self.open.len() <= self.limits.half_open {
            return None;
        }
        let others = self.open.len() - 1;
        let candidates = self.open.iter().take(others).enumerate();
        let (index, _) = candidates.max_by_key(|(_, open)| (open.eviction_key(), Reverse(open.ticket)))?;
        self.counters.evicted += 1;
        self.remove(index).map(|open| open.ticket)
    }
}
