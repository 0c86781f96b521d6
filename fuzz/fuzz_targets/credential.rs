//! Reads arbitrary bytes as a credential: from bytes, from text, and as the block that a holder has signed. What is read has the form in which it was written, and is
//! worth something only to its holder; what an attacker without a key has changed is worth nothing.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use weir_trust::credential::{Credential, Situation};
use weir_trust::grant::{Grant, NodeName, Second};
use weir_trust::key::{Identity, KeyFile, PublicKey};
use weir_trust::revocation::{RevocationList, Revocations};
use weir_trust::signature::ModuleSignature;

/// An operator whose key nobody has, and who has granted nothing.
static ROOT: LazyLock<PublicKey> = LazyLock::new(|| Identity::from_seed(&[0xa5; 32]).public());
static NODE: LazyLock<NodeName> = LazyLock::new(|| "node".parse().expect("a name"));

fuzz_target!(|bytes: &[u8]| {
    if let Ok(credential) = Credential::parse(bytes) {
        assert_eq!(credential.as_bytes(), bytes);
        assert_eq!(credential.to_string().parse().as_ref(), Ok(&credential));
        let peer = credential.claimed_holder();
        let revocations = Revocations::default();
        // Whoever has made it did not have the operator's key; where it says that it is of another root, that one is asked.
        let operators = [*ROOT];
        let situation = |roots| Situation {
            roots,
            revocations: &revocations,
            peer,
            node: &NODE,
            now: Second::default(),
        };
        assert!(credential.verify(&situation(&operators)).is_err());
        if let Ok(verified) = credential.verify(&situation(&[*credential.claimed_root()])) {
            // Nobody gives more than he was given.
            let blocks = verified.chain().iter().map(|link| &link.grant);
            let all = blocks.fold(Grant::default(), |all, grant| all.meet(grant));
            assert!(Grant { delegations: None, ..verified.grant().clone() }.is_at_most(&Grant { delegations: None, ..all }));
        }
        let _ = weir_trust::explain::credential(&credential);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(list) = text.parse::<RevocationList>() {
            assert_eq!(list.to_string(), text);
        }
        if let Ok(signature) = text.parse::<ModuleSignature>() {
            assert_eq!(signature.to_string(), text);
        }
        if let Ok(file) = KeyFile::parse(text) {
            // Sealed ones would only show how long a derivation takes.
            if file.cost().is_none() {
                let _ = file.open(None);
            }
        }
        let _ = text.parse::<Credential>();
        let _ = text.parse::<PublicKey>();
    }
});
