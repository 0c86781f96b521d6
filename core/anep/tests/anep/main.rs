//! All integration tests of `weir-anep` in one program, so that the libraries are linked once.

#![forbid(unsafe_code)]

mod association {
    pub(crate) use crate::pair;
}
mod format;
#[path = "../../../trust/tests/datagrams/network.rs"]
#[allow(dead_code, reason = "shared with the tests of associations")]
mod network;
#[path = "../../../trust/tests/association/pair.rs"]
#[allow(dead_code, reason = "shared with the tests of the handshake")]
mod pair;
mod sealed;
