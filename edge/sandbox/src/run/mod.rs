//! Running modules: instances and their calls, host functions, memory, suspension and faults.

pub(crate) mod call_usage;
pub(crate) mod caller;
pub mod cipher;
pub(crate) mod clock;
pub(crate) mod crypto;
pub(crate) mod emit;
pub(crate) mod entry;
pub(crate) mod event;
pub(crate) mod fault;
pub(crate) mod guest_memory;
pub(crate) mod host;
pub(crate) mod instance;
pub(crate) mod interrupt;
pub(crate) mod kept;
pub(crate) mod outgoing;
pub(crate) mod patching;
pub(crate) mod pattern;
pub(crate) mod prefilter;
pub(crate) mod rights;
pub(crate) mod slice;
pub(crate) mod space;
pub(crate) mod stop;
pub(crate) mod streams;
pub(crate) mod strikes;
pub(crate) mod suspend;
pub(crate) mod table;
