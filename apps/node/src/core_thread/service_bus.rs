//! The service bus: calls of services between the modules of a node.
//!
//! [`weir_session::services`] decides which calls are allowed, which wait, and which have missed their deadline. The bus
//! tells it the present time, and wakes the modules that have messages.

use crate::core_thread::runner::Waker;
use crate::sync::{LeafMutex, OrderedMutex, rank};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_abi::code;
use weir_sandbox::MessageHandler;
use weir_session::services::{
    CallRefusal, EndpointId, ReplyRefusal, ServiceCall, ServiceCounters, ServiceExchange, ServiceOffer,
    ServiceReply, ServiceUse,
};
use weir_units::Nanos;
use {weir_admission::Name, weir_session::MemoryReservation};

/// All services of a node, and the modules that offer and use them.
#[derive(Debug)]
pub struct ServiceBus {
    inner: OrderedMutex<Inner, { rank::SERVICES }>,
    /// Time zero of the exchange's clock.
    origin: Instant,
}

/// The exchange, and the modules of its endpoints.
#[derive(Debug, Default)]
struct Inner {
    exchange: ServiceExchange,
    /// The number of each endpoint's module, and the waker of the module's core.
    modules: BTreeMap<EndpointId, (u64, Waker)>,
    last_id: u64,
}

impl Inner {
    fn wake(&self, id: EndpointId) {
        if let Some((module, waker)) = self.modules.get(&id) {
            waker.wake_for_event(*module);
        }
    }
}

/// A message for a module.
#[derive(Debug)]
pub enum ServiceMessage {
    /// A call that the module is to serve.
    Serve(ServiceCall),
    /// An answer to a call of the module.
    Answer(ServiceReply),
}

impl Default for ServiceBus {
    fn default() -> Self {
        Self { inner: OrderedMutex::default(), origin: Instant::now() }
    }
}

impl ServiceBus {
    fn now(&self) -> Nanos {
        Nanos::from(self.origin.elapsed())
    }

    /// Creates the endpoint of a new module, which uses these services, in the order of its manifest. The endpoint takes
    /// effect with [`open`](Self::open).
    pub fn new_endpoint(self: &Arc<Self>, uses: Vec<Option<ServiceUse>>) -> Arc<ServiceEndpoint> {
        let mut inner = self.inner.lock();
        inner.last_id += 1;
        let is_used = AtomicBool::new(uses.iter().any(Option::is_some));
        let uses = LeafMutex::new(uses);
        Arc::new(ServiceEndpoint { id: EndpointId(inner.last_id), uses, bus: Arc::clone(self), is_used })
    }

    /// Opens an endpoint whose module is on a core now. The module offers these services, each with its number in the
    /// module's manifest, except services that another module of its session offers.
    pub fn open(
        &self,
        endpoint: &ServiceEndpoint,
        module: u64,
        waker: Waker,
        session: &Name,
        memory: &Arc<MemoryReservation>,
        offers: Vec<(Name, u32, ServiceOffer)>,
    ) {
        let mut inner = self.inner.lock();
        endpoint.is_used.fetch_or(!offers.is_empty(), Ordering::Relaxed);
        inner.modules.insert(endpoint.id, (module, waker));
        inner.exchange.add_module(endpoint.id, session, memory);
        for (name, service, offer) in offers {
            inner.exchange.offer(endpoint.id, &name, service, offer);
        }
    }

    /// Closes an endpoint and fails the calls to it. Returns its counters.
    pub fn close(&self, endpoint: &ServiceEndpoint) -> ServiceCounters {
        let mut inner = self.inner.lock();
        let (callers, counters) = inner.exchange.remove_module(endpoint.id);
        inner.modules.remove(&endpoint.id);
        callers.into_iter().for_each(|id| inner.wake(id));
        counters
    }

    /// Debits a module for time that another module has worked for it.
    pub fn debit(&self, id: EndpointId, time: Nanos) {
        if let Some((module, waker)) = self.inner.lock().modules.get(&id) {
            waker.debit(*module, time);
        }
    }
}

/// The services that a module uses and offers.
#[derive(Debug)]
pub struct ServiceEndpoint {
    bus: Arc<ServiceBus>,
    id: EndpointId,
    uses: LeafMutex<Vec<Option<ServiceUse>>>,
    /// True if a message is possible at all. Without services, an endpoint never takes the lock of the bus.
    is_used: AtomicBool,
}

impl ServiceEndpoint {
    /// Replaces the services that the module uses, in the order of its manifest, and those that it offers.
    pub fn change(&self, uses: Vec<Option<ServiceUse>>, offers: Vec<(Name, u32, ServiceOffer)>) {
        let mut inner = self.bus.inner.lock();
        let is_used = uses.iter().any(Option::is_some) || !offers.is_empty();
        self.uses.set(uses);
        // Calls of the services before the change may still be under way, so the flag is never cleared.
        self.is_used.fetch_or(is_used, Ordering::Relaxed);
        inner.exchange.replace_offers(self.id, offers);
    }

    fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// Returns the bus.
    pub fn bus(&self) -> &Arc<ServiceBus> {
        &self.bus
    }

    /// Returns the module's next message: answers first, then calls.
    pub fn next_message(&self) -> Option<ServiceMessage> {
        if !self.is_used() {
            return None;
        }
        let mut inner = self.bus.inner.lock();
        let now = self.bus.now();
        inner.exchange.expire(now, self.id);
        match inner.exchange.next_reply(self.id) {
            Some(answer) => Some(ServiceMessage::Answer(answer)),
            None => inner.exchange.next_call(now, self.id).map(ServiceMessage::Serve),
        }
    }

    /// Returns true if a message waits for the module.
    pub fn has_message(&self) -> bool {
        self.is_used() && self.bus.inner.lock().exchange.has_pending(self.id)
    }

    /// Fails the service call with this number, because the module's entry-point call that served it was aborted.
    pub fn fail(&self, call: u64) {
        let mut inner = self.bus.inner.lock();
        if let Some(caller) = inner.exchange.fail(self.id, call) {
            inner.wake(caller);
        }
    }

    /// Returns the deadline of the earliest pending call of the module.
    pub fn next_deadline(&self) -> Option<Instant> {
        if !self.is_used() {
            return None;
        }
        let deadline = self.bus.inner.lock().exchange.next_deadline(self.id)?;
        self.bus.origin.checked_add(Duration::from_nanos(deadline.0))
    }

    /// Returns the module's counters, and the number of calls that wait for the module.
    pub fn counters(&self) -> (ServiceCounters, usize) {
        let inner = self.bus.inner.lock();
        (inner.exchange.counters(self.id), inner.exchange.waiting(self.id))
    }
}

impl MessageHandler for ServiceEndpoint {
    fn call(&self, service: u32, message: &[u8], within: Nanos) -> i64 {
        let mut inner = self.bus.inner.lock();
        let used = self.uses.with(|uses| uses.get(service as usize).cloned());
        let Some(service_use) = used else { return code::UNKNOWN.into() };
        let now = self.bus.now();
        match inner.exchange.call(now, self.id, service_use.as_ref(), message, within) {
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
        let mut inner = self.bus.inner.lock();
        let now = self.bus.now();
        match inner.exchange.reply(now, self.id, call, message) {
            Ok(caller) => {
                inner.wake(caller);
                code::OK
            }
            Err(ReplyRefusal::Unknown) => code::UNKNOWN,
            Err(ReplyRefusal::Range) => code::RANGE,
        }
    }
}
