//! Reads arbitrary bytes as what a client says to a node, and as what a node answers: what is read is written again as it was, is held against a credential, and its
//! parts of files are kept within their bounds; what is no request is refused with words, and nothing panics.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use rand_core::{CryptoRng, Error, RngCore, impls};
use std::sync::{Arc, LazyLock};
use weir_trust::credential::{Credential, Situation, Verified};
use weir_trust::grant::{Ceilings, CpuShare, Grant, Second};
use weir_trust::key::Identity;
use weir_trust::revocation::Revocations;
use weir_units::Bytes;

/// Randomness that is the same every time.
struct Counting(u64);

impl RngCore for Counting {
    fn next_u32(&mut self) -> u32 {
        impls::next_u32_via_fill(self)
    }
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.0
    }
    fn fill_bytes(&mut self, dest: &mut [u8]) {
        impls::fill_bytes_via_next(self, dest);
    }
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        self.fill_bytes(dest);
        Ok(())
    }
}

impl CryptoRng for Counting {}

/// Who asks: the holder of something that restricts packets, time, memory and sessions.
static HOLDER: LazyLock<Arc<Verified>> = LazyLock::new(|| {
    let ceilings = Ceilings {
        cpu: Some(CpuShare(100_000)),
        memory: Some(Bytes(16 << 20)),
        sessions: Some(2),
        ..Ceilings::default()
    };
    let filters = ["udp".parse().expect("a filter")].into();
    let grant = Grant { expires: Some(Second::MAX), filters, ceilings, ..Grant::default() };
    let (operator, peer) = (Identity::from_seed(&[1; 32]), Identity::from_seed(&[2; 32]).public());
    let credential = Credential::mint(&operator, peer, grant, &mut Counting(1)).expect("a grant that can be");
    let (roots, revocations) = ([operator.public()], Revocations::default());
    let node = "node".parse().expect("a name");
    let now = Second::default();
    let situation = Situation { roots: &roots, revocations: &revocations, peer: &peer, node: &node, now };
    Arc::new(credential.verify(&situation).expect("it is the peer's own"))
});

fuzz_target!(|bytes: &[u8]| weir_node::exercise::control(bytes, &HOLDER));
