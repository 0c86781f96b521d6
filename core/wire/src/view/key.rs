//! The keys of a view.

use sha2::{Digest, Sha256};
use std::fmt;

/// What a view's [`Transform`](super::Transform) is keyed by: derived from a secret that only the node has, and a label that says for which view and
/// for whom. Two labels give two keys that have nothing to do with each other, so what two holders see cannot be joined.
#[derive(Clone)]
pub struct ViewKey {
    /// The two keys of [`IpcryptPfx`](super::ipcrypt_pfx::IpcryptPfx), for IPv4 and IPv6 addresses.
    pub(super) pfx: [u8; 32],
    /// The factor by which addresses are spread over tables.
    pub(super) places: [u8; 32],
    /// For IPv4 addresses, as [`CryptoPan`](super::crypto_pan::CryptoPan) takes it.
    pub(super) v4: [u8; 32],
    /// For IPv6 addresses: another one, because the pads of both would begin alike.
    pub(super) v6: [u8; 32],
    /// For flow hashes.
    pub(super) flow: [u8; 32],
}

/// What the hash begins with, so that no other use of a secret gives the same keys.
const CONTEXT: &[u8] = b"weir view 1";

impl ViewKey {
    /// From a secret of 32 bytes that nobody can guess, and a label of any length. The same two always give the same key, so addresses look the
    /// same tomorrow; who wants that to end changes either.
    pub fn derive(secret: &[u8; 32], label: &[u8]) -> Self {
        // The secret and the purpose have fixed lengths, so no two (secret, purpose, label) are one text; outputs are never shown.
        let derive = |purpose: u8| {
            let hash = Sha256::new().chain_update(CONTEXT).chain_update([purpose]);
            hash.chain_update(secret).chain_update(label).finalize().into()
        };
        Self { pfx: derive(2), places: derive(3), v4: derive(4), v6: derive(6), flow: derive(1) }
    }
}

impl fmt::Debug for ViewKey {
    /// Without the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewKey").finish_non_exhaustive()
    }
}
