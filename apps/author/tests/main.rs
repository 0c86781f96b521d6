//! The integration tests of `weir-author`, in one program so that the libraries are linked only once.

mod bounded_loops;
mod examples;
mod fields;
mod guide;
mod in_the_sandbox;
mod new_and_build;
mod packing;
mod parse;
mod refused_loops;
mod schema;
mod sdk_reference;
mod sdk_rust;
mod soundness;
mod tables;
mod toolchain;
