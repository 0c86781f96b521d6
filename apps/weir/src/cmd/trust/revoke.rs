//! `weir credential revoke`: adds credentials to a signed revocation list.

use super::args::RevokeTarget;
use super::delivery::{Deliverer, deliver};
use super::{SigningError, now};
use crate::Failure;
use crate::cmd::node::address::NodeAddress;
use crate::trust_files::{credential_of, identity_of, list_of, lock_beside, replace};
use std::io::Write;
use std::path::Path;
use weir_trust::credential::{Credential, DatedId};
use weir_trust::grant::Second;
use weir_trust::key::PublicKey;
use weir_trust::revocation::{Issuer, RevocationList, RevokedSet};
use weir_units::Shown as _;

/// The arguments of `weir credential revoke`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Revocation<'a> {
    pub(super) credentials: &'a [RevokeTarget],
    pub(super) all_before: Option<Second>,
    pub(super) key: &'a Path,
    pub(super) passphrase_file: Option<&'a Path>,
    /// The signer's own credential, if the signer revokes its delegations.
    pub(super) own: Option<&'a Path>,
    pub(super) list: &'a Path,
    pub(super) nodes: &'a [NodeAddress],
}

/// Adds credentials to a signed revocation list, and delivers the list.
pub(super) fn revoke(out: &mut impl Write, args: Revocation<'_>) -> Result<(), Failure> {
    let identity = identity_of(args.key, args.passphrase_file)?;
    let key = identity.public();
    let own = args.own.map(credential_of).transpose()?;
    let locked = lock_beside(args.list)?;
    let before = list_of(args.list)?;
    let mut issuer = own.as_ref().map(|own| issuer_of_own(own, key)).transpose()?;
    let mut revoked = RevokedSet::default();
    let mut messages = Vec::new();
    let already_revoked = before.as_ref().map(|list| list.revoked().clone()).unwrap_or_default();
    for named in args.credentials {
        let chain = chain_of(named, key, &mut issuer)?;
        let Some((entry, ancestors)) = chain.split_last() else { continue };
        // Revoking an ancestor revokes this credential too.
        messages.push(
            match ancestors.iter().find(|it| covers(&already_revoked, it) || covers(&revoked, it)) {
                Some(earlier) => {
                    format!("{entry} is revoked already, with {earlier}, which it was delegated from")
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
    if let Some(before) = &before {
        check_issuer(&mut issuer, *before.issuer(), args.list)?;
    }
    let issuer = issuer.unwrap_or_else(|| Issuer::root(key));
    let signed = match &before {
        Some(before) => before.with(&identity, now(), &revoked),
        None => RevocationList::sign_as(&identity, issuer, 1, now(), revoked),
    };
    let signed = signed.map_err(SigningError::from)?;
    replace(args.list, &signed.to_string())?;
    drop(locked);
    messages.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    let count = signed.revoked().len();
    writeln!(out, "{}: list {} has {count} in all", args.list.shown(), signed.sequence())?;
    if args.nodes.is_empty() {
        return Ok(());
    }
    if issuer.under().is_some() && own.is_none() {
        return Err(SigningError::NoOwnCredential.into());
    }
    let credential = own.map(|own| own.as_bytes().to_vec()).unwrap_or_default();
    deliver(out, &signed, args.nodes, &Deliverer { identity, credential })
}

/// Returns the identifiers of the blocks of a credential, root first. For an identifier on the command line, returns only this one.
fn chain_of(
    named: &RevokeTarget,
    key: PublicKey,
    issuer: &mut Option<Issuer>,
) -> Result<Vec<DatedId>, Failure> {
    match named {
        RevokeTarget::Token(entry) => Ok(vec![*entry]),
        RevokeTarget::File(file) => {
            let credential = credential_of(file)?;
            let of = *credential.claimed_root();
            let other_root = || SigningError::OtherRoot { what: file.clone(), of, key };
            check_issuer(issuer, issuer_of(&credential, key).ok_or_else(other_root)?, file)?;
            Ok(DatedId::of_chain(credential.claimed_blocks()).collect())
        }
    }
}

/// Returns true if a set revokes an entry until at least its expiry.
fn covers(set: &RevokedSet, entry: &DatedId) -> bool {
    set.expiry(&entry.id).is_some_and(|expires| expires >= entry.expires)
}

/// Returns the right by which a key revokes a credential: the root's, or that of a holder who delegated it.
fn issuer_of(credential: &Credential, key: PublicKey) -> Option<Issuer> {
    let root = *credential.claimed_root();
    if root == key {
        return Some(Issuer::root(key));
    }
    let (_, ancestors) = credential.claimed_blocks().split_last()?;
    let block = ancestors.iter().find(|block| block.holder == key)?;
    Some(Issuer::delegator(root, key, block.id))
}

/// Returns the right of a credential's holder to revoke what they delegate.
fn issuer_of_own(own: &Credential, key: PublicKey) -> Result<Issuer, SigningError> {
    let holder = *own.claimed_holder();
    match own.claimed_blocks().last().filter(|_| holder == key) {
        Some(block) => Ok(Issuer::delegator(*own.claimed_root(), key, block.id)),
        None => Err(SigningError::NotOwn { holder, key }),
    }
}

/// Checks that all entries of a list have the same issuer: one signer, and one block of the signer's credential.
fn check_issuer(known: &mut Option<Issuer>, found: Issuer, what: &Path) -> Result<(), SigningError> {
    let known = known.get_or_insert(found);
    if *known == found {
        return Ok(());
    }
    if known.affected_root() == found.affected_root() && known.signer() == found.signer() {
        return Err(SigningError::OtherLink { what: what.to_owned() });
    }
    Err(SigningError::OtherRoot { what: what.to_owned(), of: *found.signer(), key: *known.signer() })
}
