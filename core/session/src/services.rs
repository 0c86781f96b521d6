//! Calls between sessions: messages with bounded queues, deadlines, and somebody who pays.
//!
//! A session offers services of its modules to sessions that it names ("The price of safety in an active network", section VI.A: services are called
//! across sessions, on an account that is agreed upon). A call is a message; the answer is another one, which comes as a call of its own. Nobody waits:
//!
//! - Each call that was accepted is answered exactly once: by the callee, or, at the caller's deadline, by nobody ([`Status::Late`]). What the callee says
//!   after that is discarded.
//! - Each session has its own bounded queue before a service, and these are served in turn; a caller has a bounded number of calls without an answer.
//! - Messages are taken from the memory that the calling session has reserved.
//!
//! `now` is on any clock that all calls share. A module is a *party*, by a number that is never given twice.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use weir_abi::{answer, limit};
use weir_units::{Bytes, Nanos};
use {
    crate::{Holding, MemoryReservation},
    weir_units::Name,
};

/// A module that calls or is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Party(pub u64);

/// Who pays for the time that a call takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Payer {
    /// Who is called.
    #[default]
    Callee,
    /// Who calls, up to what it agreed to for each call; the rest is the callee's.
    Caller,
}

/// A service as it is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The sessions that may call it.
    pub callers: Vec<Name>,
    /// Calls of each of them that wait at most.
    pub queue: u32,
    /// The longest message that it takes, in bytes.
    pub request: u32,
    /// The longest that it answers.
    pub answer: u32,
    /// Who pays.
    pub payer: Payer,
}

/// A service that a session uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceUse {
    /// The session that offers it.
    pub of: Name,
    /// What it is called there.
    pub service: Name,
    /// What a call may cost who calls, where who calls pays.
    pub pays: Option<Nanos>,
}

/// How a call was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// By the callee.
    Answered,
    /// Not before the deadline.
    Late,
    /// The callee is there no longer.
    Gone,
    /// The callee's own call was lost.
    Failed,
}

impl Status {
    /// As a module is told.
    pub const fn code(self) -> i32 {
        match self {
            Self::Answered => answer::ANSWERED,
            Self::Late => answer::LATE,
            Self::Gone => answer::GONE,
            Self::Failed => answer::FAILED,
        }
    }
}

/// Why a call is not accepted. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallRefusal {
    /// The session does not use such a service, may not, or has not agreed to pay for it.
    Denied,
    /// The queue is full, there are too many calls without an answer, or no memory for the message.
    Full,
    /// The message is too long, or the deadline out of range.
    Range,
    /// Nobody offers it now.
    Absent,
}

/// Why an answer is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyRefusal {
    /// There is no such call, or it is answered already, be it by its deadline.
    Unknown,
    /// The message is too long.
    Range,
}

/// A call that the callee is to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceCall {
    /// Its number, for the callee's answer.
    pub call: u64,
    /// Which of the callee's services.
    pub service: u32,
    /// The message.
    pub message: Vec<u8>,
    /// Who pays for the time that it takes, and how much at most; nobody but the callee where there is none.
    pub paid: Option<(Party, Nanos)>,
}

/// What became of a call.
#[derive(Debug)]
pub struct ServiceReply {
    /// The number that the caller was given.
    pub ticket: u64,
    /// How it was answered.
    pub status: Status,
    /// The message; empty where it was not answered.
    pub message: Vec<u8>,
    /// Its memory, until the caller has it.
    _holding: Holding,
}

/// What a party did. Counters only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounters {
    /// Calls that it made and that were accepted.
    pub calls: u64,
    /// Calls that were not.
    pub refused: u64,
    /// Its calls that were answered by the callee.
    pub answered: u64,
    /// Its calls whose deadline passed.
    pub late: u64,
    /// Its calls whose callee went, or failed.
    pub failed: u64,
    /// Calls that it was given to serve.
    pub served: u64,
    /// Its answers that were not taken: too late, too long, or to no call.
    pub discarded: u64,
}

impl ServiceCounters {
    /// Adds what another did.
    pub fn merge(&mut self, other: &Self) {
        let Self { calls, refused, answered, late, failed, served, discarded } = other;
        self.calls += calls;
        self.refused += refused;
        self.answered += answered;
        self.late += late;
        self.failed += failed;
        self.served += served;
        self.discarded += discarded;
    }
}

#[derive(Debug)]
struct Member {
    session: Name,
    memory: Arc<MemoryReservation>,
    /// What waits for it, by calling session; the one to be served next first.
    inbox: VecDeque<(Name, VecDeque<u64>)>,
    /// Its calls that have no answer yet, by ticket.
    calls: BTreeMap<u64, u64>,
    next_ticket: u64,
    /// What it was given to serve and has not answered, by number.
    serving: BTreeMap<u64, u64>,
    next_call: u64,
    answers: VecDeque<ServiceReply>,
    tally: ServiceCounters,
}

#[derive(Debug)]
struct Flight {
    caller: Party,
    ticket: u64,
    callee: Party,
    service: u32,
    request: Vec<u8>,
    answer_max: u32,
    deadline: Nanos,
    paid: Option<Nanos>,
    /// For the message, and for the longest answer.
    holding: Holding,
    /// Its number at the callee, once it was given to it.
    call: Option<u64>,
}

#[derive(Debug)]
struct Offered {
    party: Party,
    service: u32,
    offer: Offer,
}

/// All services of a node, and the calls under way.
#[derive(Debug, Default)]
pub struct Exchange {
    members: BTreeMap<Party, Member>,
    offers: BTreeMap<(Name, Name), Offered>,
    flights: BTreeMap<u64, Flight>,
    next: u64,
}

impl Exchange {
    /// A module of a session can call and be called from now on.
    pub fn enter(&mut self, party: Party, session: &Name, memory: &Arc<MemoryReservation>) {
        let member = Member {
            session: session.clone(),
            memory: Arc::clone(memory),
            inbox: VecDeque::new(),
            calls: BTreeMap::new(),
            next_ticket: 1,
            serving: BTreeMap::new(),
            next_call: 1,
            answers: VecDeque::new(),
            tally: ServiceCounters::default(),
        };
        self.members.insert(party, member);
    }

    /// It offers a service of this name, which it knows by this number. False where another module of its session does already.
    pub fn offer(&mut self, party: Party, name: &Name, service: u32, offer: Offer) -> bool {
        let Some(member) = self.members.get(&party) else { return false };
        let key = (member.session.clone(), name.clone());
        if self.offers.contains_key(&key) {
            return false;
        }
        self.offers.insert(key, Offered { party, service, offer });
        true
    }

    /// It offers these services from now on, and none beside, as far as no other module of its session does. Calls that were accepted before stay as they
    /// were.
    pub fn offer_only(&mut self, party: Party, offers: Vec<(Name, u32, Offer)>) {
        self.offers.retain(|_, offered| offered.party != party);
        for (name, service, offer) in offers {
            self.offer(party, &name, service, offer);
        }
    }

    /// It is there no longer. Gives those who have an answer now, and what it did.
    pub fn leave(&mut self, party: Party) -> (BTreeSet<Party>, ServiceCounters) {
        self.offers.retain(|_, offered| offered.party != party);
        let called: Vec<u64> = self.of(|flight| flight.callee == party);
        let mut told = BTreeSet::new();
        for id in called {
            told.extend(self.end(id, Status::Gone, Vec::new()));
        }
        for id in self.of(|flight| flight.caller == party) {
            self.forget(id);
        }
        told.remove(&party);
        let tally = self.members.remove(&party).map(|member| member.tally);
        (told, tally.unwrap_or_default())
    }

    fn of(&self, is_wanted: impl Fn(&Flight) -> bool) -> Vec<u64> {
        self.flights.iter().filter(|(_, flight)| is_wanted(flight)).map(|(id, _)| *id).collect()
    }

    /// A call. Gives its ticket, and who is to serve it.
    ///
    /// # Errors
    /// [`CallRefusal`].
    pub fn call(
        &mut self,
        now: Nanos,
        from: Party,
        what: Option<&ServiceUse>,
        message: &[u8],
        within: Nanos,
    ) -> Result<(u64, Party), CallRefusal> {
        let result = self.accept(now, from, what, message, within);
        if let Some(member) = self.members.get_mut(&from) {
            match result {
                Ok(_) => member.tally.calls += 1,
                Err(_) => member.tally.refused += 1,
            }
        }
        result
    }

    fn accept(
        &mut self,
        now: Nanos,
        from: Party,
        what: Option<&ServiceUse>,
        message: &[u8],
        within: Nanos,
    ) -> Result<(u64, Party), CallRefusal> {
        let what = what.ok_or(CallRefusal::Denied)?;
        let caller = self.members.get(&from).ok_or(CallRefusal::Absent)?;
        let key = (what.of.clone(), what.service.clone());
        let Offered { party, service, offer } = self.offers.get(&key).ok_or(CallRefusal::Absent)?;
        let paid = what.pays.filter(|_| offer.payer == Payer::Caller);
        if !offer.callers.contains(&caller.session) || (offer.payer == Payer::Caller && paid.is_none()) {
            return Err(CallRefusal::Denied);
        }
        let is_fair = (limit::DEADLINE_MIN_NS..=limit::DEADLINE_NS).contains(&within.0);
        if message.len() > offer.request as usize || !is_fair {
            return Err(CallRefusal::Range);
        }
        if caller.calls.len() >= limit::CALLS as usize {
            return Err(CallRefusal::Full);
        }
        let callee = self.members.get(party).ok_or(CallRefusal::Absent)?;
        let waiting = callee.inbox.iter().find(|(session, _)| *session == caller.session);
        if waiting.is_some_and(|(_, waiting)| waiting.len() >= offer.queue as usize) {
            return Err(CallRefusal::Full);
        }
        let room = Bytes(message.len() as u64 + u64::from(offer.answer));
        let holding = Holding::of(&caller.memory, room).ok_or(CallRefusal::Full)?;
        let (party, session) = (*party, caller.session.clone());
        let flight = Flight {
            caller: from,
            ticket: caller.next_ticket,
            callee: party,
            service: *service,
            request: message.to_vec(),
            answer_max: offer.answer,
            deadline: Nanos(now.0.saturating_add(within.0)),
            paid,
            holding,
            call: None,
        };
        let ticket = flight.ticket;
        self.next += 1;
        self.flights.insert(self.next, flight);
        if let Some(caller) = self.members.get_mut(&from) {
            caller.calls.insert(ticket, self.next);
            caller.next_ticket += 1;
        }
        if let Some(callee) = self.members.get_mut(&party) {
            match callee.inbox.iter_mut().find(|(waits, _)| *waits == session) {
                Some((_, waiting)) => waiting.push_back(self.next),
                None => callee.inbox.push_back((session, VecDeque::from([self.next]))),
            }
        }
        Ok((ticket, party))
    }

    /// Whether a party has anything to be told.
    pub fn has_news(&self, party: Party) -> bool {
        let member = self.members.get(&party);
        member.is_some_and(|member| !member.inbox.is_empty() || !member.answers.is_empty())
    }

    /// What a party is to serve next, of the sessions in turn. What nobody waits for any more is not served.
    pub fn take(&mut self, now: Nanos, party: Party) -> Option<ServiceCall> {
        let member = self.members.get_mut(&party)?;
        while let Some((session, mut waiting)) = member.inbox.pop_front() {
            let id = waiting.pop_front();
            if !waiting.is_empty() {
                member.inbox.push_back((session, waiting));
            }
            let Some(id) = id else { continue };
            let Some(flight) = self.flights.get_mut(&id).filter(|flight| now < flight.deadline) else {
                // The caller hears of it by itself.
                continue;
            };
            let call = member.next_call;
            member.next_call += 1;
            member.serving.insert(call, id);
            member.tally.served += 1;
            flight.call = Some(call);
            return Some(ServiceCall {
                call,
                service: flight.service,
                message: std::mem::take(&mut flight.request),
                paid: flight.paid.map(|most| (flight.caller, most)),
            });
        }
        None
    }

    /// A party answers a call that it was given to serve. Gives who has the answer now.
    ///
    /// # Errors
    /// [`ReplyRefusal`].
    pub fn reply(
        &mut self,
        now: Nanos,
        party: Party,
        call: u64,
        message: &[u8],
    ) -> Result<Party, ReplyRefusal> {
        let result = self.answered(now, party, call, message);
        if let (Err(_), Some(member)) = (&result, self.members.get_mut(&party)) {
            member.tally.discarded += 1;
        }
        result
    }

    fn answered(
        &mut self,
        now: Nanos,
        party: Party,
        call: u64,
        message: &[u8],
    ) -> Result<Party, ReplyRefusal> {
        let id = self.members.get(&party).and_then(|member| member.serving.get(&call)).copied();
        let id = id.ok_or(ReplyRefusal::Unknown)?;
        let flight = self.flights.get(&id).ok_or(ReplyRefusal::Unknown)?;
        if now >= flight.deadline {
            return Err(ReplyRefusal::Unknown);
        }
        if message.len() > flight.answer_max as usize {
            return Err(ReplyRefusal::Range);
        }
        self.end(id, Status::Answered, message.to_vec()).ok_or(ReplyRefusal::Unknown)
    }

    /// The call in which a party was to serve this was lost, so nobody waits for its answer. Gives who hears of it, where it was not answered before.
    pub fn fail(&mut self, party: Party, call: u64) -> Option<Party> {
        let id = *self.members.get(&party)?.serving.get(&call)?;
        self.end(id, Status::Failed, Vec::new())
    }

    /// The calls of a party whose deadline has passed are answered.
    pub fn expire(&mut self, now: Nanos, party: Party) {
        let Some(member) = self.members.get(&party) else { return };
        let is_late = |id: &&u64| self.flights.get(id).is_some_and(|flight| flight.deadline <= now);
        let late: Vec<u64> = member.calls.values().filter(is_late).copied().collect();
        for id in late {
            self.end(id, Status::Late, Vec::new());
        }
    }

    /// When the next deadline of a party's calls is.
    pub fn next_deadline(&self, party: Party) -> Option<Nanos> {
        let calls = self.members.get(&party)?.calls.values();
        calls.filter_map(|id| self.flights.get(id)).map(|flight| flight.deadline).min()
    }

    /// The next answer that a party has not been told.
    pub fn answer(&mut self, party: Party) -> Option<ServiceReply> {
        let member = self.members.get_mut(&party)?;
        let answer = member.answers.pop_front()?;
        member.calls.remove(&answer.ticket);
        Some(answer)
    }

    /// What a party did so far.
    pub fn tally(&self, party: Party) -> ServiceCounters {
        self.members.get(&party).map(|member| member.tally).unwrap_or_default()
    }

    /// How many calls wait for a party.
    pub fn waiting(&self, party: Party) -> usize {
        self.members.get(&party).map_or(0, |member| member.inbox.iter().map(|(_, waits)| waits.len()).sum())
    }

    /// A call is over, and its caller has an answer.
    fn end(&mut self, id: u64, status: Status, message: Vec<u8>) -> Option<Party> {
        let flight = self.forget(id)?;
        let caller = self.members.get_mut(&flight.caller)?;
        let tally = &mut caller.tally;
        match status {
            Status::Answered => tally.answered += 1,
            Status::Late => tally.late += 1,
            Status::Gone | Status::Failed => tally.failed += 1,
        }
        let mut holding = flight.holding;
        // Less than it holds is always there.
        _ = holding.set(Bytes(message.len() as u64));
        // It has no answer until it has heard of it: so answers are bounded as calls are.
        caller.answers.push_back(ServiceReply { ticket: flight.ticket, status, message, _holding: holding });
        Some(flight.caller)
    }

    /// A call is over; the callee has nothing of it any more.
    fn forget(&mut self, id: u64) -> Option<Flight> {
        let flight = self.flights.remove(&id)?;
        if let Some(callee) = self.members.get_mut(&flight.callee) {
            match flight.call {
                Some(call) => _ = callee.serving.remove(&call),
                None => {
                    callee.inbox.iter_mut().for_each(|(_, waiting)| waiting.retain(|waits| *waits != id));
                    callee.inbox.retain(|(_, waiting)| !waiting.is_empty());
                }
            }
        }
        Some(flight)
    }
}
