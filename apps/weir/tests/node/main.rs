//! A live node as its users have it: the program, its configuration, its socket, packets on a cable. In network namespaces of the tests' own, which
//! needs root.

#![forbid(unsafe_code)]

mod adversaries;
mod asking;
mod changing;
mod channels;
mod compiling;
mod crashes;
mod delegators;
mod disk;
mod earlier;
mod fairness;
mod faults;
mod filters;
mod followers;
mod grants;
mod isolation;
mod keeper;
mod keeping;
mod leaving;
mod limits;
mod links;
mod memory;
mod metrics;
mod offloads;
mod place;
mod policy;
mod processes;
mod reload;
mod remote;
mod remote_bandwidth;
mod remote_floods;
mod remote_ledger;
mod remote_limits;
mod remote_operator;
mod remote_signed;
mod revoking;
mod sending;
mod services;
mod sessions;
mod shares;
mod stolen;
mod tables;
mod taps;
mod upload;
mod views;
mod wards;

#[path = "../offload/mod.rs"]
#[allow(dead_code, reason = "shared with tests of `weir run`")]
mod offload;

#[path = "../run/module.rs"]
#[allow(dead_code, reason = "shared with tests of `weir run`")]
mod module;

#[path = "../../../../core/trust/tests/people/mod.rs"]
#[allow(dead_code, reason = "shared with tests of credentials")]
mod people;
