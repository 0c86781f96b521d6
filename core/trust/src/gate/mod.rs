//! Limits on the work for peers that connect, before any of them has shown a valid credential.
//!
//! A connection costs memory until its handshake is over, and processor time when its first message is answered. [`HandshakeGate`] limits both, and
//! divides them so that peers that send much, or never finish, do not keep out a peer with a valid credential:
//!
//! - **Half-open handshakes** are limited in number. Where there is no room, one gives way: of the network with the most of them, the
//!   source with the most of them loses one. A *source* is an IPv4 address or an IPv6 /64 (which is what one host or one customer
//!   has), a *network* is a /24 or a /48. Among equals the source with the larger debt loses one, and then the oldest goes.
//! - **Time.** The first message is there and answered within [`GateLimits::deadline`], and the third one within as much again.
//! - **Work.** Answering a first message takes four multiplications on the curve and a signature. First messages wait, and
//!   [`HandshakeGate::next`] says which one is answered, at a fixed rate. Rates are kept by the generic cell rate algorithm (ITU-T I.371; ATM Forum,
//!   Traffic Management 4.0).
//! - **Order.** An answer that does not lead to a valid credential leaves its source in debt for a minute. The source with the smallest debt
//!   comes first, so a source that comes for the first time does not wait behind sources that come again and again.
//! - **Proven sources.** A source from which a valid credential has come is proven for [`GateLimits::proven_for`]. Proven sources share a rate of
//!   their own, which other sources cannot use up, and a few half-open handshakes of each do not give way.
//!
//! Two attacks remain. Attackers with more networks than there are places can push a handshake out before it is over. Attackers with
//! new sources all the time can use up the rate for sources that are not proven. The connection of another peer is then closed like theirs,
//! and the peer tries again.
//!
//! The gate has no clock and no sockets: time is an argument, and its caller closes the connections that give way.

mod proven;
mod rate;
mod source;

pub use rate::{RateLimit, RateLimiter};
pub use source::PeerSource;

use core::net::IpAddr;
use proven::Proven;
use std::cmp::Reverse;
use weir_units::Nanos;

/// The time for which an answer that came to nothing puts its source behind others.
const DEBT: RateLimit = RateLimit { every: Nanos(60 * Nanos::SECOND.0), burst: 1 };
/// The largest debt of a source: after that long without an answer it is as any other.
const DEBT_MAX: Nanos = Nanos(600 * Nanos::SECOND.0);
/// Half-open handshakes of a proven source that do not give way to others.
const PROTECTED: usize = 8;
/// The time after which waiting messages are looked at again, where only their sources' own rates hold them back.
const AGAIN: Nanos = Nanos(5 * Nanos::MILLISECOND.0);

/// Limits of what is done for peers before they have shown a valid credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateLimits {
    /// Handshakes that can be half open at a time.
    pub half_open: usize,
    /// The time from the connection to the answer, and from the answer to the end of the handshake.
    pub deadline: Nanos,
    /// Answers to one source.
    pub source: RateLimit,
    /// First messages of one source that may wait while the source has no turn. A peer that shares its address with a few attackers has its turn after them.
    pub waiting: usize,
    /// Answers to all sources that are not proven, together.
    pub unproven: RateLimit,
    /// Answers to all proven sources, together.
    pub proven: RateLimit,
    /// Sources whose rates and debts are remembered. Beyond that, the one that is nearest to a clean slate is forgotten.
    pub sources: usize,
    /// Proven sources that are remembered. Beyond that, the network with the most of them loses its oldest.
    pub proven_sources: usize,
    /// The time for which a source stays proven after its last valid credential.
    pub proven_for: Nanos,
}

impl Default for GateLimits {
    /// 256 half-open handshakes of twice 5 s at most. 50 answers a second go to one source, 50 to all unproven ones after a burst of 250, and 250
    /// to proven ones. (`bench handshake` measures the time of one.) 1024 proven sources are remembered for a day.
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

/// A half-open handshake: given by [`HandshakeGate::admit`], never given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HalfOpenTicket(u64);

impl HalfOpenTicket {
    /// The ticket as a number.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// Permission to begin a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakePermit {
    /// The handshake's name.
    pub ticket: HalfOpenTicket,
    /// The handshake that gave way for it: its connection is to be closed.
    pub evicted: Option<HalfOpenTicket>,
}

/// Permission to answer a first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyPermit {
    /// The handshake.
    pub ticket: HalfOpenTicket,
    /// The time at which it has to be over.
    pub until: Nanos,
}

/// The reason for which a handshake ends before there is an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeRefusal {
    /// It gave way to others, or is over already.
    #[error("the handshake gave way to others")]
    Gone,
    /// Its time is over.
    #[error("the handshake took too long")]
    Late,
    /// Its first message came before.
    #[error("the first message came twice")]
    Again,
    /// Its source asks too often.
    #[error("its source asks too often")]
    Source,
}

/// Counters of a gate, from its beginning on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounters {
    /// Handshakes that began.
    pub admitted: u64,
    /// Handshakes that gave way to others.
    pub evicted: u64,
    /// Handshakes that took too long.
    pub late: u64,
    /// First messages that were answered.
    pub answered: u64,
    /// First messages that were refused because their source asks too often.
    pub refused_source: u64,
    /// First messages that waited for an answer until their handshake was over: it gave way, was late, or the peer left.
    pub unanswered: u64,
    /// Valid credentials that were shown.
    pub proven: u64,
    /// Sources that were forgotten with a debt, or before their burst was whole again.
    pub forgotten: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The first message has not come as a whole.
    Silent,
    /// The first message waits for its answer.
    Waiting,
    /// The first message was answered.
    Answered,
}

/// A handshake that is half open.
#[derive(Clone, Copy, Debug)]
struct Open {
    ticket: HalfOpenTicket,
    source: PeerSource,
    until: Nanos,
    stage: Stage,
    is_proven: bool,
    /// The time at which its source is out of debt, as it was before this handshake.
    debt: Nanos,
    /// Half-open handshakes of its source, and of its network, this one among them.
    of_source: usize,
    of_network: usize,
}

impl Open {
    /// The order of eviction: the greatest one goes first.
    fn weight(&self) -> (bool, usize, usize, Nanos) {
        let is_protected = self.is_proven && self.of_source <= PROTECTED;
        (!is_protected, self.of_network, self.of_source, self.debt)
    }
}

/// Decides which handshakes may begin, which give way, and which are answered next.
#[derive(Debug)]
pub struct HandshakeGate {
    limits: GateLimits,
    /// Oldest first: tickets ascend.
    open: Vec<Open>,
    next: u64,
    waiting: usize,
    sources: RateLimiter<PeerSource>,
    debts: RateLimiter<PeerSource>,
    proven: Proven,
    for_unproven: RateLimiter<()>,
    for_proven: RateLimiter<()>,
    counters: GateCounters,
}

impl HandshakeGate {
    /// A gate without handshakes. At least one handshake can be half open, and one source is remembered, whatever the limits say.
    pub fn new(limits: GateLimits) -> Self {
        let limits = GateLimits { half_open: limits.half_open.max(1), ..limits };
        Self {
            limits,
            open: Vec::with_capacity(limits.half_open + 1),
            next: 0,
            waiting: 0,
            sources: RateLimiter::new(limits.source, limits.sources),
            debts: RateLimiter::new(DEBT, limits.sources),
            proven: Proven::new(limits.proven_sources, limits.proven_for),
            for_unproven: RateLimiter::new(limits.unproven, 1),
            for_proven: RateLimiter::new(limits.proven, 1),
            counters: GateCounters::default(),
        }
    }

    /// Takes a new connection. There is always room for it; the answer says which one gives way.
    pub fn admit(&mut self, from: IpAddr, now: Nanos) -> HandshakePermit {
        let source = PeerSource::of(from);
        let ticket = HalfOpenTicket(self.next);
        self.next += 1;
        let until = Nanos(now.0.saturating_add(self.limits.deadline.0));
        let (is_proven, debt) = (self.proven.contains(&source, now), self.debt_of(&source, now));
        let (mut of_source, mut of_network) = (1, 1);
        for other in &mut self.open {
            if other.source == source {
                other.of_source += 1;
                of_source = other.of_source;
            }
            if other.source.network() == source.network() {
                other.of_network += 1;
                of_network = other.of_network;
            }
        }
        let stage = Stage::Silent;
        let open = Open { ticket, source, until, stage, is_proven, debt, of_source, of_network };
        self.open.push(open);
        self.counters.admitted += 1;
        HandshakePermit { ticket, evicted: self.make_room() }
    }

    /// Takes note that the first message of a handshake is there as a whole: it waits until [`HandshakeGate::next`] names it.
    ///
    /// # Errors
    /// The handshake is over, and its connection is to be closed without a word.
    pub fn first(&mut self, ticket: HalfOpenTicket, now: Nanos) -> Result<(), HandshakeRefusal> {
        let place = self.place(ticket).ok_or(HandshakeRefusal::Gone)?;
        let Some(open) = self.open.get(place).copied() else { return Err(HandshakeRefusal::Gone) };
        let refusal = if open.until <= now {
            self.counters.late += 1;
            HandshakeRefusal::Late
        } else if open.stage != Stage::Silent {
            HandshakeRefusal::Again
        } else if !self.sources.has_turn(&open.source, now)
            && self.waiting_of(&open.source) >= self.limits.waiting
        {
            self.counters.refused_source += 1;
            HandshakeRefusal::Source
        } else {
            if let Some(open) = self.open.get_mut(place) {
                open.stage = Stage::Waiting;
                self.waiting += 1;
            }
            return Ok(());
        };
        self.remove(place);
        Err(refusal)
    }

    /// Names the handshake whose first message is answered now, if one is: that of the source with the smallest debt, and of equals the oldest.
    pub fn next(&mut self, now: Nanos) -> Option<ReplyPermit> {
        let place = self.choose(now)?;
        let open = self.open.get_mut(place)?;
        open.stage = Stage::Answered;
        open.until = Nanos(now.0.saturating_add(self.limits.deadline.0));
        let (turn, source) = (ReplyPermit { ticket: open.ticket, until: open.until }, open.source);
        self.waiting -= 1;
        self.counters.answered += 1;
        self.counters.forgotten += u64::from(self.sources.take(source, now));
        if self.debts.due(&source).0 < now.0.saturating_add(DEBT_MAX.0) {
            self.counters.forgotten += u64::from(self.debts.take(source, now));
        }
        Some(turn)
    }

    /// The place of the handshake that is answered now. Its class has paid for it then.
    fn choose(&mut self, now: Nanos) -> Option<usize> {
        if self.waiting == 0 {
            return None;
        }
        for (rate, only_proven) in [(&mut self.for_proven, true), (&mut self.for_unproven, false)] {
            if !rate.has_turn(&(), now) {
                continue;
            }
            let waiting = self.open.iter().enumerate().filter(|(_, open)| {
                open.stage == Stage::Waiting
                    && (open.is_proven || !only_proven)
                    && open.until > now
                    && self.sources.has_turn(&open.source, now)
            });
            let debt = |open: &Open| Some(self.debts.due(&open.source)).filter(|due| *due > now);
            let first = waiting.min_by_key(|(_, open)| (debt(open), open.ticket));
            if let Some((place, _)) = first {
                rate.take((), now);
                return Some(place);
            }
        }
        None
    }

    /// Takes note that a peer from there has shown a valid credential: its source has no debt, and is proven.
    pub fn prove(&mut self, from: IpAddr, now: Nanos) {
        let source = PeerSource::of(from);
        self.debts.forget(&source);
        self.proven.insert(source, now);
        self.counters.proven += 1;
        for open in self.open.iter_mut().filter(|open| open.source == source) {
            (open.is_proven, open.debt) = (true, Nanos(0));
        }
    }

    /// Ends a handshake: the peer is authenticated, or there will be no association. False where it had given way or taken too long, and so
    /// must not become an association.
    pub fn leave(&mut self, ticket: HalfOpenTicket, now: Nanos) -> bool {
        let Some(place) = self.place(ticket) else { return false };
        let is_late = self.remove(place).is_none_or(|open| open.until <= now);
        self.counters.late += u64::from(is_late);
        !is_late
    }

    /// Handshakes that have taken too long: they are over, and their connections are to be closed.
    pub fn expire(&mut self, now: Nanos) -> Vec<HalfOpenTicket> {
        let late: Vec<HalfOpenTicket> =
            self.open.iter().filter(|open| open.until <= now).map(|open| open.ticket).collect();
        for ticket in &late {
            if let Some(place) = self.place(*ticket) {
                self.remove(place);
            }
        }
        self.counters.late += late.len() as u64;
        late
    }

    /// The time of the next answer or late handshake, if nothing new comes.
    pub fn next_event(&self, now: Nanos) -> Option<Nanos> {
        let deadline = self.open.iter().map(|open| open.until).min();
        let of = |rate: &RateLimiter<()>| Nanos(now.0.saturating_add(rate.wait(&(), now).max(AGAIN).0));
        let is_proven = |open: &Open| open.stage == Stage::Waiting && open.is_proven;
        let proven = (self.waiting > 0 && self.open.iter().any(is_proven)).then(|| of(&self.for_proven));
        let unproven = (self.waiting > 0).then(|| of(&self.for_unproven));
        [deadline, proven, unproven].into_iter().flatten().min()
    }

    /// Handshakes that are half open.
    pub fn half_open(&self) -> usize {
        self.open.len()
    }

    /// Counters of what became of handshakes.
    pub fn counters(&self) -> GateCounters {
        self.counters
    }

    fn place(&self, ticket: HalfOpenTicket) -> Option<usize> {
        self.open.binary_search_by_key(&ticket, |open| open.ticket).ok()
    }

    fn waiting_of(&self, source: &PeerSource) -> usize {
        self.open.iter().filter(|open| open.source == *source && open.stage == Stage::Waiting).count()
    }

    /// The time at which a source is out of debt; zero where it has none.
    fn debt_of(&self, source: &PeerSource, now: Nanos) -> Nanos {
        Some(self.debts.due(source)).filter(|due| *due > now).unwrap_or_default()
    }

    /// Takes a handshake out, and off its source's and its network's counts.
    fn remove(&mut self, place: usize) -> Option<Open> {
        if place >= self.open.len() {
            return None;
        }
        let gone = self.open.remove(place);
        if gone.stage == Stage::Waiting {
            self.waiting -= 1;
            self.counters.unanswered += 1;
        }
        for other in &mut self.open {
            other.of_source -= usize::from(other.source == gone.source);
            other.of_network -= usize::from(other.source.network() == gone.source.network());
        }
        Some(gone)
    }

    /// The handshake that gives way to the newest one, where there are too many.
    fn make_room(&mut self) -> Option<HalfOpenTicket> {
        if self.open.len() <= self.limits.half_open {
            return None;
        }
        let others = self.open.len() - 1;
        let candidates = self.open.iter().take(others).enumerate();
        let (place, _) = candidates.max_by_key(|(_, open)| (open.weight(), Reverse(open.ticket)))?;
        self.counters.evicted += 1;
        self.remove(place).map(|open| open.ticket)
    }
}
