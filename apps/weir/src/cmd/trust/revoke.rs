//! `weir credential revoke`.

use super::args::Revoked;
use super::delivering::{Deliverer, deliver};
use super::files::{credential_of, identity_of, list_of, lock_beside, replace};
use super::{SigningError, now};
use crate::Failure;
use crate::cmd::node::place::Address;
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
    pub(super) credentials: &'a [Revoked],
    pub(super) all_before: Option<Second>,
    pub(super) key: &'a Path,
    pub(super) passphrase_file: Option<&'a Path>,
    /// The signer's own credential, where they revoke what they passed on.
    pub(super) own: Option<&'a Path>,
    pub(super) list: &'a Path,
    pub(super) nodes: &'a [Address],
}

/// Adds credentials to a signed list, and delivers it.
pub(super) fn revoke(out: &mut impl Write, args: Revocation<'_>) -> Result<(), Failure> {
    let identity = identity_of(args.key, args.passphrase_file)?;
    let key = identity.public();
    let own = args.own.map(credential_of).transpose()?;
    let locked = lock_beside(args.list)?;
    let before = list_of(args.list)?;
    let mut issuer = own.as_ref().map(|own| issuer_of_own(own, key)).transpose()?;
    let mut revoked = RevokedSet::default();
    let mut said = Vec::new();
    let holds = before.as_ref().map(|list| list.revoked().clone()).unwrap_or_default();
    for named in args.credentials {
        let chain = chain_of(named, key, &mut issuer)?;
        let Some((entry, above)) = chain.split_last() else { continue };
        // With an ancestor this one is revoked, too.
        said.push(match above.iter().find(|it| covers(&holds, it) || covers(&revoked, it)) {
            Some(earlier) => {
                format!("{entry} is revoked already, with {earlier}, from which it was passed on")
            }
            None => {
                revoked.insert(*entry);
                format!("{entry} is taken back")
            }
        });
    }
    if let Some(time) = args.all_before {
        revoked.revoke_all_before(time);
        said.push(format!("everything that was signed before {time} is taken back"));
    }
    if let Some(before) = &before {
        same_issuer(&mut issuer, *before.issuer(), args.list)?;
    }
    let issuer = issuer.unwrap_or_else(|| Issuer::root(key));
    let signed = match &before {
        Some(before) => before.with(&identity, now(), &revoked),
        None => RevocationList::sign_as(&identity, issuer, 1, now(), revoked),
    };
    let signed = signed.map_err(SigningError::from)?;
    replace(args.list, &signed.to_string())?;
    drop(locked);
    said.iter().try_for_each(|line| writeln!(out, "{line}"))?;
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

/// The identifiers of a credential's chain, root first; of a token its own alone.
fn chain_of(named: &Revoked, key: PublicKey, issuer: &mut Option<Issuer>) -> Result<Vec<DatedId>, Failure> {
    match named {
        Revoked::Token(entry) => Ok(vec![*entry]),
        Revoked::File(file) => {
            let credential = credential_of(file)?;
            let of = *credential.claimed_root();
            let other = || SigningError::OtherRoot { what: file.clone(), of, key };
            same_issuer(issuer, issuer_of(&credential, key).ok_or_else(other)?, file)?;
            Ok(DatedId::of_chain(credential.claimed_links()).collect())
        }
    }
}

/// Returns true if an entry is in a set, for as long.
fn covers(set: &RevokedSet, entry: &DatedId) -> bool {
    set.expiry(&entry.id).is_some_and(|expires| expires >= entry.expires)
}

/// The right by which a key revokes a credential: that of its root, or of a holder who passed it on.
fn issuer_of(credential: &Credential, key: PublicKey) -> Option<Issuer> {
    let root = *credential.claimed_root();
    if root == key {
        return Some(Issuer::root(key));
    }
    let (_, above) = credential.claimed_links().split_last()?;
    let link = above.iter().find(|link| link.holder == key)?;
    Some(Issuer::delegator(root, key, link.id))
}

/// The right of the holder of a credential to revoke what they pass on.
fn issuer_of_own(own: &Credential, key: PublicKey) -> Result<Issuer, SigningError> {
    let holder = *own.claimed_holder();
    match own.claimed_links().last().filter(|_| holder == key) {
        Some(link) => Ok(Issuer::delegator(*own.claimed_root(), key, link.id)),
        None => Err(SigningError::NotOwn { holder, key }),
    }
}

/// One list is of one signer, and of one link of theirs.
fn same_issuer(known: &mut Option<Issuer>, found: Issuer, what: &Path) -> Result<(), SigningError> {
    let known = known.get_or_insert(found);
    if *known == found {
        return Ok(());
    }
    if known.of() == found.of() && known.signer() == found.signer() {
        return Err(SigningError::OtherLink { what: what.to_owned() });
    }
    Err(SigningError::OtherRoot { what: what.to_owned(), of: *found.signer(), key: *known.signer() })
}
