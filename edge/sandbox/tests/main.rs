//! All integration tests of `weir-sandbox`, in one program, because each program links the same libraries again.

mod copying;
mod crypto;
mod differential;
mod given;
mod hostile;
mod keeping;
mod llvm;
mod modules;
mod native;
mod oracle;
mod reading;
mod sending;
mod session_memory;
mod soundness;
mod soundness_charge;
mod soundness_exact;
mod spec;
mod stop;
mod streams;
mod suite;
mod support;
mod suspend;
mod tables;
mod tiers;
mod tracing;
mod watchdog;
