//! Keys of views.

use sha2::{Digest, Sha256};
use std::fmt;

/// The key of a view's [`Transform`](super::Transform). It is derived from a secret of the node and a label that names
/// the view and the grant for which it is made. The keys of two labels are independent, so holders under different grants
/// cannot link their pseudonyms.
#[derive(Clone)]
pub struct ViewKey {
    /// The two keys of [`IpcryptPfx`](super::ipcrypt_pfx::IpcryptPfx), for IPv4 and IPv6 addresses.
    pub(super) ipcrypt_pfx: [u8; 32],
    /// The factor that spreads addresses over the slots of caches.
    pub(super) spread: [u8; 32],
    /// The key of [`CryptoPan`](super::crypto_pan::CryptoPan) for IPv4 addresses.
    pub(super) crypto_pan_v4: [u8; 32],
    /// The key of [`CryptoPan`](super::crypto_pan::CryptoPan) for IPv6 addresses. With a common key, the pads of IPv4
    /// and IPv6 would begin with the same bits.
    pub(super) crypto_pan_v6: [u8; 32],
    /// The key for flow hashes.
    pub(super) flow_hash: [u8; 32],
}

/// The prefix of the hashed text, so that other uses of a secret give other keys.
const CONTEXT: &[u8] = b"weir view 1";

impl ViewKey {
    /// Derives a key from a secret of 32 random bytes and a label of any length. Equal inputs give equal keys, so
    /// pseudonyms stay the same over time; changing the secret or the label gives new ones.
    pub fn derive(secret: &[u8; 32], label: &[u8]) -> Self {
        // Secret and purpose have fixed lengths, so different triples of secret, purpose and label give different
        // texts. No hash is revealed, so a hash of a longer label cannot be computed from it.
        let derive = |purpose: u8| {
            let hash = Sha256::new().chain_update(CONTEXT).chain_update([purpose]);
            hash.chain_update(secret).chain_update(label).finalize().into()
        };
        Self {
            ipcrypt_pfx: derive(2),
            spread: derive(3),
            crypto_pan_v4: derive(4),
            crypto_pan_v6: derive(6),
            flow_hash: derive(1),
        }
    }
}

impl fmt::Debug for ViewKey {
    /// Omits the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewKey").finish_non_exhaustive()
    }
}
