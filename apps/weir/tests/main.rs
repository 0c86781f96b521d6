//! All integration tests of `weir` except those of a running node, in one test program, because each further program links the same libraries again.

#![forbid(unsafe_code)]

mod agreement;
mod back_ends;
mod bundles;
mod calibrate;
mod captures;
mod check;
mod cli;
mod compile;
mod control;
mod cookbook;
mod exports;
mod extcap;
mod filters;
mod follow;
mod graph;
mod graph_devices;
mod graph_nat;
mod hostile;
mod layout;
mod linking;
mod live_run;
mod module_tests;
mod modules;
mod offload;
mod operating;
mod output;
mod policy;
mod private;
mod profiles;
mod readme;
mod refused_loops;
mod rehearsal;
mod rows;
mod run;
mod schema;
mod shapes;
mod tables;
mod tcp_streams;
mod trust;
