//! What a module is told between two packets, beside the time. Each is a call of its own, with an allowance of its own.

use crate::host::{Host, Phase};
use crate::instance::{During, Instance, call};
use crate::rewrite::enter;
use crate::suspend::{self, Call, Running};
use std::sync::Arc;
use wasmtime::{Instance as WasmInstance, Store, TypedFunc};
use weir_bounds::EntryPoint;
use weir_session::{Facts, MemoryReservation};
use weir_units::Bytes;

/// What a module has of its session.
#[derive(Clone, Debug, Default)]
pub struct Means {
    /// What its private memory is taken from; without it there is only its own ceiling.
    pub memory: Option<Arc<MemoryReservation>>,
}

/// What a module can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Memory is low: so much is left of what its session has reserved.
    LowMemory {
        /// What is left.
        left: Bytes,
    },
}

impl News {
    /// The function that is called.
    pub const fn entry(self) -> EntryPoint {
        match self {
            Self::LowMemory { .. } => EntryPoint::LowMemory,
        }
    }
}

/// The functions of a module that are called for news.
pub(crate) struct Ears {
    low_memory: Option<TypedFunc<i64, ()>>,
}

impl Ears {
    pub(crate) fn of(
        instance: WasmInstance,
        store: &mut Store<Host>,
        facts: &Facts,
    ) -> wasmtime::Result<Self> {
        let low_memory =
            facts.has_low_memory.then(|| instance.get_typed_func(store, enter(EntryPoint::LowMemory)));
        Ok(Self { low_memory: low_memory.transpose()? })
    }

    pub(crate) fn has(&self, news: News) -> bool {
        match news {
            News::LowMemory { .. } => self.low_memory.is_some(),
        }
    }

    /// The call that can be suspended, where there is such a function.
    pub(crate) fn begin(&self, store: Store<Host>, news: News) -> Option<Running> {
        Some(match news {
            News::LowMemory { left } => {
                Box::pin(suspend::enter(store, self.low_memory.clone()?, signed(left), suspend::nothing))
            }
        })
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
        let result = match (news, &wasm.ears.low_memory) {
            (News::LowMemory { left }, Some(function)) => call(store, watch, phase, function, signed(left)),
            (News::LowMemory { .. }, None) => Ok(()),
        };
        if let Err(error) = result {
            self.lose_periodic(&error, During::News(news.entry()));
        }
        self.weigh(1);
    }
}
