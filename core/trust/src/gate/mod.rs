//! What is done about strangers before anybody has authenticated them.
//!
//! Whoever connects costs memory until the handshake is over, and processor time when the first message is answered. [`Gate`] says for how
//! many, for how long and how often that is done, so that the thousands of a few do not keep an honest one out:
//!
//! - **Half-open handshakes** are limited in number. Where there is no room, somebody gives way: of the network with the most of them, the
//!   source with the most of them loses its oldest. A *source* is an IPv4 address or an IPv6 /64 (which is what one host or one customer
//!   has), a *network* is a /24 or a /48. So a handshake whose network has `k` of them gives way only where no network has more than `k`:
//!   with [`Limits::half_open`] places, strangers have to come from `half_open / k` networks at once, and bring so many handshakes within
//!   the time that an honest one takes.
//! - **Time.** A handshake is over within [`Limits::deadline`], or it is given up.
//! - **Work.** Answering the first message takes four multiplications on the curve and a signature, the third one another and a check of a
//!   signature. Each handshake that gets so far takes one turn of its source's rate and one of the rate for all. A turn that one of them
//!   refuses is not taken from the other, so a source that asks too often does not use up what is there for all. Rates are kept by the
//!   generic cell rate algorithm (ITU-T I.371; ATM Forum, Traffic Management 4.0): one time for each source, the one at which it would be
//!   on schedule.
//!
//! What remains: strangers who have more networks than there are places, and all of them answer (TCP: no forged source gets past the
//! kernel), can push a handshake out before it is over, and who have more sources than the rate for all divided by that of one can use it
//! up. An honest peer is then refused as they are, and tries again.
//!
//! The gate has no clock and no sockets: time is an argument, whoever has the sockets closes those that give way.

mod rate;
mod source;

pub use rate::{Rate, Rates};
pub use source::Source;

use core::net::IpAddr;
use source::Network;
use std::collections::BTreeMap;
use weir_units::Nanos;

/// What strangers may use, all together and each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Handshakes that can be half open at a time.
    pub half_open: usize,
    /// How long one may take, from the connection on.
    pub deadline: Nanos,
    /// How often a source has its first message answered.
    pub source: Rate,
    /// How often that is done for all together.
    pub overall: Rate,
    /// Sources whose rates are remembered. Beyond that the one that is nearest to having its whole burst back is forgotten.
    pub sources: usize,
}

impl Default for Limits {
    /// 256 half-open handshakes of at most 5 s; 10 in a second from one source and 500 from all (`bench handshake` says what one takes).
    fn default() -> Self {
        Self {
            half_open: 256,
            deadline: Nanos(5 * Nanos::SECOND.0),
            source: Rate { every: Nanos(100 * Nanos::MILLISECOND.0), burst: 20 },
            overall: Rate { every: Nanos(2 * Nanos::MILLISECOND.0), burst: 500 },
            sources: 4096,
        }
    }
}

/// A half-open handshake: given by [`Gate::admit`], never given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// A handshake may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// What it is known by.
    pub ticket: Ticket,
    /// When it has to be over.
    pub until: Nanos,
    /// Who gave way for it: that connection is to be closed.
    pub evicted: Option<Ticket>,
}

/// Why a first message is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It gave way to others, or is over already.
    #[error("the handshake gave way to others")]
    Gone,
    /// Its time is over.
    #[error("the handshake took too long")]
    Late,
    /// Its message was answered before.
    #[error("the first message came twice")]
    Again,
    /// Its source asks too often.
    #[error("its source asks too often")]
    Source,
    /// All together ask too often.
    #[error("too many ask at the same time")]
    Overall,
}

/// What became of whom, since the gate is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounters {
    /// Handshakes that began.
    pub admitted: u64,
    /// Of those, how many gave way to others.
    pub evicted: u64,
    /// How many took too long.
    pub late: u64,
    /// First messages that were answered.
    pub answered: u64,
    /// First messages that were not, for their source asks too often.
    pub refused_source: u64,
    /// First messages that were not, for all together ask too often.
    pub refused_overall: u64,
    /// Sources that were forgotten before their burst was whole again: they have it back early.
    pub forgotten: u64,
}

/// A handshake that is half open.
#[derive(Clone, Copy, Debug)]
struct Open {
    ticket: Ticket,
    source: Source,
    until: Nanos,
    is_answered: bool,
}

/// Who may begin a handshake, and who has it answered.
#[derive(Debug)]
pub struct Gate {
    limits: Limits,
    /// Oldest first: tickets ascend.
    open: Vec<Open>,
    next: u64,
    sources: Rates<Source>,
    overall: Rates<()>,
    counters: GateCounters,
}

impl Gate {
    /// A gate with nobody at it. At least one handshake can be half open, and one source is remembered, whatever the limits say.
    pub fn new(limits: Limits) -> Self {
        let limits = Limits { half_open: limits.half_open.max(1), ..limits };
        Self {
            limits,
            open: Vec::with_capacity(limits.half_open),
            next: 0,
            sources: Rates::new(limits.source, limits.sources),
            overall: Rates::new(limits.overall, 1),
            counters: GateCounters::default(),
        }
    }

    /// Somebody connects. There is always room for the newcomer; the answer says who gives way.
    pub fn admit(&mut self, from: IpAddr, now: Nanos) -> Admission {
        let source = Source::of(from);
        let evicted = self.make_room(source);
        let ticket = Ticket(self.next);
        self.next += 1;
        let until = Nanos(now.0.saturating_add(self.limits.deadline.0));
        self.open.push(Open { ticket, source, until, is_answered: false });
        self.counters.admitted += 1;
        Admission { ticket, until, evicted }
    }

    /// The first message of a handshake is there as a whole. May it be answered?
    ///
    /// # Errors
    /// It may not; the handshake is over then, and its connection is to be closed without a word.
    pub fn answer(&mut self, ticket: Ticket, now: Nanos) -> Result<(), Refusal> {
        let place = self.place(ticket).ok_or(Refusal::Gone)?;
        let refusal = self.refusal(place, now);
        if let Some(refusal) = refusal {
            self.open.remove(place);
            return Err(refusal);
        }
        Ok(())
    }

    fn refusal(&mut self, place: usize, now: Nanos) -> Option<Refusal> {
        let open = self.open.get_mut(place)?;
        if open.until <= now {
            self.counters.late += 1;
            return Some(Refusal::Late);
        }
        if open.is_answered {
            return Some(Refusal::Again);
        }
        if !self.sources.has_turn(&open.source, now) {
            self.counters.refused_source += 1;
            return Some(Refusal::Source);
        }
        if !self.overall.has_turn(&(), now) {
            self.counters.refused_overall += 1;
            return Some(Refusal::Overall);
        }
        open.is_answered = true;
        self.counters.forgotten += u64::from(self.sources.take(open.source, now));
        self.overall.take((), now);
        self.counters.answered += 1;
        None
    }

    /// A handshake is over: the peer is authenticated, or there will be no association. False where it had given way or taken too long, and so
    /// must not become an association.
    pub fn leave(&mut self, ticket: Ticket, now: Nanos) -> bool {
        let Some(place) = self.place(ticket) else { return false };
        let open = self.open.remove(place);
        let is_late = open.until <= now;
        self.counters.late += u64::from(is_late);
        !is_late
    }

    /// Handshakes that have taken too long: they are over, and their connections are to be closed.
    pub fn expire(&mut self, now: Nanos) -> Vec<Ticket> {
        let late = self.open.partition_point(|open| open.until <= now);
        self.counters.late += late as u64;
        self.open.drain(..late).map(|open| open.ticket).collect()
    }

    /// When the next one will have taken too long.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.open.first().map(|open| open.until)
    }

    /// How many are half open.
    pub fn half_open(&self) -> usize {
        self.open.len()
    }

    /// What became of whom.
    pub fn counters(&self) -> GateCounters {
        self.counters
    }

    fn place(&self, ticket: Ticket) -> Option<usize> {
        self.open.binary_search_by_key(&ticket, |open| open.ticket).ok()
    }

    /// Who gives way to a newcomer from there.
    fn make_room(&mut self, newcomer: Source) -> Option<Ticket> {
        if self.open.len() < self.limits.half_open {
            return None;
        }
        // The newcomer is one of its network's and its source's: who has as many as others already does not take a place of theirs.
        let mut networks: BTreeMap<Network, usize> = BTreeMap::from([(newcomer.network(), 1)]);
        let mut sources: BTreeMap<Source, usize> = BTreeMap::from([(newcomer, 1)]);
        for open in &self.open {
            *networks.entry(open.source.network()).or_default() += 1;
            *sources.entry(open.source).or_default() += 1;
        }
        let weight = |open: &Open| (networks.get(&open.source.network()), sources.get(&open.source));
        // Of those that weigh the same the first one is kept here, and the first is the oldest.
        let mut place = 0;
        let mut most = (None, None);
        for (at, open) in self.open.iter().enumerate() {
            if weight(open) > most {
                (place, most) = (at, weight(open));
            }
        }
        self.counters.evicted += 1;
        Some(self.open.remove(place).ticket)
    }
}
