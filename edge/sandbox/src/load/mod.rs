//! Loads modules for the engine: rewrites a module with its meter, compiles it, and caches the compiled code.

pub(crate) mod batch;
pub(crate) mod cache;
pub(crate) mod clang;
pub(crate) mod compile;
pub(crate) mod copy;
#[cfg(feature = "cranelift")]
pub(crate) mod cranelift;
pub(crate) mod initial_memory;
pub(crate) mod machine_code;
pub(crate) mod meter;
pub(crate) mod native;
pub(crate) mod origin;
pub(crate) mod rewrite;
pub(crate) mod writer;
