//! Reads bundles, envelopes and statements. Nothing panics; a bundle has one form; a signature of another envelope is never valid.
//!
//! The first byte of an input chooses the reader.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use weir_compilation::bundle::{Bundle, Member};
use weir_compilation::envelope::Envelope;
use weir_compilation::statement::{Bounds, Compilation, Statement};

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

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else { return };
    match choice % 3 {
        0 => {
            let Ok(bundle) = Bundle::parse(rest) else { return };
            assert_eq!(bundle.to_bytes(), rest);
            for member in Member::ALL {
                bundle.get(member).into_iter().for_each(envelope);
            }
        }
        1 => envelope(rest),
        _ => statement(rest),
    }
});
