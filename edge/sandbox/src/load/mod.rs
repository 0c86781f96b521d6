//! Loads modules for the engine: rewrites a module with its meter, compiles it, and caches the compiled code.

pub(crate) mod batch;
pub(crate) mod cache;
pub(crate) mod clang;
pub(crate) mod compile;
pub(crate) mod copy;
pub(crate) mod machine_code;
pub(crate) mod meter;
pub(crate) mod native;
pub(crate) mod origin;
pub(crate) mod rewrite;
pub(crate) mod stub;
pub(crate) mod writer;
