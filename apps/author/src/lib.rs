//! For module authors: new modules, and their builds.
#![forbid(unsafe_code)]
