//! The credentials under which a node's sessions run, as a tree of delegations.

use serde::{Deserialize, Serialize};

/// The delegations under which sessions run, by root. A holder gets the own credential and the delegations below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialTree {
    /// Name of the node in credentials; empty without remote access.
    #[serde(default)]
    pub node: String,
    /// The roots: all trusted ones for an operator, the root of the own credential for a holder.
    pub roots: Vec<RootStatus>,
    /// Number of sessions whose credentials are not in the tree because the answer would be too long.
    #[serde(default, skip_serializing_if = "crate::control::quantity::is_default")]
    pub left_out: u64,
}

/// A root of trust, with the grants that it has signed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootStatus {
    /// Key of the root.
    pub root: String,
    /// Ceilings of the node's policy for all credentials of the root together; empty for a holder, because the usage
    /// under them includes other holders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policy_ceilings: Vec<CeilingStatus>,
    /// Grants of the root; for a holder, the own credential.
    #[serde(default)]
    pub grants: Vec<DelegationStatus>,
}

/// A delegation: the credential of one holder, with the delegations below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationStatus {
    /// Identifier, with the time at which the credential expires, as one word.
    pub id: String,
    /// Key of the holder.
    pub holder: String,
    /// Time at which the credential expires, in seconds since 1970; `None` if it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
    /// True if the delegation, or one above it, is revoked. Its sessions are about to end.
    #[serde(default, skip_serializing_if = "crate::control::quantity::is_default")]
    pub revoked: bool,
    /// Rights in words, within those of the delegations above: for each part, its name and its text.
    #[serde(default)]
    pub allows: Vec<(String, String)>,
    /// Options of `weir grant`, or of `weir delegate`, that state the rights which the delegation's signer has stated: for each,
    /// its name and its value, which is empty for an option without a value. Empty if no options state them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<(String, String)>,
    /// Ceilings that the delegation states, with the usage of all sessions of its holder and below. For a holder's own
    /// credential, the ceilings in effect.
    #[serde(default)]
    pub used: Vec<CeilingStatus>,
    /// Names by which the requester calls the holder's sessions.
    #[serde(default)]
    pub sessions: Vec<String>,
    /// Delegations that the holder has signed.
    #[serde(default)]
    pub delegates: Vec<DelegationStatus>,
}

/// A ceiling of a resource, and the usage under it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CeilingStatus {
    /// Name of the resource.
    pub resource: String,
    /// Used amount, in the whole units of grants: millionths of a core, bytes, bit/s, or a count. The maximum stands for
    /// sessions without a limit.
    pub used: u64,
    /// Granted amount, in the same unit.
    pub granted: u64,
    /// Used amount, with its unit.
    pub used_text: String,
    /// Granted amount, with its unit.
    pub granted_text: String,
}
