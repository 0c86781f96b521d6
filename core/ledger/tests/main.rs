//! All integration tests of `weir-ledger` in one program, so that the libraries are linked once.

#![forbid(unsafe_code)]

mod ledger;
