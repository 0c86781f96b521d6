//! The primitives of the handshake: X25519 by x25519-dalek, AES-256-GCM and SHA-256 by ring, and randomness from the
//! caller.
//!
//! snow's own X25519 accepts keys of small order. The X25519 of this module refuses them.

use super::HandshakeRole;
use super::error::{HandshakeError, HandshakeMessage};
use super::handshake::{ErasedCipher, ErasedHash, Handshake, with_erased_stack};
use super::message::{Carrier, MessageHeader, prologue};
use rand_core::{CryptoRng, RngCore};
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, RingResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

const PROTOCOL: &str = "Noise_XX_25519_AESGCM_SHA256";
const SECRET_BYTES: usize = 32;

/// Begins a handshake in this role, with two new X25519 key pairs: an ephemeral and a static one. Returns the handshake and
/// the public static key, which the identity signs.
pub(super) fn begin(
    carrier: Carrier,
    head: MessageHeader,
    role: HandshakeRole,
    random: &mut (impl RngCore + CryptoRng),
) -> Result<(Handshake, [u8; 32]), HandshakeError> {
    with_erased_stack(|| {
        let (state, public) = make(carrier, head, role, random)?;
        Ok((Handshake::new(state, blank), public))
    })
}

/// Returns a handshake state without secrets.
fn blank() -> Result<HandshakeState, HandshakeError> {
    let primitives =
        Primitives { ephemeral: Zeroizing::default(), public_static: PublicKey::from([0; SECRET_BYTES]) };
    build(primitives, &[0; SECRET_BYTES], &[], HandshakeRole::Initiator)
}

fn make(
    carrier: Carrier,
    head: MessageHeader,
    role: HandshakeRole,
    random: &mut (impl RngCore + CryptoRng),
) -> Result<(HandshakeState, [u8; 32]), HandshakeError> {
    let mut secret = || {
        let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
        let filled = random.try_fill_bytes(bytes.as_mut()).map(|()| bytes);
        filled.map_err(|_| HandshakeError::Library("there is no randomness"))
    };
    let (secret_static, ephemeral) = (secret()?, secret()?);
    let public = PublicKey::from(&StaticSecret::from(*secret_static));
    let primitives = Primitives { ephemeral, public_static: public };
    let state = build(primitives, &secret_static, &prologue(carrier, head), role)?;
    Ok((state, public.to_bytes()))
}

fn build(
    primitives: Primitives,
    secret_static: &[u8; SECRET_BYTES],
    prologue: &[u8],
    role: HandshakeRole,
) -> Result<HandshakeState, HandshakeError> {
    let params: NoiseParams =
        PROTOCOL.parse().map_err(|_| HandshakeError::Library("the protocol is unknown"))?;
    Builder::with_resolver(params, Box::new(primitives))
        .local_private_key(secret_static)
        .and_then(|builder| builder.prologue(prologue))
        .and_then(|builder| match role {
            HandshakeRole::Initiator => builder.build_initiator(),
            HandshakeRole::Responder => builder.build_responder(),
        })
        .map_err(|_| HandshakeError::Library("it cannot be begun"))
}

/// Makes an AES-256-GCM cipher with this key. The nonce of a message is its number, as in Noise: four zero bytes and
/// the number in eight bytes, big-endian.
pub(crate) fn cipher(key: &[u8; SECRET_BYTES]) -> Result<ErasedCipher, HandshakeError> {
    let cipher = RingResolver.resolve_cipher(&CipherChoice::AESGCM);
    let mut cipher = ErasedCipher(cipher.ok_or(HandshakeError::Library("there is no AES-GCM"))?);
    with_erased_stack(|| cipher.set(key));
    Ok(cipher)
}

/// Returns HMAC-SHA-256 (RFC 2104) of `data` under a key of at most 64 bytes.
pub(crate) fn hmac(key: &[u8; SECRET_BYTES], data: &[u8]) -> Result<Zeroizing<[u8; 32]>, HandshakeError> {
    let hash = RingResolver.resolve_hash(&HashChoice::SHA256);
    let mut hash = ErasedHash(hash.ok_or(HandshakeError::Library("there is no SHA-256"))?);
    Ok(with_erased_stack(|| {
        let mut out = Zeroizing::new([0; 32]);
        hash.hmac(key, data, out.as_mut());
        out
    }))
}

/// Converts the library's error about a received message.
pub(super) fn fault(message: HandshakeMessage, error: &snow::Error) -> HandshakeError {
    match error {
        snow::Error::Dh => HandshakeError::WeakKey(message),
        _ => HandshakeError::Damaged(message),
    }
}

/// The implementations of cryptography that snow uses, and the secret of the ephemeral key.
struct Primitives {
    ephemeral: Zeroizing<[u8; SECRET_BYTES]>,
    /// The public static key, which the identity signs.
    public_static: PublicKey,
}

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(SingleUseRandom(Some(self.ephemeral.clone()))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        let key = X25519 { secret: StaticSecret::from([0; SECRET_BYTES]), public: self.public_static };
        matches!(choice, DHChoice::Curve25519).then(|| Box::new(key) as Box<dyn Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        RingResolver.resolve_hash(choice).map(|hash| Box::new(ErasedHash(hash)) as Box<dyn Hash>)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        RingResolver.resolve_cipher(choice).map(|cipher| Box::new(ErasedCipher(cipher)) as Box<dyn Cipher>)
    }
}

/// The randomness for the ephemeral key. Noise XX asks for randomness once; a second request fails.
struct SingleUseRandom(Option<Zeroizing<[u8; SECRET_BYTES]>>);

impl Random for SingleUseRandom {
    fn try_fill_bytes(&mut self, into: &mut [u8]) -> Result<(), snow::Error> {
        let bytes = self.0.take().ok_or(snow::Error::Rng)?;
        if into.len() != bytes.len() {
            return Err(snow::Error::Rng);
        }
        into.copy_from_slice(bytes.as_slice());
        Ok(())
    }
}

/// An X25519 key pair. `set` or `generate` sets the secret half, before the library uses the pair.
struct X25519 {
    secret: StaticSecret,
    public: PublicKey,
}

impl Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        32
    }

    fn priv_len(&self) -> usize {
        SECRET_BYTES
    }

    /// Sets the secret static key. The public half was computed before, which saves a multiplication.
    fn set(&mut self, secret: &[u8]) {
        if let Ok(secret) = <[u8; SECRET_BYTES]>::try_from(secret) {
            self.secret = StaticSecret::from(secret);
        }
    }

    fn generate(&mut self, random: &mut dyn Random) -> Result<(), snow::Error> {
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        random.try_fill_bytes(secret.as_mut())?;
        self.secret = StaticSecret::from(*secret);
        self.public = PublicKey::from(&self.secret);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        self.public.as_bytes()
    }

    fn privkey(&self) -> &[u8] {
        self.secret.as_bytes()
    }

    fn dh(&self, peer_key: &[u8], into: &mut [u8]) -> Result<(), snow::Error> {
        let peer_key: [u8; 32] = *peer_key.first_chunk().ok_or(snow::Error::Dh)?;
        let into = into.get_mut(..32).ok_or(snow::Error::Dh)?;
        let shared = self.secret.diffie_hellman(&PublicKey::from(peer_key));
        if !shared.was_contributory() {
            return Err(snow::Error::Dh);
        }
        into.copy_from_slice(shared.as_bytes());
        Ok(())
    }
}
