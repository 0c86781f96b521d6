//! Running modules: instances and their calls, host functions, memory, suspension and faults.

pub(crate) mod call_method;
pub(crate) mod call_usage;
pub(crate) mod caller;
pub mod cipher;
pub(crate) mod clock;
pub(crate) mod crypto;
pub(crate) mod emit;
pub(crate) mod entry;
pub(crate) mod event;
pub(crate) mod fault;
pub(crate) mod follow;
pub(crate) mod guest_memory;
pub(crate) mod host;
pub(crate) mod instance;
pub(crate) mod interrupt;
pub(crate) mod kept;
pub(crate) mod native;
pub(crate) mod outgoing;
pub(crate) mod patching;
pub(crate) mod pattern;
#[cfg_attr(not(target_arch = "x86_64"), path = "prefilter_absent.rs")]
pub(crate) mod prefilter;
pub(crate) mod rights;
pub(crate) mod sandbox_memory;
pub(crate) mod slice;
pub(crate) mod source_lines;
pub(crate) mod space;
pub(crate) mod state;
pub(crate) mod stop;
pub(crate) mod streams;
pub(crate) mod strikes;
pub(crate) mod suspend;
pub(crate) mod table;
pub(crate) mod trace;
