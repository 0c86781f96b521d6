//! The HTML report of a run.
#![forbid(unsafe_code)]
