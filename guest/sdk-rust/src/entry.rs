//! The entry points that weir calls.

use crate::{Batch, Descriptor, Drops, Packet, StreamEvent, StreamEventFields};
use core::cell::UnsafeCell;

/// A module's verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet goes on.
    Pass = 0,
    /// The packet is not written to the output.
    Drop = 1,
}

/// The cause of a lost call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// A panic, a bad access, a bounded loop past its bound, or any other fault.
    Trap,
    /// The call used more than it may: fuel, or time.
    Limit,
    /// A cause that this crate does not know.
    Other(i32),
}

impl From<i32> for Lost {
    fn from(cause: i32) -> Self {
        match cause {
            1 => Self::Trap,
            2 => Self::Limit,
            other => Self::Other(other),
        }
    }
}

/// The state of a module, for [`module!`].
#[doc(hidden)]
pub struct State<T>(UnsafeCell<T>);

// SAFETY: a module has one thread (weir admits neither threads nor shared memory), and `module!` makes the only static of this type.
unsafe impl<T> Sync for State<T> {}

impl<T> State<T> {
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// # Safety
    ///
    /// No other reference to the state may exist.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn get(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.0.get() }
    }
}

/// # Safety
///
/// `descriptor` must be an address that weir gave to `weir_packet`, in that call.
#[doc(hidden)]
#[inline(always)]
pub unsafe fn packet<'a>(descriptor: *const Descriptor) -> Packet<'a> {
    // SAFETY: the caller's promise.
    unsafe { Packet::new(descriptor) }
}

/// # Safety
///
/// The arguments must be those that weir gave to `weir_batch`, in that call.
#[doc(hidden)]
#[inline(always)]
pub unsafe fn batch<'a>(descriptors: *const Descriptor, mask: u64) -> Batch<'a> {
    // SAFETY: the caller's promise.
    unsafe { Batch::new(descriptors, mask) }
}

/// # Safety
///
/// `event` must be the address that weir gave to `weir_stream`, in that call.
#[doc(hidden)]
#[inline(always)]
pub unsafe fn stream_event<'a>(event: *const StreamEventFields) -> StreamEvent<'a> {
    // SAFETY: the caller's promise.
    unsafe { StreamEvent::new(event) }
}

impl From<Drops> for u64 {
    fn from(drops: Drops) -> u64 {
        drops.0
    }
}

/// Declares the module's state, and the functions that weir calls with it. `packet` or `batch` is mandatory, the others
/// are optional. `start` returns false if the module refuses to run.
///
/// ```ignore
/// weir_guest::module! {
///     state: Counter = Counter::new();   // a type, and its first value, which must be a constant
// functions of a module: begin
///     start: Counter::start;                  // fn(&mut Counter) -> bool
///     packet: Counter::packet;                // fn(&mut Counter, &Packet) -> Verdict
///     // or batch: Counter::batch;            // fn(&mut Counter, Batch) -> Drops
///     stream: Counter::stream;                // fn(&mut Counter, &StreamEvent) -> StreamReply
///     tick: Counter::tick;                    // fn(&mut Counter, now: u64, periods: u64)
///     lost: Counter::lost;                    // fn(&mut Counter, cause: Lost)
///     low_memory: Counter::low_memory;        // fn(&mut Counter, left: u64)
///     serve: Counter::serve;                  // fn(&mut Counter, call: u64, service: u32, len: u32)
///     answer: Counter::answer;                // fn(&mut Counter, ticket: u64, status: Status, len: u32)
///     stop: Counter::stop;                    // fn(&mut Counter, now: u64)
///     rest: Counter::rest;                    // fn(&mut Counter, now: u64) -> bool
// functions of a module: end
/// }
/// ```
///
/// With `state["weir_state_NAME", module::STATE_BYTES_NAME]: Counter = ...` the state is the block NAME of weir.toml's `[[state]]`,
/// with which a newer version begins on a node. Give the type `#[repr(C)]`, and no pointers or references.
///
/// After a panic the next call gets the state as it is. So leave nothing half done where code can panic, or repair it in `lost`.
#[macro_export]
macro_rules! module {
    (state: $state:ty = $initial:expr; $($name:ident: $function:expr;)+) => {
        const _: ::core::option::Option<&str> = ::core::option_env!("WEIR_MODULE_FOLDER"); // see the end of lib.rs
        static WEIR_STATE: $crate::generated::State<$state> = $crate::generated::State::new($initial);
        $($crate::module!(@ $name $state, $function);)+
    };
    (state[$symbol:literal, $bytes:expr]: $state:ty = $initial:expr; $($name:ident: $function:expr;)+) => {
        const _: ::core::option::Option<&str> = ::core::option_env!("WEIR_MODULE_FOLDER");
        #[export_name = $symbol]
        static WEIR_STATE: $crate::generated::State<$state> = $crate::generated::State::new($initial);
        // weir.toml must have the size of this state as `bytes`. The compiler names both sizes where they differ.
        #[cfg(target_arch = "wasm32")]
        const _: [(); $bytes] = [(); core::mem::size_of::<$state>()];
        $($crate::module!(@ $name $state, $function);)+
    };
    // entry points: begin
    (@ start $state:ty, $function:expr) => {
        #[export_name = "weir_start"]
        extern "C" fn weir_start() -> i32 {
            let function: fn(&mut $state) -> bool = $function;
            // SAFETY: weir makes one call at a time, and no host function calls back: this is the only reference. The arguments
            // are those that weir gave.
            i32::from(!unsafe { function(WEIR_STATE.get()) })
        }
    };
    (@ packet $state:ty, $function:expr) => {
        #[export_name = "weir_packet"]
        extern "C" fn weir_packet(p: *const $crate::Descriptor) -> i32 {
            let function: fn(&mut $state, &$crate::Packet<'_>) -> $crate::Verdict = $function;
            // SAFETY: weir makes one call at a time, and no host function calls back: this is the only reference. The arguments
            // are those that weir gave.
            let verdict = unsafe { function(WEIR_STATE.get(), &$crate::generated::packet(p)) };
            verdict as i32
        }
    };
    (@ batch $state:ty, $function:expr) => {
        #[export_name = "weir_batch"]
        extern "C" fn weir_batch(p: *const $crate::Descriptor, mask: u64) -> u64 {
            let function: fn(&mut $state, $crate::Batch<'_>) -> $crate::Drops = $function;
            // SAFETY: weir makes one call at a time, and no host function calls back: this is the only reference. The arguments
            // are those that weir gave.
            let drops = unsafe { function(WEIR_STATE.get(), $crate::generated::batch(p, mask)) };
            drops.into()
        }
    };
    (@ stream $state:ty, $function:expr) => {
        #[export_name = "weir_stream"]
        extern "C" fn weir_stream(event: *const $crate::StreamEventFields) -> i32 {
            let function: fn(&mut $state, &$crate::StreamEvent<'_>) -> $crate::StreamReply = $function;
            // SAFETY: weir makes one call at a time, and no host function calls back: this is the only reference. The arguments
            // are those that weir gave.
            let reply = unsafe { function(WEIR_STATE.get(), &$crate::generated::stream_event(event)) };
            reply.into()
        }
    };
    (@ tick $state:ty, $function:expr) => {
        #[export_name = "weir_tick"]
        extern "C" fn weir_tick(now: u64, periods: u64) {
            let function: fn(&mut $state, u64, u64) = $function;
            // SAFETY: weir makes one call at a time, and no host function calls back: this is the only reference. The arguments
            // are those that weir gave.
            unsafe { function(WEIR_STATE.get(), now, periods) }
        }
    };
    (@ lost $state:ty, $function:expr) => {
        #[export_name = "weir_lost"]
        extern "C" fn weir_lost(cause: i32) {
            let function: fn(&mut $state, $crate::Lost) = $function;
            // SAFETY: weir makes one call at a time, and no host function calls back: this is the only reference. The arguments
            // are those that weir gave.
            unsafe { function(WEIR_STATE.get(), cause.into()) }
        }
    };
    (@ low_memory $state:ty, $function:expr) => {
        #[export_name = "weir_low_memory"]
        extern "C" fn weir_low_memory(left: u64) {
            let function: fn(&mut $state, u64) = $function;
            // SAFETY: weir makes one call at a time, and no host function calls back: this is the only reference. The arguments
            // are those that weir gave.
            unsafe { function(WEIR_STATE.get(), left) }
        }
    };
    (@ serve $state:ty, $function:expr) => {
        #[export_name = "weir_serve"]
        extern "C" fn weir_serve(call: u64, service: u32, len: u32) {
            let function: fn(&mut $state, u64, u32, u32) = $function;
            // SAFETY: weir makes one call at a time, and no host function calls back: this is the only reference. The arguments
            // are those that weir gave.
            unsafe { function(WEIR_STATE.get(), call, service, len) }
        }
    };
    (@ answer $state:ty, $function:expr) => {
        #[export_name = "weir_answer"]
        extern "C" fn weir_answer(ticket: u64, status: i32, len: u32) {
            let function: fn(&mut $state, u64, $crate::service::Status, u32) = $function;
            // SAFETY: weir makes one call at a time, and no host function calls back: this is the only reference. The arguments
            // are those that weir gave.
            unsafe { function(WEIR_STATE.get(), ticket, status.into(), len) }
        }
    };
    (@ stop $state:ty, $function:expr) => {
        #[export_name = "weir_stop"]
        extern "C" fn weir_stop(now: u64) {
            let function: fn(&mut $state, u64) = $function;
            // SAFETY: weir makes one call at a time, and no host function calls back: this is the only reference. The arguments
            // are those that weir gave.
            unsafe { function(WEIR_STATE.get(), now) }
        }
    };
    (@ rest $state:ty, $function:expr) => {
        #[export_name = "weir_rest"]
        extern "C" fn weir_rest(now: u64) -> i32 {
            let function: fn(&mut $state, u64) -> bool = $function;
            // SAFETY: weir makes one call at a time, and no host function calls back: this is the only reference. The arguments
            // are those that weir gave.
            i32::from(unsafe { function(WEIR_STATE.get(), now) })
        }
    };
    (@ $name:ident $state:ty, $function:expr) => {
        ::core::compile_error!(::core::concat!(
            "weir does not call `", ::core::stringify!($name), "`; it calls start, packet, batch, stream, tick, lost, low_memory, serve, answer, stop, rest"
        ));
    };
    // entry points: end
}
