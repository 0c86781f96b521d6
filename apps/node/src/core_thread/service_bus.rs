//! The post office: calls of services between the modules of a node.
//!
//! What may be called, what waits and what is late is decided in [`weir_session::services`]; here it is told the time, and those who have something to
//! hear are woken.

use crate::runner::Waker;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_abi::code;
use weir_sandbox::MessageHandler;
use weir_session::services::{
    CallRefusal, Exchange, Offer, Party, ReplyRefusal, ServiceCall, ServiceCounters, ServiceReply, ServiceUse,
};
use weir_units::Nanos;
use {weir_admission::Name, weir_session::MemoryReservation};

/// All services of a node.
#[derive(Debug)]
pub struct ServiceBus {
    inner: Mutex<Inner>,
    /// What its times count from.
    origin: Instant,
}

#[derive(Debug, Default)]
struct Inner {
    exchange: Exchange,
    /// Where those who can call and be called are: their numbers on the node, and who wakes them.
    homes: BTreeMap<Party, (u64, Waker)>,
    next: u64,
}

impl Inner {
    fn wake(&self, party: Party) {
        if let Some((guest, waker)) = self.homes.get(&party) {
            waker.wake_for_news(*guest);
        }
    }
}

/// What there is for a module to hear.
#[derive(Debug)]
pub enum ServiceMessage {
    /// It is to serve a call.
    Serve(ServiceCall),
    /// A call of its own is answered.
    Answer(ServiceReply),
}

impl Default for ServiceBus {
    fn default() -> Self {
        Self { inner: Mutex::default(), origin: Instant::now() }
    }
}

impl ServiceBus {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// What a new module calls by, whose services are these, in the order of its manifest. It can do so when it has moved in.
    pub fn desk(self: &Arc<Self>, uses: Vec<Option<ServiceUse>>) -> Arc<Desk> {
        let mut inner = self.lock();
        inner.next += 1;
        let is_used = AtomicBool::new(uses.iter().any(Option::is_some));
        let uses = Mutex::new(uses);
        Arc::new(Desk { party: Party(inner.next), uses, office: Arc::clone(self), is_used })
    }

    /// The module with this desk is on the node now. It offers these services, by their numbers, unless another of its session does.
    pub fn open(
        &self,
        desk: &Desk,
        guest: u64,
        waker: Waker,
        session: &Name,
        memory: &Arc<MemoryReservation>,
        offers: Vec<(Name, u32, Offer)>,
    ) {
        let mut inner = self.lock();
        desk.is_used.fetch_or(!offers.is_empty(), Ordering::Relaxed);
        inner.homes.insert(desk.party, (guest, waker));
        inner.exchange.enter(desk.party, session, memory);
        for (name, service, offer) in offers {
            inner.exchange.offer(desk.party, &name, service, offer);
        }
    }

    /// It is there no longer: nobody waits for it. What it did.
    pub fn close(&self, desk: &Desk) -> ServiceCounters {
        let mut inner = self.lock();
        let (told, tally) = inner.exchange.leave(desk.party);
        inner.homes.remove(&desk.party);
        told.into_iter().for_each(|party| inner.wake(party));
        tally
    }

    /// Somebody else has worked for this module, for so long.
    pub fn debit(&self, party: Party, time: Nanos) {
        if let Some((guest, waker)) = self.lock().homes.get(&party) {
            waker.debit(*guest, time);
        }
    }
}

/// What one module calls by, and is called.
#[derive(Debug)]
pub struct Desk {
    office: Arc<ServiceBus>,
    party: Party,
    uses: Mutex<Vec<Option<ServiceUse>>>,
    /// Whether it can have any mail at all: who has nothing to do with services is not held up by those who have.
    is_used: AtomicBool,
}

impl Desk {
    /// Its module calls these from now on, in the order of its manifest, and offers these.
    pub fn change(&self, uses: Vec<Option<ServiceUse>>, offers: Vec<(Name, u32, Offer)>) {
        let mut inner = self.office.lock();
        let is_used = uses.iter().any(Option::is_some) || !offers.is_empty();
        *self.uses.lock().unwrap_or_else(PoisonError::into_inner) = uses;
        // What is under way of earlier ones is mail, too.
        self.is_used.fetch_or(is_used, Ordering::Relaxed);
        inner.exchange.offer_only(self.party, offers);
    }

    fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// Where it is.
    pub fn office(&self) -> &Arc<ServiceBus> {
        &self.office
    }

    /// What there is for its module next: what others answered, and then what others ask.
    pub fn next(&self) -> Option<ServiceMessage> {
        if !self.is_used() {
            return None;
        }
        let mut inner = self.office.lock();
        let now = self.office.now();
        inner.exchange.expire(now, self.party);
        match inner.exchange.answer(self.party) {
            Some(answer) => Some(ServiceMessage::Answer(answer)),
            None => inner.exchange.take(now, self.party).map(ServiceMessage::Serve),
        }
    }

    /// Whether there is any.
    pub fn has_mail(&self) -> bool {
        self.is_used() && self.office.lock().exchange.has_news(self.party)
    }

    /// The call in which it was to serve this was lost.
    pub fn fail(&self, call: u64) {
        let mut inner = self.office.lock();
        if let Some(caller) = inner.exchange.fail(self.party, call) {
            inner.wake(caller);
        }
    }

    /// When the next of its calls is late.
    pub fn next_deadline(&self) -> Option<Instant> {
        if !self.is_used() {
            return None;
        }
        let deadline = self.office.lock().exchange.next_deadline(self.party)?;
        self.office.origin.checked_add(Duration::from_nanos(deadline.0))
    }

    /// What it did so far, and how many calls wait for it.
    pub fn tally(&self) -> (ServiceCounters, usize) {
        let inner = self.office.lock();
        (inner.exchange.tally(self.party), inner.exchange.waiting(self.party))
    }
}

impl MessageHandler for Desk {
    fn call(&self, service: u32, message: &[u8], within: Nanos) -> i64 {
        let mut inner = self.office.lock();
        let uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(what) = uses.get(service as usize) else { return code::UNKNOWN.into() };
        let now = self.office.now();
        match inner.exchange.call(now, self.party, what.as_ref(), message, within) {
            Ok((ticket, callee)) => {
                inner.wake(callee);
                i64::try_from(ticket).unwrap_or(i64::MAX)
            }
            Err(CallRefusal::Denied) => code::DENIED.into(),
            Err(CallRefusal::Full) => code::FULL.into(),
            Err(CallRefusal::Range) => code::RANGE.into(),
            Err(CallRefusal::Absent) => code::WHEN.into(),
        }
    }

    fn reply(&self, call: u64, message: &[u8]) -> i32 {
        let mut inner = self.office.lock();
        let now = self.office.now();
        match inner.exchange.reply(now, self.party, call, message) {
            Ok(caller) => {
                inner.wake(caller);
                code::OK
            }
            Err(ReplyRefusal::Unknown) => code::UNKNOWN,
            Err(ReplyRefusal::Range) => code::RANGE,
        }
    }
}
