//! Tests of native code: WebAssembly text is lowered, compiled by clang, verified and run.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod calls;
mod compile;
mod flips;
mod sabotage;
mod support;
