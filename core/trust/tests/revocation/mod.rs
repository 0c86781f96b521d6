//! Tests of revocation lists, and of a node's state of revocations.

mod delegators;
mod lists;
mod union;

use crate::people::{self, OPERATOR, Person, now};
use weir_trust::credential::{DatedId, DelegationId};
use weir_trust::grant::UnixSecond;
use weir_trust::key::{Identity, PublicKey, SignatureContext};
use weir_trust::revocation::{
    Accepted, ListReception, RevocationError, RevocationList, Revocations, RevokedSet,
};

/// An identifier that no credential has.
fn id(number: u32) -> DelegationId {
    let mut seed = [0; 32];
    seed[..4].copy_from_slice(&number.to_be_bytes());
    DelegationId::of_root(&Identity::from_seed(&seed).public())
}

/// Many identifiers, made cheaply, ascending.
fn ids(from: u32, count: u32) -> impl Iterator<Item = DelegationId> {
    (from..from + count).map(|number| {
        let digits: String =
            (0..32).map(|at| char::from(b'a' + (number >> (2 * (15 - at / 2)) & 3) as u8)).collect();
        format!("weir-id:{digits}").parse().unwrap()
    })
}

fn dated(id: DelegationId, time: &str) -> DatedId {
    DatedId { id, expires: Some(people::second(time)) }
}

/// An operator's list.
fn list(sequence: u64, revoked: impl Into<RevokedSet>) -> RevocationList {
    RevocationList::sign(&OPERATOR.identity(), sequence, now(), revoked.into()).unwrap()
}

/// A list of version 1, as weir wrote it.
fn first_version(by: Person, sequence: u64, ids: &[DelegationId]) -> String {
    let mut ids = ids.to_vec();
    ids.sort();
    let ids: String = ids.iter().map(|id| format!("{id}\n")).collect();
    let text = format!(
        "weir revocation list 1\nroot {}\nsequence {sequence}\nissued 2026-11-21T12:00:00Z\n{ids}",
        by.key()
    );
    let signature = by.identity().sign(SignatureContext::new("revocation list"), text.as_bytes());
    format!("{text}signature {}\n", base32(&signature.0))
}

fn base32(bytes: &[u8]) -> String {
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let digit = |five: &[u8]| {
        let value = (0..5).fold(0, |value, at| value << 1 | usize::from(five.get(at).copied().unwrap_or(0)));
        char::from(b"abcdefghijklmnopqrstuvwxyz234567"[value])
    };
    bits.chunks(5).map(digit).collect()
}

fn taken(
    known: &mut Revocations,
    list: &RevocationList,
    at: UnixSecond,
) -> Result<Accepted, RevocationError> {
    let roots = [OPERATOR.key()];
    known.accept(list, &ListReception::new(&roots, at))
}

fn root() -> PublicKey {
    OPERATOR.key()
}
