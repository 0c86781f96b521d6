//! Reads bundles, envelopes and statements. Nothing panics; a bundle has one form; a signature of another envelope is never valid,
//! and a policy whose key has signed nothing uses no machine code.
//!
//! The first byte of an input chooses the reader.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;
use weir_admission::Profile;
use weir_compilation::bundle::{Bundle, Member, ObjectForm};
use weir_compilation::compiler_keys::{CompilerKey, CompilerPolicy, Judgement, VouchedFor};
use weir_compilation::envelope::Envelope;
use weir_compilation::statement::{Bounds, Compilation, Statement};
use weir_trust::grant::UnixSecond;
use weir_trust::key::Identity;

/// The payload that the key of the seeds has signed.
const SIGNED: &[u8] = b"{}";

fn envelope(bytes: &[u8]) {
    let Ok(envelope) = Envelope::parse(bytes) else { return };
    if envelope.signers().is_ok_and(|signers| !signers.is_empty()) {
        assert_eq!(envelope.payload(), SIGNED, "no input has another signature");
    }
    let written = Envelope::parse(envelope.to_json().as_bytes());
    assert_eq!(written.as_ref().map(Envelope::payload), Ok(envelope.payload()));
    statement(envelope.payload());
}

fn statement(payload: &[u8]) {
    if let Ok(statement) = Statement::<Compilation>::parse(payload) {
        assert_eq!(Statement::parse(statement.to_json().as_bytes()), Ok(statement));
    }
    if let Ok(statement) = Statement::<Bounds>::parse(payload) {
        assert_eq!(Statement::parse(statement.to_json().as_bytes()), Ok(statement));
    }
}

fn policy(bundle: &Bundle) {
    let key = Identity::from_seed(&[9; 32]).public();
    let trusted_for = BTreeSet::from(VouchedFor::ALL);
    let keys = vec![CompilerKey { key, trusted_for, expires: None, revoked_by: None }];
    let policy = CompilerPolicy { keys, signatures: 1 };
    let judgement = Judgement { now: UnixSecond::MAX, is_revoked: &|_| false };
    for form in ObjectForm::ALL {
        assert!(policy.vouched(bundle, form, (&Profile::default(), 0), judgement).is_err());
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else { return };
    match choice % 3 {
        0 => {
            let Ok(bundle) = Bundle::parse(rest) else { return };
            assert_eq!(bundle.to_bytes(), rest);
            policy(&bundle);
            for member in Member::ALL {
                bundle.get(member).into_iter().for_each(envelope);
            }
        }
        1 => envelope(rest),
        _ => statement(rest),
    }
});
