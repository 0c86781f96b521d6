//! What a module is told between two packets, beside the time. Each is a call of its own, with an allowance of its own.

use crate::load::rewrite::enter;
use crate::run::host::HostState;
use crate::run::instance::Instance;
use crate::run::rights::WriteRights;
use crate::run::suspend::Call;
use crate::run::table::{TablePublisher, TableVersion};
use std::sync::Arc;
use wasmtime::{Func, Instance as WasmInstance, Store, Val};
use weir_abi::entry::{self, EntryType};
use weir_abi::host::ValueType;
use weir_bounds::EntryPoint;
use weir_units::{Bytes, Nanos};
use {
    weir_admission::ModuleInfo,
    weir_session::{KeptPackets, MemoryReservation},
};

/// What a module has of its session.
#[derive(Clone, Debug, Default)]
pub struct InstanceContext {
    /// What its private memory is taken from; without it there is only its own ceiling.
    pub memory: Option<Arc<MemoryReservation>>,
    /// How many packets it may keep together with the other modules; without it as many as it may for itself.
    pub kept: Option<Arc<KeptPackets>>,
    /// What it may write of packets; without it whatever can be written.
    pub writes: Option<Arc<WriteRights>>,
    /// How it calls services of others, and answers their calls; without it there are none.
    pub post: Option<Arc<dyn MessageHandler>>,
    /// The tables that it sees from the begin, by their places in the manifest.
    pub tables: Vec<Option<Arc<TableVersion>>>,
    /// Who takes the tables that it publishes; without it nobody does.
    pub press: Option<Arc<dyn TablePublisher>>,
}

/// How a module calls services of others, and answers their calls. All that it is given is what a module said.
pub trait MessageHandler: std::fmt::Debug + Send + Sync {
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

    /// Its arguments but for the length of the message, in the order of the function's parameters.
    pub(crate) fn numbers(self) -> [u64; NUMBERS] {
        match self {
            Self::LowMemory { left } => [left.0, 0],
            Self::Serve { call, service } => [call, service.into()],
            Self::Answer { ticket, status } => [ticket, status.cast_unsigned().into()],
        }
    }

    /// The news of these numbers by which an entry point is called. Nothing where it is called for something else, which a function of [`Instance`] does.
    pub(crate) fn of(entry: EntryPoint, [first, second]: [u64; NUMBERS]) -> Option<Self> {
        let short = u32::try_from(second);
        match entry {
            EntryPoint::LowMemory => Some(Self::LowMemory { left: Bytes(first) }),
            EntryPoint::Serve => Some(Self::Serve { call: first, service: short.ok()? }),
            EntryPoint::Answer => Some(Self::Answer { ticket: first, status: short.ok()?.cast_signed() }),
            EntryPoint::Begin | EntryPoint::Initialize | EntryPoint::Start => None,
            EntryPoint::Packet | EntryPoint::Batch | EntryPoint::Tick => None,
            EntryPoint::Lost | EntryPoint::Stop => None,
        }
    }

    /// Whether a message comes with it.
    pub(crate) fn has_message(self) -> bool {
        self.entry().definition().parameters.iter().any(|parameter| parameter.ty == EntryType::MessageBytes)
    }

    /// The arguments of the call.
    pub(crate) fn arguments(self, host: &HostState) -> Vec<Val> {
        let mut numbers = self.numbers().into_iter();
        let parameters = self.entry().definition().parameters.iter();
        let of = |ty: EntryType| match ty {
            EntryType::MessageBytes => Val::I32(i32::try_from(host.message.len()).unwrap_or(i32::MAX)),
            _ => value(ty.value_type(), numbers.next().unwrap_or_default()),
        };
        parameters.map(|parameter| parameter.ty).map(of).collect()
    }
}

/// The most arguments of news, without the length of the message.
pub(crate) const NUMBERS: usize = 2;

/// A number as an argument.
fn value(ty: ValueType, number: u64) -> Val {
    match ty {
        // It was made of one with 32 bits.
        ValueType::I32 => Val::I32(u32::try_from(number).unwrap_or(u32::MAX).cast_signed()),
        ValueType::I64 => Val::I64(number.cast_signed()),
        ValueType::F64 => Val::F64(number),
    }
}

/// The functions of a module that are called for news, by their entry points.
pub(crate) struct EventHandlers([Option<Func>; entry::COUNT]);

impl EventHandlers {
    pub(crate) fn of(
        instance: WasmInstance,
        store: &mut Store<HostState>,
        facts: &ModuleInfo,
    ) -> wasmtime::Result<Self> {
        let mut functions = [None; entry::COUNT];
        for entry in facts.entries.iter().filter(|entry| News::of(*entry, [0; NUMBERS]).is_some()) {
            let name = enter(entry);
            let missing = || wasmtime::Error::msg(format!("the rewritten module has no export `{name}`"));
            let function = instance.get_func(&mut *store, &name).ok_or_else(missing)?;
            functions[entry as usize] = Some(function);
        }
        Ok(Self(functions))
    }

    pub(crate) fn of_news(&self, news: News) -> Option<Func> {
        self.0[news.entry() as usize]
    }

    pub(crate) fn has(&self, news: News) -> bool {
        self.of_news(news).is_some()
    }
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
        self.whole(Call::News(news));
    }
}
