//! All integration tests of `weir` but those of a live node, in one program: each program links the same libraries once more.

#![forbid(unsafe_code)]

mod agreement;
mod calibrate;
mod captures;
mod check;
mod cli;
mod control;
mod filters;
mod hostile;
mod layout;
mod linking;
mod live_run;
mod modules;
mod offload;
mod output;
mod policy;
mod private;
mod profiles;
mod readme;
mod rehearsal;
mod run;
mod shapes;
mod tables;
mod trust;
