//! Two honest parties, and a path that a test controls.

use rand_core::{CryptoRng, Error, RngCore, impls};
use weir_trust::association::{Association, HandshakeError, Initiator, InitiatorAwaitingAccept, Responder};
use weir_trust::key::{Identity, PublicKey};

/// Repeatable randomness (splitmix64).
pub struct Seeded(pub u64);

impl RngCore for Seeded {
    fn next_u32(&mut self) -> u32 {
        u32::try_from(self.next_u64() >> 32).unwrap_or_default()
    }
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    fn fill_bytes(&mut self, dest: &mut [u8]) {
        impls::fill_bytes_via_next(self, dest);
    }
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        self.fill_bytes(dest);
        Ok(())
    }
}

impl CryptoRng for Seeded {}

pub fn node() -> Identity {
    Identity::from_seed(&[1; 32])
}

pub fn guest() -> Identity {
    Identity::from_seed(&[2; 32])
}

pub fn mallory() -> Identity {
    Identity::from_seed(&[3; 32])
}

pub const CREDENTIALS: &[u8] = b"what the guest may do";
pub const OFFERS: &[u8] = b"what the node is";

/// A change to a message on its path.
pub type Way<'a> = &'a mut dyn FnMut(usize, Vec<u8>) -> Vec<u8>;

/// Both ends of a handshake whose four messages (0 to 3) took that path: an association, or the reason why there is
/// none. A side that waits for a message that was not sent has neither.
pub struct Ends {
    pub initiator: Result<Association, HandshakeError>,
    pub responder: Option<Result<Association, HandshakeError>>,
}

/// A handshake of the guest with the node. `seed` gives the randomness of both.
pub fn handshake(expected: Option<PublicKey>, seed: u64, way: Way) -> Ends {
    let (mut here, mut there) = (Seeded(seed), Seeded(!seed));
    let (initiator, first) = Initiator::begin(expected, &mut here).expect("there is randomness");
    let first = way(0, first);
    let (responder, second) = match Responder::begin(&node(), &first, &mut there) {
        Ok(answered) => answered,
        // The connection is closed, so the initiator reads nothing.
        Err(error) => {
            return Ends {
                initiator: initiator.read_second(&[]).map(|_| unreachable!()),
                responder: Some(Err(error)),
            };
        }
    };
    let (confirming, third) = match introduce(initiator, &way(1, second)) {
        Ok(introduced) => introduced,
        Err(error) => return Ends { initiator: Err(error), responder: None },
    };
    let accepted = responder.read_third(&way(2, third)).and_then(|authenticated| {
        assert_eq!(authenticated.peer().key, guest().public());
        assert_eq!(authenticated.peer().credentials, CREDENTIALS);
        authenticated.accept(OFFERS)
    });
    match accepted {
        Ok((association, fourth)) => {
            Ends { initiator: confirming.read_fourth(&way(3, fourth)), responder: Some(Ok(association)) }
        }
        Err(error) => Ends { initiator: confirming.read_fourth(&[]), responder: Some(Err(error)) },
    }
}

fn introduce(
    initiator: Initiator,
    second: &[u8],
) -> Result<(InitiatorAwaitingAccept, Vec<u8>), HandshakeError> {
    initiator.read_second(second)?.introduce(&guest(), CREDENTIALS)
}

/// An undisturbed handshake.
pub fn associated(seed: u64) -> (Association, Association) {
    let ends = handshake(Some(node().public()), seed, &mut |_, message| message);
    (ends.initiator.unwrap(), ends.responder.unwrap().unwrap())
}

/// The four messages of an undisturbed handshake.
pub fn messages(seed: u64) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    handshake(None, seed, &mut |_, message| {
        all.push(message.clone());
        message
    });
    assert_eq!(all.len(), 4);
    all
}
