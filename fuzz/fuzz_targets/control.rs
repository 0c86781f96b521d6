//! Reads arbitrary bytes as a client's request to a node, and as a node's response. A parsed message is re-encoded to
//! the same bytes, checked against a credential, and its file parts stay within their limits. An invalid request is
//! refused with a message, and nothing panics.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};
use weir_trust::credential::{Credential, VerificationContext, VerifiedCredential};
use weir_trust::grant::{Ceilings, CpuShare, Grant, UnixSecond};
use weir_trust::key::Identity;
use weir_trust::revocation::Revocations;
use weir_units::Bytes;

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../core/trust/tests/association/pair.rs"]
mod pair;
use pair::Seeded;

/// The client: the holder of a credential that restricts packets, time, memory and sessions.
static HOLDER: LazyLock<Arc<VerifiedCredential>> = LazyLock::new(|| {
    let ceilings = Ceilings {
        cpu: Some(CpuShare(100_000)),
        memory: Some(Bytes(16 << 20)),
        sessions: Some(2),
        ..Ceilings::default()
    };
    let filters = ["udp".parse().expect("a filter")].into();
    let grant = Grant { expires: Some(UnixSecond::MAX), filters, ceilings, ..Grant::default() };
    let (operator, peer) = (Identity::from_seed(&[1; 32]), Identity::from_seed(&[2; 32]).public());
    let credential = Credential::mint(&operator, peer, grant, None, &mut Seeded(1)).expect("a grant that can be");
    let (roots, revocations) = ([operator.public()], Revocations::default());
    let node = "node".parse().expect("a name");
    let now = UnixSecond::default();
    let situation = VerificationContext { roots: &roots, revocations: &revocations, peer: &peer, node: &node, now };
    Arc::new(credential.verify(&situation).expect("it is the peer's own"))
});

fuzz_target!(|bytes: &[u8]| weir_node::input_oracle::control(bytes, &HOLDER));
