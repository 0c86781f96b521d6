//! What a module is told between two packets, beside the time. Each is a call of its own, with an allowance of its own.

use crate::host::{Host, Phase};
use crate::instance::{During, Instance, call};
use crate::rewrite::enter;
use crate::rights::WriteRights;
use crate::suspend::{self, Call, Running};
use crate::table::{Press, TableVersion};
use std::sync::Arc;
use wasmtime::{Instance as WasmInstance, Store, TypedFunc};
use weir_bounds::EntryPoint;
use weir_session::{Facts, KeptPackets, MemoryReservation};
use weir_units::{Bytes, Nanos};

/// What a module has of its session.
#[derive(Clone, Debug, Default)]
pub struct Means {
    /// What its private memory is taken from; without it there is only its own ceiling.
    pub memory: Option<Arc<MemoryReservation>>,
    /// How many packets it may keep together with the other modules; without it as many as it may for itself.
    pub kept: Option<Arc<KeptPackets>>,
    /// What it may write of packets; without it whatever can be written.
    pub writes: Option<Arc<WriteRights>>,
    /// How it calls services of others, and answers their calls; without it there are none.
    pub post: Option<Arc<dyn Post>>,
    /// The tables that it sees from the begin, by their places in the manifest.
    pub tables: Vec<Option<Arc<TableVersion>>>,
    /// Who takes the tables that it publishes; without it nobody does.
    pub press: Option<Arc<dyn Press>>,
}

/// How a module calls services of others, and answers their calls. All that it is given is what a module said.
pub trait Post: std::fmt::Debug + Send + Sync {
    /// Calls a service by its place in the module's manifest. A ticket, or a [`code`](weir_abi::code).
    fn call(&self, service: u32, message: &[u8], within: Nanos) -> i64;

    /// Answers a call that the module was to serve. 0, or a [`code`](weir_abi::code).
    fn reply(&self, call: u64, message: &[u8]) -> i32;
}

/// What a module can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Memory is low: so much is left of what its session has reserved.
    LowMemory {
        /// What is left.
        left: Bytes,
    },
    /// It is to serve a call, whose [message](Instance::set_message) is there.
    Serve {
        /// The call's number.
        call: u64,
        /// Which of its services.
        service: u32,
    },
    /// A call of its own was answered; what was said is the [message](Instance::set_message).
    Answer {
        /// The number that it was given for it.
        ticket: u64,
        /// An [answer](weir_abi::answer) status.
        status: i32,
    },
}

impl News {
    /// The function that is called.
    pub const fn entry(self) -> EntryPoint {
        match self {
            Self::LowMemory { .. } => EntryPoint::LowMemory,
            Self::Serve { .. } => EntryPoint::Serve,
            Self::Answer { .. } => EntryPoint::Answer,
        }
    }
}

/// The functions of a module that are called for news.
pub(crate) struct Ears {
    low_memory: Option<TypedFunc<i64, ()>>,
    serve: Option<TypedFunc<(i64, i32, i32), ()>>,
    answer: Option<TypedFunc<(i64, i32, i32), ()>>,
}

impl Ears {
    pub(crate) fn of(
        instance: WasmInstance,
        store: &mut Store<Host>,
        facts: &Facts,
    ) -> wasmtime::Result<Self> {
        use EntryPoint as E;
        let low_memory =
            facts.has_low_memory.then(|| instance.get_typed_func(&mut *store, enter(E::LowMemory)));
        let serve = facts.has_serve.then(|| instance.get_typed_func(&mut *store, enter(E::Serve)));
        let answer = facts.has_answer.then(|| instance.get_typed_func(&mut *store, enter(E::Answer)));
        Ok(Self {
            low_memory: low_memory.transpose()?,
            serve: serve.transpose()?,
            answer: answer.transpose()?,
        })
    }

    pub(crate) fn has(&self, news: News) -> bool {
        match news {
            News::LowMemory { .. } => self.low_memory.is_some(),
            News::Serve { .. } => self.serve.is_some(),
            News::Answer { .. } => self.answer.is_some(),
        }
    }

    /// The call that can be suspended, where there is such a function.
    pub(crate) fn begin(&self, store: Store<Host>, news: News) -> Option<Running> {
        Some(match news {
            News::LowMemory { left } => {
                Box::pin(suspend::enter(store, self.low_memory.clone()?, signed(left), suspend::nothing))
            }
            News::Serve { .. } => {
                let arguments = arguments(news, store.data());
                Box::pin(suspend::enter(store, self.serve.clone()?, arguments, suspend::nothing))
            }
            News::Answer { .. } => {
                let arguments = arguments(news, store.data());
                Box::pin(suspend::enter(store, self.answer.clone()?, arguments, suspend::nothing))
            }
        })
    }
}

/// What a module is called with for a message.
fn arguments(news: News, host: &Host) -> (i64, i32, i32) {
    let len = i32::try_from(host.message.len()).unwrap_or(i32::MAX);
    match news {
        News::Serve { call, service } => (call.cast_signed(), service.cast_signed(), len),
        News::Answer { ticket, status } => (ticket.cast_signed(), status, len),
        News::LowMemory { left } => (signed(left), 0, len),
    }
}

/// As the module is told: nobody has 2^63 bytes.
fn signed(bytes: Bytes) -> i64 {
    i64::try_from(bytes.0).unwrap_or(i64::MAX)
}

impl Instance {
    /// Whether the module has a function that is called for this.
    pub fn hears(&self, news: News) -> bool {
        self.wasm.as_ref().is_some_and(|wasm| wasm.ears.has(news))
    }

    /// That memory is low, where it has become so since this was asked last, and the module wants to know.
    pub fn low_memory(&mut self) -> Option<News> {
        let state = self.means.memory.as_ref()?.state();
        let is_told = std::mem::replace(&mut self.times_low, state.times_low) == state.times_low;
        let news = News::LowMemory { left: state.left() };
        (!is_told && self.hears(news)).then_some(news)
    }

    /// The message of what the module is told next. It is there until the next one. Not while a call [is suspended](Self::is_suspended).
    pub fn set_message(&mut self, message: Vec<u8>) {
        if let Some(host) = self.host_mut() {
            host.message = message;
        }
    }

    /// Tells the module something. Not between the batches of a block: what it emits has no place there.
    pub fn tell_news(&mut self, news: News) {
        if self.checks.is_sliced() {
            self.whole(Call::News(news));
            return;
        }
        if !self.hears(news) || self.has_ended() {
            return;
        }
        self.tell(0);
        if self.has_ended() {
            return;
        }
        let (Some(wasm), Some(store), watch) = (&self.wasm, &mut self.store, self.watch.as_ref()) else {
            return;
        };
        let phase = Phase::Periodic { before: 0 };
        let given = arguments(news, store.data());
        let (ears, mut result) = (&wasm.ears, Ok(()));
        if let (News::LowMemory { .. }, Some(function)) = (news, &ears.low_memory) {
            result = call(store, watch, phase, function, given.0);
        }
        let with_message = match news {
            News::LowMemory { .. } => &None,
            News::Serve { .. } => &ears.serve,
            News::Answer { .. } => &ears.answer,
        };
        if let Some(function) = with_message {
            result = call(store, watch, phase, function, given);
        }
        if let Err(error) = result {
            self.lose_periodic(&error, During::News(news.entry()));
        }
        self.weigh(1);
    }
}
