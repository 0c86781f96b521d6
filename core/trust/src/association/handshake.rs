//! The handshake of the Noise library, and the erasure of its secrets from memory.
//!
//! snow, the Noise library, erases nothing. It moves and drops the struct with the chaining key, from which the keys of
//! an association follow. Its hash and cipher keep their states on the heap, and its functions leave copies of keys on
//! the stack. This module erases these secrets:
//!
//! - the handshake state stays at one address of the heap, and another state overwrites it before the memory is freed;
//! - ciphers get another key and hashes another state before they are freed ([`ErasedCipher`], [`ErasedHash`]);
//! - the stack that a step has used is overwritten after the step.
//!
//! The language gives no guarantee that these steps erase every copy of a secret. The test `erasure.rs` of edge/remote
//! looks for remaining copies.

use super::error::HandshakeError;
use snow::types::{Cipher, Hash};
use snow::{HandshakeState, StatelessTransportState};
use std::fmt;
use std::hint::black_box;
use zeroize::Zeroizing;

/// The bytes of the stack that are overwritten after each step: more than a step uses.
const STACK_BYTES: usize = 32 << 10;
/// The length of a cipher key.
const KEY_BYTES: usize = 32;
/// The length of an authentication tag.
const TAG_BYTES: usize = 16;

/// A handshake of the library snow, whose secrets are erased from memory when the handshake ends or is dropped.
pub(crate) struct Handshake {
    state: Box<HandshakeState>,
    /// Makes a state without secrets, which overwrites that of an ended handshake.
    blank: fn() -> Result<HandshakeState, HandshakeError>,
}

impl Handshake {
    /// Wraps a state that has exchanged nothing yet.
    pub(super) fn new(state: HandshakeState, blank: fn() -> Result<HandshakeState, HandshakeError>) -> Self {
        Self { state: Box::new(state), blank }
    }

    /// Reads a message, and returns the length of its payload.
    pub(super) fn read(&mut self, message: &[u8], payload: &mut [u8]) -> Result<usize, snow::Error> {
        with_erased_stack(|| self.state.read_message(message, payload))
    }

    /// Writes a message with this payload, and returns its length.
    pub(super) fn write(&mut self, payload: &[u8], message: &mut [u8]) -> Result<usize, snow::Error> {
        with_erased_stack(|| self.state.write_message(payload, message))
    }

    /// Returns the handshake hash over all messages so far.
    pub(super) fn hash(&self) -> &[u8] {
        self.state.get_handshake_hash()
    }

    /// Returns the peer's X25519 key.
    pub(super) fn remote_static(&self) -> Option<&[u8]> {
        self.state.get_remote_static()
    }

    /// Returns the two keys of a completed handshake (`Split` of Noise): those for what the initiator and what the
    /// responder sends. Keys of packets are derived from them.
    pub(crate) fn split(mut self) -> Result<[Zeroizing<[u8; KEY_BYTES]>; 2], HandshakeError> {
        if !self.state.is_handshake_finished() {
            return Err(HandshakeError::Library("it is not complete"));
        }
        Ok(with_erased_stack(|| {
            let (initiator, responder) = self.state.dangerously_get_raw_split();
            [Zeroizing::new(initiator), Zeroizing::new(responder)]
        }))
    }

    /// Returns the keys of a completed handshake.
    pub(crate) fn keys(mut self) -> Result<StatelessTransportState, HandshakeError> {
        with_erased_stack(|| {
            let state = std::mem::replace(&mut *self.state, (self.blank)()?);
            state
                .into_stateless_transport_mode()
                .map_err(|_| HandshakeError::Library("its keys cannot be made"))
        })
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        with_erased_stack(|| {
            if let Ok(blank) = (self.blank)() {
                *self.state = blank;
                black_box(&mut *self.state);
            }
        });
    }
}

impl fmt::Debug for Handshake {
    /// Writes the name without the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake").finish_non_exhaustive()
    }
}

/// Runs a step, and then overwrites the stack that the step has used.
pub(super) fn with_erased_stack<R>(step: impl FnOnce() -> R) -> R {
    let result = in_own_frame(step);
    erase_stack();
    result
}

/// Runs a step in a stack frame of its own, so that the step only uses stack below the caller's frame.
#[inline(never)]
fn in_own_frame<R>(step: impl FnOnce() -> R) -> R {
    black_box(step())
}

/// Overwrites the stack below the caller's frame.
#[inline(never)]
fn erase_stack() {
    let mut below = [0_u8; STACK_BYTES];
    black_box(&mut below);
}

/// A cipher of the library whose key is erased when it is dropped.
pub(crate) struct ErasedCipher(pub(super) Box<dyn Cipher>);

impl Cipher for ErasedCipher {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn set(&mut self, key: &[u8; KEY_BYTES]) {
        self.0.set(key);
    }

    fn encrypt(&self, nonce: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        self.0.encrypt(nonce, authtext, plaintext, out)
    }

    fn decrypt(
        &self,
        nonce: u64,
        authtext: &[u8],
        ciphertext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, snow::Error> {
        self.0.decrypt(nonce, authtext, ciphertext, out)
    }

    /// Derives the next key as the library does (Noise, section 4.2), and overwrites the stack that the derivation has
    /// used.
    fn rekey(&mut self) {
        with_erased_stack(|| {
            let mut sealed = Zeroizing::new([0; KEY_BYTES + TAG_BYTES]);
            self.0.encrypt(u64::MAX, &[], &[0; KEY_BYTES], sealed.as_mut());
            let mut key = Zeroizing::new([0; KEY_BYTES]);
            key.iter_mut().zip(sealed.iter()).for_each(|(to, from)| *to = *from);
            self.0.set(&key);
        });
    }
}

impl Drop for ErasedCipher {
    /// Overwrites the key, and all values that were derived from it, by setting another key.
    fn drop(&mut self) {
        self.0.set(&[0; KEY_BYTES]);
        black_box(&mut self.0);
    }
}

/// A hash function of the `snow` library that erases its state when it is dropped, because the last hash could be
/// computed from the state.
pub(super) struct ErasedHash(pub(super) Box<dyn Hash>);

impl Hash for ErasedHash {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn block_len(&self) -> usize {
        self.0.block_len()
    }

    fn hash_len(&self) -> usize {
        self.0.hash_len()
    }

    fn reset(&mut self) {
        self.0.reset();
    }

    fn input(&mut self, data: &[u8]) {
        self.0.input(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        self.0.result(out);
    }
}

impl Drop for ErasedHash {
    fn drop(&mut self) {
        self.0.reset();
        black_box(&mut self.0);
    }
}
