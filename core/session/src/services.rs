//! Calls of services between sessions: messages with bounded queues, a deadline and a payer for each call.
//!
//! A session offers services of its modules to sessions that it names ("The price of safety in an active network",
//! section VI.A: sessions call services of other sessions, and agree on the payer). A call is a message, and so is the
//! answer, which weir passes to the caller by calling `weir_answer`. No module blocks:
//!
//! - Each accepted call has exactly one outcome ([`CallOutcome`]): the callee's answer, or a failure, at the latest at
//!   the caller's deadline. A later answer is discarded.
//! - Each calling session has a bounded queue of its own at a callee, and the queues take turns. A caller has a bounded
//!   number of unanswered calls.
//! - Messages take memory from the calling session's reservation.
//!
//! All functions get `now` from the same clock; any clock can be used.

use crate::{HeldMemory, MemoryReservation};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use weir_abi::{answer, limit};
use weir_units::{Bytes, Name, Nanos};

/// The identity of a module that calls or serves. It is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u64);

/// The payer of the processor time that a call takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Payer {
    /// The callee pays.
    #[default]
    Callee,
    /// The caller pays up to the maximum for each call that its session has agreed to. The callee pays the rest.
    Caller,
}

/// A service, with the conditions under which its session offers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceOffer {
    /// The sessions that may call the service.
    pub callers: Vec<Name>,
    /// The most waiting calls of each calling session.
    pub queue: u32,
    /// The longest request, in bytes.
    pub request: u32,
    /// The longest answer, in bytes.
    pub answer: u32,
    /// The payer of a call's time.
    pub payer: Payer,
}

/// A service of another session that a session uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceUse {
    /// The session that offers the service.
    pub provider: Name,
    /// The name of the service in that session.
    pub service: Name,
    /// The most processor time that the caller pays for each call; `None` if the caller does not agree to pay.
    pub pays: Option<Nanos>,
}

/// The outcome of an accepted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The callee has answered.
    Answered,
    /// The deadline passed before an answer.
    Late,
    /// The callee no longer exists.
    Gone,
    /// The callee's `weir_serve` for the call was a fault.
    Failed,
}

impl CallOutcome {
    /// Returns the code that the module gets (`weir_abi::answer`).
    pub const fn code(self) -> i32 {
        match self {
            Self::Answered => answer::ANSWERED,
            Self::Late => answer::LATE,
            Self::Gone => answer::GONE,
            Self::Failed => answer::FAILED,
        }
    }
}

/// The reason for refusing a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallRefusal {
    /// The caller's session does not use the service, may not call it, or has not agreed to pay for it.
    Denied,
    /// The queue is full, too many calls are unanswered, or there is no memory for the message.
    Full,
    /// The message is too long, or the time limit is out of range.
    Range,
    /// No module offers the service at present.
    Absent,
}

/// The reason for refusing an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyRefusal {
    /// There is no call with this number, or the call is answered already or past its deadline.
    Unknown,
    /// The message is too long.
    Range,
}

/// A call, as the callee gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceCall {
    /// The call's number, for the callee's answer.
    pub call: u64,
    /// The number of the service, as the callee knows it.
    pub service: u32,
    /// The message.
    pub message: Vec<u8>,
    /// The caller, and the most processor time that the caller pays for; `None` if the callee pays for all of it.
    pub paid: Option<(EndpointId, Nanos)>,
}

/// The outcome of a call, as the caller gets it.
#[derive(Debug)]
pub struct ServiceReply {
    /// The call's number, as the caller got it.
    pub ticket: u64,
    /// The outcome.
    pub outcome: CallOutcome,
    /// The answer; empty if the callee has not answered.
    pub message: Vec<u8>,
    /// The answer's memory, taken from the caller's reservation until this value is dropped.
    _memory: HeldMemory,
}

/// Counters of a module's calls. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounters {
    /// Calls by the module that were accepted.
    pub calls: u64,
    /// Calls by the module that were refused.
    pub refused: u64,
    /// Calls by the module that the callee answered.
    pub answered: u64,
    /// Calls by the module whose deadline passed.
    pub late: u64,
    /// Calls by the module whose callee disappeared or failed.
    pub failed: u64,
    /// Calls that the module got to serve.
    pub served: u64,
    /// Answers by the module that were refused: too late, too long, or to no call.
    pub discarded: u64,
}

impl ServiceCounters {
    /// Adds the counters of another module.
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

/// A module that can call and serve, with its calls.
#[derive(Debug)]
struct Member {
    session: Name,
    memory: Arc<MemoryReservation>,
    /// Calls that wait for this module, by calling session. The session to be served next is the first.
    inbox: VecDeque<(Name, VecDeque<u64>)>,
    /// The keys in [`ServiceExchange::pending`] of the module's unanswered calls, by ticket.
    calls: BTreeMap<u64, u64>,
    next_ticket: u64,
    /// The keys in [`ServiceExchange::pending`] of the calls that the module got to serve and has not answered, by
    /// number.
    serving: BTreeMap<u64, u64>,
    next_call: u64,
    /// Outcomes that are queued for the module.
    answers: VecDeque<ServiceReply>,
    counters: ServiceCounters,
}

/// An accepted call without an outcome.
#[derive(Debug)]
struct PendingCall {
    caller: EndpointId,
    /// The call's number at the caller.
    ticket: u64,
    callee: EndpointId,
    /// The callee's own number for the service.
    service: u32,
    request: Vec<u8>,
    answer_max: u32,
    deadline: Nanos,
    /// The most processor time that the caller pays for; `None` if the callee pays.
    paid: Option<Nanos>,
    /// The caller's memory for the message and the longest answer.
    memory: HeldMemory,
    /// The call's number at the callee; `None` while the call waits.
    call: Option<u64>,
}

/// A service that a module offers at present.
#[derive(Debug)]
struct OfferEntry {
    module: EndpointId,
    /// The module's own number for the service.
    service: u32,
    offer: ServiceOffer,
}

/// All services of a node, and the calls under way.
#[derive(Debug, Default)]
pub struct ServiceExchange {
    members: BTreeMap<EndpointId, Member>,
    /// The offered services, by session and name.
    offers: BTreeMap<(Name, Name), OfferEntry>,
    /// The calls without an outcome, by a key that is never reused.
    pending: BTreeMap<u64, PendingCall>,
    last_key: u64,
}

impl ServiceExchange {
    /// Adds a module of a session, so that it can call services and offer services.
    pub fn add_module(&mut self, module: EndpointId, session: &Name, memory: &Arc<MemoryReservation>) {
        let member = Member {
            session: session.clone(),
            memory: Arc::clone(memory),
            inbox: VecDeque::new(),
            calls: BTreeMap::new(),
            next_ticket: 1,
            serving: BTreeMap::new(),
            next_call: 1,
            answers: VecDeque::new(),
            counters: ServiceCounters::default(),
        };
        self.members.insert(module, member);
    }

    /// Offers a service of a module under a name; `service` is the module's own number for the service. Returns false
    /// if a module of the same session offers this name already.
    pub fn offer(&mut self, module: EndpointId, name: &Name, service: u32, offer: ServiceOffer) -> bool {
        let Some(member) = self.members.get(&module) else { return false };
        let key = (member.session.clone(), name.clone());
        if self.offers.contains_key(&key) {
            return false;
        }
        self.offers.insert(key, OfferEntry { module, service, offer });
        true
    }

    /// Replaces the offers of a module. Names that another module of its session offers are skipped. Calls that were
    /// accepted before are not affected.
    pub fn replace_offers(&mut self, module: EndpointId, offers: Vec<(Name, u32, ServiceOffer)>) {
        self.offers.retain(|_, offered| offered.module != module);
        for (name, service, offer) in offers {
            self.offer(module, &name, service, offer);
        }
    }

    /// Removes a module. Returns the callers for which an outcome is now queued, and the counters of the removed module.
    pub fn remove_module(&mut self, module: EndpointId) -> (BTreeSet<EndpointId>, ServiceCounters) {
        self.offers.retain(|_, offered| offered.module != module);
        let calls_to_module: Vec<u64> = self.calls_where(|pending_call| pending_call.callee == module);
        let mut callers = BTreeSet::new();
        for id in calls_to_module {
            callers.extend(self.end(id, CallOutcome::Gone, Vec::new()));
        }
        for id in self.calls_where(|pending_call| pending_call.caller == module) {
            self.remove_call(id);
        }
        callers.remove(&module);
        let counters = self.members.remove(&module).map(|member| member.counters);
        (callers, counters.unwrap_or_default())
    }

    fn calls_where(&self, is_wanted: impl Fn(&PendingCall) -> bool) -> Vec<u64> {
        self.pending.iter().filter(|(_, pending_call)| is_wanted(pending_call)).map(|(id, _)| *id).collect()
    }

    /// Calls a service for the module `from`. The answer is due within `time_limit`. Returns the call's ticket, and the
    /// callee.
    ///
    /// # Errors
    /// [`CallRefusal`].
    pub fn call(
        &mut self,
        now: Nanos,
        from: EndpointId,
        service_use: Option<&ServiceUse>,
        message: &[u8],
        time_limit: Nanos,
    ) -> Result<(u64, EndpointId), CallRefusal> {
        let result = self.accept(now, from, service_use, message, time_limit);
        if let Some(member) = self.members.get_mut(&from) {
            match result {
                Ok(_) => member.counters.calls += 1,
                Err(_) => member.counters.refused += 1,
            }
        }
        result
    }

    fn accept(
        &mut self,
        now: Nanos,
        from: EndpointId,
        service_use: Option<&ServiceUse>,
        message: &[u8],
        time_limit: Nanos,
    ) -> Result<(u64, EndpointId), CallRefusal> {
        let service_use = service_use.ok_or(CallRefusal::Denied)?;
        let caller = self.members.get(&from).ok_or(CallRefusal::Absent)?;
        let key = (service_use.provider.clone(), service_use.service.clone());
        let OfferEntry { module, service, offer } = self.offers.get(&key).ok_or(CallRefusal::Absent)?;
        let paid = service_use.pays.filter(|_| offer.payer == Payer::Caller);
        if !offer.callers.contains(&caller.session) || (offer.payer == Payer::Caller && paid.is_none()) {
            return Err(CallRefusal::Denied);
        }
        let is_legal_time = (limit::DEADLINE_MIN_NS..=limit::DEADLINE_NS).contains(&time_limit.0);
        if message.len() > offer.request as usize || !is_legal_time {
            return Err(CallRefusal::Range);
        }
        if caller.calls.len() >= limit::CALLS as usize {
            return Err(CallRefusal::Full);
        }
        let callee = self.members.get(module).ok_or(CallRefusal::Absent)?;
        let waiting = callee.inbox.iter().find(|(session, _)| *session == caller.session);
        if waiting.is_some_and(|(_, waiting)| waiting.len() >= offer.queue as usize) {
            return Err(CallRefusal::Full);
        }
        let memory = Bytes(message.len() as u64 + u64::from(offer.answer));
        let held = HeldMemory::take(&caller.memory, memory).ok_or(CallRefusal::Full)?;
        let (module, session) = (*module, caller.session.clone());
        let pending_call = PendingCall {
            caller: from,
            ticket: caller.next_ticket,
            callee: module,
            service: *service,
            request: message.to_vec(),
            answer_max: offer.answer,
            deadline: Nanos(now.0.saturating_add(time_limit.0)),
            paid,
            memory: held,
            call: None,
        };
        let ticket = pending_call.ticket;
        self.last_key += 1;
        self.pending.insert(self.last_key, pending_call);
        if let Some(caller) = self.members.get_mut(&from) {
            caller.calls.insert(ticket, self.last_key);
            caller.next_ticket += 1;
        }
        if let Some(callee) = self.members.get_mut(&module) {
            match callee.inbox.iter_mut().find(|(waiting_session, _)| *waiting_session == session) {
                Some((_, waiting)) => waiting.push_back(self.last_key),
                None => callee.inbox.push_back((session, VecDeque::from([self.last_key]))),
            }
        }
        Ok((ticket, module))
    }

    /// Returns true if a module has calls to serve or outcomes to get.
    pub fn has_pending(&self, module: EndpointId) -> bool {
        let member = self.members.get(&module);
        member.is_some_and(|member| !member.inbox.is_empty() || !member.answers.is_empty())
    }

    /// Returns the next call for a module to serve; calling sessions take turns. Calls past their deadline are skipped.
    pub fn next_call(&mut self, now: Nanos, module: EndpointId) -> Option<ServiceCall> {
        let member = self.members.get_mut(&module)?;
        while let Some((session, mut waiting)) = member.inbox.pop_front() {
            let id = waiting.pop_front();
            if !waiting.is_empty() {
                member.inbox.push_back((session, waiting));
            }
            let Some(id) = id else { continue };
            let Some(pending_call) =
                self.pending.get_mut(&id).filter(|pending_call| now < pending_call.deadline)
            else {
                // `expire` queues the outcome for the caller.
                continue;
            };
            let call = member.next_call;
            member.next_call += 1;
            member.serving.insert(call, id);
            member.counters.served += 1;
            pending_call.call = Some(call);
            return Some(ServiceCall {
                call,
                service: pending_call.service,
                message: std::mem::take(&mut pending_call.request),
                paid: pending_call.paid.map(|maximum| (pending_call.caller, maximum)),
            });
        }
        None
    }

    /// Answers a call that a module got to serve. Returns the caller, for which an outcome is now queued.
    ///
    /// # Errors
    /// [`ReplyRefusal`].
    pub fn reply(
        &mut self,
        now: Nanos,
        module: EndpointId,
        call: u64,
        message: &[u8],
    ) -> Result<EndpointId, ReplyRefusal> {
        let result = self.accept_reply(now, module, call, message);
        if let (Err(_), Some(member)) = (&result, self.members.get_mut(&module)) {
            member.counters.discarded += 1;
        }
        result
    }

    fn accept_reply(
        &mut self,
        now: Nanos,
        module: EndpointId,
        call: u64,
        message: &[u8],
    ) -> Result<EndpointId, ReplyRefusal> {
        let id = self.members.get(&module).and_then(|member| member.serving.get(&call)).copied();
        let id = id.ok_or(ReplyRefusal::Unknown)?;
        let pending_call = self.pending.get(&id).ok_or(ReplyRefusal::Unknown)?;
        if now >= pending_call.deadline {
            return Err(ReplyRefusal::Unknown);
        }
        if message.len() > pending_call.answer_max as usize {
            return Err(ReplyRefusal::Range);
        }
        self.end(id, CallOutcome::Answered, message.to_vec()).ok_or(ReplyRefusal::Unknown)
    }

    /// Ends a call with [`CallOutcome::Failed`], because the callee's `weir_serve` for it was a fault. Returns the
    /// caller; `None` if the call is answered already.
    pub fn fail(&mut self, module: EndpointId, call: u64) -> Option<EndpointId> {
        let id = *self.members.get(&module)?.serving.get(&call)?;
        self.end(id, CallOutcome::Failed, Vec::new())
    }

    /// Ends the calls by a module whose deadline has passed, with [`CallOutcome::Late`].
    pub fn expire(&mut self, now: Nanos, module: EndpointId) {
        let Some(member) = self.members.get(&module) else { return };
        let is_late =
            |id: &&u64| self.pending.get(id).is_some_and(|pending_call| pending_call.deadline <= now);
        let late: Vec<u64> = member.calls.values().filter(is_late).copied().collect();
        for id in late {
            self.end(id, CallOutcome::Late, Vec::new());
        }
    }

    /// Returns the earliest deadline of the calls by a module; `None` without calls.
    pub fn next_deadline(&self, module: EndpointId) -> Option<Nanos> {
        let calls = self.members.get(&module)?.calls.values();
        calls.filter_map(|id| self.pending.get(id)).map(|pending_call| pending_call.deadline).min()
    }

    /// Returns the next queued outcome for a module; `None` if no outcome is queued.
    pub fn next_reply(&mut self, module: EndpointId) -> Option<ServiceReply> {
        let member = self.members.get_mut(&module)?;
        let answer = member.answers.pop_front()?;
        member.calls.remove(&answer.ticket);
        Some(answer)
    }

    /// Returns the counters of a module.
    pub fn counters(&self, module: EndpointId) -> ServiceCounters {
        self.members.get(&module).map(|member| member.counters).unwrap_or_default()
    }

    /// Returns the number of calls that wait for a module to serve them.
    pub fn waiting(&self, module: EndpointId) -> usize {
        self.members
            .get(&module)
            .map_or(0, |member| member.inbox.iter().map(|(_, waiting)| waiting.len()).sum())
    }

    /// Ends a call, and queues the outcome for the caller.
    fn end(&mut self, id: u64, outcome: CallOutcome, message: Vec<u8>) -> Option<EndpointId> {
        let pending_call = self.remove_call(id)?;
        let caller = self.members.get_mut(&pending_call.caller)?;
        let counters = &mut caller.counters;
        match outcome {
            CallOutcome::Answered => counters.answered += 1,
            CallOutcome::Late => counters.late += 1,
            CallOutcome::Gone | CallOutcome::Failed => counters.failed += 1,
        }
        let mut held = pending_call.memory;
        // Giving memory back always succeeds.
        _ = held.set(Bytes(message.len() as u64));
        // The call counts as unanswered until the caller has got the outcome. So the limit on unanswered calls bounds
        // the number of queued outcomes, too.
        caller.answers.push_back(ServiceReply {
            ticket: pending_call.ticket,
            outcome,
            message,
            _memory: held,
        });
        Some(pending_call.caller)
    }

    /// Removes a call, also from the callee, without an outcome for the caller.
    fn remove_call(&mut self, id: u64) -> Option<PendingCall> {
        let pending_call = self.pending.remove(&id)?;
        if let Some(callee) = self.members.get_mut(&pending_call.callee) {
            match pending_call.call {
                Some(call) => _ = callee.serving.remove(&call),
                None => {
                    callee
                        .inbox
                        .iter_mut()
                        .for_each(|(_, waiting)| waiting.retain(|waiting_id| *waiting_id != id));
                    callee.inbox.retain(|(_, waiting)| !waiting.is_empty());
                }
            }
        }
        Some(pending_call)
    }
}
