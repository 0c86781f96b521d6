//! Compilation records and bundles.
//!
//! A node without a compiler runs machine code that was compiled elsewhere. A *bundle* has a module, the object files of
//! its machine code, and *compilation records*: signed statements about the compiler, its inputs and its output.
//!
//! ```text
//! bundle ─┬─ module.wasm
//!         ├─ node.o  ◄── subject ─┬─ record: module, values, profile, text for LLVM, weir, clang
//!         │                        └─ bounds of the calls
//!         └─ run.o   ◄── subject ─── record and bounds
//! ```
//!
//! - [`envelope`]: DSSE envelopes v1, signed with weir's Ed25519 keys.
//! - [`statement`]: in-toto Statements v1 with the predicate SLSA Provenance v1, and with bounds.
//! - [`expected`]: the statements that a reader makes of a module without a compiler, to compare with.
//! - [`compiler_keys`]: an operator's policy on compiler keys, and the decision on a bundle by this policy.
//! - [`bundle`]: the file, a tar archive (POSIX ustar) with members in a fixed order.
//!
//! A record is no proof of memory safety: the node verifies the machine code itself. It is a proof of the author: a
//! compiler key states that this object is what clang made of exactly this text.
//!
//! Pure: bytes in, values out. Bytes come from strangers, and give errors, never panics.

#![forbid(unsafe_code)]

pub mod bundle;
pub mod compiler_keys;
pub mod envelope;
pub mod expected;
pub mod statement;
