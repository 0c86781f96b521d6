//! Tests of a live node: the program `weir`, its configuration, its socket, and packets on a virtual cable. Each test runs in
//! network namespaces of its own, which needs root.

#![forbid(unsafe_code)]

mod adversaries;
mod back_ends;
mod bundles;
mod channels;
mod compilation;
mod crashes;
mod delegators;
mod disk;
mod earlier_versions;
mod extcap;
mod fairness;
mod faults;
mod filters;
mod findings;
mod followers;
mod grants;
mod isolation;
mod json_documents;
mod kept_packets;
mod key_agent;
mod limits;
mod links;
mod memory;
mod metrics;
mod offloads;
mod policy;
mod processes;
mod queues;
mod record_formats;
mod record_memory;
mod records;
mod reload;
mod remote;
mod remote_bandwidth;
mod remote_floods;
mod remote_ledger;
mod remote_limits;
mod remote_operator;
mod remote_signed;
mod replace;
mod request_rates;
mod restarts;
mod revocation;
mod sandbox_processes;
mod sending;
mod services;
mod session_changes;
mod sessions;
mod shares;
mod stolen_time;
mod streams;
mod tables;
mod taps;
mod testbed;
mod ui;
mod ui_credentials;
mod unloading;
mod unmetered;
mod upload;
mod views;

#[path = "../offload/mod.rs"]
#[allow(dead_code, reason = "shared with tests of `weir run`")]
mod offload;

#[path = "../run/module.rs"]
#[allow(dead_code, reason = "shared with tests of `weir run`")]
mod module;

#[path = "../run/outside.rs"]
#[allow(dead_code, reason = "shared with tests of `weir run`")]
mod outside;

#[path = "../run/schema_coverage.rs"]
#[allow(dead_code, reason = "shared with tests of other commands")]
mod schema_coverage;

#[path = "../../../../core/trust/tests/people/mod.rs"]
#[allow(dead_code, reason = "shared with tests of credentials")]
mod people;

/// Returns the folder of the repository.
fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
