//! `weir credential revoke`: adds credentials to a signed revocation list.

use super::args::RevokeTarget;
use super::delivery::{Deliverer, deliver};
use super::{SigningError, now};
use crate::Failure;
use crate::cmd::node::address::NodeAddress;
use crate::trust_files::{lock_folder, read_credential, read_identity, read_revocation_list, replace_file};
use std::io::Write;
use std::path::Path;
use weir_trust::credential::{Credential, DatedId, DelegationId};
use weir_trust::grant::UnixSecond;
use weir_trust::key::{Identity, PublicKey};
use weir_trust::revocation::{Issuer, RevocationList, RevokedSet};
use weir_units::Escape as _;

/// The arguments of `weir credential revoke`.
#[derive(Clone, Copy, Debug)]
pub(super) struct RevocationArgs<'a> {
    pub(super) credentials: &'a [RevokeTarget],
    pub(super) all_before: Option<UnixSecond>,
    pub(super) key: &'a Path,
    pub(super) passphrase_file: Option<&'a Path>,
    /// The signer's own credential, if the signer is a holder who revokes their delegations.
    pub(super) own_credential: Option<&'a Path>,
    pub(super) list: &'a Path,
    pub(super) nodes: &'a [NodeAddress],
}

/// Adds credentials to a signed revocation list, which is created if its file does not exist. Delivers the list to the
/// named nodes.
pub(super) fn revoke(out: &mut impl Write, args: RevocationArgs<'_>) -> Result<(), Failure> {
    let identity = read_identity(args.key, args.passphrase_file)?;
    let key = identity.public();
    let own_credential = args.own_credential.map(read_credential).transpose()?;
    let lock = lock_folder(args.list)?;
    let previous = read_revocation_list(args.list)?;
    let mut issuer = own_credential.as_ref().map(|own| own_issuer(own, key)).transpose()?;
    let mut revoked = RevokedSet::default();
    let mut messages = Vec::new();
    let already_revoked = previous.as_ref().map(|list| list.revoked().clone()).unwrap_or_default();
    for target in args.credentials {
        let chain = chain_of(target, key, &mut issuer)?;
        let Some((entry, ancestors)) = chain.split_last() else { continue };
        // A revoked ancestor revokes this credential too.
        messages.push(
            match ancestors.iter().find(|id| covers(&already_revoked, id) || covers(&revoked, id)) {
                Some(ancestor) => {
                    format!("{entry} is revoked already, with {ancestor}, from which it was delegated")
                }
                None => {
                    revoked.insert(*entry);
                    format!("{entry} is revoked")
                }
            },
        );
    }
    if let Some(time) = args.all_before {
        revoked.revoke_all_before(time);
        messages.push(format!("everything signed before {time} is revoked"));
    }
    if let Some(previous) = &previous {
        check_issuer(&mut issuer, *previous.issuer(), args.list)?;
    }
    let issuer = issuer.unwrap_or_else(|| Issuer::root(key));
    let signed = next_list(previous.as_ref(), &identity, issuer, &revoked)?;
    replace_file(args.list, &signed.to_string())?;
    drop(lock);
    messages.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    let count = signed.revoked().len();
    writeln!(out, "{}: list {} has {count} in all", args.list.escaped(), signed.sequence())?;
    if args.nodes.is_empty() {
        return Ok(());
    }
    if issuer.own_block().is_some() && own_credential.is_none() {
        return Err(SigningError::NoOwnCredential.into());
    }
    let credential = own_credential.map(|own| own.as_bytes().to_vec()).unwrap_or_default();
    deliver(out, &signed, args.nodes, &Deliverer { identity, credential })
}

/// Returns the issuer's list after `previous`, with the entries of both.
fn next_list(
    previous: Option<&RevocationList>,
    identity: &Identity,
    issuer: Issuer,
    more: &RevokedSet,
) -> Result<RevocationList, SigningError> {
    Ok(match previous {
        Some(previous) => previous.extended(identity, now(), more)?,
        None => RevocationList::sign_as(identity, issuer, 1, now(), more.clone())?,
    })
}

/// Checks that a file has a list of this issuer, or does not exist yet.
///
/// # Errors
/// The file cannot be read, or has the list of another issuer.
pub(crate) fn check_list(file: &Path, issuer: Issuer) -> Result<(), Failure> {
    if let Some(list) = read_revocation_list(file)? {
        check_issuer(&mut Some(issuer), *list.issuer(), file)?;
    }
    Ok(())
}

/// Adds entries to the list in a file, which is created if it does not exist, and returns the new list. No entry that the
/// file has is lost, also if another command changes the file at the same time.
///
/// # Errors
/// The file cannot be read or written, or has the list of another issuer.
pub(crate) fn extend_list(
    file: &Path,
    identity: &Identity,
    issuer: Issuer,
    more: &RevokedSet,
) -> Result<RevocationList, Failure> {
    let _lock = lock_folder(file)?;
    check_list(file, issuer)?;
    let signed = next_list(read_revocation_list(file)?.as_ref(), identity, issuer, more)?;
    replace_file(file, &signed.to_string())?;
    Ok(signed)
}

/// Returns the identifiers of the blocks of a credential to revoke, root first. If the command line names the
/// credential by an identifier, returns only this identifier. Otherwise checks that the key may revoke the credential,
/// as the same issuer as for earlier credentials.
fn chain_of(
    target: &RevokeTarget,
    key: PublicKey,
    issuer: &mut Option<Issuer>,
) -> Result<Vec<DatedId>, Failure> {
    match target {
        RevokeTarget::Token(entry) => Ok(vec![*entry]),
        RevokeTarget::Compiler(compiler) => Ok(vec![DelegationId::of_compiler(compiler).into()]),
        RevokeTarget::File(file) => {
            let credential = read_credential(file)?;
            let owner = *credential.claimed_root();
            let other_root = || SigningError::NoRightToRevoke { file: file.clone(), owner, key };
            check_issuer(issuer, issuer_for_key(&credential, key).ok_or_else(other_root)?, file)?;
            Ok(DatedId::of_chain(credential.claimed_blocks()).collect())
        }
    }
}

/// Returns true if a set revokes an entry until at least its expiry.
fn covers(set: &RevokedSet, entry: &DatedId) -> bool {
    set.expiry(&entry.id).is_some_and(|expires| expires >= entry.expires)
}

/// Returns the issuer as which a key may revoke a credential: the root, or a holder who delegated the credential.
/// `None` for any other key.
fn issuer_for_key(credential: &Credential, key: PublicKey) -> Option<Issuer> {
    let root = *credential.claimed_root();
    if root == key {
        return Some(Issuer::root(key));
    }
    let (_, ancestors) = credential.claimed_blocks().split_last()?;
    let block = ancestors.iter().find(|block| block.holder == key)?;
    Some(Issuer::delegator(root, key, block.id))
}

/// Returns the issuer as which the holder of a credential revokes the credential's delegations.
///
/// # Errors
/// The key is not the holder's.
fn own_issuer(own_credential: &Credential, key: PublicKey) -> Result<Issuer, SigningError> {
    let holder = *own_credential.claimed_holder();
    Issuer::of_holder(own_credential).filter(|_| holder == key).ok_or(SigningError::NotOwn { holder, key })
}

/// Checks that all entries of a list have the same issuer: one signer, and one block of the signer's credential. The
/// first call sets `known`; `file` names the credential or list whose issuer is `found`.
fn check_issuer(known: &mut Option<Issuer>, found: Issuer, file: &Path) -> Result<(), SigningError> {
    let known = known.get_or_insert(found);
    if *known == found {
        return Ok(());
    }
    if known.affected_root() == found.affected_root() && known.signer() == found.signer() {
        return Err(SigningError::OtherOwnCredential { file: file.to_owned() });
    }
    Err(SigningError::NoRightToRevoke { file: file.to_owned(), owner: *found.signer(), key: *known.signer() })
}
