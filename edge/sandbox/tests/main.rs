//! All integration tests of `weir-sandbox`, in one program: each program links the same libraries once more.

mod copying;
mod hostile;
mod keeping;
mod modules;
mod oracle;
mod sending;
mod session_memory;
mod soundness;
mod soundness_charge;
mod soundness_exact;
mod spec;
mod suite;
mod support;
mod suspend;
mod tables;
mod tiers;
mod watchdog;
