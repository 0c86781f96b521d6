//! All unsafe code of the lab: natively built modules with their host functions, and the processor time of processes.

mod build;
mod cipher;
mod host;
mod library;
mod process;
mod space;

pub use build::{Build, Compiler, compile_program};
pub use library::Native;
pub use process::{ProcessUsage, process_time, run_measured, thread_time};
pub use space::Space;

use weir_abi::Descriptor;

/// The bytes of descriptors, as they are in memory.
pub fn bytes_of(descriptors: &[Descriptor]) -> &[u8] {
    // SAFETY: a descriptor consists of integers without padding (weir-abi asserts its size), so all of them are initialised bytes; the
    // result borrows the slice.
    unsafe { std::slice::from_raw_parts(descriptors.as_ptr().cast(), std::mem::size_of_val(descriptors)) }
}
