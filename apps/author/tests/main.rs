//! All integration tests of `weir-author`, in one program: each program links the same libraries once more.

mod bounded_loops;
mod guide;
mod in_the_sandbox;
mod new_and_build;
mod sdk_rust;
mod soundness;
mod tables;
mod toolchain;
