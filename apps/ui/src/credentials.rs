//! The credentials under which the node's sessions run, and their revocation by the user.
//!
//! A revocation is a list that the user's key signs. The page adds the revoked credential to a file of the user, and delivers
//! the list to the node. The signed list has only entries of that file and the one that the user has chosen: a node cannot make
//! the user sign others. It keeps the union of all lists, so a list without some earlier entries takes none back.

use crate::Ui;
use crate::modules::ModuleNames;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use weir_node::client::{Client, ClientError, NodeLocation, deliver_list, reply_kind};
use weir_node::control::protocol::{
    CeilingStatus, ControlRequest, CredentialTree, DelegationStatus, Reply, RootStatus,
};
use weir_trust::credential::{Credential, DatedId};
use weir_trust::grant::{Grant, Resource};
use weir_trust::key::Identity;
use weir_trust::revocation::{Issuer, RevocationList, RevokedSet};
use weir_units::{Bytes, Escape as _, shell_line};

/// Adds entries to the list in a file, signs it, and returns it; or a text for people.
pub type ExtendList = fn(&Path, &Identity, Issuer, &RevokedSet) -> Result<RevocationList, String>;

/// The file to which the page adds what the user revokes.
#[derive(Debug)]
pub struct UserRevocationList {
    /// The file.
    pub path: PathBuf,
    /// Changes the file.
    pub extend: ExtendList,
}

/// Returns the party as which the user can revoke credentials at a node: the holder of the user's credential, or the root
/// with the user's key. `None` for the operator on the node's own machine, who has no key.
pub fn issuer_at(node: &NodeLocation) -> Option<Issuer> {
    let NodeLocation::Remote { identity, credential, .. } = node else { return None };
    if credential.is_empty() {
        return Some(Issuer::root(identity.public()));
    }
    Credential::parse(credential).ok().and_then(|credential| Issuer::of_holder(&credential))
}

/// Returns the interfaces that the user's credential names.
pub(crate) fn interfaces(node: &NodeLocation) -> Option<Vec<String>> {
    let NodeLocation::Remote { credential, .. } = node else { return None };
    let grant = Credential::parse(credential).ok()?.claimed_grant().ok()?;
    Some(grant.interfaces?.iter().map(ToString::to_string).collect())
}

/// Returns the memory that is left to the sessions of the user's credential; `None` without a limit.
///
/// # Errors
/// The node refuses, or the connection fails.
pub(crate) fn memory_left(node: &NodeLocation) -> Result<Option<Bytes>, ClientError> {
    if !matches!(node, NodeLocation::Remote { credential, .. } if !credential.is_empty()) {
        return Ok(None);
    }
    // A holder's tree begins with the own credential.
    let own = tree(node)?.roots.into_iter().flat_map(|root| root.grants).next();
    let used = own.map(|own| own.used).unwrap_or_default();
    let memory = used.iter().find(|it| it.resource == Resource::Memory.definition().title);
    Ok(memory.map(|CeilingStatus { granted, used, .. }| Bytes(granted.saturating_sub(*used))))
}

/// The answer to a request for credentials.
#[derive(Debug, Serialize)]
pub struct CredentialsAnswer {
    roots: Vec<RootAnswer>,
    left_out: u64,
}

#[derive(Debug, Serialize)]
struct RootAnswer {
    root: String,
    policy_ceilings: Vec<CeilingStatus>,
    grants: Vec<DelegationAnswer>,
}

#[derive(Debug, Serialize)]
struct DelegationAnswer {
    id: String,
    holder: String,
    expires_s: Option<u64>,
    revoked: bool,
    allows: Vec<(String, String)>,
    used: Vec<CeilingStatus>,
    sessions: Vec<String>,
    delegates: Vec<DelegationAnswer>,
    may_revoke: bool,
}

/// The refusal of a revocation.
#[derive(Debug, thiserror::Error)]
pub enum RevokeError {
    /// The text is not the identifier of a credential.
    #[error("`{}` is not the identifier of a credential", .0.escaped())]
    Id(String),
    /// The user cannot revoke it here, or the node has refused it.
    #[error("{0}")]
    Refused(String),
    /// The connection to the node failed.
    #[error(transparent)]
    Node(#[from] ClientError),
}

/// Returns the tree of credentials that the user may see.
///
/// # Errors
/// The node refuses, or the connection fails.
pub fn credentials(ui: &Ui) -> Result<CredentialsAnswer, ClientError> {
    let issuer = issuer_at(&ui.node).filter(|_| ui.revocation_list.is_some() && !ui.is_read_only);
    let CredentialTree { node: _, roots, left_out } = tree(&ui.node)?;
    let names = &ui.module_names;
    let root = |RootStatus { root, policy_ceilings, grants }: RootStatus| {
        let is_issuer = issuer.is_some_and(|it| signs_for_root(&it, &root));
        let grants =
            grants.into_iter().map(|grant| delegation(grant, issuer.as_ref(), is_issuer, names)).collect();
        RootAnswer { root, policy_ceilings, grants }
    };
    Ok(CredentialsAnswer { roots: roots.into_iter().map(root).collect(), left_out })
}

/// Returns the credentials that the user may see.
pub(crate) fn tree(node: &NodeLocation) -> Result<CredentialTree, ClientError> {
    let mut client = Client::connect_to(node)?;
    client.send(ControlRequest::Credentials, &[])?;
    match client.receive()? {
        Reply::Credentials(tree) => Ok(tree),
        other => Err(ClientError::UnexpectedReply(reply_kind(&other))),
    }
}

/// Returns the rights that each delegation of a tree states, by its identifier. A delegation whose options are not known, as at
/// an earlier node, is not included.
pub(crate) fn stated_grants(tree: &CredentialTree) -> BTreeMap<&str, Grant> {
    let mut grants = BTreeMap::new();
    let mut rest: Vec<&DelegationStatus> = tree.roots.iter().flat_map(|root| &root.grants).collect();
    while let Some(status) = rest.pop() {
        if !status.options.is_empty() {
            grants.extend(Grant::from_options(&status.options).map(|grant| (status.id.as_str(), grant)));
        }
        rest.extend(&status.delegates);
    }
    grants
}

/// Returns true if the issuer is this root.
fn signs_for_root(issuer: &Issuer, root: &str) -> bool {
    issuer.own_block().is_none() && issuer.signer().to_string() == root
}

/// Returns true if the issuer has delegated from this delegation: it is the issuer's own.
fn is_own(issuer: &Issuer, id: &str) -> bool {
    id.parse().is_ok_and(|dated: DatedId| issuer.own_block() == Some(&dated.id))
}

/// Converts a delegation for the page. `is_below` is true if the issuer, or a delegation of the issuer, has signed it.
fn delegation(
    status: DelegationStatus,
    issuer: Option<&Issuer>,
    is_below: bool,
    names: &ModuleNames,
) -> DelegationAnswer {
    let DelegationStatus { id, holder, expires_s, revoked, allows, options: _, used, sessions, delegates } =
        status;
    let allows =
        allows.into_iter().map(|(part, words)| (part, names.with_names(&words).into_owned())).collect();
    let are_below = is_below || issuer.is_some_and(|issuer| is_own(issuer, &id));
    let delegates = delegates.into_iter().map(|it| delegation(it, issuer, are_below, names)).collect();
    let may_revoke = is_below && !revoked && id.parse::<DatedId>().is_ok();
    DelegationAnswer { id, holder, expires_s, revoked, allows, used, sessions, delegates, may_revoke }
}

/// Revokes a credential that the tree shows, and returns notes for the user.
///
/// # Errors
/// The user cannot revoke it, or it could not be delivered.
pub fn revoke(ui: &Ui, id: &str) -> Result<Vec<String>, RevokeError> {
    let entry: DatedId = id.parse().map_err(|_| RevokeError::Id(id.to_owned()))?;
    let refused = |why: String| RevokeError::Refused(why);
    let (NodeLocation::Remote { identity, .. }, Some(issuer)) = (&*ui.node, issuer_at(&ui.node)) else {
        let revoke = words(&["weir", "credential", "revoke", id, "--key", "KEY", "--list", "LIST"], &[]);
        let deliver = words(&["weir", "credential", "deliver", "LIST"], &ui.node_options);
        return Err(refused(format!(
            "the operator on the node's machine has no key. With the key of the root, or of a holder who delegated it: `{revoke}`, then `{deliver}`"
        )));
    };
    let roots = tree(&ui.node)?.roots;
    let signed = roots.iter().any(|root| {
        root.grants.iter().any(|grant| is_signed(grant, &entry, &issuer, signs_for_root(&issuer, &root.root)))
    });
    if !signed {
        return Err(refused(
            "only the root of a credential, or a holder who delegated it, can revoke it; and the node has to know it".to_owned(),
        ));
    }
    let Some(list) = &ui.revocation_list else {
        let command = words(&["weir", "credential", "revoke", id, "--list", "LIST"], &ui.node_options);
        return Err(refused(format!(
            "this page keeps no revocation list: start it with --revocation-list FILE, or revoke it by `{command}`"
        )));
    };
    let signed = (list.extend)(&list.path, identity, issuer, &entry.into()).map_err(refused)?;
    let file = list.path.to_string_lossy();
    let delivered = deliver_list(&signed, &ui.node).map_err(|error| {
        let command = words(&["weir", "credential", "deliver", &file], &ui.node_options);
        refused(format!(
            "{} has it, but the node does not: {error}. Deliver it again by `{command}`",
            list.path.escaped()
        ))
    })?;
    let others = format!("{} has it, for `weir credential deliver` to other nodes", list.path.escaped());
    Ok(delivered.into_iter().chain([others]).collect())
}

/// Returns true if `entry` is among a delegation and those below it, and the issuer may revoke it.
fn is_signed(status: &DelegationStatus, entry: &DatedId, issuer: &Issuer, is_below: bool) -> bool {
    if is_below && status.id.parse() == Ok(*entry) {
        return true;
    }
    let are_below = is_below || is_own(issuer, &status.id);
    status.delegates.iter().any(|delegate| is_signed(delegate, entry, issuer, are_below))
}

/// Returns a command to copy, with options that name the node.
fn words(command: &[&str], options: &[OsString]) -> String {
    let options = options.iter().map(|option| option.to_string_lossy());
    shell_line(command.iter().map(|word| (*word).into()).chain(options)).unwrap_or_else(|| command.join(" "))
}
