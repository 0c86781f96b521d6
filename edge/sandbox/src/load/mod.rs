//! Loading: rewrites and meters a module, compiles it, and keeps what was compiled.

pub(crate) mod batch;
pub(crate) mod cache;
pub(crate) mod compile;
pub(crate) mod copy;
pub(crate) mod engine;
pub(crate) mod meter;
pub(crate) mod rewrite;
pub(crate) mod writer;
