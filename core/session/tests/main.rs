//! All integration tests of `weir-session`, in one program: each program links the same libraries once more.

#![forbid(unsafe_code)]

mod services;
