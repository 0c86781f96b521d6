//! A party that speaks Noise correctly, with arbitrary payloads, X25519 keys and later
//! messages.

use super::pair::Seeded;
use rand_core::RngCore;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, RingResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState, StatelessTransportState};
use std::sync::{Arc, Mutex};
use weir_trust::key::{Identity, SignatureContext};
use x25519_dalek::{PublicKey, StaticSecret};

/// The head of the first message.
pub const HEAD: [u8; 6] = *b"weir\x01\x01";
/// The context in which identities sign handshakes.
pub const CONTEXT: SignatureContext = SignatureContext::new("association");
pub const INITIATOR: u8 = 1;
pub const RESPONDER: u8 = 2;

pub struct Raw {
    pub noise: HandshakeState,
    /// Its X25519 key.
    pub own: [u8; 32],
    /// All keys that its ciphers got. The last two are those of the association, the initiator's first.
    pub keys: CipherKeys,
}

pub type CipherKeys = Arc<Mutex<Vec<[u8; 32]>>>;

impl Raw {
    pub fn initiator(seed: u64) -> Self {
        Self::new(seed, true, None)
    }

    pub fn responder(seed: u64) -> Self {
        Self::new(seed, false, None)
    }

    /// A party that claims this X25519 key.
    pub fn with_key(seed: u64, is_initiator: bool, key: [u8; 32]) -> Self {
        Self::new(seed, is_initiator, Some(key))
    }

    fn new(seed: u64, is_initiator: bool, says: Option<[u8; 32]>) -> Self {
        let mut secret = [0; 32];
        Seeded(seed).fill_bytes(&mut secret);
        let own = says.unwrap_or_else(|| PublicKey::from(&StaticSecret::from(secret)).to_bytes());
        let prologue = [b"weir association\0".as_slice(), &HEAD].concat();
        let keys = CipherKeys::default();
        let builder = Builder::with_resolver(
            "Noise_XX_25519_AESGCM_SHA256".parse().unwrap(),
            Box::new(Primitives { seed: !seed, says, keys: keys.clone() }),
        );
        let builder = builder.local_private_key(&secret).unwrap().prologue(&prologue).unwrap();
        let noise = if is_initiator { builder.build_initiator() } else { builder.build_responder() };
        Self { noise: noise.unwrap(), own, keys }
    }

    pub fn hash(&self) -> [u8; 32] {
        self.noise.get_handshake_hash().try_into().unwrap()
    }

    pub fn write(&mut self, payload: &[u8]) -> Vec<u8> {
        let mut message = vec![0; 65_535];
        let written = self.noise.write_message(payload, &mut message).unwrap();
        message.truncate(written);
        message
    }

    pub fn read(&mut self, message: &[u8]) -> Vec<u8> {
        let mut payload = vec![0; 65_535];
        let read = self.noise.read_message(message, &mut payload).unwrap();
        payload.truncate(read);
        payload
    }

    /// The first message.
    pub fn first(&mut self) -> Vec<u8> {
        [HEAD.as_slice(), &self.write(&[0; 155])].concat()
    }

    /// Reads a first message.
    pub fn read_first(&mut self, first: &[u8]) {
        self.read(&first[HEAD.len()..]);
    }

    /// The second message, with this payload.
    pub fn second(&mut self, payload: &[u8]) -> Vec<u8> {
        [&[1], self.write(payload).as_slice()].concat()
    }

    pub fn transport(self) -> StatelessTransportState {
        self.noise.into_stateless_transport_mode().unwrap()
    }
}

/// The statement that an identity signs: a version, a role, a handshake's hash, an X25519 key.
pub fn statement(version: u8, role: u8, hash: &[u8; 32], key: &[u8; 32]) -> Vec<u8> {
    [&[version, role], hash.as_slice(), key].concat()
}

/// An identity, and its signature.
pub fn proof(identity: &Identity, signed: &[u8]) -> Vec<u8> {
    [identity.public().as_bytes().as_slice(), &identity.sign(CONTEXT, signed).0].concat()
}

/// A message of an association.
pub fn seal(keys: &StatelessTransportState, number: u64, plain: &[u8]) -> Vec<u8> {
    let mut message = vec![0; plain.len() + 16];
    let written = keys.write_message(number, plain, &mut message).unwrap();
    message.truncate(written);
    message
}

struct Primitives {
    seed: u64,
    says: Option<[u8; 32]>,
    keys: CipherKeys,
}

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Randomness(Seeded(self.seed))))
    }
    fn resolve_dh(&self, _: &DHChoice) -> Option<Box<dyn Dh>> {
        Some(Box::new(Key { secret: [0; 32], public: [0; 32], says: self.says }))
    }
    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        RingResolver.resolve_hash(choice)
    }
    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        let cipher = RingResolver.resolve_cipher(choice)?;
        Some(Box::new(Recorded { cipher, keys: self.keys.clone() }))
    }
}

/// A cipher whose keys are recorded.
struct Recorded {
    cipher: Box<dyn Cipher>,
    keys: CipherKeys,
}

impl Cipher for Recorded {
    fn name(&self) -> &'static str {
        self.cipher.name()
    }
    fn set(&mut self, key: &[u8; 32]) {
        self.keys.lock().unwrap().push(*key);
        self.cipher.set(key);
    }
    fn encrypt(&self, nonce: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        self.cipher.encrypt(nonce, authtext, plaintext, out)
    }
    fn decrypt(
        &self,
        nonce: u64,
        authtext: &[u8],
        ciphertext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, snow::Error> {
        self.cipher.decrypt(nonce, authtext, ciphertext, out)
    }
}

struct Randomness(Seeded);

impl Random for Randomness {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        self.0.fill_bytes(dest);
        Ok(())
    }
}

/// A key pair that accepts keys of small order, and can show another public key than its own.
struct Key {
    secret: [u8; 32],
    public: [u8; 32],
    says: Option<[u8; 32]>,
}

impl Dh for Key {
    fn name(&self) -> &'static str {
        "25519"
    }
    fn pub_len(&self) -> usize {
        32
    }
    fn priv_len(&self) -> usize {
        32
    }
    fn set(&mut self, secret: &[u8]) {
        self.secret = secret.try_into().unwrap();
        self.public =
            self.says.unwrap_or_else(|| PublicKey::from(&StaticSecret::from(self.secret)).to_bytes());
    }
    fn generate(&mut self, random: &mut dyn Random) -> Result<(), snow::Error> {
        random.try_fill_bytes(&mut self.secret)?;
        self.public = PublicKey::from(&StaticSecret::from(self.secret)).to_bytes();
        Ok(())
    }
    fn pubkey(&self) -> &[u8] {
        &self.public
    }
    fn privkey(&self) -> &[u8] {
        &self.secret
    }
    fn dh(&self, theirs: &[u8], into: &mut [u8]) -> Result<(), snow::Error> {
        let theirs: [u8; 32] = theirs[..32].try_into().unwrap();
        into[..32].copy_from_slice(StaticSecret::from(self.secret).diffie_hellman(&theirs.into()).as_bytes());
        Ok(())
    }
}
