//! All integration tests of `weir-netio`, in one program: each program links the same libraries once more.

mod any_bytes;
mod builders;
mod changing_files;
mod exercise;
mod formats;
mod holding_bytes;
mod interpreter;
mod joined_filters;
mod oracle;
mod pinning;
mod standard_input;
mod threads;
mod traces;
mod writing;
