//! DSSE envelopes v1 (Dead Simple Signing Envelope), as in-toto attestations use them.
//!
//! ```text
//! {"payload": BASE64, "payloadType": "application/vnd.in-toto+json", "signatures": [{"keyid": KEY, "sig": BASE64}]}
//! ```
//!
//! The signed bytes are the pre-authentication encoding (PAE) of type and payload. The identifier of a key is its text,
//! `weir-key:…`. Signatures with another identifier are by other programs: an envelope keeps them, and nothing trusts them.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde::{Deserialize, Serialize};
use weir_trust::key::{Identity, PublicKey, Signature};

/// The longest envelope, in bytes.
pub const ENVELOPE_BYTES_MAX: usize = 512 << 10;
/// The most signatures of an envelope.
pub const SIGNATURES_MAX: usize = 8;
/// The type of the payload: an in-toto Statement.
pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
/// The beginning of the identifier of a key of weir.
const KEY_PREFIX: &str = "weir-key:";

/// An envelope: a payload, and its signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    payload: Vec<u8>,
    signatures: Vec<SignatureJson>,
}

/// The reason why an envelope is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// More bytes than [`ENVELOPE_BYTES_MAX`].
    #[error("the record has {0} bytes; {ENVELOPE_BYTES_MAX} is the most")]
    TooLong(usize),
    /// Bytes that are not an envelope.
    #[error("the record is no DSSE envelope: {0}")]
    Json(String),
    /// The payload is of another type.
    #[error("the record's payload is of type `{}`; weir reads `{PAYLOAD_TYPE}`", .0.escape_debug())]
    PayloadType(String),
    /// Text that is not in base 64.
    #[error("the record's {0} is not in base 64")]
    Base64(&'static str),
    /// More signatures than [`SIGNATURES_MAX`].
    #[error("the record has {0} signatures; {SIGNATURES_MAX} is the most")]
    TooMany(usize),
    /// A signature that names a key of weir and is not by this key.
    #[error("a signature of the record is forged or damaged: it was not made by {0}")]
    Forged(PublicKey),
    /// The identifier begins like a key of weir, and is none.
    #[error("a signature of the record names the key `{}`: {error}", .given.escape_debug())]
    Key {
        /// The identifier.
        given: String,
        /// The reason why it is no key.
        error: weir_trust::key::KeyError,
    },
}

#[derive(Serialize, Deserialize)]
struct EnvelopeJson {
    payload: String,
    #[serde(rename = "payloadType")]
    payload_type: String,
    signatures: Vec<SignatureJson>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SignatureJson {
    #[serde(default)]
    keyid: String,
    sig: String,
}

impl Envelope {
    /// Returns an envelope without signatures.
    pub fn new(payload: Vec<u8>) -> Self {
        Self { payload, signatures: Vec::new() }
    }

    /// Adds a signature. A second signature by the same key replaces the first.
    pub fn sign(&mut self, signer: &Identity) {
        let keyid = signer.public().to_string();
        let signature = signer.sign_envelope(PAYLOAD_TYPE, &self.payload);
        self.signatures.retain(|other| other.keyid != keyid);
        self.signatures.push(SignatureJson { keyid, sig: STANDARD.encode(signature.0) });
    }

    /// Reads an envelope. Its signatures are not verified yet.
    ///
    /// # Errors
    /// [`EnvelopeError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        if bytes.len() > ENVELOPE_BYTES_MAX {
            return Err(EnvelopeError::TooLong(bytes.len()));
        }
        let json: EnvelopeJson =
            serde_json::from_slice(bytes).map_err(|error| EnvelopeError::Json(error.to_string()))?;
        if json.payload_type != PAYLOAD_TYPE {
            return Err(EnvelopeError::PayloadType(json.payload_type.chars().take(80).collect()));
        }
        if json.signatures.len() > SIGNATURES_MAX {
            return Err(EnvelopeError::TooMany(json.signatures.len()));
        }
        let payload = decoded(&json.payload).ok_or(EnvelopeError::Base64("payload"))?;
        Ok(Self { payload, signatures: json.signatures })
    }

    /// Returns the envelope as JSON, with a line end.
    pub fn to_json(&self) -> String {
        let json = EnvelopeJson {
            payload: STANDARD.encode(&self.payload),
            payload_type: PAYLOAD_TYPE.to_owned(),
            signatures: self.signatures.clone(),
        };
        // Strings and lists always have a text.
        serde_json::to_string(&json).map(|text| text + "\n").unwrap_or_default()
    }

    /// Returns the payload, which may be by anyone.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Verifies all signatures by keys of weir, and returns the keys, each once.
    ///
    /// # Errors
    /// [`EnvelopeError::Forged`], [`EnvelopeError::Key`] and [`EnvelopeError::Base64`] for the first bad signature.
    pub fn signers(&self) -> Result<Vec<PublicKey>, EnvelopeError> {
        let mut signers = Vec::new();
        for SignatureJson { keyid, sig } in &self.signatures {
            if !keyid.starts_with(KEY_PREFIX) {
                continue;
            }
            let key: PublicKey = keyid
                .parse()
                .map_err(|error| EnvelopeError::Key { given: keyid.chars().take(80).collect(), error })?;
            let bytes = decoded(sig).ok_or(EnvelopeError::Base64("signature"))?;
            let signature = bytes.try_into().map(Signature).map_err(|_| EnvelopeError::Forged(key))?;
            key.verify_envelope(PAYLOAD_TYPE, &self.payload, &signature)
                .map_err(|_| EnvelopeError::Forged(key))?;
            if !signers.contains(&key) {
                signers.push(key);
            }
        }
        Ok(signers)
    }
}

/// Decodes base 64, in the alphabet of RFC 4648 or its URL-safe one: DSSE allows both.
fn decoded(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn identity(number: u8) -> Identity {
        Identity::from_seed(&[number; 32])
    }

    fn signed() -> Envelope {
        let mut envelope = Envelope::new(br#"{"a":1}"#.to_vec());
        envelope.sign(&identity(1));
        envelope.sign(&identity(2));
        envelope
    }

    #[test]
    fn an_envelope_is_written_and_read_again_with_its_signers() {
        let envelope = signed();
        let read = Envelope::parse(envelope.to_json().as_bytes()).unwrap();
        assert_eq!(read, envelope);
        assert_eq!(read.signers().unwrap(), [identity(1).public(), identity(2).public()]);
        assert_eq!(Envelope::new(vec![1]).signers().unwrap(), []);
    }

    #[test]
    fn a_second_signature_by_a_key_replaces_the_first() {
        let mut envelope = signed();
        envelope.sign(&identity(1));
        assert_eq!(envelope.signers().unwrap(), [identity(2).public(), identity(1).public()]);
    }

    #[test]
    fn each_changed_bit_of_payload_and_signature_is_found() {
        let envelope = signed();
        for bit in 0..envelope.payload.len() * 8 {
            let mut changed = envelope.clone();
            changed.payload[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(changed.signers(), Err(EnvelopeError::Forged(identity(1).public())), "bit {bit}");
        }
        for bit in 0..512 {
            let mut changed = envelope.clone();
            let mut bytes = STANDARD.decode(&changed.signatures[1].sig).unwrap();
            bytes[bit / 8] ^= 1 << (bit % 8);
            changed.signatures[1].sig = STANDARD.encode(bytes);
            assert_eq!(changed.signers(), Err(EnvelopeError::Forged(identity(2).public())), "bit {bit}");
        }
    }

    #[test]
    fn signatures_of_other_programs_are_kept_and_give_no_signer() {
        let mut envelope = signed();
        envelope.signatures.insert(0, SignatureJson { keyid: "abc".to_owned(), sig: "AAAA".to_owned() });
        envelope.signatures.push(SignatureJson { keyid: String::new(), sig: "no base 64".to_owned() });
        assert_eq!(envelope.signers().unwrap().len(), 2);
        assert_eq!(Envelope::parse(envelope.to_json().as_bytes()).unwrap(), envelope);
    }

    #[test]
    fn a_signature_of_another_purpose_is_no_signature_of_an_envelope() {
        let mut envelope = signed();
        let other = weir_trust::key::SignatureContext::new("module");
        envelope.signatures[0].sig = STANDARD.encode(identity(1).sign(other, &envelope.payload).0);
        assert_eq!(envelope.signers(), Err(EnvelopeError::Forged(identity(1).public())));
    }

    #[test]
    fn bad_envelopes_are_refused_with_the_reason() {
        let parse = |text: &str| Envelope::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(parse("").contains("no DSSE envelope"));
        assert!(parse("[]").contains("no DSSE envelope"));
        let with = |payload: &str, ty: &str, signatures: &str| {
            format!(r#"{{"payload":"{payload}","payloadType":"{ty}","signatures":[{signatures}]}}"#)
        };
        assert!(parse(&with("e30=", "text/plain", "")).contains("`text/plain`"));
        assert!(parse(&with("%", PAYLOAD_TYPE, "")).contains("payload is not in base 64"));
        let nine = [r#"{"keyid":"a","sig":""}"#; 9].join(",");
        assert!(parse(&with("e30=", PAYLOAD_TYPE, &nine)).contains("9 signatures"));
        let twice = r#"{"payload":"e30=","payload":"e30=","payloadType":"","signatures":[]}"#;
        assert!(parse(twice).contains("duplicate field"));
        assert_eq!(
            Envelope::parse(&vec![b' '; ENVELOPE_BYTES_MAX + 1]),
            Err(EnvelopeError::TooLong(ENVELOPE_BYTES_MAX + 1))
        );
        let key = with("e30=", PAYLOAD_TYPE, r#"{"keyid":"weir-key:abc","sig":""}"#);
        let error = Envelope::parse(key.as_bytes()).unwrap().signers().unwrap_err();
        assert!(error.to_string().contains("weir-key:abc"), "{error}");
    }

    #[test]
    fn both_alphabets_of_base_64_are_read() {
        let text = format!(r#"{{"payload":"_-8=","payloadType":"{PAYLOAD_TYPE}","signatures":[]}}"#);
        let envelope = Envelope::parse(text.as_bytes()).unwrap();
        assert_eq!(envelope.payload(), [0xff, 0xef]);
        assert!(envelope.to_json().contains("/+8="));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(
            edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            noise in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut bytes = signed().to_json().into_bytes();
            for (at, byte) in edits {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            for bytes in [bytes, noise] {
                _ = Envelope::parse(&bytes).map(|envelope| envelope.signers());
            }
        }
    }
}
