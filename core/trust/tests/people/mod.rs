//! An operator, users of its node, and an attacker with the token library itself.

use biscuit_auth::builder::{Algorithm, BlockBuilder};
use biscuit_auth::datalog::SymbolTable;
use biscuit_auth::format::schema;
use biscuit_auth::{BiscuitBuilder, KeyPair, PrivateKey, UnverifiedBiscuit};
use prost::Message;
use rand_core::{CryptoRng, Error, RngCore, impls};
use weir_trust::credential::{Credential, CredentialRefusal, VerificationContext, VerifiedCredential};
use weir_trust::grant::{Grant, NodeName, UnixSecond};
use weir_trust::key::{Identity, PublicKey};
use weir_trust::revocation::Revocations;

/// A person with a key.
#[derive(Clone, Copy)]
pub struct Person(u8);

pub const OPERATOR: Person = Person(1);
pub const RESEARCHER: Person = Person(2);
pub const STUDENT: Person = Person(3);
pub const FRIEND: Person = Person(4);
pub const THIEF: Person = Person(5);
pub const OTHER_OPERATOR: Person = Person(6);

impl Person {
    pub fn identity(self) -> Identity {
        Identity::from_seed(&[self.0; 32])
    }

    pub fn key(self) -> PublicKey {
        self.identity().public()
    }

    /// The public key in Datalog.
    pub fn datalog(self) -> String {
        format!("hex:{}", self.key().as_bytes().map(|byte| format!("{byte:02x}")).concat())
    }

    pub fn private(self) -> PrivateKey {
        PrivateKey::from_bytes(&[self.0; 32], Algorithm::Ed25519).unwrap()
    }
}

/// Repeatable randomness, different for each seed.
pub struct Counting(pub u64);

impl RngCore for Counting {
    fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }
    fn next_u64(&mut self) -> u64 {
        self.0 += 1;
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
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

pub fn second(text: &str) -> UnixSecond {
    text.parse().unwrap()
}

/// The time of all tests.
pub fn now() -> UnixSecond {
    second("2026-11-21T12:00:00Z")
}

pub fn node() -> NodeName {
    "edge-1.example.org".parse().unwrap()
}

/// A grant that restricts the parts set by `change`, and ends in 2027.
pub fn until_2027(change: impl FnOnce(&mut Grant)) -> Grant {
    let mut grant = Grant { expires: Some(second("2027-01-01")), ..Grant::default() };
    change(&mut grant);
    grant
}

/// The operator's credential for the researcher.
pub fn granted(change: impl FnOnce(&mut Grant)) -> Credential {
    Credential::mint(&OPERATOR.identity(), RESEARCHER.key(), until_2027(change), None, &mut Counting(0))
        .unwrap()
}

/// The operator's credential for the researcher, signed at this time.
pub fn granted_at(time: &str, change: impl FnOnce(&mut Grant)) -> Credential {
    let (root, to) = (OPERATOR.identity(), RESEARCHER.key());
    Credential::mint(&root, to, until_2027(change), Some(second(time)), &mut Counting(0)).unwrap()
}

/// The researcher's delegation to the student.
pub fn delegated(credential: &Credential, change: impl FnOnce(&mut Grant)) -> Credential {
    let mut grant = Grant::default();
    change(&mut grant);
    credential.delegate(&RESEARCHER.identity(), STUDENT.key(), grant, None, &mut Counting(1000)).unwrap()
}

/// Shows a credential at the operator's node.
pub fn show(
    credential: &Credential,
    peer: Person,
    revocations: &Revocations,
) -> Result<VerifiedCredential, CredentialRefusal> {
    show_at(credential, peer, revocations, now(), &node())
}

pub fn show_at(
    credential: &Credential,
    peer: Person,
    revocations: &Revocations,
    now: UnixSecond,
    node: &NodeName,
) -> Result<VerifiedCredential, CredentialRefusal> {
    let roots = [OTHER_OPERATOR.key(), OPERATOR.key()];
    credential.verify(&VerificationContext { roots: &roots, revocations, peer: &peer.key(), node, now })
}

/// Shows arbitrary bytes at the operator's node.
pub fn show_bytes(bytes: &[u8], peer: Person) -> Result<VerifiedCredential, CredentialRefusal> {
    Credential::parse(bytes).and_then(|credential| show(&credential, peer, &Revocations::default()))
}

/// The mandatory facts of every block, in Datalog.
pub fn preamble(holder: Person) -> String {
    format!("weir(\"credential\", 1, null); holder({});", holder.datalog())
}

/// The mandatory facts of an authority.
pub fn authority(holder: Person) -> String {
    format!("{} root({}); expires(2027-01-01T00:00:00Z);", preamble(holder), OPERATOR.datalog())
}

/// A block of exactly this Datalog.
pub fn block(datalog: &str) -> BlockBuilder {
    BlockBuilder::new().code(datalog).unwrap()
}

/// A token whose authority the root signs, with any content.
pub fn raw_token(root: Person, authority: BlockBuilder) -> Vec<u8> {
    let next = KeyPair::new_with_rng(Algorithm::Ed25519, &mut Counting(77));
    let root = KeyPair::from(&root.private());
    let token = BiscuitBuilder::new().merge(authority).build_with_key_pair(&root, SymbolTable::new(), &next);
    token.unwrap().to_vec().unwrap()
}

/// Appends a signed block with any content.
pub fn raw_append(token: &[u8], signer: &PrivateKey, block: BlockBuilder, seed: u64) -> Vec<u8> {
    let token = UnverifiedBiscuit::from(token).unwrap();
    let signed = token.third_party_request().unwrap().create_block(signer, block).unwrap();
    let next = KeyPair::new_with_rng(Algorithm::Ed25519, &mut Counting(seed));
    let token = token.append_third_party_with_keypair(&signed.serialize().unwrap(), next).unwrap();
    token.to_vec().unwrap()
}

/// Changes a token's parts and writes it again.
pub fn rewritten(token: &[u8], change: impl FnOnce(&mut schema::Biscuit)) -> Vec<u8> {
    let mut token = schema::Biscuit::decode(token).unwrap();
    change(&mut token);
    token.encode_to_vec()
}

/// Appends a signed block of any bytes, also such that the library's builders would not make.
pub fn signed_append(token: &[u8], signer: Person, payload: Vec<u8>) -> Vec<u8> {
    rewritten(token, |token| {
        let Some(schema::proof::Content::NextSecret(secret)) = &token.proof.content else { panic!("sealed") };
        let last = KeyPair::from(&PrivateKey::from_bytes(secret, Algorithm::Ed25519).unwrap());
        let next = KeyPair::new_with_rng(Algorithm::Ed25519, &mut Counting(11));
        let previous = token.blocks.last().unwrap_or(&token.authority).signature.clone();
        let version = 1_u32.to_le_bytes();
        let sign = |key: &KeyPair, parts: &[&[u8]]| key.sign(&parts.concat()).unwrap().to_bytes().to_vec();
        let begin = [b"\0EXTERNAL\0\0VERSION\0", &version[..], b"\0PAYLOAD\0", &payload].concat();
        let external = sign(&KeyPair::from(&signer.private()), &[&begin, b"\0PREVSIG\0", &previous]);
        let begin = [b"\0BLOCK\0\0VERSION\0", &version[..], b"\0PAYLOAD\0", &payload].concat();
        let key = next.public().to_bytes();
        let next_key = [b"\0ALGORITHM\0", &0_i32.to_le_bytes()[..], b"\0NEXTKEY\0", &key].concat();
        let end = [b"\0PREVSIG\0", &previous[..], b"\0EXTERNALSIG\0", &external].concat();
        let signature = sign(&last, &[&begin, &next_key, &end]);
        token.blocks.push(schema::SignedBlock {
            block: payload,
            next_key: next.public().to_proto(),
            signature,
            external_signature: Some(schema::ExternalSignature {
                signature: external,
                public_key: KeyPair::from(&signer.private()).public().to_proto(),
            }),
            version: Some(1),
        });
        token.proof.content = Some(schema::proof::Content::NextSecret(next.private().to_bytes().to_vec()));
    })
}
