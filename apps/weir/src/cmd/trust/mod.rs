//! `weir key`, `weir grant`, `weir delegate`, `weir sign` and `weir credential`. Most of them need neither a node nor a network.

pub mod args;
mod delivery;
mod explanation;
mod option_values;
mod revocations;
mod revoke;

use crate::Failure;
use crate::trust_files::{
    TrustFileError, credential_of, identity_of, key_file, list_of, new_passphrase, passphrase_of,
    signature_of, write_new, write_secret, write_signature,
};
use args::{CredentialCommand, Delegate, GrantArgs, GrantLimitArgs, KeyCommand, Sign};
use delivery::Deliverer;
use option_values::{InheritArg, NodeScope};
use rand_core::OsRng;
use revoke::Revocation;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use weir_admission::Name;
use weir_node::client::NodeLocation;
use weir_trust::credential::{Credential, MintError};
use weir_trust::explain;
use weir_trust::grant::{Grant, ModuleHash, ModuleSet, Modules, Second};
use weir_trust::key::{Identity, KeyFile, PassphraseCost, PublicKey};
use weir_trust::signature::ModuleSignature;
use weir_units::Shown as _;
use weir_wire::WriteFields;

/// Errors of commands on keys and credentials.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] TrustFileError),
    /// The credential cannot be created.
    #[error(transparent)]
    Mint(#[from] MintError),
    /// The revocation list cannot be created.
    #[error(transparent)]
    Revocation(#[from] weir_trust::revocation::RevocationError),
    /// The credential is not valid at the node.
    #[error("the credential is not valid at this node: {0}")]
    Worthless(String),
    /// The node would refuse the request.
    #[error("the request would be refused: {0}")]
    WouldRefuse(String),
    /// There is no such revocation list.
    #[error("{}: there is no such list: `weir credential revoke` makes one", .0.shown())]
    NoList(PathBuf),
    /// The signer has no right to revoke the credential.
    #[error("{}: it belongs to {of}, and the key is {key}: only the root and the holders who delegated it can revoke it. Name one of their keys with --key", what.shown())]
    OtherRoot {
        /// The credential, or the list.
        what: PathBuf,
        /// The credential's root, or the list's signer.
        of: PublicKey,
        /// The signer's key.
        key: PublicKey,
    },
    /// Some nodes have not accepted the list.
    #[error(
        "{} of {of} nodes have not accepted the list:\n  {}\nDeliver it to them with `weir credential deliver`", .missing.len(), .missing.join("\n  ")
    )]
    Undelivered {
        /// The nodes that have not accepted the list, with the reasons.
        missing: Vec<String>,
        /// The number of all nodes.
        of: usize,
    },
    /// The list is for the delegations of another credential.
    #[error(
        "{}: it is for another credential of yours: keep one list for each credential that you have delegated, and name another file with --list", what.shown()
    )]
    OtherLink {
        /// The credential, or the list.
        what: PathBuf,
    },
    /// The credential is not the signer's.
    #[error(
        "the credential that --credential names is held by {holder}, and the key is {key}: name your own"
    )]
    NotOwn {
        /// The holder of the credential.
        holder: PublicKey,
        /// The signer.
        key: PublicKey,
    },
    /// A holder cannot deliver a list without their credential.
    #[error(
        "the list is written, but not delivered: a node accepts a holder's list only with the holder's own credential. Name its file with --credential"
    )]
    NoOwnCredential,
    /// The key cannot be sealed.
    #[error(transparent)]
    Key(#[from] weir_trust::key::KeyFileError),
}

/// `weir key`.
pub fn key(out: &mut impl Write, act: &KeyCommand) -> Result<(), Failure> {
    match act {
        KeyCommand::New { file, passphrase_file, passphrase } => {
            let identity = Identity::generate(&mut OsRng);
            let passphrase = match passphrase_file {
                Some(from) => Some(passphrase_of(from)?),
                None if *passphrase => Some(new_passphrase(file)?),
                None => None,
            };
            match passphrase {
                Some(passphrase) => {
                    let sealed =
                        KeyFile::sealed(&identity, passphrase.as_bytes(), PassphraseCost::USUAL, &mut OsRng);
                    write_secret(file, &sealed.map_err(SigningError::from)?)?;
                }
                None => write_secret(file, &KeyFile::plain(&identity))?,
            }
            writeln!(out, "{}", identity.public())?;
        }
        KeyCommand::Show { file } => writeln!(out, "{}", key_file(file)?.public())?,
    }
    Ok(())
}

/// `weir grant`.
pub fn grant(out: &mut impl Write, args: &GrantArgs) -> Result<(), Failure> {
    let root = identity_of(&args.signer.key, args.signer.passphrase_file.as_deref())?;
    let grant = Grant {
        view: Some(args.view),
        writes: field_names(args.write),
        ceilings: args.amounts.ceilings(),
        nodes: NodeScope::combine(&args.nodes),
        expires: Some(args.until),
        delegations: args.delegations.limit(),
        ..common_grant(&args.limits, &args.modules, &args.signers)?
    };
    let credential =
        Credential::mint(&root, args.to, grant, Some(now()), &mut OsRng).map_err(SigningError::from)?;
    warn_if_expired(Some(args.until));
    write_credential(out, &credential, args.out.as_deref())
}

/// Warns about a credential that has expired already, which is probably a mistake.
fn warn_if_expired(until: Option<Second>) {
    let now = now();
    if let Some(until) = until.filter(|until| *until <= now) {
        let _ = writeln!(
            std::io::stderr(),
            "weir: warning: the credential expired at {until}, and it is {now}: it cannot be used"
        );
    }
}

/// `weir delegate`.
pub fn delegate(out: &mut impl Write, args: &Delegate) -> Result<(), Failure> {
    let credential = credential_of(&args.credential)?;
    let holder = identity_of(&args.signer.key, args.signer.passphrase_file.as_deref())?;
    let has = credential.claimed_grant().map_err(|refusal| SigningError::from(MintError::from(refusal)))?;
    let grant = Grant {
        view: args.view.map_or(has.passed_on_cautiously().view, InheritArg::value),
        writes: args.write.value().and_then(field_names),
        ceilings: args.amounts.ceilings(),
        nodes: (!args.nodes.is_empty()).then(|| args.nodes.iter().cloned().collect()),
        expires: args.until,
        delegations: args.delegations.value(),
        ..common_grant(&args.limits, &args.modules, &args.signers)?
    };
    let delegated =
        credential.delegate(&holder, args.to, grant, Some(now()), &mut OsRng).map_err(SigningError::from)?;
    warn_if_expired(args.until);
    write_credential(out, &delegated, args.out.as_deref())
}

/// `weir sign`.
pub fn sign(out: &mut impl Write, args: &Sign) -> Result<(), Failure> {
    let spec = crate::module_arg::ModuleArg { name: args.module.clone(), settings: Vec::new() };
    let bytes = spec.bytes()?;
    let signer = identity_of(&args.signer.key, args.signer.passphrase_file.as_deref())?;
    let signature = ModuleSignature::sign(&signer, &bytes);
    let path = args.out.clone().unwrap_or_else(|| signature_of(&args.module));
    write_signature(&path, &signature)?;
    writeln!(out, "{}: {}, signed by {}", path.shown(), signature.module(), signature.signer())?;
    Ok(())
}

/// `weir credential`.
pub fn credential(out: &mut impl Write, act: &CredentialCommand) -> Result<(), Failure> {
    match act {
        CredentialCommand::Show { file } => write!(out, "{}", explain::credential(&credential_of(file)?))?,
        CredentialCommand::Explain { .. } => explanation::explain(out, act)?,
        CredentialCommand::Deliver { list, nodes, key, credential, passphrase_file, socket } => {
            let signed = list_of(list)?.ok_or_else(|| SigningError::NoList(list.clone()))?;
            if nodes.is_empty() {
                let here = NodeLocation::Local(socket.clone());
                let notes = delivery::deliver_once(&signed, &here)?;
                notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
                return Ok(());
            }
            // An empty environment variable is not a file name.
            let credential = credential.as_deref().filter(|path| !path.as_os_str().is_empty());
            let identity = match (key, credential) {
                (Some(key), _) => identity_of(key, passphrase_file.as_deref())?,
                (None, Some(_)) => return Err(Failure::Control(crate::cmd::node::NodeCommandError::NoKey)),
                (None, None) => Identity::generate(&mut OsRng),
            };
            let credential = credential.map(credential_of).transpose()?;
            let credential = credential.map(|it| it.as_bytes().to_vec()).unwrap_or_default();
            delivery::deliver(out, &signed, nodes, &Deliverer { identity, credential })?;
        }
        CredentialCommand::Revocations { address, json } => revocations::revocations(out, address, *json)?,
        CredentialCommand::Revoke { credentials, all_before, signer, credential, list, nodes } => {
            let (key, passphrase_file) = (signer.key.as_path(), signer.passphrase_file.as_deref());
            let (all_before, own) = (*all_before, credential.as_deref());
            let args = Revocation { credentials, all_before, key, passphrase_file, own, list, nodes };
            revoke::revoke(out, args)?;
        }
    }
    Ok(())
}

fn now() -> Second {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Second::new(since.as_secs()).unwrap_or(Second::MAX)
}

/// Builds the part of a grant that `weir grant` and `weir delegate` have in common.
fn common_grant(
    limits: &GrantLimitArgs,
    modules: &[String],
    signers: &[PublicKey],
) -> Result<Grant, Failure> {
    let modules = if modules.is_empty() && signers.is_empty() {
        Modules::any()
    } else {
        let mut hashes = std::collections::BTreeSet::new();
        for module in modules {
            hashes.insert(hash_of(module)?);
        }
        Modules::from(ModuleSet { hashes, signers: signers.iter().copied().collect() })
    };
    Ok(Grant {
        profiles: limits.profile.clone().map(|profile| [profile].into()),
        modules,
        filters: limits.filter.iter().cloned().collect(),
        interfaces: (!limits.interfaces.is_empty()).then(|| limits.interfaces.iter().cloned().collect()),
        not_before: limits.from,
        ..Grant::default()
    })
}

/// The names of writable fields in a credential; `None` for all fields, which includes those of later versions.
fn field_names(fields: WriteFields) -> Option<std::collections::BTreeSet<Name>> {
    let names = || fields.iter().filter_map(|field| Name::new(field.name()).ok()).collect();
    (fields != WriteFields::ALL).then(names)
}

/// The hash of a module: a hash as text, a shipped module's name, or a path.
fn hash_of(module: &str) -> Result<ModuleHash, Failure> {
    if let Ok(hash) = module.parse() {
        return Ok(hash);
    }
    let spec = crate::module_arg::ModuleArg { name: module.to_owned(), settings: Vec::new() };
    Ok(ModuleHash::of(&spec.bytes()?))
}

/// Writes a credential to a file or standard output, and describes it on standard error.
fn write_credential(out: &mut impl Write, credential: &Credential, to: Option<&Path>) -> Result<(), Failure> {
    match to {
        Some(file) => write_new(file, &format!("{credential}\n"))?,
        None => writeln!(out, "{credential}")?,
    }
    write!(std::io::stderr(), "{}", explain::sentences(credential))?;
    Ok(())
}
