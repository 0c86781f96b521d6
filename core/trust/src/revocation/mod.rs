//! Revocation: lists of revoked credentials, and the union of them that a node keeps.
//!
//! A [`RevocationList`] is a message to a node: a short signed header, and a body of entries. An entry is the
//! identifier of a block of a chain with the time at which that block expires
//! ([`DatedId`](crate::credential::DatedId)). A list can also have one `all-before TIME`, which revokes every block
//! that the signer of the list signed before this time. [`Revocations`] is the state of a node: for each signer the
//! union of all lists. A list adds to the state and never removes from it, so lists may come in any order, from several
//! machines, and more than once. An entry leaves the state when its credential has expired.
//!
//! | rule | reason |
//! |---|---|
//! | the sequence number is shown to people and never decides which list applies | two machines that sign with one key do not conflict |
//! | of two expiry times for one identifier the later one applies; any time replaces a missing one | the state does not depend on the order of lists |
//! | an entry without a time (version 1) is kept until a later list gives a time | a revocation never ends too early |
//! | an entry is kept for a day after its time ([`KEPT_AFTER_SECONDS`]) while there is room | setting a clock back a little does not undo a revocation |
//! | the body of a list whose header is known stays unread only if the state holds all entries of the list | entries that were left out as expired while the clock was ahead are read again |
//! | a root has at most [`ROOT_ENTRIES_MAX`] entries, at most [`DELEGATED_ENTRIES_MAX`] of them of delegators | memory is bounded; a root can always revoke |
//! | the `all-before` of a root does not count as an entry | a root can always revoke everything that it has signed |
//!
//! A holder may revoke blocks that were delegated from the holder's own block ([`Issuer`]). The list names the holder's
//! block, and affects only chains that contain this block before the revoked one. The holder proves this right by a
//! credential that contains the block. The state keeps the proven block with the blocks before it. Delegators share
//! half of the entries of a root; `share.rs` divides them.

mod error;
mod known;
mod list;
mod root;
mod set;
mod share;
mod state;
mod version_1;

pub use error::RevocationError;
pub use known::{Accepted, ListReception, ListUse, Revocations, RevokedBy};
pub use list::{HEADER_BYTES_MAX, Issuer, LIST_BYTES_MAX, ListHeader, RevocationList};
pub use root::RootRevocations;
pub use set::RevokedSet;
pub use state::{STATE_BYTES_MAX, StateError};

/// The most identifiers in a list.
pub const LIST_IDS_MAX: usize = 16_384;
/// The most entries that are kept for a root, those of its delegators included.
pub const ROOT_ENTRIES_MAX: usize = 16_384;
/// The most entries that a root's delegators have together.
pub const DELEGATED_ENTRIES_MAX: usize = ROOT_ENTRIES_MAX / 2;
/// Seconds for which an entry is kept after its credential has expired, while there is room.
pub const KEPT_AFTER_SECONDS: u64 = 86_400;
