//! All integration tests of `weir-ledger`, in one program: each program links the same libraries once more.

#![forbid(unsafe_code)]

mod ledger;
