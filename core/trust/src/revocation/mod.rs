//! Revocation: lists of credentials that count no more, and the union of them that a node keeps.
//!
//! A [`RevocationList`] is a message: a short signed header, and a body of entries. An entry is the identifier of a block of a chain with the time at which that block expires
//! ([`DatedId`](crate::credential::DatedId)); a list has at most one `all-before TIME` besides. [`Revocations`] is the state: the union of all entries of all lists of a signer. A list
//! adds to it and never removes from it, so lists may come in any order, from several machines, and more than once. An entry leaves the state when its credential has expired.
//!
//! | rule | reason |
//! |---|---|
//! | a sequence number orders lists in messages, and nothing else | two machines that sign with one key do not conflict |
//! | of two times for one identifier the later one holds; a time holds against none | the state does not depend on the order in which lists come |
//! | an entry without a time (from a list of version 1) is kept until a later list gives a time | nothing that was revoked is valid again by a guess |
//! | an entry is kept for a day after its time ([`KEPT_AFTER_SECONDS`]) while there is room | a clock that is set back a little gives nothing back |
//! | a list is known, and answered by its header, only while every entry of it is held | a list that came while the clock was ahead is taken again when the clock is right |
//! | a root has at most [`LIVE_MAX`] entries, of which those of delegators are at most [`DELEGATED_MAX`] | memory is bounded; delegators cannot keep a root from revoking |
//! | `all-before` of a root counts as no entry | a root can always revoke everything that it has signed |
//!
//! A holder may revoke what was passed on from their own link ([`Issuer`]): their list names that link, and its entries count only for chains that have it before the revoked block.
//! They prove their right by a credential that has the link; the state keeps the proven link, with its path from the root. [`Share`](share::DelegatorQuota) divides the delegators' half.

mod error;
mod first;
mod known;
mod list;
mod root;
mod set;
mod share;
mod state;

pub use error::RevocationError;
pub use known::{Accepted, Offered, Reception, Revocations, RevokedBy};
pub use list::{HEADER_BYTES_MAX, Issuer, LIST_BYTES_MAX, ListHeader, RevocationList};
pub use root::RootRevocations;
pub use set::RevokedSet;
pub use state::{STATE_BYTES_MAX, StateError};

/// The most entries of a list.
pub const IDS_MAX: usize = 16_384;
/// The most entries that are kept for a root, those of its delegators included.
pub const LIVE_MAX: usize = 16_384;
/// The most of them that delegators have.
pub const DELEGATED_MAX: usize = LIVE_MAX / 2;
/// Seconds for which an entry is kept after its credential has expired, while there is room.
pub const KEPT_AFTER_SECONDS: u64 = 86_400;
